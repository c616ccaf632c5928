//! Checks of the kernel and its settings: one function for each check.

use std::{fmt, fs, os::fd::AsFd, path::Path};

use perf_prof_format::abi::{PERF_SAMPLE_RAW, PERF_TYPE_TRACEPOINT, perf_event_attr};
use perf_prof_system::{
    capability::{self, CAP_IPC_LOCK},
    limits::{self, FileLimit},
    perf,
    probe_definition::{self, LeftOver},
    procfs,
    tracefs::{Tracefs, TracefsError},
};

use super::{
    Check,
    rights::{self, may_trace},
};

/// The size in KiB of the ring that perf-prof maps on each CPU without `-m`: 128 pages and the control page.
const RING_KIB: i32 = 516;

/// The number of descriptors that a pattern such as `syscalls:*` needs on a machine with few CPUs.
const MANY_FILES: u64 = 4096;

pub(super) fn kernel() -> Check {
    let line = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    Check::ok("kernel", format!("Linux {}, {}", line("/proc/sys/kernel/osrelease"), std::env::consts::ARCH))
}

/// Returns the result of a check if tracepoints cannot be used. For a user who may trace, such as root, the result is a
/// failure. For other users, the result is a warning, because their scripts can use other events.
fn without_tracepoints(name: &'static str, why: impl fmt::Display, mend: Option<&str>) -> Check {
    match may_trace() {
        true => Check::fail(name, why.to_string(), mend),
        false => Check::warn(name, format!("{why}; tracepoints need tracefs, other events do not"), mend),
    }
}

pub(super) fn tracefs() -> Check {
    let name = "tracefs";
    let found = Tracefs::find().and_then(|tracefs| Ok((tracefs.available_events()?, tracefs)));
    match found {
        Ok((events, tracefs)) => {
            Check::ok(name, format!("{}, {} tracepoints", tracefs.root().display(), events.lines().count()))
        }
        Err(TracefsError::NotMounted(error)) => {
            // By default, only root may read tracefs. So the command for other users contains mode=755.
            let mend = match may_trace() {
                true => "sudo mount -t tracefs nodev /sys/kernel/tracing",
                false => "sudo mount -t tracefs -o mode=755 nodev /sys/kernel/tracing",
            };
            without_tracepoints(name, format!("not mounted, and perf-prof cannot mount it: {error}"), Some(mend))
        }
        Err(TracefsError::Permission(path)) => {
            let mend = "sudo perf-prof ..., or sudo mount -o remount,mode=755 /sys/kernel/tracing";
            without_tracepoints(name, format!("{} cannot be read", path.display()), Some(mend))
        }
        Err(error) => Check::fail(name, error.to_string(), None),
    }
}

/// Opens one tracepoint on one CPU without enabling it, as a run does. If the kernel refuses it, the user may still be
/// allowed to trace tracepoints of system calls in their own processes.
pub(super) fn tracepoint() -> Check {
    let name = "tracepoint";
    let open = |system, event, attach| -> anyhow::Result<()> {
        let id = Tracefs::find()?.id(system, event)?;
        let mut attr = perf_event_attr { type_: PERF_TYPE_TRACEPOINT, config: id.into(), ..Default::default() };
        attr.sample_type = PERF_SAMPLE_RAW;
        attr.set_disabled(1);
        perf::open(&attr, attach)?;
        Ok(())
    };
    let on_cpu = || -> anyhow::Result<u32> {
        let cpu = procfs::online_cpus()?.iter().next().unwrap_or(0);
        open("sched", "sched_process_exit", perf::Attach::Cpu(cpu))?;
        Ok(cpu)
    };
    let error = match on_cpu() {
        Ok(cpu) => return Check::ok(name, format!("sched:sched_process_exit can be opened on CPU {cpu}")),
        Err(error) => format!("sched:sched_process_exit cannot be opened: {error:#}"),
    };
    let mend = rights::tracepoint_fix(procfs::perf_event_paranoid());
    match open("raw_syscalls", "sys_enter", perf::Attach::Thread(0, None)) {
        Ok(()) if !may_trace() => {
            let detail = format!("{error}; tracepoints of system calls can be opened in this user's own processes");
            Check::warn(name, detail, Some(&mend))
        }
        _ if may_trace() => Check::fail(name, error, None),
        _ => Check::warn(name, format!("{error}; other events can be used without it"), Some(&mend)),
    }
}

pub(super) fn hardware() -> Check {
    // PERF_TYPE_HARDWARE and PERF_COUNT_HW_CPU_CYCLES are both 0.
    let mut attr = perf_event_attr::default();
    attr.set_disabled(1);
    attr.set_exclude_kernel(1);
    let mut pmus: Vec<String> = fs::read_dir("/sys/bus/event_source/devices")
        .map(|entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    pmus.sort_unstable();
    let pmus = pmus.join(" ");
    let counted = perf::open(&attr, perf::Attach::Thread(0, None)).and_then(|cycles| {
        let mut count = [0];
        perf::enable(cycles.as_fd())?;
        // This loop gives the counter some cycles to count.
        std::hint::black_box((0..100_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n)));
        perf::read(cycles.as_fd(), &mut count)?;
        Ok(count[0])
    });
    let why = match counted {
        Ok(1..) => return Check::ok("PMUs", format!("{pmus}; the CPU counts cycles")),
        Ok(0) => "the counter of cycles stays at 0".to_owned(),
        Err(error) => error.source.to_string(),
    };
    Check::warn("PMUs", format!("{pmus}; no hardware counters ({why}), as in most virtual machines"), None)
}

/// Checks for probes that earlier runs left in tracefs. A run defines probes with arguments in tracefs. If tracefs is
/// unmounted before the run ends, the definitions stay.
pub(super) fn left_over_probes() -> Check {
    let name = "left-over probes";
    let Ok(tracefs) = Tracefs::find() else { return Check::ok(name, "unknown: there is no tracefs") };
    let left = probe_definition::left_over(&tracefs);
    let Some(LeftOver { list, .. }) = left.first() else {
        return Check::ok(name, "no process of perf-prof has left a probe in tracefs");
    };
    let names: Vec<&str> = left.iter().map(|probe| probe.name.as_str()).collect();
    let remove = |LeftOver { list, name }: &LeftOver| format!("echo '-:{name}' >> {}", list.display());
    let all = left.iter().map(remove).collect::<Vec<_>>().join("; ");
    let detail = format!("processes that have ended left these probes in {}: {}", list.display(), names.join(", "));
    Check::warn(name, detail, Some(&format!("{all} (the next run with such a probe removes them too)")))
}

pub(super) fn probes() -> Check {
    let here = |pmu: &str| Path::new("/sys/bus/event_source/devices").join(pmu).exists();
    let name = "probes";
    match (here("kprobe"), here("uprobe")) {
        (true, true) => Check::ok(name, "kprobes and uprobes are available"),
        (false, true) => Check::warn(name, "this kernel has uprobes but no kprobes (CONFIG_KPROBE_EVENTS)", None),
        (true, false) => Check::warn(name, "this kernel has kprobes but no uprobes (CONFIG_UPROBE_EVENTS)", None),
        (false, false) => Check::warn(
            name,
            "this kernel has no kprobes and no uprobes (CONFIG_KPROBE_EVENTS, CONFIG_UPROBE_EVENTS)",
            None,
        ),
    }
}

pub(super) fn open_files() -> Check {
    let name = "open files";
    let FileLimit { soft, hard } = limits::file_limit();
    if hard >= MANY_FILES {
        return Check::ok(name, format!("{soft} descriptors; perf-prof raises the limit to {hard} if needed"));
    }
    let text = format!("at most {hard} descriptors; perf-prof needs one descriptor for each event on each CPU");
    Check::warn(name, text, Some("sudo prlimit --pid $$ --nofile=65536"))
}

/// Checks how much ring memory this user may map (`perf_mmap` in `kernel/events/core.c`).
pub(super) fn ring_memory() -> Check {
    let name = "ring memory";
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let locked = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let locked = locked.and_then(|line| line.split_whitespace().next()).unwrap_or("unknown");
    let kib = procfs::perf_event_mlock_kb();
    let detail = format!(
        "kernel.perf_event_mlock_kb is {}, RLIMIT_MEMLOCK {locked}",
        kib.map_or("unknown".to_owned(), |kib| kib.to_string())
    );
    if capability::has(CAP_IPC_LOCK) || procfs::perf_event_paranoid().is_some_and(|level| level < 0) {
        return Check::ok(name, format!("{detail}; neither limits this user"));
    }
    match kib {
        Some(kib) if kib < RING_KIB && locked != "unlimited" => Check::warn(
            name,
            format!("{detail}: ring buffers of 128 pages may not fit; -m makes them smaller"),
            Some(&format!("sudo sysctl kernel.perf_event_mlock_kb={RING_KIB}")),
        ),
        _ => Check::ok(name, detail),
    }
}

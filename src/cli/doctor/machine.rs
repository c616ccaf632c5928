//! What the kernel lets us do here: one function for each check.

use std::{fmt, fs, os::fd::AsFd, path::Path};

use super::{
    Check,
    rights::{self, may_trace},
};
use crate::{
    abi::{PERF_SAMPLE_RAW, PERF_TYPE_TRACEPOINT, perf_event_attr},
    sys::{
        limits, perf, procfs,
        tracefs::{Tracefs, TracefsError},
    },
};

/// Of `include/uapi/linux/capability.h`.
const CAP_IPC_LOCK: u32 = 14;

/// A ring of 128 pages and its control page, what a session maps on each CPU when nothing else is said.
const RING_KIB: i32 = 516;

/// Descriptors for a pattern like `syscalls:*` on some CPUs.
const MANY_FILES: u64 = 4096;

pub(super) fn kernel() -> Check {
    let line = |path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    Check::ok("kernel", format!("Linux {}, {}", line("/proc/sys/kernel/osrelease"), std::env::consts::ARCH))
}

/// Tracepoints are missing: scripts of other events run, and who is not root need not want more.
fn without_tracepoints(name: &'static str, why: impl fmt::Display, mend: Option<&str>) -> Check {
    match may_trace() {
        true => Check::fail(name, why.to_string(), mend),
        false => Check::warn(name, format!("{why}; tracepoints need it, other events do not"), mend),
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
            // It is root's alone otherwise.
            let mend = match may_trace() {
                true => "sudo mount -t tracefs nodev /sys/kernel/tracing",
                false => "sudo mount -t tracefs -o mode=755 nodev /sys/kernel/tracing",
            };
            without_tracepoints(name, format!("not mounted, and mounting it failed: {error}"), Some(mend))
        }
        Err(TracefsError::Permission(path)) => {
            let mend = "sudo perf-prof ..., or sudo mount -o remount,mode=755 /sys/kernel/tracing";
            without_tracepoints(name, format!("{} cannot be read", path.display()), Some(mend))
        }
        Err(error) => Check::fail(name, error.to_string(), None),
    }
}

/// The main job in small: one tracepoint on one CPU, opened and not enabled. Who may not have that may have those of system
/// calls in his own processes.
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
        Ok(cpu) => return Check::ok(name, format!("sched:sched_process_exit opens on CPU {cpu}")),
        Err(error) => format!("sched:sched_process_exit does not open: {error:#}"),
    };
    let mend = rights::mend_of_tracepoints(procfs::perf_event_paranoid());
    match open("raw_syscalls", "sys_enter", perf::Attach::Thread(0, None)) {
        Ok(()) if !may_trace() => {
            let detail = format!("{error}; those of system calls open, in our own processes");
            Check::warn(name, detail, Some(&mend))
        }
        _ if may_trace() => Check::fail(name, error, None),
        _ => Check::warn(name, format!("{error}; other events do not need it"), Some(&mend)),
    }
}

pub(super) fn hardware() -> Check {
    // All zero but this is PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES.
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
        // Work of ours for the counter to see.
        std::hint::black_box((0..100_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n)));
        perf::read(cycles.as_fd(), &mut count)?;
        Ok(count[0])
    });
    let why = match counted {
        Ok(1..) => return Check::ok("PMUs", format!("{pmus}; the CPU counts cycles")),
        Ok(0) => "the CPU's counter stands still".to_owned(),
        Err(error) => error.source.to_string(),
    };
    Check::warn("PMUs", format!("{pmus}; no hardware counters ({why}), as in most virtual machines"), None)
}

pub(super) fn probes() -> Check {
    let here = |pmu: &str| Path::new("/sys/bus/event_source/devices").join(pmu).exists();
    let name = "probes";
    match (here("kprobe"), here("uprobe")) {
        (true, true) => Check::ok(name, "kprobe and uprobe are there"),
        (false, true) => Check::warn(name, "no kprobe PMU (CONFIG_KPROBE_EVENTS); uprobe is there", None),
        (true, false) => Check::warn(name, "no uprobe PMU (CONFIG_UPROBE_EVENTS); kprobe is there", None),
        (false, false) => Check::warn(name, "neither kprobe nor uprobe PMU (CONFIG_KPROBE_EVENTS, _UPROBE_)", None),
    }
}

pub(super) fn open_files() -> Check {
    let name = "open files";
    match limits::file_limit() {
        Ok(limit) if limit.hard >= MANY_FILES => {
            Check::ok(name, format!("{}, raised to {} when needed", limit.soft, limit.hard))
        }
        Ok(limit) => Check::warn(
            name,
            format!("at most {}: patterns of many events on many CPUs need one for each", limit.hard),
            Some("sudo prlimit --pid $$ --nofile=65536"),
        ),
        Err(error) => Check::warn(name, error.to_string(), None),
    }
}

/// Who may map how much ring memory, see `perf_mmap` in `kernel/events/core.c`.
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
    if procfs::has_capability(CAP_IPC_LOCK) || procfs::perf_event_paranoid().is_some_and(|level| level < 0) {
        return Check::ok(name, format!("{detail}; neither binds us"));
    }
    match kib {
        Some(kib) if kib < RING_KIB && locked != "unlimited" => Check::warn(
            name,
            format!("{detail}: rings of 128 pages may not fit, -m takes less"),
            Some(&format!("sudo sysctl kernel.perf_event_mlock_kb={RING_KIB}")),
        ),
        _ => Check::ok(name, detail),
    }
}

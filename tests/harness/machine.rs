//! What tests need of the machine. Where it is missing a test counts as ignored, or has failed if the machine must have it.

use std::{
    env, fmt, fs,
    panic::resume_unwind,
    path::Path,
    process::{Command, Stdio},
};

use perf_prof_core::sys::tracefs::Tracefs;

use super::probe_lock;

/// Lists, by commas, the names of what this machine must have: a test that lacks one of them has failed. `all` is each of
/// them.
const REQUIRE: &str = "PERF_PROF_TESTS_REQUIRE";

/// What some machine does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// BPF programs can be loaded, and are compiled.
    Bpf,
    /// Records tell build ids of mapped files.
    BuildIds,
    /// cgroups can be made.
    Cgroups,
    /// Compilers, and tools like strip.
    Compilers,
    /// The kernel counts how long each task waited.
    Schedstat,
    /// Some CPU is idle at times.
    Idle,
    /// A kernel that is recent enough for what is tested, or old enough, or built so.
    Kernel,
    /// The kernel has no kprobes.
    NoKprobes,
    /// May take a CPU offline, beside which no other test can run.
    Offline,
    /// `kernel.perf_event_paranoid` is 2.
    Paranoid,
    /// The real perf, which may record.
    Perf,
    /// A user without privileges that can be run as, for whom tracefs is closed.
    PlainUser,
    /// Hardware events.
    Pmu,
    /// Programs of the system like bash, /bin/ls, and /usr/bin/python3.
    Programs,
    /// The Python package index can be reached.
    Pypi,
    /// Threads may be real-time ones.
    RealTime,
    /// The kernel has not lowered its limit of samples per second too far, or so far as is tested.
    SampleRate,
    /// A file system that forgets what is in memory, and shows its inodes in memory maps.
    Storage,
    /// Tracepoints: tracefs can be read.
    Tracefs,
    /// Several CPUs.
    TwoCpus,
    /// Mounts and namespaces can be made.
    Namespaces,
    /// Probes of programs.
    Uprobes,
    /// An x86-64 with a vdso and a shared C library.
    Vdso,
}

use Need::*;

impl Need {
    /// All needs, by name.
    pub const ALL: [(Need, &str); 23] = [
        (Bpf, "bpf"),
        (BuildIds, "build-ids"),
        (Cgroups, "cgroups"),
        (Compilers, "compilers"),
        (Idle, "idle"),
        (Kernel, "kernel"),
        (Namespaces, "namespaces"),
        (NoKprobes, "no-kprobes"),
        (Offline, "offline"),
        (Paranoid, "paranoid"),
        (Perf, "perf"),
        (PlainUser, "plain-user"),
        (Pmu, "pmu"),
        (Programs, "programs"),
        (Pypi, "pypi"),
        (RealTime, "real-time"),
        (SampleRate, "sample-rate"),
        (Schedstat, "schedstat"),
        (Storage, "storage"),
        (Tracefs, "tracefs"),
        (TwoCpus, "two-cpus"),
        (Uprobes, "uprobes"),
        (Vdso, "vdso"),
    ];

    fn name(self) -> &'static str {
        Need::ALL.iter().find(|(need, _)| *need == self).unwrap().1
    }

    /// Says why this machine does not have it. What takes more than a look the tests find out themselves.
    fn check(self) -> Result<(), String> {
        match self {
            Bpf => match read("/proc/sys/net/core/bpf_jit_enable")?.trim() {
                "0" => Err("BPF programs are not compiled".to_owned()),
                _ => Ok(()),
            },
            Cgroups => perf_prof_core::sys::cgroup::resolve("/").map(drop).map_err(|error| error.to_string()),
            Compilers => ["cc", "c++", "gcc"].into_iter().try_for_each(|compiler| runs(&[compiler, "--version"])),
            Idle => is_idle_at_times(),
            Namespaces => runs(&["unshare", "-mpf", "true"]),
            NoKprobes => match Path::new("/sys/bus/event_source/devices/kprobe").exists() {
                true => Err("this kernel has kprobes".to_owned()),
                false => Ok(()),
            },
            Paranoid => match read("/proc/sys/kernel/perf_event_paranoid")?.trim() {
                "2" => Ok(()),
                level => Err(format!("kernel.perf_event_paranoid is {level}")),
            },
            Perf if !is_root() => Err("recording needs root".to_owned()),
            Perf => runs(&["perf", "--version"]),
            Schedstat => read("/proc/self/schedstat").map(drop),
            Tracefs => {
                Tracefs::find().map_err(|error| error.to_string())?;
                read("/sys/kernel/tracing/events/syscalls/sys_enter_getpgid/id").map(drop)
            }
            TwoCpus => match std::thread::available_parallelism() {
                Ok(count) if count.get() > 1 => Ok(()),
                _ => Err("there is one CPU".to_owned()),
            },
            Uprobes => {
                read("/sys/bus/event_source/devices/uprobe/type")?;
                probe_lock::shared();
                Ok(())
            }
            BuildIds | Kernel | Offline | PlainUser | Pmu | Programs | Pypi | RealTime | SampleRate | Storage
            | Vdso => Ok(()),
        }
    }
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

fn runs(command: &[&str]) -> Result<(), String> {
    let status = Command::new(command[0]).args(&command[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: {status}", command.join(" "))),
        Err(error) => Err(format!("{}: {error}", command[0])),
    }
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: geteuid takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Ends the test as ignored unless this machine has all of these.
pub fn needs<const N: usize>(needs: [Need; N]) {
    for need in needs {
        if let Err(why) = need.check() {
            skip(need, why);
        }
    }
}

/// The end of a test that cannot be run here.
pub struct MissingRequirement(pub String);

/// Ends the test as ignored, as this machine lacks something.
pub fn skip(need: Need, why: impl fmt::Display) -> ! {
    let why = format!("{}: {}", need.name(), why.to_string().trim());
    if required().contains(&need) {
        panic!("{REQUIRE} says that this machine has what it lacks: {why}");
    }
    // Nobody is told of a panic: there is none.
    resume_unwind(Box::new(MissingRequirement(why)))
}

/// What this machine must have.
pub fn required() -> Vec<Need> {
    let names = env::var(REQUIRE).unwrap_or_default();
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    let needs = names.flat_map(|name| {
        let needs: Vec<Need> =
            Need::ALL.iter().filter(|(_, of)| name == "all" || *of == name).map(|(need, _)| *need).collect();
        assert!(!needs.is_empty(), "{REQUIRE}: {name} is none of {:?}", Need::ALL.map(|(_, name)| name));
        needs
    });
    needs.collect()
}

/// Ends the test as ignored where the kernel samples less often than so many times a second: it lowers its limit by itself
/// where samples take long.
pub fn needs_samples(frequency: u64) {
    let limit = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap_or_default();
    if limit.trim().parse().is_ok_and(|limit: u64| limit < frequency) {
        skip(SampleRate, format!("kernel.perf_event_max_sample_rate is {}", limit.trim()));
    }
}

/// On a machine that has more to do than it can, the idle task does nothing that could be seen.
fn is_idle_at_times() -> Result<(), String> {
    let idle = || -> u64 {
        let stat = fs::read_to_string("/proc/stat").unwrap();
        stat.lines().next().unwrap().split_whitespace().nth(4).unwrap().parse().unwrap()
    };
    // Ticks of 10 ms; a single one may be what was left of the one before.
    let before = idle();
    let waits = (0..50).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        idle() >= before + 3
    });
    if waits { Ok(()) } else { Err("no CPU is ever idle".to_owned()) }
}

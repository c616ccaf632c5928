//! What tests need from the machine. If a need is not met, the test is ignored. If this machine is required to meet the
//! need, the test fails.

use std::{
    env, fmt, fs,
    panic::resume_unwind,
    path::Path,
    process::{Command, Stdio},
};

use perf_prof_system::tracefs::Tracefs;

use super::{probe_lock, run::is_installed_package};

/// The environment variable with the needs that this machine is required to meet, separated by commas. `all` means all
/// needs.
const REQUIRE: &str = "PERF_PROF_TESTS_REQUIRE";

/// Something that not every machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// BPF programs can be loaded, and the kernel compiles them.
    Bpf,
    /// Records of mappings contain build ids.
    BuildIds,
    /// The test can make cgroups.
    Cgroups,
    /// Compilers, and tools like strip.
    Compilers,
    /// The kernel counts how long each task waited.
    Schedstat,
    /// Some CPU is idle at times.
    Idle,
    /// The program under test embeds its Python, which users can choose. In contrast, the command of an installed
    /// package runs in the interpreter of the package.
    EmbeddedPython,
    /// A kernel that is recent or old enough for the test, or that was built with the right options.
    Kernel,
    /// The test can create block devices on files.
    LoopDevices,
    /// The kernel has no kprobes.
    NoKprobes,
    /// The test may take a CPU offline. No other test can run at the same time.
    Offline,
    /// `kernel.perf_event_paranoid` is 2.
    Paranoid,
    /// The real perf is installed, and may record.
    Perf,
    /// The test can run programs as a user without privileges, and this user cannot read tracefs.
    PlainUser,
    /// A PMU with hardware events.
    Pmu,
    /// Programs of the system like bash, /bin/ls, and /usr/bin/python3.
    Programs,
    /// The real pprof, as a tool of Go.
    Pprof,
    /// The program under test has `perf-prof python`: it was built with the feature `python`.
    Python,
    /// The server of PostgreSQL, with static probes, and a user `postgres`.
    Postgresql,
    /// A server of Prometheus.
    Prometheus,
    /// The Python package index can be reached.
    Pypi,
    /// Threads may have a real-time policy.
    RealTime,
    /// The kernel's limit of samples per second is high enough, or low enough, for the test.
    SampleRate,
    /// The header `sys/sdt.h`, for programs with static probes.
    StaticProbes,
    /// The program sudo.
    Sudo,
    /// A file system that can drop its files from memory, and whose inode numbers equal the numbers in memory maps.
    Storage,
    /// Tracepoints: tracefs can be read.
    Tracefs,
    /// At least two CPUs.
    TwoCpus,
    /// The test can make mounts and namespaces.
    Namespaces,
    /// Uprobes.
    Uprobes,
    /// An x86-64 processor, a vdso and a shared C library.
    Vdso,
}

use Need::*;

impl Need {
    /// All needs, by name.
    pub const ALL: [(Need, &str); 31] = [
        (Bpf, "bpf"),
        (BuildIds, "build-ids"),
        (Cgroups, "cgroups"),
        (Compilers, "compilers"),
        (EmbeddedPython, "embedded-python"),
        (Idle, "idle"),
        (Kernel, "kernel"),
        (LoopDevices, "loop-devices"),
        (Namespaces, "namespaces"),
        (NoKprobes, "no-kprobes"),
        (Offline, "offline"),
        (Paranoid, "paranoid"),
        (Perf, "perf"),
        (PlainUser, "plain-user"),
        (Pmu, "pmu"),
        (Programs, "programs"),
        (Postgresql, "postgresql"),
        (Pprof, "pprof"),
        (Prometheus, "prometheus"),
        (Pypi, "pypi"),
        (Python, "python"),
        (RealTime, "real-time"),
        (SampleRate, "sample-rate"),
        (Schedstat, "schedstat"),
        (StaticProbes, "static-probes"),
        (Storage, "storage"),
        (Sudo, "sudo"),
        (Tracefs, "tracefs"),
        (TwoCpus, "two-cpus"),
        (Uprobes, "uprobes"),
        (Vdso, "vdso"),
    ];

    fn name(self) -> &'static str {
        Need::ALL.iter().find(|(need, _)| *need == self).unwrap().1
    }

    /// Returns the reason why this machine does not meet the need. This function makes only quick checks. The tests
    /// make the slow checks.
    fn check(self) -> Result<(), String> {
        match self {
            Bpf => match read("/proc/sys/net/core/bpf_jit_enable")?.trim() {
                "0" => Err("BPF programs are not compiled".to_owned()),
                _ => Ok(()),
            },
            Cgroups => perf_prof_system::cgroup::resolve("/").map(drop).map_err(|error| error.to_string()),
            Compilers => ["cc", "c++", "gcc"].into_iter().try_for_each(|compiler| runs(&[compiler, "--version"])),
            EmbeddedPython if is_installed_package() => {
                Err("the command of an installed package runs in its interpreter".to_owned())
            }
            Idle => is_idle_at_times(),
            LoopDevices => read("/sys/block/loop0/size").map(drop),
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
            Pprof => runs(&["go", "tool", "-n", "pprof"]),
            Prometheus => runs(&["prometheus", "--version"]),
            Python if !cfg!(feature = "python") => Err("perf-prof was built without Python".to_owned()),
            StaticProbes => runs(&["gcc", "-fsyntax-only", "-include", "sys/sdt.h", "-x", "c", "/dev/null"]),
            Sudo => runs(&["sudo", "--version"]),
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
            BuildIds | EmbeddedPython | Kernel | Offline | PlainUser | Pmu | Postgresql | Programs | Pypi | Python
            | RealTime | SampleRate | Storage | Vdso => Ok(()),
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

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: geteuid takes no argument and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Ends the test as ignored unless this machine meets all of these needs.
pub fn needs<const N: usize>(needs: [Need; N]) {
    for need in needs {
        if let Err(why) = need.check() {
            skip(need, why);
        }
    }
}

/// Ends the test as ignored if BPF programs cannot read paths, because the kernel has no BTF.
pub fn needs_paths() {
    needs([Need::Tracefs, Need::Bpf]);
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        skip(Need::Kernel, "it has no BTF");
    }
}

/// The payload of a panic that ends a test as ignored, with the reason.
pub struct MissingRequirement(pub String);

/// Ends the test as ignored, because this machine does not meet a need.
pub fn skip(need: Need, why: impl fmt::Display) -> ! {
    let why = format!("{}: {}", need.name(), why.to_string().trim());
    if required().contains(&need) {
        panic!("{REQUIRE} lists a need that this machine does not meet: {why}");
    }
    // This unwinds without the panic hook, so no panic is printed.
    resume_unwind(Box::new(MissingRequirement(why)))
}

/// Returns the needs that this machine must meet.
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

/// Ends the test as ignored if the kernel allows fewer samples per second than `frequency`. The kernel lowers its limit
/// by itself if samples take long.
pub fn needs_samples(frequency: u64) {
    let limit = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap_or_default();
    if limit.trim().parse().is_ok_and(|limit: u64| limit < frequency) {
        skip(SampleRate, format!("kernel.perf_event_max_sample_rate is {}", limit.trim()));
    }
}

/// Returns an error on an overloaded machine, where the idle task hardly runs.
fn is_idle_at_times() -> Result<(), String> {
    let idle = || -> u64 {
        let stat = fs::read_to_string("/proc/stat").unwrap();
        stat.lines().next().unwrap().split_whitespace().nth(4).unwrap().parse().unwrap()
    };
    // The time is in ticks of 10 ms. A single tick may belong to an earlier idle time.
    let before = idle();
    let waits = (0..50).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        idle() >= before + 3
    });
    if waits { Ok(()) } else { Err("no CPU is ever idle".to_owned()) }
}

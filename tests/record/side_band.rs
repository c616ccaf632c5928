//! What a recording tells beside the events, as `perf script --show-...` prints it.

use std::{fs, os::unix::fs::MetadataExt};

use crate::harness::{Recorded, perf, record, record_with_env, skipped, words_of};

/// Has the process of a workload load a BPF program.
const LOADS: &str = "PERF_PROF_TEST_LOADS_PROGRAM";

/// The process of a workload that loads a BPF program, which goes with it.
#[test]
fn loader() {
    if std::env::var_os(LOADS).is_none() {
        return;
    }
    // r0 = 0; exit
    let program: [u64; 2] = [0xb7, 0x95];
    let licence = c"GPL";
    /// The first members of `union bpf_attr` for BPF_PROG_LOAD.
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        program: *const u64,
        licence: *const libc::c_char,
    }
    const BPF_PROG_LOAD: i32 = 5;
    const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
    let load = Load {
        kind: BPF_PROG_TYPE_SOCKET_FILTER,
        count: program.len() as u32,
        program: program.as_ptr(),
        licence: licence.as_ptr(),
    };
    // SAFETY: what the attr points to lives across the call, and it is as large as is said.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<Load>()) };
    assert!(fd >= 0, "bpf: {}", std::io::Error::last_os_error());
}

/// How many lines of what `perf script` shows of the side-band have these words.
fn lines(recorded: &Recorded, show: &str, words: &str) -> Vec<String> {
    let text = recorded.perf(&["script", show]);
    text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
}

#[test]
fn bpf_programs_that_come_and_go_are_in_recordings() {
    if skipped() {
        return;
    }
    if fs::metadata("/proc/sys/net/core/bpf_jit_enable").is_err() {
        return println!("skipped: no BPF");
    }
    let recorded = record_with_env(&words_of(&["-e", "dummy"], "side_band::loader"), LOADS);
    assert_eq!(recorded.status, 0, "{}", recorded.said);
    let events = lines(&recorded, "--show-bpf-events", "PERF_RECORD_BPF_EVENT");
    // Its load and its end; those of other programs are not this task's.
    assert!(events.iter().any(|line| line.contains("type 1")), "{events:?}");
    assert!(perf(&recorded.path(), &["evlist", "-v"]).contains("bpf_event: 1"));
}

#[test]
fn the_side_band_that_is_not_asked_for_is_not_there() {
    if skipped() {
        return;
    }
    let recorded = record(&["-e", "dummy", "--", "true"]);
    let list = recorded.perf(&["evlist", "-v"]);
    assert!(!list.contains("namespaces: 1") && !list.contains("cgroup: 1"), "{list}");
}

#[test]
fn namespaces_of_running_tasks_and_of_new_ones() {
    if skipped() {
        return;
    }
    let recorded = record(&["-e", "dummy", "-a", "--namespaces", "--", "unshare", "--uts", "true"]);
    assert_eq!(recorded.status, 0, "{}", recorded.said);
    let text = recorded.perf(&["script", "--show-namespace-events"]);
    let (before, events) = text.split_once("PERF_RECORD_NAMESPACES").unwrap();
    // A task's name is in front of its record, on the same line.
    let mut names = vec![before.to_owned()];
    names.extend(
        events.split("PERF_RECORD_NAMESPACES").map(|event| event.lines().last().unwrap_or_default().to_owned()),
    );
    let events: Vec<&str> = events.split("PERF_RECORD_NAMESPACES").collect();
    // Those of this process, which runs already: device and inode of each.
    let link = |name: &str| {
        let file = fs::metadata(format!("/proc/self/ns/{name}")).unwrap();
        format!("/{name}: {}/{:#x}", file.dev(), file.ino())
    };
    let own = std::process::id();
    let of_own = format!(" {own}/{own} - nr_namespaces: 7");
    let event = events.iter().find(|event| event.starts_with(&of_own)).unwrap_or_else(|| panic!("{text}"));
    assert!(
        ["net", "uts", "ipc", "pid", "user", "mnt", "cgroup"].iter().all(|name| event.contains(&link(name))),
        "{event}"
    );
    // The one that the command went over to is nobody else's.
    let others = |(name, event): (&String, &&str)| name.contains("unshare") && !event.contains(&link("uts"));
    assert!(names.iter().zip(&events).any(others), "{text}");
}

/// A cgroup of this test's own, which goes with it.
struct Cgroup(std::path::PathBuf);

impl Cgroup {
    fn new(name: &str) -> Option<Cgroup> {
        let root = perf_prof::sys::cgroup::resolve("/").ok()?.pop()?;
        let path = root.join(format!("perf-prof-{name}-{}", std::process::id()));
        fs::create_dir(&path).ok().map(|()| Cgroup(path))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its tasks have exited; the kernel may take a moment to see it.
        while fs::remove_dir(&self.0).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

#[test]
fn cgroups_that_are_there_that_are_made_and_those_of_samples() {
    if skipped() {
        return;
    }
    let Some(cgroup) = Cgroup::new("there") else { return println!("skipped: no cgroup can be made") };
    let name = cgroup.0.file_name().unwrap().to_str().unwrap();
    let made = cgroup.0.join("made");
    let dir = tempfile::tempdir().unwrap();
    let options = ["-e", crate::harness::CALL, "--all-cgroups", "--", "sh", "-c"];
    let script = format!("echo $$ > {0}/cgroup.procs; mkdir {0}/made; exec \"$@\"", cgroup.0.display());
    let mut words: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    words.extend([script, "sh".to_owned()]);
    words.extend(crate::harness::generator_words());
    let mut command = crate::harness::command(&dir, &words);
    let output = crate::harness::with_calls(&mut command, 50).output().unwrap();
    fs::remove_dir(&made).unwrap();
    let recorded = crate::harness::finished(dir, output.status.code().unwrap(), &output.stderr);
    assert_eq!(recorded.status, 0, "{}", recorded.said);
    let events = lines(&recorded, "--show-cgroup-events", "PERF_RECORD_CGROUP");
    let id = |path: &str| {
        let line = events.iter().find(|line| line.ends_with(&format!(" {path}")));
        let line = line.unwrap_or_else(|| panic!("{path}: {events:?}"));
        line.split("cgroup: ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
    };
    assert_ne!(id("/"), id(&format!("/{name}")));
    id(&format!("/{name}/made"));
    let report = recorded.perf(&["report", "--stdio", "-s", "cgroup", "-n"]);
    let line = report.lines().find(|line| line.trim_end().ends_with(&format!("/{name}")));
    let words: Vec<&str> = line.unwrap_or_else(|| panic!("{report}")).split_whitespace().collect();
    // The shell calls it too.
    assert!(words[1].parse::<u64>().unwrap() >= 50, "{report}");
}

//! Side-band records in a recording, as `perf script --show-...` prints them.

use std::{fs, os::unix::fs::MetadataExt};

use crate::harness::{
    cgroup::Cgroup,
    machine::{Need, needs},
    recorder::{RecordRun, perf, record, record_workload},
};

/// A workload that loads a BPF program, which is unloaded when the process exits.
pub fn loader() {
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
    // SAFETY: what the attr points to lives until the call returns, and the attr has the stated size.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<Load>()) };
    assert!(fd >= 0, "bpf: {}", std::io::Error::last_os_error());
}

/// Returns the side-band records that `perf script` shows whose lines contain these words.
fn lines(recorded: &RecordRun, show: &str, words: &str) -> Vec<String> {
    let text = recorded.perf(&["script", show]);
    text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
}

#[test]
fn bpf_programs_that_come_and_go_are_in_recordings() {
    needs([Need::Tracefs, Need::Perf]);
    needs([Need::Bpf]);
    let recorded = record_workload(&["-e", "dummy"], "loader");
    assert_eq!(recorded.status, 0, "{}", recorded.said);
    let events = lines(&recorded, "--show-bpf-events", "PERF_RECORD_BPF_EVENT");
    // Type 1 means that a BPF program was loaded. BPF programs of other tasks are not recorded.
    assert!(events.iter().any(|line| line.contains("type 1")), "{events:?}");
    assert!(perf(&recorded.path(), &["evlist", "-v"]).contains("bpf_event: 1"));
}

#[test]
fn namespaces_and_cgroups_are_recorded_only_on_request() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record(&["-e", "dummy", "--", "true"]);
    let list = recorded.perf(&["evlist", "-v"]);
    assert!(!list.contains("namespaces: 1") && !list.contains("cgroup: 1"), "{list}");
}

#[test]
fn namespaces_of_running_and_new_tasks_are_recorded() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record(&["-e", "dummy", "-a", "--namespaces", "--", "unshare", "--uts", "true"]);
    assert_eq!(recorded.status, 0, "{}", recorded.said);
    let text = recorded.perf(&["script", "--show-namespace-events"]);
    let (before, events) = text.split_once("PERF_RECORD_NAMESPACES").unwrap();
    // The comm of a task precedes its record on the same line.
    let mut names = vec![before.to_owned()];
    names.extend(
        events.split("PERF_RECORD_NAMESPACES").map(|event| event.lines().last().unwrap_or_default().to_owned()),
    );
    let events: Vec<&str> = events.split("PERF_RECORD_NAMESPACES").collect();
    // This process exists already. Its record contains the device and the inode of each namespace.
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
    // The command moved to a new namespace that contains no other task.
    let others = |(name, event): (&String, &&str)| name.contains("unshare") && !event.contains(&link("uts"));
    assert!(names.iter().zip(&events).any(others), "{text}");
}

#[test]
fn existing_and_new_cgroups_and_cgroups_of_samples_are_recorded() {
    needs([Need::Tracefs, Need::Perf]);
    let cgroup = Cgroup::new();
    let name = &cgroup.name;
    let made = cgroup.path.join("made");
    let dir = tempfile::tempdir().unwrap();
    let options = ["-e", crate::harness::recorder::CALL, "--all-cgroups", "--", "sh", "-c"];
    let script = format!("echo $$ > {0}/cgroup.procs; mkdir {0}/made; exec \"$@\"", cgroup.path.display());
    let mut words: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
    words.extend([script, "sh".to_owned()]);
    words.extend(crate::harness::recorder::generator_words());
    let mut command = crate::harness::recorder::command(&dir, &words);
    let output = crate::harness::recorder::with_calls(&mut command, 50).output().unwrap();
    fs::remove_dir(&made).unwrap();
    let recorded = crate::harness::recorder::finished(dir, &output);
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
    // The shell calls getppid() too.
    assert!(words[1].parse::<u64>().unwrap() >= 50, "{report}");
}

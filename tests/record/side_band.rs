//! What a recording tells beside the events, as `perf script --show-...` prints it.

use std::fs;

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

//! Options that users of perf are used to: `--filter` after `-e`, `-a` beside `-p`, `-F max`, `--call-graph fp`.

use std::process::{Command, Stdio};

use crate::harness::{
    machine::{Need, needs},
    recorder::{CALL, record, record_calls},
    wait::Killed,
};

#[test]
fn filters_apply_to_the_events_of_the_last_list_before_them() {
    needs([Need::Tracefs, Need::Perf]);
    let (id, bound) = (format!("id=={}", libc::SYS_getppid), format!("id<{}", libc::SYS_getppid + 1));
    // The filters apply to the second list only, and all calls pass them. So each list records all 200 calls.
    let recorded =
        record_calls(&["-e", CALL, "-e", "raw_syscalls:sys_enter", "--filter", &id, "--filter", &bound], 200);
    assert_eq!((recorded.status, recorded.samples()), (0, 400), "{}", recorded.said);
    let recorded =
        record_calls(&["-e", "raw_syscalls:sys_enter", "--filter", &id, "--filter", "id<0", "-e", CALL], 200);
    assert_eq!((recorded.status, recorded.samples()), (0, 200), "{}", recorded.said);
}

#[test]
fn rates_and_call_graphs_are_written_as_in_perf() {
    needs([Need::Tracefs, Need::Perf]);
    for (options, attrs) in [
        (&["-c", "1"][..], "{ sample_period, sample_freq }: 1,"),
        (&["-F", "99"], "{ sample_period, sample_freq }: 99,"),
        (&["-F", "max", "-g"], "CALLCHAIN"),
        (&["-c1", "--call-graph", "fp"], "CALLCHAIN"),
        (&["--call-graph=dwarf"], "sample_stack_user: 8192"),
        (&["--call-graph", "dwarf,4096"], "sample_stack_user: 4096"),
    ] {
        let recorded = record(&[&["-e", "page-faults"], options, &["--", "true"]].concat());
        let attr = recorded.perf(&["evlist", "-v"]);
        assert!(recorded.status == 0 && attr.contains(attrs), "{options:?}: {attr}\n{}", recorded.said);
    }
    for (how, says) in [("lbr", "use --call-graph dwarf"), ("caller", "write fp or dwarf[,SIZE]")] {
        let recorded = record(&["-e", "page-faults", "--call-graph", how, "--", "true"]);
        assert!(recorded.status != 0 && recorded.said.contains(says), "{}", recorded.said);
        assert!(!recorded.path().exists());
    }
}

#[test]
fn all_cpus_are_no_target_beside_tasks() {
    needs([Need::Tracefs, Need::Perf]);
    // A task without children, because the children of a selected task are selected too.
    let task = Killed(Command::new("yes").stdout(Stdio::null()).spawn().unwrap());
    let pid = task.0.id().to_string();
    for option in ["-p", "-t"] {
        let recorded = record(&["-e", "sched:sched_switch", "-a", option, &pid, "--", "sleep", "0.1"]);
        let note = format!("-a has no effect: {option} selects the tasks");
        assert!(recorded.status == 0 && recorded.said.contains(&note), "{}", recorded.said);
        let pids = recorded.perf(&["script", "-F", "pid"]);
        assert!(pids.lines().all(|line| line.trim() == pid), "{pid}: {pids}");
    }
}

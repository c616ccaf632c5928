//! Events that cannot be added up in the kernel are added up in perf-prof, and a message says why.

use std::process::Command;

use super::{counts, needs_bpf, readings::BPF_MAP_LOOKUP_BATCH, run};
use crate::harness::{
    counting::{CALL, objects, words},
    machine::{Need, needs, skip},
    run::{said, stdout, tested_program},
    script::Run,
    seccomp,
};

#[test]
fn without_the_right_to_use_bpf_the_result_is_the_same() {
    needs([Need::Tracefs]);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-bpf,-sys_admin", "--inh-caps", "-bpf,-sys_admin", tested_program()]);
    let output = command.args(["top", CALL, "--json", "-v", "--"]).args(words(100, 1, 0)).output();
    let Ok(output) = output else { skip(Need::Programs, "setpriv") };
    let said = said(&output);
    if said.contains("setpriv: ") || said.contains("counted in the kernel") {
        skip(Need::PlainUser, said);
    }
    assert_eq!(counts(&objects(&stdout(&output)).pop().unwrap()), [200]);
    let why =
        format!("{CALL}: in perf-prof, because perf-prof may not use BPF, which needs root or CAP_BPF and CAP_PERFMON");
    assert!(said.contains(&why), "{said}");
}

/// A security module or a profile of a container may forbid to read a table.
#[test]
fn a_table_that_cannot_be_read_says_that_events_are_missing() {
    needs_bpf();
    let mut command = Command::new(tested_program());
    command.args(["top", CALL, "--json", "--"]).args(words(100, 1, 0));
    seccomp::refuse(&mut command, libc::SYS_bpf, Some(BPF_MAP_LOOKUP_BATCH));
    let output = command.output().unwrap();
    let total = objects(&stdout(&output)).pop().unwrap();
    assert_eq!((&total["partial"], &total["damaged"]), (&true.into(), &false.into()), "{total}");
    let said = said(&output);
    assert!(said.contains("a table in the kernel cannot be read: bpf BPF_MAP_LOOKUP_BATCH: "), "{said}");
    assert!(
        said.contains("what it has added up since its last reading is missing") && !said.contains("nothing is lost"),
        "{said}"
    );
}

#[test]
fn a_script_with_a_function_gets_samples() {
    needs_bpf();
    let script = "from perf_prof import Count\n\
                  counted = Count()\n\
                  def seen(event):\n    assert counted.total > 0\n\
                  syscalls__sys_enter_getpgid = counted, seen\n\
                  def __exit__(): print(counted.total)\n";
    let auto = Run::script(script).options(["-v"]).call_event().workload("calls 7").run();
    assert_eq!((auto.status, auto.stdout.as_str()), (0, "7\n"), "{auto:?}");
    let why = format!("{CALL}: in perf-prof, because a function gets events");
    assert!(auto.stderr.contains(&why), "{auto:?}");
    let always = Run::script(script).options(["--in-kernel", "always"]).call_event().workload("calls 7").run();
    let error = format!("--in-kernel always: {CALL} cannot be added up in the kernel, because a function");
    assert_eq!(always.status, 1, "{always:?}");
    assert!(always.stderr.contains(&error), "{always:?}");
}

/// With each of these options, BPF programs cannot add up the events. The error states the reason.
#[test]
fn reasons_are_told() {
    needs_bpf();
    let work = words(3, 0, 0);
    let group = format!("{{{CALL},syscalls:sys_exit_getpgid}}");
    for (args, reason) in [
        (&["top", "offcpu", "--by", "waited"][..], "BPF programs cannot read `waited`"),
        (&["top", "task-state"], "several events end its spans"),
        (&["top", "block-io", "-a", "--by", "dev"], "programs do not pair this source"),
        (&["top", "workqueue", "-a", "--by", "workqueue"], "BPF programs cannot read `workqueue`"),
        (&["top", "workqueue/function=flush_*/", "-a"], "its filter compares names of addresses"),
        (&["top", "workqueue"], "BPF programs cannot know the task of its spans"),
        (&["top", "syscall", "--by", "errno"], "BPF programs cannot read `errno`"),
        (
            &["top", "span:x=syscalls:sys_enter_getpgid..syscalls:sys_exit_getpgid"],
            "one of its events has no raw tracepoint",
        ),
        (&["top", CALL, "-N", "2"], "the run ends after a number of samples"),
        (&["top", "page-faults"], "it is no tracepoint"),
        (&["top", "syscalls:sys_enter_get*"], "there would be more than 16 tables in the kernel"),
        (&["top", &group], "it is in a group"),
        (&["top", "sched:sched_wakeup"], "tasks are selected, and each of its events belongs to two tasks"),
        (&["top", CALL, "--by", "common_flags"], "BPF programs cannot read the field `common_flags`"),
    ] {
        let output = run("auto", &[args, &["-v"]].concat(), &work);
        let said = said(&output);
        assert!(
            output.status.success() && said.contains(&format!(": in perf-prof, because {reason}")),
            "{args:?} {said}"
        );
    }
}

//! If a user without privileges may not use an event, the error names the event, the cause and the way out.

use expect_test::{Expect, expect};

use crate::harness::{
    machine::{Need, needs, skip},
    plain_user::{Tracefs, folder, needs_plain_user, perf_prof, run},
    run::tested_program,
};

/// Checks the error of `record` with these arguments.
#[track_caller]
fn check(tracefs: Tracefs, words: &[&str], expected: Expect) {
    let dir = folder();
    let outcome = perf_prof(&dir, tracefs, &[&["record"], words].concat());
    assert_eq!(outcome.status, Some(1), "{}", outcome.stderr);
    assert!(!dir.path().join("perf.data").exists());
    expected.assert_eq(outcome.stderr.trim_end());
}

#[test]
fn tracepoints_need_tracefs() {
    needs_plain_user();
    needs([Need::Paranoid]);
    let words = ["-e", "task-clock:u,sched:sched_switch", "--", "true"];
    check(
        Tracefs::Closed,
        &words,
        expect![
            "perf-prof: sched:sched_switch: no permission to read /sys/kernel/tracing; run as root, or let all users read it with `mount -o remount,mode=755 /sys/kernel/tracing`; and kernel.perf_event_paranoid is 2: tracepoints need root, CAP_PERFMON or level -1 (if they are only counted, level 1 for your own processes and level 0 for CPUs)"
        ],
    );
    check(
        Tracefs::NotMounted,
        &words,
        expect![
            "perf-prof: sched:sched_switch: tracefs is not mounted (Operation not permitted (os error 1)); mount it with `mount -t tracefs nodev /sys/kernel/tracing`; and kernel.perf_event_paranoid is 2: tracepoints need root, CAP_PERFMON or level -1 (if they are only counted, level 1 for your own processes and level 0 for CPUs)"
        ],
    );
    check(
        Tracefs::NotMounted,
        &["-e", "sched:*", "--", "true"],
        expect![
            "perf-prof: sched:*: tracefs is not mounted (Operation not permitted (os error 1)); mount it with `mount -t tracefs nodev /sys/kernel/tracing`; and kernel.perf_event_paranoid is 2: tracepoints need root, CAP_PERFMON or level -1 (if they are only counted, level 1 for your own processes and level 0 for CPUs)"
        ],
    );
}

#[test]
fn events_that_the_level_forbids_are_refused() {
    needs_plain_user();
    needs([Need::Paranoid]);
    check(
        Tracefs::Closed,
        &["-e", "context-switches", "--", "true"],
        expect![
            "perf-prof: no permission to trace context-switches: kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing; run as root, run `sysctl kernel.perf_event_paranoid=1`, or give the capability to a group of trusted users (`chgrp GROUP FILE; chmod 0750 FILE; setcap cap_perfmon+ep FILE`, where FILE is the executable)"
        ],
    );
    check(
        Tracefs::Closed,
        &["-e", "cpu-clock:k", "--", "true"],
        expect![
            "perf-prof: no permission to trace cpu-clock:k: kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing; run as root, run `sysctl kernel.perf_event_paranoid=1`, or give the capability to a group of trusted users (`chgrp GROUP FILE; chmod 0750 FILE; setcap cap_perfmon+ep FILE`, where FILE is the executable)"
        ],
    );
    check(
        Tracefs::Closed,
        &["-e", "cpu-clock:u", "-a", "--", "true"],
        expect![
            "perf-prof: no permission to trace cpu-clock:u: kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing; run as root, run `sysctl kernel.perf_event_paranoid=0`, or give the capability to a group of trusted users (`chgrp GROUP FILE; chmod 0750 FILE; setcap cap_perfmon+ep FILE`, where FILE is the executable); your own processes need none of this: select them with -p, or give a command"
        ],
    );
    check(
        Tracefs::Closed,
        &["-e", "page-faults:u", "-p", "1"],
        expect![
            "perf-prof: no permission to trace page-faults:u: task 1 belongs to another user or has more rights than perf-prof, and CAP_PERFMON is missing; run as root, or as that user"
        ],
    );
    check(
        Tracefs::Closed,
        &["-e", "page-faults:u", "--namespaces", "--", "true"],
        expect![
            "perf-prof: no permission to trace namespaces of tasks: namespace records need CAP_PERFMON, which is missing; run as root, or give the capability to a group of trusted users (`chgrp GROUP FILE; chmod 0750 FILE; setcap cap_perfmon+ep FILE`, where FILE is the executable)"
        ],
    );
    if std::path::Path::new("/sys/bus/event_source/devices/msr").exists() {
        // This PMU cannot exclude the kernel.
        check(
            Tracefs::Closed,
            &["-e", "msr/tsc/", "--", "true"],
            expect![
                "perf-prof: no permission to trace msr/tsc/: kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing; run as root, run `sysctl kernel.perf_event_paranoid=1`, or give the capability to a group of trusted users (`chgrp GROUP FILE; chmod 0750 FILE; setcap cap_perfmon+ep FILE`, where FILE is the executable)"
            ],
        );
    }
    if std::path::Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        check(
            Tracefs::NotMounted,
            &["-e", "uprobe:malloc@libc", "--", "true"],
            expect![
                "perf-prof: no permission to trace uprobe:malloc: probes need CAP_PERFMON, which is missing; run as root, or give the capability to a group of trusted users (`chgrp GROUP FILE; chmod 0750 FILE; setcap cap_perfmon+ep FILE`, where FILE is the executable)"
            ],
        );
    }
}

/// Root of a user namespace has all capabilities, but only inside the namespace. The kernel refuses the event, so the
/// error must still say that CAP_PERFMON is missing.
#[test]
fn capabilities_of_a_user_namespace_count_for_nothing() {
    needs_plain_user();
    needs([Need::Paranoid]);
    let dir = folder();
    if run(&dir, Tracefs::NotMounted, &["unshare", "-r", "true"]).status != Some(0) {
        skip(Need::Namespaces, "no user namespaces for plain users");
    }
    let words = ["unshare", "-r", tested_program(), "record", "-e", "context-switches", "--", "true"];
    let outcome = run(&dir, Tracefs::NotMounted, &words);
    let cause = "kernel.perf_event_paranoid is 2 and CAP_PERFMON is missing";
    assert!(outcome.status == Some(1) && outcome.stderr.contains(cause), "{}", outcome.stderr);
}

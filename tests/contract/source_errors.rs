//! Events other than tracepoints: their limits, and the errors if they cannot be opened.

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs},
    script::{CALL, Run, check, prints},
};

#[test]
fn rates_apply_to_events_other_than_tracepoints() {
    let script = "
n = 0
def cpu_clock(event):
    global n
    n += 1
    assert event.period == 10_000_000
def syscalls__sys_enter_getpgid(event): pass
def __exit__(): print(5 <= n <= 15 or n)";
    let events = format!("cpu-clock,{CALL}");
    prints(
        Run::script(script).event(events).options(["-c", "10000000"]).workload("burn 100 calls 1"),
        expect!["True\n"],
    );
}

#[test]
fn unavailable_events_are_reported_with_their_cause() {
    let fails = |event: &str, options: &[&str], expected| {
        check(Run::script("def __sample__(event): pass").event(event).options(options).workload("exit 0"), expected);
    };
    fails(
        "cpu-clok",
        &[],
        expect![[r#"
        --- stderr
        perf-prof: unknown event cpu-clok; did you mean cpu-clock?
        --- status 1
    "#]],
    );
    fails(
        "nonsense-of-all-kinds",
        &[],
        expect![[r#"
            --- stderr
            perf-prof: unknown event nonsense-of-all-kinds: it is neither a built-in source nor an event that perf has a name for; write tracepoints as system:name; `perf-prof list` shows all events
            --- status 1
        "#]],
    );
    fails(
        "profil",
        &[],
        expect![[r#"
        --- stderr
        perf-prof: unknown event profil; did you mean profile?
        --- status 1
    "#]],
    );
    fails(
        "software/evnt=1/",
        &[],
        expect![[r#"
        --- stderr
        perf-prof: software: unknown term `evnt`; it accepts config, config1, config2, config3, period, freq, name
        --- status 1
    "#]],
    );
    fails(
        "cpu-clock//sample=adr/",
        &[],
        expect![[r#"
        --- stderr
        perf-prof: sample=adr: samples have no such member (did you mean addr?); the members are identifier ip pid tid time addr id stream_id cpu period callchain raw read branch_stack regs_user stack_user weight data_src transaction regs_intr phys_addr aux cgroup data_page_size code_page_size weight_struct
        --- status 1
    "#]],
    );
    fails(
        "profile/-x/",
        &[],
        expect![[r#"
        --- stderr
        perf-prof: profile: unknown option `-x`; the options are -F/--freq HZ, --period N, -N/--exit-N N, -g/--call-graph, --[no-]user-callchain, --[no-]kernel-callchain, --exclude-user, --exclude-kernel, -C/--cpus LIST, -p/--pids LIST, -t/--tids LIST
        --- status 1
    "#]],
    );
    fails(
        "profile/-p 1/",
        &[],
        expect![[r#"
        --- stderr
        perf-prof: profile: -p applies to all events of a run; use it as an option of perf-prof: `-p PID`
        --- status 1
    "#]],
    );
    fails(
        "cpu-clock",
        &["-c", "5", "-F", "7"],
        expect![[r#"
        --- stderr
        perf-prof: -c and -F cannot be combined: use -c for one sample every N events, or -F for N samples a second
        `perf-prof python --help` explains the options, with examples
        --- status 2
    "#]],
    );
    fails(
        "cpu-clock//sample=branch_stack/",
        &[],
        expect![[r#"
        --- stderr
        perf-prof: cannot open cpu-clock: this machine does not record branches for the event; leave out branch_stack (perf_event_open: Operation not supported (os error 95))
        --- status 1
    "#]],
    );
    fails(
        "mem:0x1001/8:w",
        &[],
        expect![[r#"
            --- stderr
            perf-prof: cannot open mem:0x1001/8:w: no breakpoint can be set there: the address has to be a multiple of the length (1, 2, 4 or 8), and few machines support all of r, w and x (perf_event_open: Invalid argument (os error 22))
            --- status 1
        "#]],
    );
}

#[test]
fn the_error_for_a_missing_pmu_names_the_pmus_of_the_machine() {
    needs([Need::Tracefs]);
    let outcome = Run::script("def __sample__(event): pass").event("nopmu/event=1/").workload("exit 0").run();
    outcome.assert_civil();
    let (said, there) = outcome.stderr.split_once("; this machine has the PMUs ").unwrap();
    assert_eq!((said, outcome.status), ("perf-prof: there is no PMU nopmu", 1));
    assert!(there.split(", ").any(|pmu| pmu.trim() == "software"), "{there}");
}

#[test]
fn the_error_for_a_frequency_above_the_limit_names_the_limit() {
    needs([Need::Tracefs]);
    let run = Run::script("def __sample__(event): pass").event("cpu-clock//F=100000000/").workload("exit 0");
    let limit = || std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap();
    let before = limit();
    let outcome = run.run();
    outcome.assert_civil();
    // The kernel may have lowered the limit during the run.
    let is_named = [before, limit()].iter().any(|limit| {
        let limit = limit.trim();
        outcome
            .stderr
            .contains(&format!("100000000 samples per second are more than kernel.perf_event_max_sample_rate={limit};"))
    });
    assert!(outcome.status == 1 && is_named, "{}", outcome.stderr);
}

#[test]
fn a_run_at_the_highest_frequency_works() {
    needs([Need::Tracefs]);
    let script = "def __sample__(event): pass\ndef __exit__(): print('ran')";
    let outcome = Run::script(script).event("cpu-clock").options(["-F", "max"]).workload("burn 5").run();
    outcome.assert_civil();
    // At the limit, the kernel may throttle sampling.
    let complaints = outcome.complaints();
    let complaints = complaints.lines().find(|line| !line.contains("the kernel throttled sampling"));
    assert_eq!((outcome.status, outcome.stdout.as_str(), complaints), (0, "ran\n", None));
}

#[test]
fn verbose_says_what_profile_samples() {
    needs([Need::Tracefs]);
    let run = Run::script("def __sample__(event): pass").event("profile").options(["-v"]).workload("exit 0");
    let outcome = run.run();
    outcome.assert_civil();
    assert!(outcome.stderr.contains("profile samples "), "{}", outcome.stderr);
}

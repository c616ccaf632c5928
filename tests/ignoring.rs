//! What counts as ignored, and what as failed: by a test that no machine runs unless it is asked to.

use std::{
    env,
    process::{Command, Output},
};

use crate::harness::{
    machine::{Need, needs},
    run::said,
};

/// Runs that test, on a machine that must have these.
fn run(required: &str) -> (Option<i32>, String) {
    const TEST: &str = "capture::targets::a_cpu_that_goes_offline_keeps_what_it_recorded";
    needs([Need::Tracefs]);
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", TEST]).env("PERF_PROF_TESTS_REQUIRE", required).env_remove("PERF_PROF_TEST_OFFLINE");
    let output: Output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output))
}

#[test]
fn what_a_machine_lacks_is_ignored_with_the_reason() {
    let (status, text) = run("tracefs,pmu");
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains(" ... ignored (offline: ") && text.contains("0 passed; 0 failed; 1 ignored;"), "{text}");
}

#[test]
fn what_a_machine_lacks_and_must_have_is_a_failure() {
    for required in ["offline", "pmu, offline", "all"] {
        let (status, text) = run(required);
        assert_eq!(status, Some(101), "{text}");
        assert!(text.contains("says that this machine has what it lacks: offline: "), "{text}");
        assert!(text.contains("0 passed; 1 failed; 0 ignored;"), "{text}");
    }
}

#[test]
fn a_need_that_does_not_exist_is_an_error() {
    let (status, text) = run("tracefs,ofline");
    assert!(status == Some(101) && text.contains("ofline is none of "), "{text}");
    assert!(!text.contains("test result"), "{text}");
}

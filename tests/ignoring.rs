//! Which tests are ignored, and which fail. The example is a test that takes a CPU offline. It runs only if the
//! environment variable PERF_PROF_TEST_OFFLINE is set.

use std::{
    env,
    process::{Command, Output},
};

use crate::harness::{
    machine::{Need, needs},
    run::said,
};

/// Runs the example without PERF_PROF_TEST_OFFLINE, so the machine does not meet the example's need `offline`.
/// `required` lists the needs that the machine must meet.
fn run(required: &str) -> (Option<i32>, String) {
    const TEST: &str = "capture::targets::a_cpu_that_goes_offline_keeps_what_it_recorded";
    needs([Need::Tracefs]);
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", TEST]).env("PERF_PROF_TESTS_REQUIRE", required).env_remove("PERF_PROF_TEST_OFFLINE");
    let output: Output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output))
}

#[test]
fn a_test_is_ignored_with_the_reason_if_a_need_is_not_met() {
    let (status, text) = run("tracefs,pmu");
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains(" ... ignored (offline: ") && text.contains("0 passed; 0 failed; 1 ignored;"), "{text}");
}

#[test]
fn a_test_fails_if_a_need_that_must_be_met_is_not_met() {
    for required in ["offline", "pmu, offline", "all"] {
        let (status, text) = run(required);
        assert_eq!(status, Some(101), "{text}");
        assert!(text.contains("lists a need that this machine does not meet: offline: "), "{text}");
        assert!(text.contains("0 passed; 1 failed; 0 ignored;"), "{text}");
    }
}

#[test]
fn a_need_that_does_not_exist_is_an_error() {
    let (status, text) = run("tracefs,ofline");
    assert!(status == Some(101) && text.contains("ofline is none of "), "{text}");
    assert!(!text.contains("test result"), "{text}");
}

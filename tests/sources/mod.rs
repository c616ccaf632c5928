//! Built-in sources: real events of workloads with known truths, live and from a recording.

mod scheduling;
mod system_calls;

use std::path::Path;

use expect_test::Expect;

use crate::harness::{
    machine::{Need, needs},
    script::{Outcome, Run},
};

/// Runs a script on a selector live, and then on the recording that was made meanwhile. Both must print the same. The
/// selector selects the tasks of the workload by their names, because the recording has the events of all tasks.
pub fn live_and_recorded(script: &str, selector: &str, operations: &str, expect: Expect) {
    needs([Need::Tracefs]);
    let live = Run::script(script).event(selector).options(["--record", "r.data"]).workload(operations);
    let outcome = live.run();
    outcome.assert_civil();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    expect.assert_eq(&outcome.stdout);
    let replayed = replay(script, selector, &live.path("r.data"), &[]);
    assert_eq!((replayed.stdout, replayed.status), (outcome.stdout, 0), "{}", replayed.stderr);
}

pub fn replay(script: &str, selector: &str, recording: &Path, options: &[&str]) -> Outcome {
    let input = ["--input", recording.to_str().unwrap()];
    Run::script(script).event(selector).options(input).options(options).run()
}

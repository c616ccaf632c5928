//! Built-in sources: real events of workloads with known results, live and from a recording.

mod all_tasks;
pub mod allocations;
mod block_io;
mod compat;
mod exported;
mod function;
mod incomplete;
pub mod interrupts;
pub mod locks;
mod process;
mod scheduling;
pub mod signals;
mod system_calls;
mod tcp;
pub mod timers;
mod unrecorded;
mod virtual_machines;
pub mod work;

use std::{ffi::OsStr, path::Path};

use expect_test::Expect;

use crate::harness::{
    machine::{Need, needs},
    script::{Outcome, Run},
    workload::words,
};

/// Runs a script on a selector live, and then on the recording of this run. Both must print the same. The selector
/// selects the tasks of the workload by comm, because the recording contains the events of all tasks.
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

/// Like [`live_and_recorded`], but with a command, which prints the true values in lines that begin with `truth`.
/// Returns the output.
#[track_caller]
pub fn command_live_and_recorded(script: &str, selector: &str, command: &[&OsStr]) -> String {
    let live = Run::script(script).event(selector).options(["--record", "r.data"]).exec(command);
    let outcome = live.run();
    assert_eq!(outcome.status, 0, "{}\n{}", outcome.stdout, outcome.stderr);
    let replayed = replay(script, selector, &live.path("r.data"), &[]);
    let lines = outcome.stdout.lines().filter(|line| !line.starts_with("truth"));
    let without_truths: String = lines.flat_map(|line| [line, "\n"]).collect();
    assert_eq!((replayed.stdout, replayed.status), (without_truths, 0), "{}", replayed.stderr);
    outcome.stdout
}

/// Returns the other words of each line that begins with `first`.
pub fn rows<'a>(out: &'a str, first: &str) -> Vec<Vec<&'a str>> {
    let words = out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.filter(|words| words.first() == Some(&first)).map(|words| words[1..].to_vec()).collect()
}

pub fn replay(script: &str, selector: &str, recording: &Path, options: &[&str]) -> Outcome {
    let input = ["--input", recording.to_str().unwrap()];
    Run::script(script).event(selector).options(input).options(options).run()
}

/// Runs a script on a selector while the workload `work` runs, and then on the recording of this run. Both must print
/// the same. Returns the lines of the script, and the lines of the workload that begin with `own`. The rings are large
/// enough for the events of a busy machine.
pub fn beside_own(script: &str, selector: &str, work: &str) -> (Vec<String>, Vec<String>) {
    needs([Need::Tracefs]);
    let live =
        Run::script(script).event(selector).options(["-q", "-m", "1024", "--record", "r.data"]).exec(words(work));
    let outcome = live.run();
    outcome.assert_civil();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let lines = outcome.stdout.lines().filter(|line| !line.is_empty());
    let (own, of_script): (Vec<&str>, Vec<&str>) = lines.partition(|line| line.starts_with("own "));
    let replayed = replay(script, selector, &live.path("r.data"), &["-q"]);
    assert_eq!((replayed.stdout.lines().collect::<Vec<_>>(), replayed.status), (of_script.clone(), 0));
    let owned = |lines: Vec<&str>| lines.into_iter().map(|line| line.trim_start_matches("own ").to_owned()).collect();
    (owned(of_script), owned(own))
}

/// A millisecond in ns: the largest difference between the clocks of a workload and of events.
pub const MS: u64 = 1_000_000;

pub fn numbers(line: &str) -> Vec<u64> {
    line.split(' ').map(|word| word.parse().unwrap_or_else(|_| panic!("{line}"))).collect()
}

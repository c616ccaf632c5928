//! Cgroups are selected and named, live, in recordings and in counts. Each test creates its own cgroups, and knows what
//! their tasks do.

mod counted;
mod live;
mod recorded;

use std::{path::Path, process::Command};

use crate::harness::{
    cgroup::Cgroup,
    machine::{Need, needs},
    script::{Outcome, Run, workload},
};

/// The start of a script. When its events are enabled, it runs the commands in the variable COMMANDS at the same time,
/// receives their events, and ends.
const RUNS_COMMANDS: &str = "
import json, os, subprocess, sys
turns = 0
def __interval__():
    global turns
    turns += 1
    if turns == 1:
        for started in [subprocess.Popen(command) for command in json.loads(os.environ['COMMANDS'])]: started.wait()
    elif turns == 3: sys.exit()
";

/// Runs a script live on a selector while these commands run. The run also writes the recording `r.data`.
pub fn live(script: &str, selector: &str, options: &[&str], commands: &[Vec<String>]) -> (Run, Outcome) {
    needs([Need::Tracefs, Need::Cgroups]);
    let run = Run::script(&format!("{RUNS_COMMANDS}{script}")).event(selector).options(options);
    let run = run.options(["-q", "-i", "50", "-m", "1024", "--record", "r.data"]);
    let run = run.env("COMMANDS", serde_json::to_string(commands).unwrap());
    let outcome = run.run();
    outcome.assert_civil();
    assert_eq!(outcome.status, 0, "{}\n{}", outcome.stdout, outcome.stderr);
    (run, outcome)
}

/// Runs a script on the events that a selector finds in a recording.
fn replayed(script: &str, selector: &str, options: &[&str], recording: &Path) -> Outcome {
    let run = Run::script(script).event(selector).options(["-q", "--input", recording.to_str().unwrap()]);
    run.options(options).run()
}

/// Returns the command of a shell in a cgroup. The shell starts a child for each of these workloads, one after the
/// other.
pub fn shell_in(cgroup: &Cgroup, operations: &[&str]) -> Vec<String> {
    let quoted = |words: Vec<String>| words.iter().map(|word| format!("'{word}' ")).collect::<String>();
    let children: String = operations.iter().map(|operations| quoted(workload(operations)) + "\n").collect();
    vec!["sh".into(), "-c".into(), format!("echo $$ > {}\n{children}exit 0", cgroup.procs())]
}

/// Runs the commands one after the other.
fn run_all(commands: &[Vec<String>]) {
    for command in commands {
        assert!(Command::new(&command[0]).args(&command[1..]).status().unwrap().success());
    }
}

/// The cgroups of a test: two beside each other, and one in the first.
struct Groups {
    inner: Cgroup,
    outer: Cgroup,
    other: Cgroup,
}

impl Groups {
    fn new() -> Groups {
        let (outer, other) = (Cgroup::new(), Cgroup::new());
        Groups { inner: outer.below("inner"), outer, other }
    }

    /// Returns the command of a shell that makes 30 system calls in the outer cgroup, 20 in the inner one, and 7 in the
    /// other one.
    fn calls(&self) -> Vec<String> {
        let all = [(&self.outer, "calls 30"), (&self.inner, "calls 20"), (&self.other, "calls 7")];
        let quoted = |word: &String| format!("'{}' ", word.replace('\'', "'\\''"));
        let line = |(cgroup, operations): (&Cgroup, &str)| {
            shell_in(cgroup, &[operations]).iter().map(quoted).collect::<String>()
        };
        vec!["sh".into(), "-c".into(), all.map(line).join("\n")]
    }

    /// Replaces the names of the test's cgroups by fixed names.
    fn named(&self, text: &str) -> String {
        text.replace(&self.outer.name, "OUTER").replace(&self.other.name, "OTHER")
    }
}

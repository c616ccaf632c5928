//! `perf_prof.testing` and the formats of events: made events, runs of scripts on them, and the catalogue of events.

mod catalogue;
mod made_events;
mod made_spans;
mod plain;
mod script_runs;

use expect_test::Expect;

use crate::harness::script::{CALL, Run, check};

/// Runs Python code that needs no events, and compares what it prints.
fn prints(code: &str, expect: Expect) {
    check(program(code), expect);
}

/// Returns a run of Python code that needs no events. The code is in `program.py`. The scripts that a test writes
/// into the same folder have other names, for example `t.py`.
fn program(code: &str) -> Run {
    let code = format!("from perf_prof.testing import *\nimport perf_prof, sys\n{code}\nraise SystemExit(0)\n");
    Run::script("").file("program.py", code).module("program.py").options(["-q", "-e", CALL])
}

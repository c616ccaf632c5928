//! Runs `perf-prof` on a program that rarely makes a certain system call. A script prints the call chain of each of
//! these calls.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{
    machine::{Need, needs},
    run::{PATIENCE, tested_program, with_patience},
};

/// The event of the rare system call, with its stack.
pub const RARE: &str = "syscalls:sys_enter_getppid//stack/";

/// The kernel follows the frame pointers.
pub const FP: &[&str] = &["--call-graph", "fp", "--user-callchain", "--no-kernel-callchain"];
/// The kernel copies registers and stack, and perf-prof unwinds them.
pub const DWARF: &[&str] = &["--call-graph", "dwarf", "--user-callchain", "--no-kernel-callchain"];

/// When the script reads the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveTime {
    /// In the handler, while the program still runs. The script ends the program after the last event.
    InHandler,
    /// After the program has exited.
    AtExit,
}

/// A frame, as the script reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub addr: u64,
    pub symbol: String,
    pub offset: u64,
    pub dso: String,
    pub inlined: bool,
    pub line: Option<String>,
}

const SCRIPT: &str = "\
import json, os, signal, sys
kept = []
def show(event):
    print(json.dumps([{k: f.get(k) for k in ('addr', 'symbol', 'offset', 'dso', 'inlined', 'srcline')} for f in event._callchain]))
def __sample__(event):
    kept.append(event)
    if sys.argv[1] == 'InHandler':
        show(event)
        if len(kept) == int(sys.argv[2]):
            os.kill(event._pid, signal.SIGTERM)
def __exit__():
    if sys.argv[1] == 'AtExit':
        for event in kept:
            show(event)
";

/// A run that prints the call chains of a program's rare system calls.
pub struct Stacks<'a> {
    pub event: &'a str,
    pub options: Vec<&'a str>,
    pub resolve: ResolveTime,
    pub command: Vec<&'a str>,
    pub dir: &'a Path,
    /// The number of calls that the program makes.
    pub calls: usize,
}

impl Stacks<'_> {
    /// Traces the command, and returns the call chains. Each call must have a chain.
    pub fn trace(&self) -> Vec<Vec<Frame>> {
        needs([Need::Tracefs]);
        // The script is not in the program's folder, which may be hidden or removed.
        let own = tempfile::tempdir().unwrap();
        let script = own.path().join("s.py");
        fs::write(&script, SCRIPT).unwrap();
        let mut command = Command::new(tested_program());
        command.args(["python", "-q", "-e", self.event]).args(&self.options).arg(&script);
        command.args([format!("{:?}", self.resolve), self.calls.to_string()]);
        command.arg("--exec").args(&self.command).current_dir(self.dir).stdin(Stdio::null());
        with_patience(&mut command, PATIENCE);
        let output = command.output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{command:?}: {} {stderr}", output.status);
        assert_eq!(stderr, "", "{command:?}");
        let chains: Vec<_> = stdout.lines().map(chain).collect();
        assert_eq!(chains.len(), self.calls, "{command:?}: {stderr}");
        chains
    }
}

fn chain(line: &str) -> Vec<Frame> {
    let frames: Vec<Value> = serde_json::from_str(line).unwrap();
    let frame = |frame: &Value| Frame {
        addr: frame["addr"].as_u64().unwrap(),
        symbol: frame["symbol"].as_str().unwrap().to_owned(),
        offset: frame["offset"].as_u64().unwrap(),
        dso: frame["dso"].as_str().unwrap().to_owned(),
        inlined: frame["inlined"].as_bool().unwrap_or(false),
        line: frame["srcline"].as_str().map(str::to_owned),
    };
    frames.iter().map(frame).collect()
}

/// Returns the names of the frames up to `last`, the outermost frame in the program's own source.
#[track_caller]
pub fn names<'a>(frames: &'a [Frame], last: &str) -> Vec<&'a str> {
    let end = frames.iter().position(|frame| frame.symbol == last);
    let end = end.unwrap_or_else(|| panic!("no {last}: {frames:#?}"));
    frames[..=end].iter().map(|frame| frame.symbol.as_str()).collect()
}

/// Checks that each chain starts with these names, innermost first.
#[track_caller]
pub fn all_are(chains: &[Vec<Frame>], expected: &[&str]) {
    for frames in chains {
        assert_eq!(names(frames, expected.last().unwrap()), expected, "{frames:#?}");
    }
}

//! Runs `perf-prof` on a program, with a script that prints the call chain of each rare system call.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::programs::Skipped;

/// What runs for so many seconds hangs, and is ended.
const PATIENCE: u32 = 100;

/// The event of the programs' rare system call, with its stack.
pub const RARE: &str = "syscalls:sys_enter_getppid//stack/";

/// The kernel walks the frame pointers.
pub const FP: &[&str] = &["--call-graph", "fp", "--user-callchain", "--no-kernel-callchain"];
/// Registers and stack are copied and unwound.
pub const DWARF: &[&str] = &["--call-graph", "dwarf", "--user-callchain", "--no-kernel-callchain"];

/// When the script asks for the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// In the handler; when all have come the program is told to end.
    AtOnce,
    /// When the program has ended.
    Later,
}

/// One frame, as the script saw it.
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
    if sys.argv[1] == 'AtOnce':
        show(event)
        if len(kept) == int(sys.argv[2]):
            os.kill(event._pid, signal.SIGTERM)
def __exit__():
    if sys.argv[1] == 'Later':
        for event in kept:
            show(event)
";

/// The chains of a program's rare calls.
pub struct Stacks<'a> {
    pub event: &'a str,
    pub options: Vec<&'a str>,
    pub ask: Ask,
    pub command: Vec<&'a str>,
    pub dir: &'a Path,
    /// How many calls it makes.
    pub calls: usize,
}

impl Stacks<'_> {
    /// Traces the command; each call has to give a chain.
    pub fn take(&self) -> Result<Vec<Vec<Frame>>, Skipped> {
        let id = fs::read_to_string("/sys/kernel/tracing/events/syscalls/sys_enter_getppid/id");
        id.map_err(|error| Skipped(format!("tracefs: {error}")))?;
        // Not in the program's folder, which may be hidden or gone.
        let own = tempfile::tempdir().unwrap();
        let script = own.path().join("s.py");
        fs::write(&script, SCRIPT).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
        command.args(["python", "-q", "-e", self.event]).args(&self.options).arg(&script);
        command.args([format!("{:?}", self.ask), self.calls.to_string()]);
        command.arg("--exec").args(&self.command).current_dir(self.dir).stdin(Stdio::null());
        // SAFETY: alarm is async-signal-safe. An alarm outlives exec.
        unsafe {
            command.pre_exec(|| {
                libc::alarm(PATIENCE);
                Ok(())
            });
        }
        let output = command.output().unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{command:?}: {} {stderr}", output.status);
        assert_eq!(stderr, "", "{command:?}");
        let chains: Vec<_> = stdout.lines().map(chain).collect();
        assert_eq!(chains.len(), self.calls, "{command:?}: {stderr}");
        Ok(chains)
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

/// The names up to the one that the chain ends with, as far as the program's own source goes.
#[track_caller]
pub fn names<'a>(frames: &'a [Frame], last: &str) -> Vec<&'a str> {
    let end = frames.iter().position(|frame| frame.symbol == last);
    let end = end.unwrap_or_else(|| panic!("no {last}: {frames:#?}"));
    frames[..=end].iter().map(|frame| frame.symbol.as_str()).collect()
}

/// Every chain is this one, innermost first, up to its last name.
#[track_caller]
pub fn all_are(chains: &[Vec<Frame>], expected: &[&str]) {
    for frames in chains {
        assert_eq!(names(frames, expected.last().unwrap()), expected, "{frames:#?}");
    }
}

//! Workloads that make a known number of calls, and `perf-prof stat`, which counts them.

use std::{
    fs,
    io::{Read, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Output, Stdio},
};

use serde_json::Value as Json;

use super::{run::tested_program, wait};

/// The event that only workloads cause.
pub const CALL: &str = "syscalls:sys_enter_getpgid";

/// The environment variable that tells the workload what to do.
const WORK: &str = "PERF_PROF_TEST_WORK";

/// The workload, which makes calls.
pub fn workload() {
    let work = std::env::var(WORK).unwrap();
    let mut words = work.split(' ');
    let mut number = || words.next().unwrap().parse::<u32>().unwrap();
    let (calls, threads, children) = (number(), number(), number());
    let mut all = Vec::new();
    if words.next() == Some("waits") {
        // These threads exist before the work, which starts at the end of stdin.
        let (go, goes): (Vec<_>, Vec<_>) = (0..threads).map(|_| std::sync::mpsc::channel::<()>()).unzip();
        all.extend(goes.into_iter().map(|goes| {
            std::thread::spawn(move || {
                let _ = goes.recv();
                call(calls)
            })
        }));
        println!("ready");
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        drop(go);
    }
    call(calls);
    all.extend((0..threads).map(|_| std::thread::spawn(move || call(calls))));
    for _ in 0..children {
        // SAFETY: the child makes system calls only.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                call(calls);
                libc::_exit(0);
            }
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }
    all.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Calls getpgid() `times` times. The process of its argument need not exist.
fn call(times: u32) {
    for pid in 0..times {
        // The system call is made by number, because a C library may implement the function in another way.
        // SAFETY: getpgid takes no pointer.
        unsafe { libc::syscall(libc::SYS_getpgid, pid) };
    }
}

/// Returns the command of a workload. Its main thread, each other thread and each child make `calls` calls.
pub fn words(calls: u32, threads: u32, children: u32) -> Vec<String> {
    let work = format!("{WORK}={calls} {threads} {children}");
    ["env".to_owned(), work].into_iter().chain(crate::harness::workload::words("wide")).collect()
}

/// A workload that waits before its work. `threads` threads exist before the work, and as many are created by it. All
/// threads do the same work.
pub struct Waiting {
    pub child: Child,
    stdin: ChildStdin,
}

impl Waiting {
    pub fn new(calls: u32, threads: u32, children: u32) -> Waiting {
        let words = words(calls, threads, children);
        let mut command = Command::new(&words[2]);
        command.args(&words[3..]).env(WORK, format!("{calls} {threads} {children} waits"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut text = Vec::new();
        let stdout = child.stdout.as_mut().unwrap();
        while !text.ends_with(b"ready\n") {
            let mut byte = [0];
            stdout.read_exact(&mut byte).unwrap();
            text.push(byte[0]);
        }
        let stdin = child.stdin.take().unwrap();
        Waiting { child, stdin }
    }

    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Starts the work, and waits for the end of the workload.
    pub fn go(mut self) {
        self.stdin.flush().unwrap();
        drop(self.stdin);
        assert!(self.child.wait().unwrap().success());
    }
}

/// Returns the command `perf-prof stat` with these arguments.
pub fn stat(args: &[&str]) -> Command {
    let mut command = Command::new(tested_program());
    command.arg("stat").args(args);
    command
}

/// Runs `perf-prof stat`. Returns its status and what it printed on stderr.
pub fn run(args: &[&str], command: &[String]) -> (i32, String) {
    let Output { status, stderr, .. } = stat(args).args(command).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

/// Returns the objects that `perf-prof stat` prints with `--json`.
#[track_caller]
pub fn json(args: &[&str], command: &[String]) -> Vec<Json> {
    let (status, text) = run(&[&["--json"], args].concat(), command);
    assert_eq!(status, 0, "{text}");
    objects(&text)
}

/// Parses text that contains one object per line.
#[track_caller]
pub fn objects(text: &str) -> Vec<Json> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// Returns the counts of an event in an object, one for each row.
pub fn rows(object: &Json, event: &str) -> Vec<u64> {
    let rows = object["events"].as_array().unwrap().iter().filter(|row| row["event"] == event);
    rows.map(|row| row["value"].as_u64().unwrap()).collect()
}

/// Returns the only count of an event in an object.
#[track_caller]
pub fn count(object: &Json, event: &str) -> u64 {
    let rows = rows(object, event);
    assert_eq!(rows.len(), 1, "{object}");
    rows[0]
}

/// Waits until a file contains a whole line, which means that counting has begun.
pub fn await_line(path: &Path) {
    wait::until("counting has begun", || fs::read_to_string(path).is_ok_and(|text| text.contains('\n')));
}

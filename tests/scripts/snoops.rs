//! Scripts that show single calls and checks, with programs that make known ones.

use std::path::Path;

use crate::harness::{
    machine::{Need, needs, skip},
    scripts::{script, text},
};

/// Runs a program in Python. Returns what it and the script print, and the lines of it as words, without their times.
fn lines(name: &str, options: &[&str], program: &str) -> (String, Vec<String>) {
    let out = text(script(name).args(options).args(["--exec", "python3", "-c", program]).output().unwrap());
    let words = |line: &str| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    let lines = out.lines().map(words).collect();
    (out, lines)
}

/// Sends signals to itself, to its child and to its child when it has ended. Prints the ids of both.
const KILLS: &str = "
import os, signal, time
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
child = os.fork()
if child == 0:
    signal.pause()
for _ in range(3):
    os.kill(os.getpid(), signal.SIGUSR1)
os.kill(child, 0)
os.kill(child, signal.SIGTERM)
os.waitpid(child, 0)
try:
    os.kill(child, signal.SIGTERM)
except ProcessLookupError:
    print('\\nids', os.getpid(), child, flush=True)
";

#[test]
fn killsnoop_shows_each_call_and_its_error() {
    needs([Need::Tracefs]);
    let (out, lines) = lines("killsnoop.py", &[], KILLS);
    let ids = out.lines().find_map(|line| line.strip_prefix("ids ")).unwrap();
    let (parent, child) = ids.split_once(' ').unwrap();
    let of_parent = |text: String| format!("python3 {parent} {text}");
    let mut expected = vec![of_parent(format!("SIGUSR1 python3 {parent} ignored")); 3];
    expected.push(of_parent(format!("0 {child} exists")));
    expected.push(of_parent(format!("SIGTERM python3 {child} delivered")));
    expected.push(of_parent(format!("SIGTERM {child} ESRCH")));
    let sent: Vec<String> = lines.into_iter().filter(|line| line.starts_with(&of_parent(String::new()))).collect();
    assert_eq!(sent, expected, "{out}");
}

/// Changes its root folder as root, and then fails to do so as another user.
const CHROOTS: &str = "
import os
for _ in range(5):
    os.chroot('/')
os.setuid(65534)
for _ in range(3):
    try:
        os.chroot('/')
    except PermissionError:
        pass
";

#[test]
fn capable_counts_checks_and_refusals() {
    needs([Need::Tracefs]);
    if !Path::new("/sys/kernel/tracing/events/capability/cap_capable").exists() {
        skip(Need::Kernel, "the kernel has no tracepoint for capabilities, which is in Linux 6.14 and later");
    }
    for (options, counts) in [(&[][..], "8 3"), (&["--refused"], "3 3")] {
        let options = [options, &["--top", "1000"]].concat();
        let out = text(script("capable.py").args(options).args(["--exec", "python3", "-c", CHROOTS]).output().unwrap());
        let rows = out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let rows: Vec<String> = rows.filter(|row| row.starts_with("CAP_SYS_CHROOT ")).collect();
        assert_eq!(rows, [format!("CAP_SYS_CHROOT {counts} python3")], "{out}");
    }
}

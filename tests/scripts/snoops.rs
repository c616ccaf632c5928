//! Scripts that show single calls and checks, on programs that make known ones.

use std::{fs, path::Path};

use crate::harness::{
    compile::compile,
    machine::{Need, needs, needs_paths, skip},
    scripts::{objects, script, text},
};

/// Runs a program in Python. Returns the output of the program and the script, and its lines as words without times.
fn lines(name: &str, options: &[&str], program: &str) -> (String, Vec<String>) {
    let out = text(script(name).args(options).args(["--exec", "python3", "-c", program]).output().unwrap());
    let words = |line: &str| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    let lines = out.lines().map(words).collect();
    (out, lines)
}

/// A program that sends signals to itself, to its child, and to the child's id after its exit. It prints both ids.
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
    // The parent, which follows in each line, is the task that created the sender.
    let of_parent = |text: String| format!("python3 {parent} {text}");
    let mut expected = vec![of_parent(format!("SIGUSR1 python3 {parent} ignored")); 3];
    expected.push(of_parent(format!("0 {child} exists")));
    expected.push(of_parent(format!("SIGTERM python3 {child} delivered")));
    expected.push(of_parent(format!("SIGTERM {child} ESRCH")));
    let sent: Vec<String> = lines.into_iter().filter(|line| line.starts_with(&of_parent(String::new()))).collect();
    let is_expected = |(line, expected): (&String, &String)| line.starts_with(expected);
    assert!(sent.len() == expected.len() && sent.iter().zip(&expected).all(is_expected), "{sent:?} {out}");
}

/// The program kill exits at once. What started it is interesting.
#[test]
fn killsnoop_shows_the_script_that_started_the_sender() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deploy.sh");
    fs::write(&path, "sleep 100 &\n/bin/kill -TERM $!\nsleep 100 &\nkill -KILL $!\nsleep 2\n").unwrap();
    let out = text(script("killsnoop.py").args(["--json", "--exec", "sh"]).arg(&path).output().unwrap());
    let objects = objects(&out);
    let of_signal =
        |name: &str| objects.iter().find(|object| object["signal"] == name).unwrap_or_else(|| panic!("{out}"));
    let (script, by_program, by_itself) = (path.display().to_string(), of_signal("SIGTERM"), of_signal("SIGKILL"));
    assert!(by_program["sender"].as_str().unwrap().starts_with("kill "), "{out}");
    assert!(by_program["parent"].as_str().unwrap().starts_with(&format!("{script} ")), "{out}");
    assert!(by_itself["sender"].as_str().unwrap().ends_with(&format!("({script})")), "{out}");
}

/// When the lines are printed, the parent has executed another program, or has exited together with the sender.
#[test]
fn killsnoop_names_the_parent_that_ran_when_the_signal_was_sent() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let script_with = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    // The script runs longer than it takes to read its arguments.
    let start = "sleep 100 & sleep 0.5; /bin/kill -TERM $!; ";
    for (name, end) in [("executes.sh", "exec sleep 1"), ("ends.sh", "exit 0")] {
        let path = script_with(name, &format!("{start}{end}\n"));
        let out = text(script("killsnoop.py").args(["--json", "--exec", "sh", &path]).output().unwrap());
        let of_kill =
            objects(&out).into_iter().find(|object| object["sender"].as_str().unwrap_or("").starts_with("kill "));
        let parent = of_kill.unwrap_or_else(|| panic!("{out}"))["parent"].as_str().unwrap().to_owned();
        assert!(parent.starts_with(&format!("{path} ")), "{parent}: {out}");
    }
}

/// A program that changes its root folder as root, and then, as another user, fails to change it.
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
    let usage = text(script("capable.py").arg("--usage").output().unwrap());
    assert!(usage.starts_with("usage: capable.py"), "{usage}");
    for (options, counts) in [(&[][..], "8 3"), (&["--refused"], "3 3")] {
        let options = [options, &["--top", "1000"]].concat();
        let out = text(script("capable.py").args(options).args(["--exec", "python3", "-c", CHROOTS]).output().unwrap());
        let rows = out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let rows: Vec<String> = rows.filter(|row| row.starts_with("CAP_SYS_CHROOT ")).collect();
        assert_eq!(rows, [format!("CAP_SYS_CHROOT {counts} python3")], "{out}");
    }
}

/// A program that opens files in several ways, and fails to open some. `fopen` with a wrong mode makes no system call.
const OPENS: &str = r#"
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
int main(void) {
    for (int i = 0; i < 3; i++)
        open("/no/such file", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    fopen("/dev/null", "r");
    fopen("/dev/zero", "?");
    opendir("/");
    openat(AT_FDCWD, "/dev/null", O_WRONLY | O_SYNC);
    return 0;
}
"#;

#[test]
fn opensnoop_shows_the_paths_that_programs_open() {
    needs([Need::Tracefs, Need::Compilers, Need::Bpf]);
    let folder = tempfile::tempdir().unwrap();
    // The program is static, so no function of libc can be probed.
    let program = compile(folder.path(), "opens", OPENS, &["-O0", "-static"]);
    let shown = |options: &[&str]| {
        let out = text(script("opensnoop.py").args(options).arg("--exec").arg(&program).output().unwrap());
        // The time of day, the process and the duration are removed, and so are the files that the loader opens.
        let words = |line: &str| line.split_whitespace().skip(4).collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = out.lines().map(words).filter(|line| !line.is_empty()).collect();
        (lines, out)
    };
    let failed = "ENOENT O_RDWR|O_CREAT|O_CLOEXEC /no/such file";
    let (opened, synced) = ("O_RDONLY /dev/null", "O_WRONLY|O_SYNC /dev/null");
    let (lines, out) = shown(&[]);
    let ours: Vec<&str> = lines.iter().filter(|line| line.contains("/")).map(String::as_str).collect();
    assert_eq!(ours.len(), 6, "{out}");
    assert_eq!(ours[..3], [failed; 3], "{out}");
    assert!(ours[3].ends_with(opened) && ours[5].ends_with(synced), "{out}");
    assert!(ours[4].ends_with("|O_NONBLOCK|O_DIRECTORY|O_CLOEXEC /"), "{out}");
    assert!(!out.contains("/dev/zero"), "{out}");
    let (lines, out) = shown(&["--failed", "--name", "no/such"]);
    assert_eq!(lines.iter().filter(|line| *line == failed).count(), 3, "{out}");
    assert!(!out.contains("/dev/null"), "{out}");
}

/// A program that opens a file by a relative path, by a path relative to another folder, and by a direct system call.
/// It then moves to another folder, and exits.
const RELATIVE: &str = "
import ctypes, os, sys
os.chdir(sys.argv[1])
open('here', 'w').close()
os.open('there', os.O_RDONLY | os.O_CREAT, dir_fd=os.open('.', os.O_RDONLY))
ctypes.CDLL(None).syscall(2, b'itself', 0)
os.mkdir('below')
os.chdir('below')
os.system('touch deeper; rm deeper')
os.unlink('../here')
";

#[test]
fn opensnoop_shows_absolute_paths_of_relative_ones() {
    needs_paths();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let run = |options: &[&str]| {
        let _ = fs::remove_dir(folder.path().join("below"));
        let mut command = script("opensnoop.py");
        text(command.args(options).args(["--exec", "python3", "-c", RELATIVE, &path]).output().unwrap())
    };
    let out = run(&["--name", &path]);
    let paths: Vec<&str> = out.lines().filter_map(|line| line.split_whitespace().nth(6)).collect();
    for name in ["here", "there", "below/deeper"] {
        assert!(paths.contains(&&*format!("{path}/{name}")), "{name}: {out}");
    }
    assert!(!out.contains("(relative paths"), "{out}");
    let out = run(&["--json"]);
    let objects = objects(&out);
    let object = |path: &str| objects.iter().filter(|object| object["path"] == path).count();
    assert_eq!((object(&format!("{path}/there")), object(&format!("{path}/here"))), (1, 1), "{out}");
    // This call was made without libc.
    assert_eq!(object(&format!("{path}/itself")), 1, "{out}");
}

/// A program that moves to another folder before its line is printed, and returns to its first folder by a descriptor.
const MOVES: &str = "
import os, sys
os.chdir(sys.argv[1] + '/a')
open('job', 'w').close()
os.unlink('job')
os.fchdir(os.open(sys.argv[1] + '/b', os.O_RDONLY))
open('other', 'w').close()
os.unlink('other')
os.chdir('/')
";

#[test]
fn filelife_shows_paths_in_the_folder_in_which_the_process_was() {
    needs_paths();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    ["a", "b"].iter().for_each(|name| fs::create_dir(folder.path().join(name)).unwrap());
    let run = |options: &[&str]| {
        let mut command = script("filelife.py");
        text(command.args(options).args(["--exec", "python3", "-c", MOVES, &path]).output().unwrap())
    };
    let out = run(&["--json"]);
    let objects = objects(&out);
    let paths: Vec<&str> = objects.iter().filter_map(|object| object["path"].as_str()).collect();
    assert_eq!(paths, ["a/job", "b/other"].map(|name| format!("{path}/{name}")), "{out}");
    let out = run(&["--name", &format!("{path}/b")]);
    assert!(out.contains(&format!("{path}/b/other\n")) && !out.contains("/job"), "{out}");
}

/// A program that reads three times from a socket to which nobody writes, until the time limit of the read. It also
/// sleeps twice, and opens a FIFO that gets its writer later.
const SLOW: &str = "
import os, socket, struct, tempfile, threading, time
one, other = socket.socketpair()
one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 50_000))
for _ in range(3):
    try:
        os.read(one.fileno(), 4321)
    except BlockingIOError:
        pass
for _ in range(2):
    time.sleep(0.05)
fifo = tempfile.mkdtemp() + '/fifo'
os.mkfifo(fifo)
threading.Timer(0.1, lambda: open(fifo, 'w').close()).start()
open(fifo).close()
os.remove(fifo)
os.rmdir(os.path.dirname(fifo))
";

#[test]
fn slowcalls_shows_the_arguments_and_the_error_of_slow_calls() {
    needs([Need::Tracefs]);
    let calls = |options: &[&str], call: &str| {
        let out = text(script("slowcalls.py").args(options).args(["--exec", "python3", "-c", SLOW]).output().unwrap());
        let line = |line: &str| {
            let words: Vec<String> = line.split_whitespace().skip(3).map(str::to_owned).collect();
            let (took, call) = words.split_first()?;
            Some((took.parse::<f64>().ok()?, call.join(" ")))
        };
        let lines: Vec<(f64, String)> = out.lines().filter_map(line).collect();
        let found = lines.into_iter().filter(|(_, text)| text.starts_with(call)).collect::<Vec<_>>();
        (found, out)
    };
    let (reads, out) = calls(&[], "read(");
    let reads: Vec<&(f64, String)> = reads.iter().filter(|(_, text)| text.contains("count=4321")).collect();
    assert_eq!(reads.len(), 3, "{out}");
    // The kernel may shorten a time limit by a tick.
    assert!(reads.iter().all(|(ms, text)| *ms >= 35.0 && text.ends_with(", count=4321) = EAGAIN")), "{out}");
    assert!(!out.contains("nanosleep(") && out.contains(" of clock_nanosleep ("), "{out}");
    assert!(out.lines().any(|line| line.contains("openat(dfd=AT_FDCWD") && line.contains("/fifo\"")), "{out}");
    let (sleeps, out) = calls(&["--call", "clock_nanosleep", "-g"], "clock_nanosleep(");
    let slept = |(ms, text): &(f64, String)| *ms >= 50.0 && text.ends_with(" = 0");
    assert!(sleeps.len() == 2 && sleeps.iter().all(slept), "{out}");
    assert!(!out.contains(" read("), "{out}");
    assert!(out.matches("([kernel.kallsyms])").count() >= 2, "{out}");
}

/// A program that sends packets to itself. Each packet raises a soft interrupt, which runs before the call returns.
const PACKETS: &str = "
import socket
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(('127.0.0.1', 0))
for _ in range(200):
    own.sendto(b'x', own.getsockname())
    own.recv(10)
";

#[test]
fn irqlat_counts_the_soft_interrupts_of_packets() {
    needs([Need::Tracefs]);
    let out = text(script("irqlat.py").args(["--exec", "python3", "-c", PACKETS]).output().unwrap());
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    let row = rows.iter().find(|row| row.starts_with(&["soft", "NET_RX"])).unwrap_or_else(|| panic!("{out}"));
    let [count, total, longest] = [2, 3, 4].map(|at| row[at].parse::<f64>().unwrap());
    // On a busy machine, a kernel thread may handle some of the packets.
    assert!(count >= 20.0 && total >= longest && longest > 0.0, "{out}");
}

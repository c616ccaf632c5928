//! stdout and stderr of the script: buffered by blocks or lines, UTF-8, in the right order with perf-prof's own lines.

use std::{
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader, Read},
    os::{fd::FromRawFd, unix::ffi::OsStrExt},
    process::Stdio,
};

use expect_test::expect;

use crate::harness::{
    calls::WORKLOAD,
    machine::{Need, needs},
    recording::Folder,
    run::{perf_prof, stdout},
    script::{CALL, Run, finish, prints},
    terminal::on_terminal,
};

#[test]
fn lines_come_at_once_through_a_pipe() {
    needs([Need::Tracefs]);
    // The workload never ends, so a line in a buffer would never be written.
    let run = Run::script("def __sample__(event): print('line')\n").call_event().workload("calls 1 forever");
    let (child, mut lines) = run.start();
    assert_eq!(lines.next().unwrap(), "line");
    // SAFETY: sends a signal to a child that has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_eq!(finish(child, run.dir.path()).status, 0);
}

/// A read from a packet pipe returns the bytes of one write.
#[test]
fn many_lines_are_written_together_into_a_pipe() {
    needs([Need::Tracefs]);
    let mut ends = [0; 2];
    // SAFETY: the call fills both numbers, and nothing else owns the descriptors.
    let (mut reader, writer) = unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_DIRECT | libc::O_CLOEXEC), 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    };
    let run = Run::script("def __sample__(event): print('line', event.pid)\n").call_event().workload("calls 1000");
    let child = run.command().stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let (mut text, mut writes, mut packet) = (Vec::new(), 0, vec![0; 1 << 16]);
    loop {
        match reader.read(&mut packet).unwrap() {
            0 => break,
            size => text.extend_from_slice(&packet[..size]),
        }
        writes += 1;
    }
    assert_eq!(finish(child, run.dir.path()).status, 0);
    assert_eq!(text, (1..=1000).map(|number| format!("line {number}\n")).collect::<String>().into_bytes());
    assert!(writes < 500, "{writes} writes");
}

/// The callback does not return, so its output must be written while it runs.
#[test]
fn a_terminal_shows_each_line_at_once() {
    needs([Need::Tracefs]);
    let (mut master, mut terminal) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: the call fills both numbers; null means no name, the usual settings and the usual size.
    let opened = unsafe { libc::openpty(&mut master, &mut terminal, none, none.cast(), none.cast()) };
    assert_eq!(opened, 0);
    // SAFETY: the kernel just made both descriptors, and nothing else owns them.
    let (master, terminal) = unsafe { (File::from_raw_fd(master), File::from_raw_fd(terminal)) };
    let script = "import time\ndef __sample__(event):\n    print('line')\n    time.sleep(1000)\n";
    let run = Run::script(script).call_event().workload("calls 1 forever");
    let mut child = run.command().stdout(terminal).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(master).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(line.trim_end(), "line");
}

/// The script's output comes before later messages, and before its own later errors.
#[test]
fn messages_keep_their_place_among_collected_lines() {
    needs([Need::Tracefs]);
    let text = "
import os, signal, sys
def __sample__(event):
    print('one')
    if event.pid == 2: os.kill(os.getpid(), signal.SIGUSR2)
    if event.pid == 3: print('four', file=sys.stderr); print('five'); raise SystemExit('six')
";
    let run = Run::script(text).call_event().workload("calls 2 sleep-ms 300 call 3");
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = run.command();
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    let lines: Vec<&str> = text.lines().map(|line| line.split(':').next().unwrap()).collect();
    let place =
        |line: &str| lines.iter().position(|of| of.trim_start().starts_with(line)).unwrap_or_else(|| panic!("{text}"));
    assert!(place("one") < place("rings"), "{text}");
    assert!(place("rings") < place("four") && place("four") < place("five") && place("five") < place("six"), "{text}");
}

#[test]
fn text_is_utf_8_whatever_the_locale() {
    let text = "
import sys
def __sample__(event):
    print(sys.stdout.encoding, sys.stderr.encoding, 'grüße 漢字 €')
";
    let locales = [("LC_ALL", "C"), ("LC_ALL", "POSIX"), ("LANG", "de_DE.ISO-8859-1"), ("PYTHONIOENCODING", "latin-1")];
    needs([Need::Tracefs]);
    for (name, value) in locales {
        let outcome = Run::script(text).call_event().workload("calls 1").env(name, value).run();
        assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
        assert_eq!(outcome.stdout, "utf-8 utf-8 grüße 漢字 €\n", "{name}={value}");
    }
    prints(
        Run::script(text).call_event().workload("calls 1").empty_env(),
        expect![[r#"
        utf-8 utf-8 grüße 漢字 €
    "#]],
    );
}

#[test]
fn a_comm_of_any_bytes_is_read_and_printed() {
    needs([Need::Tracefs]);
    let text = "
def task__task_rename(event):
    print(ascii(event.newcomm), event.newcomm)
def __sample__(event):
    event.print(timestamp=False)
";
    let mut run = Run::script(text).event("task:task_rename").call_event().workload("comm");
    run = run.operation(b"\xff\xfex").operation(b"calls").operation(b"1");
    let outcome = run.run();
    assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
    let lines: Vec<&[u8]> = outcome.bytes.split(|&byte| byte == b'\n').collect();
    let renamed = lines.iter().position(|line| line.starts_with(b"'\\udcff\\udcfex' \xff\xfex"));
    assert!(renamed.is_some(), "{}", outcome.stdout);
    assert!(lines.iter().any(|line| line.starts_with(b"             \xff\xfex ")), "{}", outcome.stdout);
}

#[test]
fn stdout_and_stderr_into_one_pipe_keep_their_order() {
    needs([Need::Tracefs]);
    let text = "
import sys
def __init__(): print('one'); print('two', file=sys.stderr)
def __sample__(event): print('three'); event.print(); print('five', file=sys.stderr); raise SystemExit('six')
";
    let run = Run::script(text).call_event().workload("calls 1");
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = run.command();
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let child = command.spawn().unwrap();
    drop(command);
    let lines: Vec<String> = BufReader::new(reader).lines().map(Result::unwrap).collect();
    let first_words: Vec<&str> = lines.iter().map(|line| line.split_whitespace().next().unwrap_or_default()).collect();
    assert_eq!(first_words[..3], ["Loaded", "one", "two"]);
    assert_eq!((first_words[3], first_words[5], first_words[6]), ("three", "five", "six"), "{lines:?}");
    assert_eq!(finish(child, run.dir.path()).status, 1);
}

#[test]
fn closed_standard_streams_are_no_failure() {
    needs([Need::Tracefs]);
    let text = "
def __sample__(event):
    print('nobody reads this')
    event.print()
def __exit__(): open('n', 'w').write('ended')
";
    let run = Run::script(text).call_event().workload("calls 3");
    let mut command = run.command();
    // SAFETY: close is async-signal-safe.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || {
            libc::close(0);
            libc::close(1);
            libc::close(2);
            Ok(())
        });
    }
    let status = command.status().unwrap();
    assert_eq!((status.code(), std::fs::read_to_string(run.path("n")).unwrap().as_str()), (Some(0), "ended"));
}

#[test]
fn a_full_disk_under_the_output_file_is_reported_on_the_first_stderr() {
    needs([Need::Tracefs]);
    for text in ["def __sample__(event): print('line')\n", "def __sample__(event): pass\ndef __exit__(): print('x')\n"]
    {
        let outcome = Run::script(text).call_event().workload("calls 3").options(["-o", "/dev/full"]).run();
        let said = "perf-prof: cannot write '/dev/full': No space left on device (os error 28)\n";
        assert!(outcome.stderr.ends_with(said), "{}", outcome.stderr);
        assert_eq!(outcome.status, 1);
    }
}

#[test]
fn a_stdout_that_is_full_is_one_line() {
    needs([Need::Tracefs]);
    let print = "    for _ in range(10000): print('line')\n";
    let callbacks = ["__init__()", "__sample__(event)", "__exit__()"];
    for (callback, buffered) in callbacks.iter().flat_map(|callback| [(callback, ""), (callback, "1")]) {
        let text = format!("def __sample__(event): pass\ndef {callback}:\n{print}");
        let run = Run::script(&text).call_event().workload("calls 3").env("PYTHONUNBUFFERED", buffered);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = run.command().stdout(full).stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{callback}: {stderr}");
        assert_eq!(stderr.matches("No space left on device").count(), 1, "{callback}: {stderr}");
        assert!(!stderr.contains("Traceback") && !stderr.contains("Exception"), "{callback}: {stderr}");
    }
}

/// A comm that would clear a screen, change its color and ring the bell.
const NAME: &[u8] = b"\x1b[2J\x1b[31mRED\x07";
const ESCAPED: &str = "\\x1b[2J\\x1b[31mRED\\x07";

#[test]
fn a_terminal_does_not_obey_the_names_of_tasks() {
    needs([Need::Tracefs]);
    let text = "
from perf_prof import print
def task__task_rename(event): print('renamed', event.newcomm, 7)
def __sample__(event): event.print(timestamp=False)
";
    let run = || {
        let run = Run::script(text).event("task:task_rename").call_event().workload("comm");
        run.operation(NAME).operation(b"calls").operation(b"1")
    };
    let shown = on_terminal(&mut run().command());
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.lines().any(|line| line == format!("renamed {ESCAPED} 7")), "{shown}");
    assert!(shown.lines().any(|line| line.contains(&format!(" {ESCAPED} ")) && line.contains("getpgid")), "{shown}");
    assert!(!shown.contains(['\x1b', '\x07']), "{shown:?}");
    // A pipe gets the bytes unchanged.
    let bytes = run().run().bytes;
    assert_eq!(bytes.windows(NAME.len()).filter(|bytes| *bytes == NAME).count(), 2);
}

#[test]
fn a_terminal_does_not_obey_the_names_in_recordings() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("perf.data");
    let own = std::env::current_exe().unwrap();
    let name = OsStr::from_bytes(NAME);
    let mut record = perf_prof(&["record", "-q", "-e", CALL, "-o"]);
    record.arg(&path).arg("--").arg(own).args([WORKLOAD, "comm"]).arg(name).args(["calls", "3"]);
    assert!(record.status().unwrap().success());
    for words in [&["script"][..], &["report", "--sort", "comm"], &["export", "-q", "-o", "-", "--format", "csv"]] {
        let command = || {
            let mut command = perf_prof(words);
            command.arg("-i").arg(&path);
            command
        };
        let shown = on_terminal(&mut command());
        let shown = String::from_utf8_lossy(&shown);
        assert!(shown.contains(ESCAPED) && !shown.contains(['\x1b', '\x07']), "{words:?} {shown:?}");
        let piped = command().output().unwrap().stdout;
        assert!(piped.windows(NAME.len()).any(|bytes| bytes == NAME), "{words:?}");
    }
}

/// If perf-prof printed these characters of a comm, a task could add a line to a report, or reverse the rest of a line.
#[test]
fn no_name_makes_a_line_of_its_own_or_sets_the_direction_of_text() {
    needs([Need::Tracefs, Need::Python]);
    let folder = Folder::new();
    let (path, name) = (folder.path("perf.data"), "a\n  99% \u{202e}\u{9b}");
    let mut record = perf_prof(&["record", "-q", "-e", CALL, "-o"]);
    let own = std::env::current_exe().unwrap();
    record.arg(&path).arg("--").arg(own).args([WORKLOAD, "comm", name, "calls", "3"]);
    assert!(record.status().unwrap().success());
    let script = folder.write("s.py", b"def __sample__(event): event.print(timestamp=False)\n");
    let shown_name = "a\\x0a  99% \u{202e}\u{9b}";
    let input = path.to_str().unwrap();
    for (words, lines) in [
        (&["report", "--sort", "comm", "-i", input][..], 1),
        (&["top", "--by", "comm", CALL, "--input", input], 0),
        (&["trace", "-e", CALL, "--input", input], 3),
        (&["python", "-q", "-e", CALL, "--input", input, script.to_str().unwrap()], 3),
    ] {
        // The escaped comm is in all of its lines, also in a file.
        let text = stdout(&perf_prof(words).output().unwrap());
        assert_eq!(text.lines().filter(|line| line.contains(shown_name)).count(), lines, "{words:?} {text}");
        assert!(!text.lines().any(|line| line.starts_with("  99%")), "{words:?} {text}");
        let shown = on_terminal(&mut perf_prof(words));
        let shown = String::from_utf8_lossy(&shown);
        assert!(!shown.contains(['\u{202e}', '\u{9b}']), "{words:?} {shown}");
    }
    for words in
        [["trace", "--json", "-e", CALL, "--input", input], ["top", "--json", "--by", "comm", "--input", input]]
    {
        let text = stdout(&perf_prof(&words).output().unwrap());
        assert!(text.contains(r"a\n  99% \u202e\u009b"), "{words:?} {text}");
    }
}

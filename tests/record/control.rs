//! Events that are enabled after a delay, and commands to a running recording.

use std::{
    fs::OpenOptions,
    io::{Read, Write},
    os::fd::AsRawFd,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value as Json;

use crate::harness::{
    counting::objects,
    machine::{Need, needs},
    recorder::{CALL, await_events, command, ended, finished, record_calls, waiting_generator},
    run::{perf_prof, said as said_by, stdout},
    wait,
};

/// Sends a command and waits for the answer.
fn ask(control: &mut impl Write, ack: &mut impl Read, line: &str) {
    control.write_all(line.as_bytes()).unwrap();
    let mut answer = [0; 4];
    ack.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ack\n");
}

/// Runs a process that makes 100 calls, and returns its id. The id is needed because generators of other tests run at
/// the same time.
fn calls() -> u32 {
    let mut generator = waiting_generator(100);
    drop(generator.stdin.take());
    generator.wait().unwrap();
    generator.id()
}

/// Makes two named pipes.
fn fifos(dir: &tempfile::TempDir) -> [std::path::PathBuf; 2] {
    let paths = ["control", "ack"].map(|name| dir.path().join(name));
    assert!(Command::new("mkfifo").args(&paths).status().unwrap().success());
    paths
}

#[test]
fn events_are_turned_on_and_off_through_named_pipes() {
    needs([Need::Tracefs, Need::Perf]);
    // A group is enabled and disabled through its leader. The event of this leader never happens.
    let group = format!("{{syscalls:sys_enter_reboot,{CALL}}}");
    for (events, threads) in [(CALL, &[][..]), (CALL, &["--threads"]), (&group, &[])] {
        let dir = tempfile::tempdir().unwrap();
        let paths = fifos(&dir);
        let place = format!("fifo:{},{}", paths[0].display(), paths[1].display());
        let args = [&["-e", events, "-a", "-D", "-1", "--control", &place][..], threads].concat();
        let recorder = command(&dir, &args).stderr(Stdio::piped()).spawn().unwrap();
        let [mut control, mut ack] = paths.map(|path| OpenOptions::new().read(true).write(true).open(path).unwrap());
        ask(&mut control, &mut ack, "ping\n");
        let before = calls();
        ask(&mut control, &mut ack, "enable\n");
        let during = calls();
        ask(&mut control, &mut ack, "disable\n");
        let after = calls();
        ask(&mut control, &mut ack, "stop\n");
        let recorded = ended(dir, recorder);
        assert_eq!(recorded.status, 0, "{}", recorded.said);
        let script = recorded.perf(&["script", "-F", "pid"]);
        let of = |pid: u32| script.lines().filter(|line| line.trim() == pid.to_string()).count();
        assert_eq!([before, during, after].map(of), [0, 100, 0], "{}", recorded.said);
    }
}

/// A shell reads lines one byte after another. It waits for the second line when the events are turned off.
#[test]
fn no_span_goes_on_over_a_time_in_which_events_were_off() {
    needs([Need::Tracefs]);
    const OFF: Duration = Duration::from_millis(400);
    for threads in [&[][..], &["--threads"]] {
        let dir = tempfile::tempdir().unwrap();
        let paths = fifos(&dir);
        let place = format!("fifo:{},{}", paths[0].display(), paths[1].display());
        let mut shell = Command::new("sh");
        let mut reader = shell.args(["-c", "read a; read b; read c"]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = reader.id().to_string();
        let mut input = reader.stdin.take().unwrap();
        let call = || std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        let waits = || call().starts_with(&format!("{} ", libc::SYS_read));
        wait::until("the shell waits in read()", waits);
        let args = [&["-e", "syscall", "-p", &pid, "--control", &place][..], threads].concat();
        let recorder = command(&dir, &args).stderr(Stdio::piped()).spawn().unwrap();
        let [mut control, mut ack] = paths.map(|path| OpenOptions::new().read(true).write(true).open(path).unwrap());
        ask(&mut control, &mut ack, "ping\n");
        input.write_all(b"a\n").unwrap();
        thread::sleep(Duration::from_millis(100));
        wait::until("the shell waits in read() again", waits);
        ask(&mut control, &mut ack, "disable\n");
        thread::sleep(OFF);
        ask(&mut control, &mut ack, "enable\n");
        input.write_all(b"b\n").unwrap();
        thread::sleep(Duration::from_millis(100));
        ask(&mut control, &mut ack, "stop\n");
        let recorded = ended(dir, recorder);
        assert_eq!(recorded.status, 0, "{}", recorded.said);
        drop(input);
        reader.wait().unwrap();
        let path = recorded.dir.path().join("perf.data");
        let output = top_of_reads(&path);
        let total = objects(&stdout(&output)).pop().unwrap();
        let (max, missing) = (total["rows"][0]["max"].as_u64().unwrap(), total["missing_time"].as_u64().unwrap());
        assert!(u128::from(max) < OFF.as_nanos() && u128::from(missing) >= OFF.as_nanos(), "{total}");
        assert_eq!((&total["partial"], &total["missing"]), (&true.into(), &1.into()), "{total}");
        let told = "1 of 4 spans: they were open when the events were turned off\n";
        assert!(said_by(&output).contains(told), "{}", said_by(&output));
        let data = if threads.is_empty() { path.clone() } else { path.join("data") };
        // The list of these times is at the end of the file. Without it, the records tell them.
        let file = std::fs::read(&data).unwrap();
        std::fs::write(&data, &file[..file.len() - 1]).unwrap();
        let output = top_of_reads(&path);
        let of_cut = objects(&stdout(&output)).pop().unwrap();
        let facts = |of: &Json| [&of["rows"][0]["max"], &of["rows"][0]["count"], &of["missing"]].map(Json::clone);
        assert_eq!(facts(&of_cut), facts(&total), "{of_cut}");
        assert!(said_by(&output).contains(told), "{}", said_by(&output));
    }
}

/// Returns what `top` shows of a recording's calls of read().
fn top_of_reads(recording: &Path) -> Output {
    let args = ["top", "syscall/name=read/", "--by", "name", "--json", "--input"];
    perf_prof(&args).arg(recording).output().unwrap()
}

#[test]
fn an_unknown_control_command_is_reported_and_recording_continues() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = tempfile::tempdir().unwrap();
    let paths = fifos(&dir);
    let place = format!("fifo:{},{}", paths[0].display(), paths[1].display());
    let args = ["-q", "-e", CALL, "-a", "-D", "-1", "--control", &place];
    let recorder = command(&dir, &args).stderr(Stdio::piped()).spawn().unwrap();
    let [mut control, mut ack] = paths.map(|path| OpenOptions::new().read(true).write(true).open(path).unwrap());
    // An unknown command gets no answer, and an empty line is no command. The only answer is to `enable`.
    let long = "x".repeat(5000);
    ask(&mut control, &mut ack, &format!("enabel\n\n\0disable all \x1b\n{long}\nenable\n"));
    let made = calls();
    ask(&mut control, &mut ack, "stop\n");
    let recorded = ended(dir, recorder);
    let said = |word: &str| {
        format!(
            "perf-prof: --control: the unknown command `{word}` is ignored; the known commands are enable, \
             disable, ping, snapshot, stop\n"
        )
    };
    let long = format!("{}...", &long[..60]);
    let rest = recorded.said.strip_prefix(&[said("enabel"), said("disable all \\x1b"), said(&long)].concat());
    assert_eq!((recorded.status, rest), (0, Some("")), "{}", recorded.said);
    let script = recorded.perf(&["script", "-F", "pid"]);
    assert_eq!(script.lines().filter(|line| line.trim() == made.to_string()).count(), 100);
}

#[test]
fn inherited_descriptors_can_be_control_channels() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = tempfile::tempdir().unwrap();
    let [control, ack] = fifos(&dir).map(|path| OpenOptions::new().read(true).write(true).open(path).unwrap());
    let place = format!("fd:{},{}", control.as_raw_fd(), ack.as_raw_fd());
    for file in [&control, &ack] {
        // SAFETY: no pointers are passed; the descriptor stays open in the program.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
    }
    let recorder = command(&dir, &["-e", CALL, "-a", "--control", &place]).stderr(Stdio::piped()).spawn().unwrap();
    await_events(&recorder, &dir.path().join("perf.data"));
    ask(&mut &control, &mut &ack, "stop\n");
    assert_eq!(ended(dir, recorder).status, 0);
}

/// The command runs from the start, and is recorded after the delay.
#[test]
fn a_command_is_recorded_when_the_delay_is_over() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", CALL, "-D", "-1"], 500);
    assert_eq!((recorded.status, recorded.samples()), (0, 0), "{}", recorded.said);
    assert!(recorded.said.contains("-D -1 without --control: nothing can turn the events on"), "{}", recorded.said);
    // The generator does not wait, and exits before the end of the delay.
    let recorded = record_calls(&["-e", CALL, "-D", "60000"], 500);
    assert_eq!((recorded.status, recorded.samples()), (0, 0), "{}", recorded.said);
    let dir = tempfile::tempdir().unwrap();
    let script = "sleep 1; exec sh -c :";
    let output = command(&dir, &["-e", CALL, "-D", "100", "--", "sh", "-c", script]).output().unwrap();
    let recorded = finished(dir, &output);
    // The second shell calls getppid() at its start.
    assert!(recorded.samples() > 0, "{}", recorded.said);
}

#[test]
fn buffer_flush_1_loses_no_samples() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", CALL, "--buffer-flush", "1"], 20_000);
    assert_eq!(recorded.samples() + recorded.said_number("lost"), 20_000, "{}", recorded.said);
}

#[test]
fn wrong_control_channels_are_refused() {
    needs([Need::Tracefs, Need::Perf]);
    for (place, status, text) in [
        ("fd:x", 2, "`x` is not the number of a file descriptor"),
        ("pipe:1", 2, "is not valid for --control"),
        ("fd:999", 1, "--control: descriptor 999 is not open"),
        ("fifo:/no/such/fifo", 1, "--control: cannot open '/no/such/fifo'"),
        ("fifo:/dev/null", 1, "--control: '/dev/null' is not a named pipe"),
    ] {
        let recorded = crate::harness::recorder::record(&["-e", CALL, "-a", "--control", place, "--", "true"]);
        assert!(recorded.status == status && recorded.said.contains(text), "{place}: {}", recorded.said);
        assert!(!recorded.path().exists());
    }
}

#[test]
fn answers_are_not_written_into_a_regular_file() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = tempfile::tempdir().unwrap();
    let [control, _] = fifos(&dir);
    let file = dir.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    for place in [format!("fifo:{},{}", control.display(), file.display()), format!("fifo:{}", file.display())] {
        let output = command(&dir, &["-e", CALL, "-a", "--control", &place, "--", "true"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("is not a named pipe"), "{place}: {said}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"kept");
}

/// The command gets SIGTERM, which is no failure. The recording is complete.
#[test]
fn a_recording_ends_after_its_duration() {
    needs([Need::Tracefs, Need::Perf]);
    // The shell calls getppid() at its start.
    let recorded =
        crate::harness::recorder::record(&["-e", CALL, "--duration", "1s", "--", "sh", "-c", ":; exec sleep 600"]);
    assert_eq!(recorded.status, 0, "{}", recorded.said);
    assert!(recorded.samples() > 0, "{}", recorded.said);
}

#[test]
fn a_recorder_prints_its_own_use() {
    needs([Need::Tracefs, Need::Perf]);
    let args = ["-e", CALL, "--usage-self", "100ms", "--duration", "1s", "--", "sleep", "600"];
    let recorded = crate::harness::recorder::record(&args);
    let is_line = |line: &&str| line.starts_with("perf-prof ") && line.contains(" of one CPU, memory ");
    assert!(recorded.said.lines().any(|line| is_line(&line)), "{}", recorded.said);
}

//! A command that still runs when its recording ends.

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
};

use crate::harness::{
    machine::{Need, needs},
    recorder::{CALL, await_events, command},
    run::tested_program,
    wait,
};

/// A shell that writes to the file `end` how it ended. Without a signal, it runs for minutes.
const COMMAND: [&str; 3] =
    ["sh", "-c", "trap 'echo TERM > end; kill $!; exit 3' TERM; : > begun; sleep 200 & wait; echo over > end"];

/// Waits until a file exists.
#[track_caller]
fn await_file(path: &Path) {
    wait::until(&format!("{} exists", path.display()), || path.exists());
}

#[test]
fn a_command_gets_sigterm_if_its_recording_ends_before_it() {
    needs([Need::Tracefs, Need::Perf]);
    // Ctrl-C is sent to perf-prof alone.
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = command(&dir, &[&["-q", "-e", CALL, "--"], &COMMAND[..]].concat()).spawn().unwrap();
    await_file(&dir.path().join("begun"));
    await_events(&recorder, &dir.path().join("perf.data"));
    // SAFETY: the child was not waited for.
    unsafe { libc::kill(recorder.id() as i32, libc::SIGINT) };
    assert_eq!(recorder.wait().unwrap().code(), Some(0));
    await_file(&dir.path().join("end"));

    // The recorded process exits before the command.
    let dir = tempfile::tempdir().unwrap();
    let mut target = Command::new("sleep").arg("200").spawn().unwrap();
    let args = ["-q", "-e", CALL, "-p", &target.id().to_string(), "--"];
    let mut recorder = command(&dir, &[&args, &COMMAND[..]].concat()).spawn().unwrap();
    await_file(&dir.path().join("begun"));
    target.kill().unwrap();
    target.wait().unwrap();
    assert_eq!(recorder.wait().unwrap().code(), Some(0));
    await_file(&dir.path().join("end"));

    // The reader of the recording closes the pipe.
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(tested_program());
    command.args(["record", "-q", "-o", "-", "--buffer-flush", "1", "-e", "raw_syscalls:sys_enter", "-a", "--"]);
    let mut recorder = command.args(COMMAND).current_dir(dir.path()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut recording, mut buffer) = (recorder.stdout.take().unwrap(), [0; 4096]);
    while !dir.path().join("begun").exists() {
        assert_ne!(recording.read(&mut buffer).unwrap(), 0);
    }
    drop(recording);
    recorder.wait().unwrap();
    let end = dir.path().join("end");
    await_file(&end);
    assert_eq!(fs::read_to_string(end).unwrap(), "TERM\n");
}

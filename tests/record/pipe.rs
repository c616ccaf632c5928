//! Recordings into a pipe.

use std::{
    fs::File,
    os::fd::{FromRawFd, OwnedFd},
    path::Path,
    process::{Command, Stdio},
};

use perf_prof_format::abi::perf_data::PERF_RECORD_EVENT_UPDATE;
use perf_prof_recordings::write::FINISHED_ROUND;
use serde_json::Value;

use crate::harness::{
    machine::{Need, needs},
    recorder::{CALL, are_about_losses, await_events, counting_generator_words, generator_words, with_calls},
    run::{perf_prof, said, stdout, tested_program},
};

/// Records this many calls into a pipe to `perf`, which must print no errors. Returns the output of `perf`, and the
/// messages of perf-prof.
fn piped(options: &[&str], calls: u64, perf: &[&str]) -> (String, String) {
    piped_of(generator_words(), options, calls, perf)
}

/// Like [`piped`], with the command of a generator.
fn piped_of(generator: Vec<String>, options: &[&str], calls: u64, perf: &[&str]) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(tested_program());
    command.args(["record", "-o", "-", "-e", CALL]).args(options).arg("--").args(generator);
    let mut recorder = with_calls(&mut command, calls).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = Command::new("perf");
    reader.args(perf).args(["-i", "-"]).stdin(recorder.stdout.take().unwrap()).env("HOME", dir.path());
    let output = reader.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let said = std::io::read_to_string(recorder.stderr.take().unwrap()).unwrap();
    let is_quiet = stderr.is_empty() || !said.contains(" 0 lost") && are_about_losses(&stderr);
    assert!(output.status.success() && is_quiet, "perf {perf:?}: {stderr}\n{said}");
    assert!(recorder.wait().unwrap().success(), "{said}");
    // The command's output goes to stderr, so that it does not get between the records.
    assert!(said.contains("made ") || said.contains("touched "), "{said}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), said)
}

#[test]
fn perf_reads_recordings_from_a_pipe() {
    needs([Need::Tracefs, Need::Perf]);
    for options in [&[][..], &["-z"]] {
        let (script, said) = piped(options, 50_000, &["script"]);
        let calls = script.lines().filter(|line| line.contains("generator") && line.contains("getppid"));
        assert!(calls.count() == 50_000 || !said.contains(" 0 lost"), "{said}");
    }
    let (report, _) = piped(&["-g"], 5000, &["report", "--stdio", "--header"]);
    for text in ["# hostname : ", "# cmdline : ", "sys_enter_getppid", "Samples: 5K"] {
        assert!(report.contains(text), "{report}");
    }
}

/// The bytes of a recording must not be written to a terminal.
#[test]
fn no_recording_is_written_to_a_terminal() {
    needs([Need::Tracefs, Need::Perf]);
    let (mut ours, mut theirs) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: both numbers may be written. The null pointers request no name, settings or size.
    let opened = unsafe { libc::openpty(&mut ours, &mut theirs, null, null.cast(), null.cast()) };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: these descriptors were just opened, and nothing else owns them.
    let (_ours, terminal) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    let mut command = Command::new(tested_program());
    command.args(["record", "-o", "-", "-e", CALL, "--", "true"]).stdout(Stdio::from(terminal));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("is binary and cannot be shown on a terminal"), "{said}");
}

/// In a pipe, the ids of events come first. The id of the other program's event is not among them.
#[test]
fn a_software_event_that_another_program_counts_too_is_recorded() {
    needs([Need::Tracefs, Need::Perf]);
    for pack in [&[][..], &["-z"]] {
        let options = [&["-e", "page-faults/period=1/"], pack].concat();
        let (script, said) = piped_of(counting_generator_words(), &options, 3000, &["script", "-F", "event"]);
        let samples = script.lines().count();
        assert!(samples >= 3000 && said.contains(&format!(": {samples} samples in ")), "{samples} {said}");
    }
}

/// A reader that has read enough closes the pipe, as `head` does.
#[test]
fn a_closed_pipe_is_a_quiet_end() {
    needs([Need::Tracefs, Need::Perf]);
    let mut command = Command::new(tested_program());
    command.args(["record", "-q", "-o", "-", "-e", "sched:sched_switch", "-a", "--", "sleep", "60"]);
    let mut recorder = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(recorder.stdout.take());
    let said = std::io::read_to_string(recorder.stderr.take().unwrap()).unwrap();
    assert!(said.is_empty(), "{said}");
    assert!(recorder.wait().unwrap().code().is_some());
}

/// Returns whether a table of a recording says that it is partial. It is read three times: by its name, as the standard input, and
/// through a pipe.
fn marks(path: &Path) -> [bool; 3] {
    let shown = path.display().to_string();
    let top = ["top", CALL, "--json", "--input"];
    let by_name = perf_prof(&top).arg(&shown).output().unwrap();
    let by_file = perf_prof(&top).arg("-").stdin(File::open(path).unwrap()).output().unwrap();
    let mut cat = Command::new("cat").arg(path).stdout(Stdio::piped()).spawn().unwrap();
    let by_pipe = perf_prof(&top).arg("-").stdin(cat.stdout.take().unwrap()).output().unwrap();
    cat.wait().unwrap();
    [by_name, by_file, by_pipe].map(|output| {
        let table: Value = serde_json::from_str(stdout(&output).lines().last().unwrap()).unwrap();
        let is_partial = table["partial"] == true;
        assert_eq!(said(&output).contains("was not finished"), is_partial, "{}", said(&output));
        is_partial
    })
}

/// Nothing but its last record shows that a pipe is whole, if it ends between two records.
#[test]
fn a_pipe_without_its_end_is_partial() {
    needs([Need::Tracefs]);
    let dir = tempfile::tempdir().unwrap();
    for pack in [&[][..], &["-z"]] {
        let [whole, cut, killed] = ["whole", "cut", "killed"].map(|name| dir.path().join(name));
        let mut command = Command::new(tested_program());
        command.args(["record", "-q", "-o", "-", "-e", CALL]).args(pack).arg("--").args(generator_words());
        let status = with_calls(&mut command, 2000).stdout(File::create(&whole).unwrap()).status().unwrap();
        assert!(status.success());
        assert_eq!(marks(&whole), [false; 3], "{pack:?}");
        let bytes = std::fs::read(&whole).unwrap();
        let last = bytes.len() - 32;
        assert_eq!(bytes[last..last + 4], PERF_RECORD_EVENT_UPDATE.to_ne_bytes());
        std::fs::write(&cut, &bytes[..last]).unwrap();
        assert_eq!(marks(&cut), [true; 3], "{pack:?}");
        // The description of the events and of the machine is longer than the samples. The first record of an event has 200 bytes.
        for at in (250..last).step_by(last / 12) {
            std::fs::write(&cut, &bytes[..at]).unwrap();
            let output = perf_prof(&["top", CALL, "--json", "--input"]).arg(&cut).output().unwrap();
            // Without the format of the tracepoint, there is no table.
            let is_marked = !output.status.success() || stdout(&output).contains("\"partial\":true");
            let is_told = ["was not finished", "is cut off"].iter().any(|text| said(&output).contains(text));
            assert!(is_marked && is_told, "{pack:?} {at} of {last}: {output:?}");
        }
        // Other programs may add records.
        std::fs::write(&whole, [&bytes[..], &FINISHED_ROUND].concat()).unwrap();
        assert_eq!(marks(&whole), [false; 3], "{pack:?}");

        let own = std::process::id().to_string();
        let mut command = Command::new(tested_program());
        command.args(["record", "-q", "-o", "-", "-e", CALL, "-p", &own]).args(pack);
        let mut recorder = command.stdout(File::create(&killed).unwrap()).spawn().unwrap();
        await_events(&recorder, &killed);
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        assert_eq!(marks(&killed), [true; 3], "{pack:?}");
    }
}

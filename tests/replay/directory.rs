//! Files of a recording's directory that are opened by their own paths.

use std::{
    fs,
    process::{Command, Stdio},
};

use super::made::NATIVE;
use crate::harness::{
    machine::{Need, needs},
    recording::{Folder, record},
    run::{stdout, tested_program},
};

/// The file `data` contains no events, and the files of rings are no perf.data files.
#[test]
fn a_part_of_a_directory_is_not_taken_for_a_recording() {
    needs([Need::Perf]);
    let folder = Folder::new();
    record(&folder.path("dir"), &["--threads", "-e", "sched:sched_switch", "-a", "--", "true"]);
    folder.write("s.py", b"def __sample__(e): print(e._time)\ndef __partial__(): pass\ndef __merge__(of): pass\n");
    let run = |place: &str, words: &[&str]| {
        let mut command = Command::new(tested_program());
        let output = command.args(words).current_dir(folder.path(place)).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap(), output.stdout.is_empty())
    };
    for (place, path, directory) in [("", "dir/data", "dir"), ("", "dir/data.0", "dir"), ("dir", "data", ".")] {
        let why = format!("{path} is only a part of the recording {directory}, which consists of several files");
        let expected = (Some(1), format!("perf-prof: {why}; use the directory {directory}\n"), true);
        for words in [
            &["script", "-i", path][..],
            &["report", "-i", path],
            &["python", "--input", path, "../s.py"],
            &["python", "--input", path, "--jobs", "2", "../s.py"],
            &["parallel", "--", "perf-prof", "script", "-i", path],
        ] {
            assert_eq!(run(place, words), expected, "{words:?}");
        }
    }
    // `data` describes the recording. The error about a ring's file must name the directory.
    for words in [&["evlist"][..], &["report", "--header-only"]] {
        let (status, said, _) = run("", &[words, &["-i", "dir/data"]].concat());
        assert_eq!((status, said.as_str()), (Some(0), ""), "{words:?}");
        let (status, said, _) = run("", &[words, &["-i", "dir/data.0"]].concat());
        assert!(
            status == Some(1) && said.contains("dir/data.0 is only a part of the recording dir, "),
            "{words:?}: {said}"
        );
    }
    let (status, said, is_empty) = run("", &["script", "-i", "dir"]);
    assert_eq!((status, said.as_str(), is_empty), (Some(0), "", false));
    // A copy of `data` outside of the directory contains no events.
    fs::copy(folder.path("dir/data"), folder.path("alone")).unwrap();
    let (status, said, _) = run("", &["script", "-i", "alone"]);
    let why = "alone was the file `data` of a directory and has no events; the events are in the files `data.0`, \
               `data.1`, ... of this directory";
    assert_eq!((status, said), (Some(0), format!("perf-prof: warning: {why}\n")));
}

/// If pipes were opened, everybody who can write into the directory could make readers wait for ever.
#[test]
fn a_pipe_in_a_directory_is_refused_and_not_waited_for() {
    let folder = Folder::new();
    let recording = NATIVE.file(&NATIVE.records());
    let said = |words: &[&str]| {
        let mut command = Command::new(tested_program());
        let output = command.args(words).current_dir(folder.path("")).stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (directory, pipe) in [("a", "data"), ("b", "data.0")] {
        fs::create_dir(folder.path(directory)).unwrap();
        if pipe != "data" {
            folder.write(&format!("{directory}/data"), &recording);
        }
        stdout(&Command::new("mkfifo").arg(folder.path(&format!("{directory}/{pipe}"))).output().unwrap());
        let refused = (Some(1), format!("perf-prof: cannot read {directory}/{pipe}: not a regular file\n"));
        for words in [&["script", "-i", directory][..], &["report", "-i", directory], &["evlist", "-i", directory]] {
            assert_eq!(said(words), refused, "{words:?}");
        }
    }
    folder.write("a/data.1", b"no recording");
    assert!(said(&["script", "-i", "a/data.1"]).1.contains("a/data.1 is not a perf.data file"));
    let refused = said(&["record", "--threads", "-o", "a", "-e", "cpu-clock", "--", "true"]);
    assert!(refused.1.contains("this folder already contains other files"), "{refused:?}");
}

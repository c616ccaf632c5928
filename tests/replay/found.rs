//! The message and the exit status if no event of a recording is delivered.

use std::process::{Command, Output, Stdio};

use serde_json::Value as Json;

use super::made::NATIVE;
use crate::harness::{
    recording::Folder,
    run::{stdout, tested_program},
};

const COUNT: &str = "\
n = 0
def __sample__(event):
    global n
    n += 1
def __partial__(): return n
def __merge__(partials):
    global n
    n = sum(partials)
def __exit__(): print(n)
";

/// Returns a folder with a recording of two events, with samples of CPUs 1 and 2, and with a script that counts
/// samples.
fn folder(ids: [u64; 4]) -> Folder {
    let folder = Folder::new();
    let place = |number: usize| NATIVE.of(1 + number as u32 % 2, 7);
    let samples = ids.iter().enumerate().map(|(number, &id)| place(number).sample(id, 2_000_000_000 + number as u64));
    folder.write("perf.data", &NATIVE.file(&samples.collect::<Vec<_>>().concat()));
    folder.write("count.py", COUNT.as_bytes());
    folder
}

fn command(folder: &Folder, args: &[&str]) -> Command {
    let mut command = Command::new(tested_program());
    command.args(args).current_dir(folder.path("")).stdin(Stdio::null());
    command
}

/// Returns what `perf-prof` printed on stderr, without the names of loaded modules, and its exit status.
fn said(output: &Output) -> (String, Option<i32>) {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = text.lines().filter(|line| !line.starts_with("Loaded module: ")).map(|line| format!("{line}\n"));
    (lines.collect(), output.status.code())
}

/// Without a message, it would look as if no events had happened.
#[test]
fn an_empty_selection_is_reported() {
    let times = "its samples are in `--time 2.000000000,2.000000003`";
    let rows = [
        (&["-C", "9"][..], "-C 9", ", and on CPUs 1-2"),
        (&["-p", "99"], "-p 99", "; `perf-prof report -i perf.data --sort pid,tid,comm` lists their tasks"),
        (&["--time", "3,4.5"], "--time 3.000000000,4.500000000", ""),
        (&["-C", "1", "--time", "3,"], "-C 1 --time 3.000000000,", ", and on CPUs 1-2"),
    ];
    let folder = folder([50, 51, 50, 51]);
    let run = |args: &[&str], more: &[&str]| said(&command(&folder, &[args, more].concat()).output().unwrap());
    for (args, asked, rest) in rows {
        let expected = format!("perf-prof: no sample in perf.data matches `{asked}`: {times}{rest}\n");
        for words in [&["script"][..], &["report"], &["python", "--input", "perf.data"]] {
            let script: &[&str] = if words[0] == "python" { &["count.py"] } else { &[] };
            assert_eq!(run(words, &[args, script].concat()), (expected.clone(), Some(0)), "{words:?}");
            // -q may come from the script's first line, but the user typed the other options. So the message is printed
            // even with -q.
            let quiet = if words[0] == "python" { expected.clone() } else { String::new() };
            assert_eq!(run(words, &[&["-q"], args, script].concat()), (quiet, Some(0)), "{words:?}");
        }
        for jobs in [&["--jobs", "2"][..], &["--jobs", "2", "--split", "cpu"]] {
            let replay = ["python", "--input", "perf.data", "-e", "sys:e"];
            let expected = expected.replacen('`', "`-e sys:e ", 1);
            assert_eq!(run(&replay, &[jobs, args, &["count.py"]].concat()), (expected, Some(0)), "{jobs:?}");
        }
    }
    // Filters are applied after the other selections.
    let filtered = ["python", "--input", "perf.data", "-e", "sys:e/number == 3/", "count.py"];
    let expected = format!("perf-prof: no sample in perf.data matches `-e sys:e/number == 3/`: {times}\n");
    assert_eq!(run(&filtered, &[]), (expected, Some(0)));
    assert_eq!(run(&[&filtered[..3], &["-q"], &filtered[3..]].concat(), &[]), (String::new(), Some(0)));
    for matching in [&["-C", "1"][..], &["-p", "7"], &["--time", "2,2.000000000"], &[]] {
        assert_eq!(run(&["script"], matching), (String::new(), Some(0)), "{matching:?}");
    }
}

/// A pipe cannot be read a second time, so the message does not say what the input contains.
#[test]
fn an_empty_selection_of_a_pipe_is_reported() {
    let folder = Folder::new();
    let pipe = folder.write("pipe.data", &NATIVE.pipe(&NATIVE.sample(50, 30)));
    let mut script = command(&folder, &["script", "-i", "-", "-C", "9"]);
    let output = script.stdin(std::fs::File::open(pipe).unwrap()).output().unwrap();
    assert_eq!(said(&output), ("perf-prof: no sample matches `-C 9`\n".to_owned(), Some(0)));
    // A file with the same stream can be read a second time.
    let output = command(&folder, &["script", "-i", "pipe.data", "-C", "9"]).output().unwrap();
    assert!(said(&output).0.contains("`--time 0.000000030,0.000000030`, and on CPU 1\n"), "{output:?}");
}

#[test]
fn an_empty_selection_of_an_empty_recording_is_not_reported() {
    let folder = Folder::new();
    folder.write("perf.data", &NATIVE.file(&NATIVE.comm(5)));
    let output = command(&folder, &["script", "-C", "9"]).output().unwrap();
    assert_eq!(said(&output), (String::new(), Some(0)));
}

/// The message alone is not enough: the exit status must report the failure too.
#[test]
fn leaving_out_all_samples_of_a_recording_is_a_failure() {
    let folders = [folder([90, 91, 92, 93]), folder([90, 50, 91, 92])];
    for (folder, found) in folders.iter().zip([0, 1]) {
        let text = format!(
            "perf-prof: {} samples were left out, because the recording has no event with their ids\n",
            4 - found
        );
        let expected = (text, Some(if found == 0 { 1 } else { 0 }));
        for args in [&["script"][..], &["report"], &["script", "-q"]] {
            assert_eq!(said(&command(folder, args).output().unwrap()), expected, "{args:?}");
        }
        for jobs in [&[][..], &["--jobs", "2"], &["--jobs", "2", "--split", "cpu"]] {
            let args = [&["python", "-q", "--input", "perf.data"], jobs, &["count.py"]].concat();
            let output = command(folder, &args).output().unwrap();
            assert_eq!((said(&output), output.stdout), (expected.clone(), format!("{found}\n").into()), "{args:?}");
        }
    }
    // The exit status of the script takes precedence.
    let folder = &folders[0];
    folder.write("exit.py", b"import sys\ndef __sample__(e): pass\ndef __exit__(): sys.exit(0)\n");
    let output = command(folder, &["python", "-q", "--input", "perf.data", "exit.py"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}

/// One flipped bit of an id leaves out a sample.
#[test]
fn results_that_lack_the_samples_of_unknown_ids_are_lower_bounds() {
    for (ids, is_partial) in [([50, 51, 90, 50], true), ([50, 51, 51, 50], false)] {
        let folder = folder(ids);
        let script = COUNT.replace("print(n)", "print(n, perf_prof.stats()['partial'])");
        let script = format!("import perf_prof\n{script}");
        folder.write("count.py", script.as_bytes());
        let output = |args: &[&str]| stdout(&command(&folder, args).output().unwrap());
        let object = |args: &[&str]| {
            let text = output(args);
            let last = if text.starts_with("{\n") { Some(&*text) } else { text.lines().last() };
            serde_json::from_str::<Json>(last.unwrap_or_default()).unwrap()
        };
        let top = object(&["top", "sys:e", "--by", "_tid", "--json", "--input", "perf.data"]);
        assert_eq!((top["partial"] == true, top["damaged"] == true), (is_partial, is_partial), "{top}");
        let report = object(&["report", "--json", "-i", "perf.data"]);
        assert_eq!(report["partial"], is_partial, "{report}");
        let last = object(&["export", "-o", "-", "--format", "ndjson", "-i", "perf.data"]);
        assert_eq!(last["partial"] == true, is_partial, "{last}");
        for jobs in [&[][..], &["--jobs", "2"], &["--jobs", "2", "--split", "cpu"]] {
            let shown = output(&[&["python", "-q", "--input", "perf.data"], jobs, &["count.py"]].concat());
            let expected = format!("{} {}\n", 4 - u32::from(is_partial), if is_partial { "True" } else { "False" });
            assert_eq!(shown, expected, "{jobs:?}");
        }
    }
}

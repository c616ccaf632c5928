//! Tests `perf-prof parallel`.

use std::{fs, process::Command};

use super::{parallel, recording};
use crate::harness::{
    machine::{Need, needs},
    recording::record_pipe,
    run::{said, tested_program},
};

#[test]
fn parts_joined_are_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    let whole = Command::new("perf").args(["script", "--ns"]).current_dir(folder).output().unwrap();
    assert!(whole.stdout.len() > 1000);
    let output = parallel(folder, &["-n", "5", "-j", "2", "-m", "0.01", "-o", "parts", "--", "perf", "script", "--ns"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output), "perf-prof: all jobs succeeded (count: 5); their output is in parts/out.txt\n");
    assert_eq!(fs::read(folder.join("parts/out.txt")).unwrap(), whole.stdout);
    let read = |name: &str| fs::read_to_string(folder.join("parts").join(name)).unwrap();
    assert!((0..5).all(|part| !read(&format!("time-range-{part}/out.txt")).is_empty()));
    assert!(read("time-range-4/cmd.txt").starts_with("perf script --time="));
    assert!(!folder.join("parts/time-range-0/err.txt").exists());

    let again = parallel(folder, &["-o", "parts", "--", "perf", "script"]);
    assert!(said(&again).contains("parts exists already"), "{}", said(&again));
}

/// Users may create the output folder before the run.
#[test]
fn an_empty_folder_is_taken_for_the_output() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    fs::create_dir(folder.join("parts")).unwrap();
    let run = || parallel(folder, &["-n", "2", "-o", "parts", "--", "perf", "script"]);
    let first = run();
    assert!(first.status.success() && folder.join("parts/out.txt").exists(), "{}", said(&first));
    let why = "perf-prof: parts exists already and is not empty: remove it, or use another folder with -o\n";
    assert_eq!(said(&run()), why);
    let file = parallel(folder, &["-o", "perf.data", "--", "perf", "script"]);
    assert_eq!(said(&file), "perf-prof: perf.data is not a folder: use another path with -o\n");
}

/// Another user may have put the folder into a folder of all users.
#[test]
fn nothing_is_written_into_a_folder_that_exists_with_the_usual_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    fs::create_dir(folder.join("other")).unwrap();
    std::os::unix::fs::symlink("other", folder.join("parallel-perf-output")).unwrap();
    let refused = parallel(folder, &["--", "perf", "script"]);
    let why = "perf-prof: parallel-perf-output exists already: remove it, or use another folder with -o\n";
    assert_eq!((said(&refused).as_str(), refused.status.code()), (why, Some(1)));
    assert_eq!(fs::read_dir(folder.join("other")).unwrap().count(), 0);
}

/// The line with the name of the loaded script must not count as a message.
#[test]
fn jobs_that_have_nothing_to_say_have_no_messages() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    let script = "import sys\ndef __sample__(event): pass\ndef __exit__():\n    for text in sys.argv[1:]: sys.stderr.write(text)\n";
    fs::write(folder.join("s.py"), script).unwrap();
    let replay = [tested_program(), "python", "--input", "perf.data"];
    let run = |name: &str, options: &[&str], rest: &[&str]| {
        let head = ["-n", "2", "-m", "0", "-o", name, "--"];
        let output = parallel(folder, &[&head[..], &replay, options, &["s.py"], rest].concat());
        assert!(output.status.success(), "{}", said(&output));
        let first = format!("{name}/time-range-0/err.txt");
        (said(&output).lines().map(str::to_owned).collect::<Vec<_>>(), folder.join(first).exists())
    };
    let well = |name: &str| format!("perf-prof: all jobs succeeded (count: 2); their output is in {name}/out.txt");
    assert_eq!(run("a", &[], &[]), (vec![well("a")], false));
    let messages = |part| format!("perf-prof: b/time-range-{part}/err.txt contains messages");
    assert_eq!(run("b", &[], &["text\n"]), (vec![messages(0), messages(1), well("b")], true));
    // First, no part contains a selected sample. Then some parts do.
    let first = "sched:sched_switch";
    let filter = |text: &str| format!("{first}/{text}/");
    let none = "perf-prof: no job found a sample: c/time-range-0/err.txt says what the recording contains".to_owned();
    assert_eq!(run("c", &["-e", &filter("prev_pid == -5")], &[]), (vec![none, well("c")], true));
    let mut whole = Command::new(replay[0]);
    whole.args(["script", "-F", "time"]).current_dir(folder);
    let times = String::from_utf8(whole.output().unwrap().stdout).unwrap();
    let last = times.lines().last().unwrap().trim().trim_end_matches(':').to_owned();
    let range = format!("0,{last}");
    assert_eq!(run("d", &["--time", &range], &[]), (vec![well("d")], false));
}

/// perf-prof replays a script on each part, and the counts of all parts add up.
#[test]
fn our_own_replay_is_divided_too() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    let script = "count = 0\ndef __sample__(event):\n    global count\n    count += 1\ndef __exit__(): print(count)\n";
    fs::write(folder.join("count.py"), script).unwrap();
    let replay = [tested_program(), "python", "-q", "--input", "perf.data", "count.py"];
    let whole = Command::new(replay[0]).args(&replay[1..]).current_dir(folder).output().unwrap();
    let whole: u64 = String::from_utf8(whole.stdout).unwrap().trim().parse().unwrap();
    assert!(whole > 100);
    for split in [["-n", "4"], ["-i", "0.1"], ["-c", "-q"]] {
        let name = format!("parts{}", split.concat());
        let args = [&split[..], &["-m", "0", "-o", &name, "--"], &replay].concat();
        let output = parallel(folder, &args);
        assert!(output.status.success(), "{}", said(&output));
        let joined = fs::read_to_string(folder.join(&name).join("out.txt")).unwrap();
        let counts: Vec<u64> = joined.lines().map(|line| line.parse().unwrap()).collect();
        assert!(counts.len() > 1, "{split:?}: {counts:?}");
        assert_eq!(counts.iter().sum::<u64>(), whole, "{split:?}: {counts:?}");
    }
}

#[test]
fn a_dry_run_shows_the_commands_and_a_failure_names_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    let output = parallel(folder, &["-D", "-n", "2", "--", "perf", "script", "--ns"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("perf script --time=,") && lines[1].ends_with(", --ns"),
        "{shown}"
    );
    assert!(!folder.join("parallel-perf-output").exists());

    let output = parallel(folder, &["-n", "2", "--", "perf", "script", "--no-such-option"]);
    let message = said(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains("--no-such-option failed (exit status: 129); the other jobs were ended"), "{message}");
    assert!(message.contains("unknown option `no-such-option'"), "{message}");
}

/// The command is refused before its recording is read, so the recording need not exist.
#[test]
fn a_command_that_cannot_be_divided_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["perf-prof report -i x.data", "perf-prof evlist -i x.data", "perf report -i x.data", "sh -c date"] {
        let words: Vec<&str> = ["-n", "3", "--"].into_iter().chain(command.split(' ')).collect();
        let output = parallel(folder.path(), &words);
        let message = said(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(&format!("`{command}` cannot be divided")), "{message}");
        assert!(
            message.contains("`perf-prof python --input FILE SCRIPT`, `perf-prof script`, `perf script`"),
            "{message}"
        );
    }
    let output = parallel(folder.path(), &["--", "perf-prof", "python", "-e", "x:y", "s.py"]);
    assert!(said(&output).contains("the command traces live, so there is no recording to divide"), "{}", said(&output));
}

/// `grep` exits with status 1 if no line matches, which must not be a failure.
#[test]
fn parts_without_a_match_are_empty() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    let command = ["--", "perf", "script", "--ns"];
    let output = parallel(folder, &[&["-m", "0", "-n", "3", "-p", "grep no-such-task"][..], &command].concat());
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(folder.join("parallel-perf-output/out.txt")).unwrap(), b"");
    assert!(!folder.join("parallel-perf-output/time-range-0/pipe-err.txt").exists());
    let output = parallel(folder, &[&["-m", "0", "-n", "3", "-o", "b", "-p", "grep ["][..], &command].concat());
    assert!(said(&output).contains("the pipe command `grep [` failed"), "{}", said(&output));
    assert!(said(&output).contains("failed (exit status: 2)"), "{}", said(&output));
}

/// The command accepts percentages for `--time`, so `parallel` must divide such a range too.
#[test]
fn percents_of_the_command_are_divided() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    let script = [tested_program(), "script", "--ns", "--time", "10%,50%"];
    let whole = Command::new(script[0]).args(&script[1..]).current_dir(folder).output().unwrap();
    let output = parallel(folder, &[&["-n", "3", "-m", "0", "--"][..], &script].concat());
    assert!(output.status.success(), "{}", said(&output));
    assert!(folder.join("parallel-perf-output/time-range-2").exists() && whole.stdout.len() > 1000);
    assert_eq!(fs::read(folder.join("parallel-perf-output/out.txt")).unwrap(), whole.stdout);
}

#[test]
fn fewer_parts_than_requested_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    let output = parallel(folder, &["-D", "-n", "1000", "--", "perf", "script"]);
    let parts = String::from_utf8(output.stdout.clone()).unwrap().lines().count();
    let message = "instead of 1000: no part may be shorter than 0.1 s (see -m)\n";
    let message = format!("the number of parts is {parts} {message}");
    assert!(parts < 1000 && said(&output).ends_with(&message), "{parts}: {}", said(&output));
    let output = parallel(folder, &["-D", "-m", "0.0001", "-n", "1000", "--", "perf", "script"]);
    assert_eq!((said(&output).as_str(), output.stdout.split(|&byte| byte == b'\n').count()), ("", 1001));
}

/// The header of a recording that was written to a pipe contains no times.
#[test]
fn a_recording_of_a_pipe_in_a_file_is_divided() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let events = ["-e", "sched:sched_switch,sched:sched_wakeup"];
    let work = ["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 0.05; done"];
    needs([Need::Tracefs, Need::Perf]);
    record_pipe(&folder.join("r.pipe"), &[&["-a", "-m", "1024"], &events[..], &work].concat());
    let script = [tested_program(), "script", "--ns", "-i", "r.pipe"];
    let whole = |more: &[&str]| {
        let output = Command::new(script[0]).args(&script[1..]).args(more).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        output.stdout
    };
    let all = whole(&[]);
    let output = parallel(folder, &[&["-n", "3", "-m", "0", "--"][..], &script].concat());
    assert!(output.status.success(), "{}", said(&output));
    assert!(all.len() > 1000 && folder.join("parallel-perf-output/time-range-2").exists());
    assert_eq!(fs::read(folder.join("parallel-perf-output/out.txt")).unwrap(), all);
    // `--time` accepts percentages for this recording too.
    assert_eq!([whole(&["--time", "0%,40%"]), whole(&["--time", "40%,100%"])].concat(), all);
}

#[test]
fn commands_that_cannot_be_divided_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |args: &[&str]| {
        let output = parallel(folder.path(), args);
        (output.status.code(), said(&output).lines().next().unwrap_or_default().to_owned())
    };
    let pipe = "perf-prof: a pipe cannot be divided: write the recording to a file first";
    assert_eq!(refused(&["--", "perf", "script", "-i", "-"]), (Some(1), pipe.into()));
    let none = "perf-prof: time cannot be divided into 0 parts or parts of length 0: -n and -i must be above 0";
    assert_eq!(refused(&["-n", "0", "--", "perf", "script"]), (Some(2), none.into()));
    let (status, missing) = refused(&["--", "perf", "script", "-i", "missing"]);
    assert!(status == Some(1) && missing.contains("missing") && missing.contains("No such file"), "{missing}");
}

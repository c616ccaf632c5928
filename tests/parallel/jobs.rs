//! Tests `perf-prof python --input --jobs`.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitStatus, Output, Stdio},
};

use super::recording;
use crate::harness::{
    recording::record,
    run::{said, tested_program},
};

/// Runs a script on the recording with `-q`, so that only the script prints something.
fn replayed(folder: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(tested_program());
    command.args(["python", "-q", "--input", "perf.data"]).args(options).current_dir(folder).output().unwrap()
}

#[test]
fn a_script_merges_what_its_jobs_found() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    let script = "\
import collections, perf_prof
counts = collections.Counter()
parts = 0
def __sample__(event):
    counts[event._event, event._cpu] += 1
def __partial__(): return counts
def __merge__(partials):
    global parts
    parts = len(partials)
    for partial in partials:
        counts.update(partial)
def __exit__(): print(sorted(counts.items()), perf_prof.stats()['delivered'] == sum(counts.values()), parts)
";
    fs::write(folder.join("count.py"), script).unwrap();
    let text = |output: Output| {
        assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
        String::from_utf8(output.stdout).unwrap()
    };
    let serial = text(replayed(folder, &["count.py"]));
    let (head, _) = serial.rsplit_once(' ').unwrap();
    assert!(head.contains("sched:sched_switch"), "{head}");
    for (options, parts) in [(vec!["--jobs", "3"], 3), (vec!["--jobs", "2", "--split", "cpu"], 2)] {
        let shown = text(replayed(folder, &[&options[..], &["count.py"]].concat()));
        assert_eq!(shown, format!("{head} {parts}\n"), "{options:?}");
    }
}

#[test]
fn a_callback_that_raises_in_a_job_gives_status_1_and_all_results() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    let script = "\
import perf_prof
n = 0
def __sample__(event):
    global n
    n += 1
    if n == 1 and perf_prof.shard()['number'] == 1: raise ValueError('once')
def __partial__(): return n
def __merge__(partials): print('merged', sum(partials) == perf_prof.stats()['delivered'])
";
    fs::write(folder.join("s.py"), script).unwrap();
    let output = replayed(folder, &["--jobs", "2", "s.py"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "merged True\n");
    assert!(said(&output).contains("ValueError: once"), "{}", said(&output));
    assert_eq!(output.status.code(), Some(1));
}

/// Partial results are pickled after the script's folder was added to `sys.path`.
#[test]
fn a_file_beside_the_script_does_not_replace_a_module_that_jobs_need() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    let script = "\
n = 0
def __sample__(event):
    global n
    n += 1
def __partial__(): return n
def __merge__(partials): print('merged', sum(partials) > 0)
";
    for name in ["pickle.py", "heapq.py"] {
        fs::write(folder.join(name), "raise SystemExit('planted')\n").unwrap();
    }
    fs::write(folder.join("count.py"), script).unwrap();
    let check = |name: &str| {
        let output = replayed(folder, &["--jobs", "2", name]);
        assert_eq!((String::from_utf8_lossy(&output.stdout).as_ref(), said(&output).as_str()), ("merged True\n", ""));
    };
    check("count.py");
    // The script itself may have the name of the module.
    fs::write(folder.join("pickle.py"), script).unwrap();
    check("pickle.py");
}

/// The result of a replay with `--jobs` that was interrupted twice, during an event.
struct Interrupted {
    /// What the replay printed after the first line.
    printed: String,
    said: String,
    status: ExitStatus,
}

fn interrupted(folder: &Path, signal: i32) -> Interrupted {
    recording(folder);
    // Each event takes so long that all events together would take hours.
    let script = "\
import time
n = 0
def __sample__(event):
    global n
    n += 1
    print('begun', flush=True)
    if n > 1: time.sleep(60)
def __partial__(): return n
def __merge__(partials): print('merged', sum(partials))
";
    fs::write(folder.join("slow.py"), script).unwrap();
    let mut command = Command::new(tested_program());
    command.args(["python", "-q", "--input", "perf.data", "--jobs", "2", "slow.py"]).current_dir(folder);
    let mut replay = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(replay.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    // The second interrupt does not wait for a callback that does not return.
    for _ in 0..2 {
        // SAFETY: kill takes only numbers.
        unsafe { libc::kill(replay.id() as i32, signal) };
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    let (mut printed, mut said) = (String::new(), String::new());
    stdout.read_to_string(&mut printed).unwrap();
    let status = replay.wait().unwrap();
    replay.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    Interrupted { printed, said, status }
}

/// The processes must not block signals for ever. Otherwise each process would read its part to the end.
#[test]
fn an_interrupted_replay_by_jobs_stops_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let Interrupted { printed, said, status } = interrupted(folder.path(), libc::SIGINT);
    assert!(
        said.contains("interrupted: the following results are for the parts that each process had read so far"),
        "{said}"
    );
    let merged = printed.lines().last().and_then(|line| line.strip_prefix("merged "));
    let merged: u32 = merged.unwrap_or_else(|| panic!("{status} {printed} {said}")).parse().unwrap();
    assert!(merged < 10, "too many events were delivered: {merged}");
}

/// SIGTERM and SIGHUP must not end the processes with a status of their own, which would be taken for a failure.
#[test]
fn sigterm_and_sighup_end_a_replay_by_jobs_with_the_results_so_far() {
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        let folder = tempfile::tempdir().unwrap();
        let Interrupted { printed, said, status } = interrupted(folder.path(), signal);
        assert!(printed.lines().last().is_some_and(|line| line.starts_with("merged ")), "{status} {printed} {said}");
        assert_eq!(status.code(), Some(128 + signal), "{said}");
    }
}

/// A limit on the size of files simulates a full disk.
#[test]
fn a_result_that_cannot_be_stored_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    let script =
        "def __sample__(event): pass\ndef __partial__(): return bytes(1 << 20)\ndef __merge__(partials): pass\n";
    fs::write(folder.join("s.py"), script).unwrap();
    let mut command = Command::new(tested_program());
    command.args(["python", "-q", "--input", "perf.data", "--jobs", "2", "s.py"]).current_dir(folder);
    // SAFETY: setrlimit is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 1 << 16, rlim_max: 1 << 16 };
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            Ok(())
        });
    }
    let output = command.output().unwrap();
    let why = format!("cannot store the result of __partial__() in {}: File too large", std::env::temp_dir().display());
    assert!(said(&output).contains(&why), "{}", said(&output));
    assert_eq!(output.status.code(), Some(1));
}

/// Only the first interrupt prints the line.
#[test]
fn a_second_interrupt_of_a_replay_by_jobs_says_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let Interrupted { said, .. } = interrupted(folder.path(), libc::SIGINT);
    assert_eq!(said.matches("interrupted: the following results are for").count(), 1, "{said}");
}

/// A pause may last more than 100,000 intervals, and may cross the border between two parts. `__interval__` must be
/// called exactly once per interval.
#[test]
fn intervals_of_a_long_silence_are_those_of_the_serial_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rests = "for i in 1 2 3 4; do sleep 0.2; done";
    record(&folder.join("perf.data"), &["-e", "sched:sched_process_exec", "sh", "-c", rests]);
    let script = "\
import perf_prof
intervals = 0
def sched__sched_process_exec(event): pass
def __interval__():
    global intervals
    intervals += 1
def __partial__(): return intervals
def __merge__(partials):
    global intervals
    intervals = sum(partials)
def __exit__(): print(intervals)
";
    fs::write(folder.join("count.py"), script).unwrap();
    let count = |options: &[&str]| -> u64 {
        let output = replayed(folder, &[options, &["count.py"]].concat());
        assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    };
    let serial = count(&["-i", "1us"]);
    // As in a live run, `__interval__` is called for each interval of the sleeps.
    assert!(serial > 600_000, "{serial}");
    for options in [["--jobs", "3", "--split", "time"], ["--jobs", "5", "--split", "time"]] {
        assert_eq!(count(&[&["-i", "1us"][..], &options].concat()), serial, "{options:?}");
    }
}

/// All losses must be counted, also if the recording is divided by CPU.
#[test]
fn losses_are_summed_whatever_divides_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    let script = "\
import perf_prof
def __sample__(event): pass
def __partial__(): return 0
def __merge__(partials): pass
def __exit__(): print(*(perf_prof.stats()[what] for what in ('delivered', 'lost')))
";
    fs::write(folder.join("s.py"), script).unwrap();
    let busy = "dd if=/dev/zero of=/dev/null bs=1 count=100000 2>/dev/null";
    // Only these tasks are recorded. The side-band records of all tasks, and their losses, would depend on the rest of
    // the machine.
    let ours = ["record", "-q", "-m", "1", "-e", "raw_syscalls:*", "-o", "ours.data", "--", "sh", "-c"];
    let mut ours = ours.map(str::to_owned).to_vec();
    ours.push(format!("{busy} & {busy}; wait"));
    let recorded = Command::new(tested_program()).args(ours).current_dir(folder).status().unwrap();
    assert!(recorded.success());
    let counts = |options: &[&str]| {
        let mut command = Command::new(tested_program());
        command.args(["python", "-q", "--input", "ours.data"]).args(options).arg("s.py").current_dir(folder);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let serial = counts(&[]);
    assert!(!serial.trim().ends_with(" 0"), "nothing was lost: {serial}");
    for options in [&["--jobs", "2"][..], &["--jobs", "2", "--split", "cpu"]] {
        assert_eq!(counts(options), serial, "{options:?}");
    }
    // The losses of each CPU are also counted.
    let sum = ["0", "1"].map(|cpu| {
        let counts = counts(&["-C", cpu]);
        counts.split_whitespace().map(|count| count.parse::<u64>().unwrap()).sum::<u64>()
    });
    let all = serial.split_whitespace().map(|count| count.parse::<u64>().unwrap()).sum::<u64>();
    if perf_prof_system::procfs::online_cpus().is_ok_and(|cpus| cpus.iter().count() == 2) {
        // The losses that a ring records include side-band records, of which these tasks have fewer than a hundred.
        let sum = sum.iter().sum::<u64>();
        assert!((all..all + 100).contains(&sum), "{sum} {all}");
    }
}

#[test]
fn options_and_scripts_that_exclude_jobs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recording(folder);
    let refused = |script: &str, options: &[&str]| {
        fs::write(folder.join("s.py"), script).unwrap();
        let output = replayed(folder, &[options, &["s.py"]].concat());
        assert_ne!(output.status.code(), Some(0));
        said(&output)
    };
    let plain = "def __sample__(event): pass\n";
    let message = refused(plain, &["--jobs", "2"]);
    // The error is printed once, although each process finds it.
    assert_eq!(message.matches("has to define __partial__()").count(), 1, "{message}");
    let message = refused(plain, &["--jobs", "2", "-N", "3"]);
    assert!(message.contains("--jobs and -N cannot be combined"), "{message}");
    let lambda = format!("{plain}def __partial__(): return lambda: 0\ndef __merge__(partials): pass\n");
    let message = refused(&lambda, &["--jobs", "2"]);
    assert!(message.contains("cannot be sent to another process") && message.contains("return dicts"), "{message}");
    let raises = format!("{plain}def __partial__(): return 1\ndef __merge__(partials): 1 / 0\n");
    let message = refused(&raises, &["--jobs", "2"]);
    assert!(message.contains("ZeroDivisionError") && message.contains("__merge__() failed"), "{message}");
}

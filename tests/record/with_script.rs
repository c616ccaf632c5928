//! Recordings that are made while a script runs. A replay delivers the same events to the script, and perf can read the
//! recordings.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::harness::{
    machine::{Need, needs, skip},
    recorder::{CALL, await_events, counting_generator_words, generator_words, perf, waiting_generator, with_calls},
    run::tested_program,
};

/// A script that writes all events and losses in their order, and at the end the counts.
const SCRIPT: &str = r#"
import json, os, perf_prof, sys
told = open(sys.argv[1], "w")
seen = 0
def __sample__(event):
    global seen
    seen += 1
    members = [(name, value) for name, value in event.items() if name not in ("_callchain", "callchain")]
    frames = event.get("_callchain", event.get("callchain", []))
    frames = [(frame["addr"], frame["symbol"], frame["offset"], frame["dso"]) for frame in frames]
    print(f"cpu {event._cpu}: {event._event} {members} {frames}", file=told)
    if seen == int(os.environ.get("EXIT_AFTER", 0)):
        sys.exit(5)
    if seen == int(os.environ.get("RAISE_AFTER", 0)):
        raise ValueError("enough")
def __lost__(start, end):
    print("lost", start, end, file=told)
def __interval__():
    pass
def __exit__():
    counts = perf_prof.stats()
    print("delivered", counts["delivered"], "lost", counts["lost"], file=told)
"#;

/// A folder with the script, and what the script wrote in the live run and in the replay.
struct Session {
    dir: TempDir,
    status: i32,
    said: String,
    said_in_replay: String,
    live: Vec<String>,
    replayed: Vec<String>,
}

fn folder() -> TempDir {
    needs([Need::Python]);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("tell.py"), SCRIPT).unwrap();
    dir
}

/// Returns the command of a live run that is recorded into `file`.
fn live(dir: &TempDir, file: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(tested_program());
    command.arg("python").args(options).arg("--record").arg(file).args(["tell.py", "live"]);
    command.current_dir(dir.path()).stderr(Stdio::piped());
    command
}

/// Waits for the end of a run, and replays its recording.
fn replayed(dir: TempDir, file: &Path, run: Child) -> Session {
    let output = run.wait_with_output().unwrap();
    let replay = Command::new(tested_program())
        .args(["python", "-q", "--input"])
        .arg(file)
        .args(["tell.py", "replayed"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said_in_replay = String::from_utf8_lossy(&replay.stderr).into_owned();
    assert!(replay.status.success(), "{said_in_replay}");
    let read = |name| fs::read_to_string(dir.path().join(name)).unwrap().lines().map(str::to_owned).collect();
    Session {
        status: output.status.code().unwrap(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
        said_in_replay,
        live: read("live"),
        replayed: read("replayed"),
        dir,
    }
}

/// Runs the script on a generator that makes this many calls, and replays the recording.
fn with_calls_of(calls: u64, options: &[&str], environment: &[(&str, &str)]) -> Session {
    let dir = folder();
    let mut command = live(&dir, Path::new("perf.data"), options);
    command.arg("--exec").args(generator_words()).stdout(Stdio::null()).envs(environment.iter().copied());
    let run = with_calls(&mut command, calls).spawn().unwrap();
    replayed(dir, Path::new("perf.data"), run)
}

impl Session {
    fn path(&self) -> PathBuf {
        self.dir.path().join("perf.data")
    }

    /// Returns the number of samples that perf finds. perf must print no errors.
    fn perfs_samples(&self) -> usize {
        perf(&self.path(), &["script", "-F", "event", "-G"]).lines().count()
    }

    #[track_caller]
    fn is_the_same(&self) {
        let pairs = self.live.iter().zip(&self.replayed);
        let first = pairs.enumerate().find(|(_, (live, replayed))| live != replayed);
        assert!(first.is_none(), "{first:#?}\n{}", self.said);
        assert_eq!(self.live.len(), self.replayed.len(), "{}", self.said);
    }
}

/// The lines of samples.
fn samples(lines: &[String]) -> Vec<&str> {
    lines.iter().map(String::as_str).filter(|line| line.starts_with("cpu ")).collect()
}

#[test]
fn with_order_the_replay_equals_the_live_run() {
    needs([Need::Tracefs, Need::Perf]);
    let events = "sched:sched_switch,sched:sched_process_exit,sched:sched_process_fork";
    let run = with_calls_of(20_000, &["--order", "-i", "20", "-e", CALL, "-e", events], &[]);
    assert_eq!(run.status, 0, "{}", run.said);
    run.is_the_same();
    assert_eq!(run.live.iter().filter(|line| line.contains(CALL)).count(), 20_000);
    assert_eq!(run.perfs_samples(), samples(&run.live).len());
    let said = format!("'perf.data': {} samples in ", samples(&run.live).len());
    assert!(run.said.contains(&said) && run.said.contains(", 0 lost"), "{}", run.said);
}

#[test]
fn without_order_the_events_of_each_cpu_keep_their_order() {
    needs([Need::Tracefs, Need::Perf]);
    let run = with_calls_of(20_000, &["-i", "150", "-e", CALL, "-e", "sched:sched_process_exec"], &[]);
    assert_eq!(run.live.last(), run.replayed.last(), "{}", run.said);
    for cpu in 0..64 {
        let of = |lines: &[String]| -> Vec<String> {
            lines.iter().filter(|line| line.starts_with(&format!("cpu {cpu}:"))).cloned().collect()
        };
        assert_eq!(of(&run.live), of(&run.replayed));
    }
    assert_eq!(run.perfs_samples(), samples(&run.live).len());
}

/// Samples that are recorded contain more members than samples for a script alone. Scripts do not see the additional
/// members.
#[test]
fn members_and_frames_are_those_of_a_run_that_is_not_recorded() {
    needs([Need::Tracefs, Need::Perf]);
    let options = ["--order", "-g", "--user-callchain", "-e", "page-faults,cpu-clock/period=500000/", "-e", CALL];
    let mut run = with_calls_of(2000, &options, &[]);
    // The recording contains neither the mappings of the command's process before its exec, nor the code of the vdso.
    for lines in [&mut run.live, &mut run.replayed] {
        lines.retain(|line| !line.contains("sys_execve") && !line.contains("[vdso]"));
    }
    run.is_the_same();
    assert!(run.live.iter().any(|line| line.contains(CALL) && line.contains("'syscall', ")), "{}", run.said);

    let dir = folder();
    let mut alone = Command::new(tested_program());
    alone.arg("python").args(options).args(["tell.py", "alone", "--exec"]).args(generator_words());
    let output = with_calls(&mut alone, 10).stdout(Stdio::null()).current_dir(dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let alone = fs::read_to_string(dir.path().join("alone")).unwrap();
    let alone: Vec<String> = alone.lines().map(str::to_owned).collect();
    for event in ["page-faults", "cpu-clock", CALL] {
        let names = |lines: &[String]| -> Vec<String> {
            let of_event = lines.iter().find(|line| line.contains(&format!(": {event} "))).unwrap();
            let members = of_event.split("] [").next().unwrap();
            members.split("('").skip(1).map(|pair| pair.split('\'').next().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&alone), names(&run.live));
        assert!(names(&alone).len() > 8, "{alone:?}");
    }
}

/// The kernel gives the samples of this event the id of the other program's event. Replays and perf must not leave them
/// out.
#[test]
fn a_software_event_that_another_program_counts_too_is_replayed_whole() {
    needs([Need::Tracefs, Need::Perf]);
    for (limit, least) in [(&[][..], 3000), (&["-N", "2000"], 2000)] {
        let dir = folder();
        let options = ["--order", "-e", "page-faults/period=1/", "-e", CALL];
        let mut command = live(&dir, Path::new("perf.data"), &[&options[..], limit].concat());
        command.arg("--exec").args(counting_generator_words()).stdout(Stdio::null());
        let run = replayed(dir, Path::new("perf.data"), with_calls(&mut command, 3000).spawn().unwrap());
        let (live, replayed) = (samples(&run.live), samples(&run.replayed));
        assert!(live.len() >= least && (limit.is_empty() || live.len() == least), "{}: {}", live.len(), run.said);
        assert!(live == replayed, "{} {}: {}", live.len(), replayed.len(), run.said);
        assert_eq!(run.perfs_samples(), live.len());
    }
}

#[test]
fn a_process_with_threads_that_runs_already() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = folder();
    let mut generator = waiting_generator(700);
    let options = ["--order", "-e", CALL, "-p", &generator.id().to_string()];
    let run = live(&dir, Path::new("perf.data"), &options).spawn().unwrap();
    await_events(&run, &dir.path().join("perf.data"));
    drop(generator.stdin.take());
    generator.wait().unwrap();
    let run = replayed(dir, Path::new("perf.data"), run);
    run.is_the_same();
    assert_eq!((run.status, samples(&run.live).len()), (0, 700), "{}", run.said);
    assert_eq!(run.perfs_samples(), 700);
}

/// At the replay, the tracepoints that tracefs creates for probes no longer exist, but the recording contains their
/// fields.
#[test]
fn probes_have_their_names_and_fields() {
    needs([Need::Tracefs, Need::Perf, Need::Uprobes]);
    let probes = "uprobe:syscall@libc,uretprobe:syscall@libc,uprobe:syscall@libc//alias=again/";
    let mut run = with_calls_of(500, &["--order", "-e", probes], &[]);
    let calls = |lines: &[String], event: &str| lines.iter().filter(|line| line.contains(event)).count();
    assert_eq!(calls(&run.live, ": uprobe:again "), calls(&run.live, ": uretprobe:syscall "));
    // The recording contains the events of the two equal probes once.
    run.live.retain(|line| !line.contains(": uprobe:again "));
    assert_eq!(samples(&run.live), samples(&run.replayed));
    assert_eq!(calls(&run.live, ": uprobe:syscall "), calls(&run.live, ": uretprobe:syscall "));
    assert!(calls(&run.live, ": uretprobe:syscall [('_pid'") >= 500, "{}", run.said);
    let text = perf(&run.path(), &["script", "-G"]);
    let (entries, returns): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.contains(" uprobe:syscall: ("));
    assert_eq!(entries.len(), returns.len());
    assert!(returns.iter().all(|line| line.contains("uretprobe:syscall: (") && line.contains(" <- ")), "{text}");

    let selected = Command::new(tested_program())
        .args(["python", "--input", "perf.data", "-e", "uretprobe:syscall@libc", "tell.py", "selected"])
        .current_dir(run.dir.path())
        .status();
    assert!(selected.unwrap().success());
    let selected = fs::read_to_string(run.dir.path().join("selected")).unwrap();
    assert_eq!(samples(&selected.lines().map(str::to_owned).collect::<Vec<_>>()).len(), returns.len());
}

/// In a replay, each of two selectors of a tracepoint must get only its own samples.
#[test]
fn two_selectors_of_a_tracepoint_are_not_counted_twice() {
    needs([Need::Tracefs, Need::Perf]);
    let script = "\
import collections
counts = collections.Counter()
def __sample__(event): counts[event._event] += 1
def __exit__(): open('counts', 'w').write(str(sorted(counts.items())))
";
    let dir = folder();
    fs::write(dir.path().join("count.py"), script).unwrap();
    let counted = |options: &[&str], exec: &[String]| {
        let mut run = Command::new(tested_program());
        run.args(["python", "-q"]).args(options).arg("count.py").args(exec).current_dir(dir.path());
        let output = with_calls(&mut run, 300).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::read_to_string(dir.path().join("counts")).unwrap()
    };
    let exec = [&["--exec".to_owned()][..], &generator_words()].concat();
    let glob = CALL.replace("_enter", "_ente*");
    for selectors in [
        format!("{CALL}//alias=w1/,{CALL}/common_pid>0/alias=w2/"),
        format!("{CALL}/common_pid>0/alias=w1/,sched:sched_process_exit,{glob}"),
    ] {
        let live = counted(&["--order", "-e", &selectors, "--record", "perf.data"], &exec);
        assert_eq!(live.matches(", 300)").count(), 2, "{live}");
        assert_eq!(counted(&["--input", "perf.data", "-e", &selectors], &[]), live, "{selectors}");
        // The recording contains each event once.
        let alone = counted(&["--input", "perf.data", "-e", CALL], &[]);
        assert_eq!(alone, format!("[('{CALL}', 300)]"));
    }
}

#[test]
fn the_replay_has_the_losses_of_the_live_run() {
    needs([Need::Tracefs, Need::Perf]);
    let run = with_calls_of(100_000, &["-q", "--order", "-m", "1", "--buffer", "4K", "-e", CALL], &[]);
    assert!(samples(&run.live) == samples(&run.replayed), "{}", run.said);
    assert_eq!(run.live.last(), run.replayed.last(), "{}", run.said);
    // A live run reports a loss at the ring's next sample, and a replay at the loss record. The start of the loss is
    // the same.
    let since = |lines: &[String]| -> HashSet<String> {
        let lost = lines.iter().filter_map(|line| line.strip_prefix("lost ")?.split(' ').next());
        lost.map(str::to_owned).collect()
    };
    let (live, replayed) = (since(&run.live), since(&run.replayed));
    assert!(!live.is_empty() && live.is_subset(&replayed), "{live:?} {replayed:?}");
    let last = run.live.last().unwrap();
    let counts: Vec<u64> = last.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert_eq!(counts.iter().sum::<u64>(), 100_000, "{last}");
    assert!(counts[1] > 0, "{last}");
    // The live run and the replay print the same line about the whole run, with the CPUs.
    let sums = |said: &str| said.lines().find(|line| line.contains(" of 100000 events (")).map(str::to_owned);
    let (live, replayed) = (sums(&run.said), sums(&run.said_in_replay));
    assert!(live.as_ref().is_some_and(|line| line.contains(" on CPU ")), "{}", run.said);
    assert_eq!(live, replayed);
}

/// If delivery ends within a batch, the recording ends at the same event.
#[test]
fn the_recording_holds_exactly_the_delivered_events() {
    needs([Need::Tracefs, Need::Perf]);
    for order in [&["--order"][..], &[]] {
        for (more, environment, status) in [
            (&["-N", "1234"][..], ("NOTHING", ""), 0),
            (&[], ("EXIT_AFTER", "1234"), 5),
            (&["--on-error", "stop"], ("RAISE_AFTER", "1234"), 1),
        ] {
            let options = [order, more, &["-e", CALL]].concat();
            let run = with_calls_of(5000, &options, &[environment]);
            assert_eq!(run.status, status, "{options:?} {}", run.said);
            assert_eq!(samples(&run.live).len(), 1234);
            let (mut live, mut replayed) = (samples(&run.live), samples(&run.replayed));
            if order.is_empty() {
                // The generator can go to another CPU, whose ring is read first.
                live.sort_unstable();
                replayed.sort_unstable();
            }
            assert!(live == replayed && replayed.len() == 1234, "{options:?}");
            assert_eq!(run.perfs_samples(), 1234);
        }
    }
}

#[test]
fn ctrl_c_ends_it_and_the_recording_is_whole() {
    needs([Need::Tracefs, Need::Perf]);
    for (signal, status) in [(libc::SIGINT, 0), (libc::SIGTERM, 143)] {
        let dir = folder();
        let run = live(&dir, Path::new("perf.data"), &["--order", "-e", "sched:sched_switch"]).spawn().unwrap();
        await_events(&run, &dir.path().join("perf.data"));
        // SAFETY: the child was not waited for.
        unsafe { libc::kill(run.id() as i32, signal) };
        let run = replayed(dir, Path::new("perf.data"), run);
        assert_eq!(run.status, status, "{}", run.said);
        run.is_the_same();
        assert_eq!(run.perfs_samples(), samples(&run.live).len());
    }
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = folder();
    let mut command = live(&dir, Path::new("perf.data"), &["-q", "-e", CALL]);
    let output = command.args(["--exec", "sh", "-c", "exit 7"]).output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(7), ""));
}

/// The script continues, and the part that was written can be read. The exit status shows that the recording is
/// incomplete.
#[test]
fn a_full_disk_ends_the_recording_and_not_the_script() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = folder();
    let disk = dir.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(&disk).status();
    if !mount.is_ok_and(|status| status.success()) {
        skip(Need::Namespaces, "tmpfs cannot be mounted");
    }
    let file = disk.join("perf.data");
    let mut command = live(&dir, &file, &["--order", "-m", "8M", "-e", CALL]);
    command.arg("--exec").args(generator_words()).stdout(Stdio::null());
    let run = replayed(dir, &file, with_calls(&mut command, 100_000).spawn().unwrap());
    let by_perf = Command::new("perf").args(["script", "-F", "event", "-i"]).arg(&file).output().unwrap();
    let lines = String::from_utf8_lossy(&by_perf.stdout).lines().count();
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    assert_eq!(run.status, 1, "{}", run.said);
    assert!(run.said.contains("No space left on device (os error 28); the recording ends here; the script goes on"));
    let (live, replayed) = (samples(&run.live), samples(&run.replayed));
    // A busy machine may lose samples, so the exact number is not known.
    assert!((10_000..live.len()).contains(&lines), "{lines} of {}: {}", live.len(), run.said);
    assert!(live[..lines] == replayed[..], "{lines} {}", replayed.len());
    let dropped = format!("is incomplete: {} samples", live.len() - lines);
    assert!(run.said.contains(&dropped), "{}", run.said);
    assert!(String::from_utf8_lossy(&by_perf.stderr).contains(" samples and lost "));
}

#[test]
fn an_existing_recording_is_renamed() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = folder();
    let file = |name| fs::read(dir.path().join(name));
    let run = |script: &str| {
        let mut command = Command::new(tested_program());
        command.args(["python", "-q", "-e", CALL, "--record", "perf.data", script, "live", "--exec", "true"]);
        command.current_dir(dir.path()).output().unwrap().status.code()
    };
    assert_eq!(run("tell.py"), Some(0));
    let first = file("perf.data").unwrap();
    // A script that cannot start leaves the existing recording.
    fs::write(dir.path().join("wrong.py"), "def __init__():\n    raise ValueError\ndef __sample__(event): pass\n")
        .unwrap();
    assert_eq!(run("wrong.py"), Some(1));
    assert!(file("perf.data").unwrap() == first && file("perf.data.old").is_err());
    assert_eq!(run("tell.py"), Some(0));
    assert!(file("perf.data.old").unwrap() == first && file("perf.data").unwrap() != first);
}

#[test]
fn wrong_uses_of_record_are_refused() {
    needs([Need::Python]);
    let said = |args: &[&str]| {
        let output = Command::new(tested_program()).arg("python").args(args).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (args, text) in [
        (&["--input", "x.data", "--record", "y.data", "x.py"][..], "--record and --input cannot be combined"),
        (&["-e", "a:b", "--record", "y.data", "help"], "--record and `help` cannot be combined"),
        (&["-e", "a:b", "--record", "-", "x.py"], "the script uses the standard output"),
        (&["-e", "a:b", "x.py", "--record"], "the option `--record` needs a value"),
    ] {
        let (status, stderr) = said(args);
        assert!(status == 2 && stderr.contains(text), "{args:?}: {stderr}");
    }
}

/// The error must be found before the script is loaded and `__init__` is called.
#[test]
fn a_missing_folder_is_reported_before_the_script_is_loaded() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = folder();
    let mut command = live(&dir, Path::new("none/perf.data"), &["-e", CALL]);
    let output = command.args(["--exec", "true"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let why = "perf-prof: cannot write 'none/perf.data': there is no folder 'none'; create it or give another file\n";
    assert_eq!((output.status.code(), &*stderr), (Some(1), why));
    // The script creates this file when it is loaded.
    assert!(!dir.path().join("live").exists());
}

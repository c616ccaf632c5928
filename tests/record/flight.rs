//! The flight recorder (`record --before`): what a dump contains, and that it is a complete recording.

use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use perf_prof_format::record::Record;
use tempfile::TempDir;

use crate::harness::{
    machine::{Need, needs, skip},
    recorder::for_each_record,
    run::{perf_prof, stdout, tested_program},
    task, wait, workload,
};

/// The events of the dumps.
const EVENTS: &str = "syscalls:sys_enter_getppid,sched:sched_process_exec";

/// The number of times that a thread changes its comm. Far fewer records of this fit into a ring.
const RENAMED: u64 = 100_000;

/// The span of a slow request of the workload.
const SLOW: &str = "syscall/name=clock_nanosleep,min=250ms/";

/// The workload: requests of 1 ms, and a slow one of 300 ms for each line on its stdin, until stdin ends. After the
/// line `rename`, a thread changes its comm many times instead. The workload also starts programs that exit at once.
pub fn requests() {
    let asked = Arc::new(AtomicBool::new(false));
    let slow = Arc::clone(&asked);
    std::thread::spawn(move || {
        for request in 0u64.. {
            task::getppid(20);
            let is_slow = slow.swap(false, SeqCst);
            std::thread::sleep(Duration::from_millis(if is_slow { 300 } else { 1 }));
            if request % 100 == 0 {
                Command::new("/bin/true").status().unwrap();
            }
        }
    });
    std::io::stdin().lines().for_each(|line| match line.unwrap().as_str() {
        "rename" => (0..RENAMED).for_each(|_| task::named(c"renamed")),
        _ => asked.store(true, SeqCst),
    });
    std::process::exit(0);
}

/// A running workload.
struct Requests(Child);

impl Requests {
    fn start() -> Requests {
        let words = workload::words("requests");
        Requests(Command::new(&words[0]).args(&words[1..]).stdin(Stdio::piped()).spawn().unwrap())
    }

    /// Makes the next request slow.
    fn make_slow(&mut self) {
        self.tell("slow");
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A running flight recorder.
struct Recorder {
    dir: TempDir,
    process: Child,
}

impl Recorder {
    /// Starts a recorder of the workload, with its dumps in a folder of their own.
    fn start(of: &Requests, args: &[&str]) -> Recorder {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(tested_program());
        command.args(["record", "-e", EVENTS, "-p", &of.pid(), "-o", "dumps/"]).args(args).current_dir(dir.path());
        let process = command.stderr(Stdio::piped()).spawn().unwrap();
        Recorder { dir, process }
    }

    /// Returns the CPU time of the thread that makes the dumps.
    fn cpu_time(&self) -> Duration {
        let id = self.process.id();
        let text = fs::read_to_string(format!("/proc/{id}/task/{id}/schedstat")).unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("dumps")
    }

    fn dumps(&self) -> Vec<PathBuf> {
        dumps(&self.folder())
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the process is a child that was not waited for.
        unsafe { libc::kill(self.process.id() as i32, signal) };
    }

    /// Waits until perf-prof has reported this many dumps.
    fn await_dumps(&self, count: usize) {
        wait::until("a dump", || self.dumps().len() >= count);
    }

    /// Waits until the rings have their final size, and then for longer than the time of `--before`.
    fn await_events(&self) {
        self.await_reader();
        std::thread::sleep(Duration::from_millis(3500));
    }

    /// Waits until the recorder reads the records about tasks.
    fn await_reader(&self) {
        let is_reading = || {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).ok()?;
            let names = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
            Some(names.filter(|name| name.trim() == "perf-prof-reade").count())
        };
        wait::until("the recorder reads", || is_reading().unwrap_or(0) > 0);
    }

    /// Ends the recorder. Returns its folder, its status and what it printed.
    fn end(self, signal: i32) -> (TempDir, i32, String) {
        self.signal(signal);
        let output = self.process.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (self.dir, output.status.code().unwrap_or_else(|| panic!("{}: {said}", output.status)), said)
    }
}

fn dumps(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// A line of `script`: its time in microseconds, and its text with the task's comm.
type Line = (u64, String);

fn lines(path: &Path) -> Vec<Line> {
    lines_with(path, "time,comm,tid,event,trace")
}

/// Returns the lines of the real perf. Checks that perf-prof prints the same lines.
fn same_lines_of_perf(path: &Path) -> Vec<Line> {
    same_fields_of_perf(path, FIELDS)
}

fn same_fields_of_perf(path: &Path, fields: &str) -> Vec<Line> {
    let mut command = Command::new("perf");
    command.args(["script", "-F", fields, "-i"]).arg(path).env("HOME", path.parent().unwrap()).stdin(Stdio::null());
    let output = command.output().unwrap();
    // On a busy machine, the ring of one CPU may begin later than that of another one. The dump then contains a record of
    // the loss.
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && (said.is_empty() || said.contains(" chunks!")), "{said}");
    let lines = parsed(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(lines, lines_with(path, fields), "{path:?}");
    lines
}

/// Fields that perf supports for all kinds of events.
const FIELDS: &str = "comm,tid,time,event";

fn lines_with(path: &Path, fields: &str) -> Vec<Line> {
    let path = path.to_str().unwrap();
    let args = ["script", "-i", path, "-F", fields];
    let output = perf_prof(&args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    parsed(&stdout(&output))
}

fn parsed(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let at = line.find(": ").unwrap_or_else(|| panic!("{line}"));
        let (head, rest) = line.split_at(at);
        let (task, time) = head.rsplit_once(' ').unwrap();
        let (seconds, micros) = time.split_once('.').unwrap();
        let time = seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap();
        (time, format!("{} {}", task.split_whitespace().collect::<Vec<_>>().join(" "), rest[2..].trim()))
    };
    text.lines().filter(|text| !text.is_empty()).map(line).collect()
}

fn is_trigger(line: &Line) -> bool {
    line.1.contains("perf-prof:trigger")
}

/// Returns the time of the only trigger.
fn trigger(lines: &[Line]) -> u64 {
    let triggers: Vec<&Line> = lines.iter().filter(|line| is_trigger(line)).collect();
    assert_eq!(triggers.len(), 1, "{triggers:?}");
    triggers[0].0
}

#[test]
fn a_dump_has_what_a_plain_recording_has_around_a_slow_span() {
    needs([Need::Tracefs, Need::Perf]);
    let mut requests = Requests::start();
    let plain = tempfile::tempdir().unwrap();
    let file = plain.path().join("perf.data");
    let mut beside = Command::new(tested_program());
    beside.args(["record", "-q", "-e", EVENTS, "-p", &requests.pid(), "-o"]).arg(&file);
    let mut beside = beside.spawn().unwrap();
    let options = ["--before", "2s", "--after", "1s", "--trigger", SLOW, "--min-gap", "60s"];
    let recorder = Recorder::start(&requests, &options);
    recorder.await_events();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(recorder.dumps(), [] as [PathBuf; 0]);
    requests.make_slow();
    recorder.await_dumps(1);
    std::thread::sleep(Duration::from_secs(3));
    let (dir, status, said) = recorder.end(libc::SIGINT);
    assert_eq!(status, 0, "{said}");
    // SAFETY: the process is a child that was not waited for.
    unsafe { libc::kill(beside.id() as i32, libc::SIGINT) };
    beside.wait().unwrap();

    let found = dumps(&dir.path().join("dumps"));
    let [dump] = &found[..] else { panic!("{found:?} {said}") };
    assert!(dump.to_str().unwrap().ends_with("-clock_nanosleep.data"), "{dump:?}");
    let ours = lines(dump);
    let at = trigger(&ours);
    let samples: Vec<&Line> = ours.iter().filter(|line| !is_trigger(line)).collect();
    let (first, last) = (samples[0].0, samples[samples.len() - 1].0);
    assert!(first + 2_000_001 >= at && last <= at + 1_000_001, "{first} {at} {last} {said}");
    assert!(samples.len() > 5000, "{said}");
    // All events have different times, some microseconds apart. So the recordings match where their times differ least.
    let all = lines(&file);
    let near = all.partition_point(|line| line.0 < first);
    let distance =
        |from: usize| -> u64 { samples.iter().zip(&all[from..]).map(|(ours, plain)| ours.0.abs_diff(plain.0)).sum() };
    let from = (near.saturating_sub(5)..near + 5).min_by_key(|&from| distance(from)).unwrap();
    assert!(distance(from) / (samples.len() as u64) < 20, "a sample is missing or came twice: {}", distance(from));
    // The events before the first one, and after the last one, are too far away from the trigger.
    let before = from.checked_sub(1).map_or(0, |at| all[at].0);
    let after = all.get(from + samples.len()).map_or(u64::MAX, |line| line.0);
    assert!(before + 1_999_000 < at && after > at + 999_000, "{before} {first} {at} {last} {after} {said}");
    let texts = |lines: &[&Line]| lines.iter().map(|line| line.1.clone()).collect::<Vec<_>>();
    assert_eq!(texts(&samples), texts(&all[from..].iter().take(samples.len()).collect::<Vec<_>>()));
    assert!(samples.iter().any(|line| line.1.starts_with("true ")), "tasks that exited have their names");
    assert_eq!(same_lines_of_perf(dump).len(), ours.len());
    assert!(said.contains("samples in") && said.contains("after `clock_nanosleep: requests/"), "{said}");
}

#[test]
fn signals_and_commands_ask_for_dumps() {
    needs([Need::Tracefs, Need::Perf]);
    let requests = Requests::start();
    let recorder = Recorder::start(&requests, &["--before", "1s"]);
    recorder.await_events();
    recorder.signal(libc::SIGUSR2);
    recorder.await_dumps(1);
    std::thread::sleep(Duration::from_millis(500));
    let (dir, status, said) = recorder.end(libc::SIGTERM);
    assert_eq!(status, 143, "{said}");
    let found = dumps(&dir.path().join("dumps"));
    assert_eq!(found.len(), 2, "the end makes a dump too: {said}");
    // The names of two dumps of one second do not show which is older.
    for reason in ["-signal.data", "-end.data"] {
        let dump = found.iter().find(|dump| dump.to_str().unwrap().ends_with(reason)).unwrap();
        let lines = lines(dump);
        let at = trigger(&lines);
        assert!(lines[0].0 + 1_000_001 >= at && lines[0].0 + 900_000 < at, "{said}");
        assert!(lines.len() > 2000);
        assert_eq!(same_lines_of_perf(dump).len(), lines.len());
    }
}

#[test]
fn a_signal_that_ends_the_recorder_completes_the_dump() {
    needs([Need::Tracefs, Need::Perf]);
    let requests = Requests::start();
    let recorder = Recorder::start(&requests, &["--before", "1s", "--after", "60s", "--trigger", "oom:mark_victim"]);
    recorder.await_events();
    recorder.signal(libc::SIGUSR2);
    recorder.await_dumps(1);
    std::thread::sleep(Duration::from_secs(1));
    let (dir, status, said) = recorder.end(libc::SIGTERM);
    assert_eq!(status, 143, "{said}");
    let found = dumps(&dir.path().join("dumps"));
    assert_eq!(found.len(), 1, "with --trigger the end makes no dump: {said}");
    let lines = same_lines_of_perf(&found[0]);
    let (at, last) = (trigger(&lines), lines[lines.len() - 1].0);
    assert!(last > at + 500_000 && last < at + 30_000_000, "{at} {last} {said}");
}

#[test]
fn a_recorder_without_a_trigger_says_that_it_wrote_no_dump() {
    needs([Need::Tracefs]);
    let requests = Requests::start();
    let recorder = Recorder::start(&requests, &["--before", "1s", "--trigger", "oom:mark_victim"]);
    recorder.await_reader();
    let (dir, status, said) = recorder.end(libc::SIGTERM);
    assert!(said.contains("no dump was written, because no event triggered one"), "{said}");
    assert_eq!((status, dumps(&dir.path().join("dumps")).len()), (143, 0), "{said}");
}

#[test]
fn triggers_during_a_dump_are_in_it_and_those_soon_after_it_are_counted() {
    needs([Need::Tracefs]);
    let every = "syscalls:sys_enter_getppid";
    // Without --after, a trigger that comes while a dump is made belongs to this dump. Whether one comes is chance.
    // With --after, triggers prolong the dump, up to ten times as long.
    for (after, at_least, length) in [(&[][..], 1, 0), (&["--after", "200ms"], 2, 2)] {
        let requests = Requests::start();
        let args = [&["--before", "1s", "--trigger", every, "--min-gap", "60s"], after].concat();
        let recorder = Recorder::start(&requests, &args);
        recorder.await_dumps(1);
        std::thread::sleep(Duration::from_secs(length + 1));
        recorder.signal(libc::SIGUSR2);
        recorder.await_dumps(2);
        std::thread::sleep(Duration::from_millis(500));
        let (dir, _, said) = recorder.end(libc::SIGINT);
        let found = dumps(&dir.path().join("dumps"));
        assert_eq!(found.len(), 2, "a signal makes a dump at any time: {said}");
        let lines = lines(&found[0]);
        let (triggers, samples): (Vec<&Line>, Vec<&Line>) = lines.iter().partition(|line| is_trigger(line));
        assert!(triggers.len() >= at_least, "{said}");
        // The event of the last trigger may be a sample just after the end.
        let is_sampled = |trigger: &Line| samples.iter().any(|sample| sample.0.abs_diff(trigger.0) < 500);
        let without: Vec<&&Line> = triggers.iter().filter(|trigger| !is_sampled(trigger)).collect();
        assert!(without.len() <= 1, "triggers without their samples: {without:?} {said}");
        assert!(said.contains("triggers without a dump") && said.contains("--min-gap"), "{said}");
    }
}

/// Returns the number of MiB that the rings keep, from the recorder's message.
fn kept_mib(said: &str) -> u64 {
    let after = said.split("keep the newest ").nth(1).unwrap_or_else(|| panic!("{said}"));
    let mut words = after.split(' ');
    let number: u64 = words.next().unwrap().parse().unwrap();
    if words.next() == Some("MiB") { number } else { number >> 10 }
}

#[test]
fn the_rate_of_delayed_events_is_measured_when_they_are_on() {
    needs([Need::Tracefs]);
    let requests = Requests::start();
    let pipes = tempfile::tempdir().unwrap();
    let control = pipes.path().join("control");
    assert!(Command::new("mkfifo").arg(&control).status().unwrap().success());
    let place = format!("fifo:{}", control.display());
    for options in [&["-D", "1500"][..], &["-D", "-1", "--control", &place]] {
        let options = [&["--before", "60s", "--buffer", "64M"], options].concat();
        let recorder = Recorder::start(&requests, &options);
        recorder.await_reader();
        std::thread::sleep(Duration::from_millis(1500));
        if options.contains(&"--control") {
            fs::write(&control, "enable\n").unwrap();
        }
        std::thread::sleep(Duration::from_millis(2500));
        let (_, status, said) = recorder.end(libc::SIGINT);
        assert_eq!(status, 0, "{said}");
        assert!(kept_mib(&said) > 8, "{options:?}: the rings have the size that they had at first: {said}");
    }
}

#[test]
fn a_dump_before_the_rate_is_known_lets_the_recorder_sleep() {
    needs([Need::Tracefs]);
    let requests = Requests::start();
    let recorder = Recorder::start(&requests, &["--before", "10s", "--after", "4s", "--trigger", "oom:mark_victim"]);
    recorder.await_reader();
    recorder.signal(libc::SIGUSR2);
    recorder.await_dumps(1);
    std::thread::sleep(Duration::from_secs(1));
    let before = recorder.cpu_time();
    std::thread::sleep(Duration::from_secs(2));
    let used = recorder.cpu_time() - before;
    let (_, _, said) = recorder.end(libc::SIGINT);
    assert!(used < Duration::from_millis(500), "{used:?} {said}");
}

#[test]
fn the_gap_begins_at_the_end_of_a_dump() {
    needs([Need::Tracefs]);
    let mut requests = Requests::start();
    let options = ["--before", "1s", "--after", "3s", "--trigger", SLOW, "--min-gap", "4s"];
    let recorder = Recorder::start(&requests, &options);
    recorder.await_events();
    requests.make_slow();
    recorder.await_dumps(1);
    // 1.5 s after the end of the dump, and 4.5 s after its start.
    std::thread::sleep(Duration::from_millis(4500));
    requests.make_slow();
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(recorder.dumps().len(), 1);
    std::thread::sleep(Duration::from_millis(3000));
    requests.make_slow();
    recorder.await_dumps(2);
    let (dir, status, said) = recorder.end(libc::SIGINT);
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("less than 4s after the end of a dump (--min-gap): 1\n"), "{said}");
    let folder = fs::canonicalize(dir.path()).unwrap().join("dumps");
    assert!(said.contains(&format!("; dumps go into the folder '{}", folder.display())), "{said}");
}

#[test]
fn commands_and_signals_in_quick_succession_each_make_a_dump() {
    needs([Need::Tracefs, Need::Perf]);
    let requests = Requests::start();
    let pipes = tempfile::tempdir().unwrap();
    let [control, ack] = ["control", "ack"].map(|name| pipes.path().join(name));
    assert!(Command::new("mkfifo").args([&control, &ack]).status().unwrap().success());
    let place = format!("fifo:{},{}", control.display(), ack.display());
    let recorder = Recorder::start(&requests, &["--before", "1s", "--control", &place, "--trigger", "oom:mark_victim"]);
    recorder.await_events();
    recorder.signal(libc::SIGUSR2);
    std::thread::sleep(Duration::from_millis(100));
    recorder.signal(libc::SIGUSR2);
    recorder.await_dumps(2);
    let [mut commands, mut answers] =
        [&control, &ack].map(|path| fs::OpenOptions::new().read(true).write(true).open(path).unwrap());
    commands.write_all(b"snapshot\n").unwrap();
    let mut answer = [0; 4];
    answers.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ack\n");
    let found = recorder.dumps();
    let (_dir, status, said) = recorder.end(libc::SIGINT);
    assert_eq!(status, 0, "{said}");
    let ends = |end: &str| found.iter().filter(|dump| dump.to_str().unwrap().ends_with(end)).count();
    assert_eq!(found.len(), 3, "the answer to a command comes after its dump: {said}");
    assert_eq!(ends("-snapshot.data"), 1, "{found:?}");
    for dump in &found {
        let lines = same_lines_of_perf(dump);
        let at = trigger(&lines);
        assert!(lines[0].0 + 1_000_001 >= at && lines[0].0 + 900_000 < at && lines.len() > 1000, "{dump:?} {said}");
    }
}

#[test]
fn dumps_come_after_each_amount_of_samples() {
    needs([Need::Tracefs]);
    let requests = Requests::start();
    let recorder = Recorder::start(&requests, &["--before", "60s", "--switch-output=256K"]);
    std::thread::sleep(Duration::from_secs(5));
    let (dir, status, said) = recorder.end(libc::SIGINT);
    assert_eq!(status, 0, "{said}");
    let found = dumps(&dir.path().join("dumps"));
    let switched = found.iter().filter(|dump| dump.to_str().unwrap().contains("-switch")).count();
    assert!((3..=50).contains(&switched), "{switched} dumps {said}");
    found.iter().for_each(|dump| assert!(!lines(dump).is_empty()));
}

#[test]
fn lost_records_about_tasks_are_told_and_are_in_the_dump() {
    needs([Need::Tracefs]);
    let mut requests = Requests::start();
    let recorder = Recorder::start(&requests, &["--before", "1s", "--trigger", "oom:mark_victim"]);
    recorder.await_events();
    recorder.signal(libc::SIGSTOP);
    requests.tell("rename");
    std::thread::sleep(Duration::from_millis(1500));
    recorder.signal(libc::SIGCONT);
    recorder.signal(libc::SIGUSR2);
    recorder.await_dumps(1);
    let (dir, status, said) = recorder.end(libc::SIGINT);
    assert_eq!(status, 0, "{said}");
    let before = said.find(" records about tasks were lost").unwrap_or_else(|| panic!("{said}"));
    let told: u64 = said[..before].rsplit(' ').next().unwrap().parse().unwrap();
    assert!((RENAMED / 2..RENAMED).contains(&told), "{said}");
    let mut recorded = 0;
    for_each_record(&dumps(&dir.path().join("dumps"))[0], |_, record| {
        if let Record::Lost { lost } = record {
            recorded += lost;
        }
    });
    assert_eq!(recorded, told, "{said}");
}

#[test]
fn only_the_newest_dumps_stay() {
    needs([Need::Tracefs]);
    let requests = Requests::start();
    let options = ["--overwrite", "--switch-output=300ms", "--max-files", "2", "-m", "16"];
    let recorder = Recorder::start(&requests, &options);
    std::thread::sleep(Duration::from_secs(5));
    let (dir, _, said) = recorder.end(libc::SIGINT);
    let found = dumps(&dir.path().join("dumps"));
    assert_eq!(found.len(), 2, "{said}");
    assert!(said.lines().filter(|line| line.contains("samples in")).count() > 4, "{said}");
    assert!(found.iter().any(|dump| dump.to_str().unwrap().ends_with("-end.data")), "{found:?}");
    found.iter().for_each(|dump| assert!(!lines(dump).is_empty()));
}

#[test]
fn threads_write_a_dump_as_a_directory() {
    needs([Need::Tracefs, Need::Perf]);
    let requests = Requests::start();
    let recorder = Recorder::start(&requests, &["--before", "1s", "--after", "500ms", "--threads"]);
    recorder.await_events();
    recorder.signal(libc::SIGUSR2);
    recorder.await_dumps(1);
    std::thread::sleep(Duration::from_secs(2));
    let (dir, _, said) = recorder.end(libc::SIGINT);
    let found = dumps(&dir.path().join("dumps"));
    let lines = lines(&found[0]);
    assert!(found[0].join("data.0").exists() && lines.len() > 2000, "{said}");
    assert_eq!(same_lines_of_perf(&found[0]).len(), lines.len());
}

#[test]
fn a_full_disk_ends_nothing_and_the_next_dump_tries_again() {
    needs([Need::Tracefs]);
    let mut requests = Requests::start();
    let place = tempfile::tempdir().unwrap();
    let disk = place.path().to_str().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "none", disk]).status();
    if !mounted.is_ok_and(|status| status.success()) {
        skip(Need::Namespaces, "tmpfs cannot be mounted");
    }
    let filler = place.path().join("filler");
    fs::write(&filler, vec![1; 61 << 20]).unwrap();
    let options = ["--before", "10s", "--trigger", SLOW, "--min-gap", "60s", "-o", &format!("{disk}/")];
    let recorder = Recorder::start(&requests, &options);
    recorder.await_events();
    std::thread::sleep(Duration::from_secs(4));
    requests.make_slow();
    std::thread::sleep(Duration::from_secs(3));
    fs::remove_file(&filler).unwrap();
    let of_first: Vec<usize> = dumps(place.path()).iter().map(|dump| lines(dump).len()).collect();
    dumps(place.path()).iter().for_each(|path| fs::remove_file(path).unwrap());
    // A dump that could not be written does not count for --min-gap.
    requests.make_slow();
    std::thread::sleep(Duration::from_secs(3));
    let complete = dumps(place.path());
    let read: Vec<usize> = complete.iter().map(|dump| lines(dump).len()).collect();
    let (_, status, said) = recorder.end(libc::SIGINT);
    assert!(Command::new("umount").arg(disk).status().unwrap().success());
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("No space left on device") && said.contains("tries again"), "{said}");
    assert_eq!((of_first.len(), complete.len()), (1, 1), "{said}");
    assert!(of_first[0] > 1000 && of_first[0] < read[0], "{of_first:?} {read:?} {said}");
}

#[test]
fn overwriting_alone_writes_the_newest_samples_at_the_end_as_perf_does() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let words = workload::words("generator");
    // If the calls were made on two CPUs, the file would say how many of the first ones are missing in one of the rings.
    task::pin_to_first();
    let args = ["-e", "syscalls:sys_enter_getppid", "--overwrite", "--tail-synthesize", "-m", "8", "-o"];
    for (program, file) in [(tested_program(), &ours), ("perf", &theirs)] {
        let mut command = Command::new(program);
        command.arg("record").args(args).arg(file).arg("--").args(&words);
        let output = crate::harness::recorder::with_calls(&mut command, 50_000).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // perf lists the tasks when it writes the file. This task has exited by then, so only its id is certain.
    for (file, fields) in [(&ours, FIELDS), (&theirs, "tid,time,event")] {
        let lines = same_fields_of_perf(file, fields);
        assert!(lines.is_sorted_by_key(|line| line.0), "{file:?}");
        let samples: Vec<&Line> = lines.iter().filter(|line| !is_trigger(line)).collect();
        assert!(samples.len() > 100, "{file:?}");
        let are_named = samples.iter().all(|line| line.1.starts_with("generator "));
        assert!(are_named || file == &theirs, "{samples:?}");
    }
}

#[test]
fn options_without_samples_in_rings_are_refused() {
    for (args, expected) in [
        (&["--trigger", "sched:sched_switch"][..], "add --before TIME"),
        (&["--after", "1s"], "add --before TIME"),
        (&["--switch-output"], "--switch-output needs --overwrite"),
        (&["--before", "1s", "--switch-events"], "use -e sched:sched_switch"),
        (&["--before", "1s", "--threads=core"], "write --threads without a value"),
        (&["--before", "1s", "--trigger", "x/"], "--trigger "),
    ] {
        let output = perf_prof(&["record", "-e", "sched:sched_switch"]).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

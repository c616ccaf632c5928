//! The rings of the flight recorder: their sizes, and dumps of rings that begin at different times.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::harness::{
    calls::WORKLOAD,
    counting::objects,
    machine::{Need, needs},
    run::{perf_prof, stdout, tested_program},
    task, wait,
};

/// A process that ends with the test.
struct Traced(Child);

impl Traced {
    /// Starts a process with these operations.
    fn start(operations: &str) -> Traced {
        let own = std::env::current_exe().unwrap();
        Traced(Command::new(own).arg(WORKLOAD).args(operations.split(' ')).stdin(Stdio::piped()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn move_to(&self, cpu: u32) {
        let args = ["-cp", &cpu.to_string(), &self.pid()];
        assert!(Command::new("taskset").args(args).stdout(Stdio::null()).status().unwrap().success());
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running flight recorder.
struct Recorder(Child);

impl Recorder {
    /// Starts a recorder, and waits until its events are on.
    fn start(mut command: Command) -> Recorder {
        let process = command.stderr(Stdio::piped()).spawn().unwrap();
        let is_reading = || {
            let tasks = fs::read_dir(format!("/proc/{}/task", process.id())).ok()?;
            let mut names = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
            names.find(|name| name.trim() == "perf-prof-reade")
        };
        wait::until("the recorder reads", || is_reading().is_some());
        Recorder(process)
    }

    /// Ends the recorder, and returns what it said.
    fn end(self) -> String {
        // SAFETY: the process is a child that was not waited for.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGINT) };
        let output = self.0.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {said}", output.status);
        said
    }
}

/// Returns the command of a recorder that writes into this folder.
fn record(args: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(tested_program());
    command.arg("record").args(args).current_dir(folder);
    command
}

/// Returns the bytes of all rings that a process has mapped.
fn mapped_rings(pid: u32) -> usize {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let rings = maps.lines().filter(|line| line.ends_with("anon_inode:[perf_event]"));
    let address = |text: &str| usize::from_str_radix(text, 16).unwrap();
    rings
        .map(|line| line.split(' ').next().unwrap().split_once('-').unwrap())
        .map(|(from, to)| address(to) - address(from))
        .sum()
}

#[test]
fn rings_of_many_threads_share_the_memory_before_their_rate_is_known() {
    needs([Need::Tracefs]);
    const THREADS: usize = 200;
    let end = Arc::new(AtomicBool::new(false));
    let (tell, told) = std::sync::mpsc::channel();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (tell, end) = (tell.clone(), Arc::clone(&end));
            std::thread::spawn(move || {
                tell.send(task::gettid().to_string()).unwrap();
                while !end.load(SeqCst) {
                    std::thread::park();
                }
            })
        })
        .collect();
    let tids: Vec<String> = told.iter().take(THREADS).collect();
    let dir = tempfile::tempdir().unwrap();
    // The events are never turned on.
    let args = [
        "-e",
        "syscalls:sys_enter_getppid",
        "-t",
        &tids.join(","),
        "-o",
        "dumps/",
        "--before",
        "10s",
        "--buffer",
        "32M",
        "-D",
        "600000",
    ];
    let recorder = Recorder::start(record(&args, dir.path()));
    let mapped = mapped_rings(recorder.0.id());
    let said = recorder.end();
    end.store(true, SeqCst);
    threads.into_iter().for_each(|thread| {
        thread.thread().unpark();
        thread.join().unwrap();
    });
    // The side-band records have rings in addition, of at most 64 MiB. Each ring has a page of its own for the kernel.
    assert!((1..=(16 + 64) << 20).contains(&(mapped - 2 * THREADS * 4096)), "{mapped}: {said}");
}

#[test]
fn rings_become_larger_when_events_come_faster() {
    needs([Need::Tracefs]);
    let traced = Traced::start("sleep-ms 2000 calls 100000000");
    let dir = tempfile::tempdir().unwrap();
    let args =
        ["-e", "raw_syscalls:sys_enter", "-p", &traced.pid(), "-o", "dumps/", "--before", "4s", "--buffer", "256M"];
    let recorder = Recorder::start(record(&args, dir.path()));
    std::thread::sleep(Duration::from_millis(9000));
    let said = recorder.end();
    let sizes: Vec<&str> = said.lines().filter(|line| line.contains("keep the newest")).collect();
    assert!(said.contains("events come faster than before; the rings become larger"), "{said}");
    assert!(sizes.len() >= 2 && sizes[0].contains("2048 KiB") != sizes[sizes.len() - 1].contains("2048 KiB"), "{said}");
}

#[test]
fn no_span_is_made_of_events_from_before_and_after_overwritten_samples() {
    needs([Need::Tracefs, Need::TwoCpus]);
    let cpus = task::allowed_cpus();
    let mut traced = Traced::start("wait-for-input sleep-ms 1500 sleep-ms 1500 sleep-ms 1500 naps 5000 forever");
    traced.move_to(cpus[0]);
    let dir = tempfile::tempdir().unwrap();
    let files = [vec!["x.data"], vec!["y.data", "--threads"]];
    let recorders = files.clone().map(|file| {
        let args = ["-e", "syscall", "-p", &traced.pid(), "--overwrite", "-m", "64K", "-o"];
        Recorder::start(record(&[&args, &file[..]].concat(), dir.path()))
    });
    // The events are turned on just after the recorder has begun to read.
    std::thread::sleep(Duration::from_millis(1500));
    traced.0.stdin.take().unwrap().write_all(b"x").unwrap();
    // Each of the long sleeps begins on one CPU and ends on the other one. The short sleeps overwrite the ring of the second
    // CPU: the end of the first sleep, the second begin, and the third end.
    for (cpu, wait) in [(cpus[1], 750), (cpus[0], 1500), (cpus[1], 1500)] {
        std::thread::sleep(Duration::from_millis(wait));
        traced.move_to(cpu);
    }
    std::thread::sleep(Duration::from_millis(2500));
    let said = recorders.map(Recorder::end);
    for file in files {
        let file = dir.path().join(file[0]);
        let file = file.to_str().unwrap();
        let long = stdout(&perf_prof(&["trace", "-e", "syscall/min=500ms/", "--input", file]).output().unwrap());
        assert_eq!(long, "", "{file} {said:?}");
        let table =
            stdout(&perf_prof(&["top", "syscall", "--by", "name", "--json", "--input", file]).output().unwrap());
        assert!(table.contains(r#""partial":true"#), "{table} {said:?}");
    }
}

/// The rings of two CPUs: the calls on the second one begin long after those that are left of the first one.
#[test]
fn a_ring_that_begins_late_says_how_many_of_its_samples_are_missing_whatever_time_is_wanted() {
    needs([Need::Tracefs, Need::TwoCpus]);
    const CALLS: u64 = 10_000;
    let cpus = task::allowed_cpus();
    let mut traced = Traced::start("wait-for-input calls 10000 sleep-ms 2000 calls 10000 forever");
    traced.move_to(cpus[0]);
    let dir = tempfile::tempdir().unwrap();
    let event = "syscalls:sys_enter_getpgid";
    let recorders = [vec!["--overwrite", "-o", "x.data"], vec!["--before", "100s", "-o", "dumps/"]].map(|form| {
        let args = ["-e", event, "-p", &traced.pid(), "-m", "64K"];
        Recorder::start(record(&[&args, &form[..]].concat(), dir.path()))
    });
    // The events are turned on just after the recorder has begun to read.
    std::thread::sleep(Duration::from_millis(1500));
    traced.0.stdin.take().unwrap().write_all(b"x").unwrap();
    std::thread::sleep(Duration::from_millis(1000));
    traced.move_to(cpus[1]);
    std::thread::sleep(Duration::from_millis(2500));
    let said = recorders.map(Recorder::end);
    assert!(said.iter().all(|said| said.contains("the rings held no more; ")), "{said:?}");
    let dump = fs::read_dir(dir.path().join("dumps")).unwrap().next().unwrap().unwrap().path();
    for file in [dir.path().join("x.data"), dump] {
        let top = perf_prof(&["top", event, "--by", "cpu", "--json", "--input"]).arg(&file).output().unwrap();
        let table = objects(&stdout(&top)).pop().unwrap();
        let rows = table["rows"].as_array().unwrap();
        let later = rows.iter().find(|row| row["cpu"] == cpus[1]).unwrap()["count"].as_u64().unwrap();
        let lost = table["lost"].as_u64().unwrap();
        assert!(rows.len() == 2 && lost.abs_diff(CALLS - later) <= CALLS / 100, "{table} {said:?}");
    }
}

/// The calls right after the trigger overwrite the ring before it is copied.
#[test]
fn the_time_from_a_trigger_to_the_first_kept_sample_is_a_loss() {
    needs([Need::Tracefs]);
    const CALLS: u64 = 20_000;
    task::pin_to_first();
    let own = std::env::current_exe().unwrap();
    let event = "syscalls:sys_enter_getpgid";
    let trigger = "syscall/name=*nanosleep,min=250ms/";
    let work = "calls 10 sleep-ms 300 calls 20000 sleep-ms 200 sleep-ms 200 sleep-ms 200 sleep-ms 200 calls 10";
    let before = ["--before", "2s", "-m", "16K", "-e", event, "--trigger", trigger, "-o", "dumps/"];
    for form in [&[][..], &["--threads"], &["--after", "700ms"]] {
        let is_overwritten = || {
            let dir = tempfile::tempdir().unwrap();
            let mut command = record(&[&before, form].concat(), dir.path());
            let output = command.arg("--").arg(&own).arg(WORKLOAD).args(work.split(' ')).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{said}");
            let dump = fs::read_dir(dir.path().join("dumps")).unwrap().next().unwrap().unwrap().path();
            // The line begins with `FILE: 1 sample in 40 KiB, from 0.0 s after`.
            let begin = said.split(", from ").nth(1).unwrap().split(' ').nth(2).unwrap();
            if begin != "after" {
                return false;
            }
            let top = perf_prof(&["top", event, "--json", "--input"]).arg(&dump).output().unwrap();
            let table = objects(&stdout(&top)).pop().unwrap();
            let (kept, lost) = (table["events"].as_u64().unwrap(), table["lost"].as_u64().unwrap_or(0));
            assert!(
                table["partial"] == true && lost != 0 && (2..=CALLS + CALLS / 20).contains(&(kept + lost)),
                "{table} {said}"
            );
            // A span from the trigger to the first kept call would need the calls that are missing.
            let span = format!("span:x=perf-prof:trigger..{event}//key=common_pid/");
            let spans = perf_prof(&["top", &span, "--json", "--input"]).arg(&dump).output().unwrap();
            assert_eq!(objects(&stdout(&spans)).pop().unwrap()["events"], 0, "{spans:?} {said}");
            true
        };
        assert!((0..10).any(|_| is_overwritten()), "{form:?}: each ring was copied before it was overwritten");
    }
}

/// Opens the pipes into which the command of a recorder, before its exec, can write. The end of one of them tells the recorder
/// that the command was executed, so the recorder waits until they are closed. There is none if exec came first. Also returns
/// the command's process id.
fn delay_after_exec(recorder: u32) -> (String, Vec<File>) {
    let children = format!("/proc/{recorder}/task/{recorder}/children");
    let mut command = String::new();
    wait::until("the recorder has forked its command", || {
        command = fs::read_to_string(&children).unwrap().trim().to_owned();
        !command.is_empty()
    });
    let opened = |fd: u32| {
        let path = format!("/proc/{command}/fd/{fd}");
        let is_pipe = fs::read_link(&path).ok()?.to_string_lossy().starts_with("pipe:");
        // O_NONBLOCK: a pipe whose reader is gone is an error.
        let open = || OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path).ok();
        is_pipe.then(open).flatten()
    };
    let pipes = (3..64).filter_map(opened).collect();
    (command, pipes)
}

/// On a busy machine, the recorder gets a CPU long after it has started its command.
#[test]
fn a_dump_begins_with_the_first_event_of_its_command() {
    needs([Need::Tracefs]);
    let own = std::env::current_exe().unwrap();
    let event = "syscalls:sys_enter_getpgid";
    let args = ["-e", event, "--overwrite", "-o", "x.data", "--", own.to_str().unwrap(), WORKLOAD, "calls", "1000"];
    let is_delayed = || {
        let dir = tempfile::tempdir().unwrap();
        let recorder = record(&args, dir.path()).stderr(Stdio::piped()).spawn().unwrap();
        let (command, pipes) = delay_after_exec(recorder.id());
        let is_delayed = !pipes.is_empty();
        if is_delayed {
            let status = format!("/proc/{command}/status");
            wait::until("the command has ended", || fs::read_to_string(&status).unwrap().contains("State:\tZ"));
        }
        drop(pipes);
        let output = recorder.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let path = dir.path().join("x.data");
        let top = perf_prof(&["top", event, "--json", "--input"]).arg(path).output().unwrap();
        assert_eq!(objects(&stdout(&top))[0]["events"], 1000, "{output:?}");
        is_delayed
    };
    assert!((0..20).any(|_| is_delayed()), "each command was executed before it could be delayed");
}

/// The command makes its last system call, and ends.
#[test]
fn an_event_right_before_the_end_makes_a_dump() {
    needs([Need::Tracefs]);
    let dir = tempfile::tempdir().unwrap();
    let trigger = "syscalls:sys_enter_exit_group";
    for form in [&[][..], &["--threads"], &["--after", "200ms"], &["--after", "0s"]] {
        for _ in 0..4 {
            let mut command = perf_prof(&["record", "--before", "500ms", "--trigger", trigger, "-e", trigger]);
            let output =
                command.args(form).args(["-o", "dumps/", "--", "true"]).current_dir(dir.path()).output().unwrap();
            let dumps: Vec<_> =
                fs::read_dir(dir.path().join("dumps")).unwrap().map(|dump| dump.unwrap().path()).collect();
            assert!(output.status.success() && dumps.len() == 1, "{form:?}: {output:?}");
            let top = perf_prof(&["top", trigger, "--json", "--input"]).arg(&dumps[0]).output().unwrap();
            assert_eq!(objects(&stdout(&top)).last().unwrap()["events"], 1, "{form:?}");
            fs::remove_dir_all(dir.path().join("dumps")).unwrap();
        }
    }
}

/// Calls were in several dumps, or in none: those between the end of the asked time and the copy of the rings.
#[test]
fn dumps_without_a_time_before_them_begin_where_the_last_one_ended() {
    needs([Need::Tracefs]);
    let (own, event) = (std::env::current_exe().unwrap(), "syscalls:sys_enter_getpgid");
    let work = ["calls", "200", "sleep-ms", "200"].repeat(8);
    let trigger = "syscall/name=clock_nanosleep|nanosleep,min=100ms/";
    let rhythms = [&["--switch-output=300ms"][..], &["--switch-output=300ms", "--after", "50ms"]];
    for switch in [rhythms[0], rhythms[1], &["--trigger", trigger, "--min-gap", "0s"]] {
        let dir = tempfile::tempdir().unwrap();
        let options = ["--overwrite", "-m", "8M", "-e", event, "-o", "dumps/"];
        let command = ["--", own.to_str().unwrap(), WORKLOAD];
        let output = record(&[&options[..], switch, &command, &work].concat(), dir.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let dumps = fs::read_dir(dir.path().join("dumps")).unwrap().map(|entry| entry.unwrap().path());
        let calls = |dump: std::path::PathBuf| {
            let output = perf_prof(&["script", "-F", "event", "-i", dump.to_str().unwrap()]).output().unwrap();
            stdout(&output).lines().filter(|line| line.contains(event)).count()
        };
        let calls: Vec<usize> = dumps.map(calls).filter(|calls| *calls != 0).collect();
        assert!(
            output.status.success() && calls.len() > 2 && calls.iter().sum::<usize>() == 8 * 200,
            "{calls:?} {said}"
        );
    }
}

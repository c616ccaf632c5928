//! The analysis scripts, run by their first lines on workloads whose true numbers are known.
#![cfg(feature = "script")]
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Names the workload that a copy of this test program is to be.
const WORKLOAD: &str = "PERF_PROF_TEST_WORKLOAD";

/// Why this machine cannot run these tests.
fn skipped() -> bool {
    // SAFETY: takes nothing and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    let reason = match fs::read_dir("/sys/kernel/tracing") {
        _ if !root => "not root".to_owned(),
        Err(error) => format!("/sys/kernel/tracing: {error}"),
        Ok(_) => return false,
    };
    println!("skipped: {reason}");
    true
}

/// A script, as a shell runs it: by its first line, which finds perf-prof in PATH.
fn script(name: &str) -> Command {
    let bin = Path::new(env!("CARGO_BIN_EXE_perf-prof")).parent().unwrap();
    let path = env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::iter::once(bin.to_owned()).chain(env::split_paths(&path)).collect();
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name));
    command.env("PATH", env::join_paths(path).unwrap()).env("LC_ALL", "C");
    // A shell that runs tests in the background lets them inherit that SIGINT is ignored, and then it would not end us.
    // SAFETY: `signal` is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        })
    };
    command
}

/// This program again, as the workload `name`.
fn workload(name: &str) -> Vec<OsString> {
    let this = env::current_exe().unwrap();
    // With one test at a time it runs in the first thread.
    let args = ["--exact", "the_workload", "--nocapture", "--test-threads=1"];
    let mut words: Vec<OsString> = vec!["env".into(), format!("{WORKLOAD}={name}").into(), this.into()];
    words.extend(args.map(OsString::from));
    words
}

fn on_workload(name: &str, args: &[&str], work: &str) -> String {
    text(script(name).args(args).arg("--exec").args(workload(work)).output().unwrap())
}

/// What a script that watches the whole machine prints, and what the workload beside it says.
fn beside(name: &str, args: &[&str], work: &str) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    let files = ["out", "err"].map(|name| directory.path().join(name));
    let [out, err] = files.each_ref().map(|path| fs::File::create(path).unwrap());
    let mut child = script(name).args(args).stdout(out).stderr(err).spawn().unwrap();
    // The first table says that events flow.
    while fs::metadata(&files[0]).unwrap().len() == 0 {
        assert!(child.try_wait().unwrap().is_none(), "{}", fs::read_to_string(&files[1]).unwrap());
        thread::sleep(Duration::from_millis(10));
    }
    let words = workload(work);
    let truth = Command::new(&words[0]).args(&words[1..]).output().unwrap();
    // SAFETY: the child was not reaped yet.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let status = child.wait().unwrap();
    let [stdout, stderr] = files.map(|path| fs::read(path).unwrap());
    (text(Output { status, stdout, stderr }), String::from_utf8(truth.stdout).unwrap())
}

#[track_caller]
fn text(output: Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(!err.contains("lost") && !err.contains("Traceback"), "{err}");
    out.into_owned()
}

/// The words of the line that begins with `first`.
#[track_caller]
fn row<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find(|words| words.first() == Some(&first)).unwrap_or_else(|| panic!("no row {first} in\n{text}"))
}

/// Not a test: what the others trace.
#[test]
fn the_workload() {
    match env::var(WORKLOAD).as_deref() {
        Ok("calls") => calls(),
        Ok("ping-pong") => ping_pong(),
        Ok("sleeps") => sleeps(),
        Ok("children") => children(),
        Ok("threads") => threads(),
        Ok("naps") => naps(),
        _ => {}
    }
}

const GETPPIDS: usize = 1234;
const RMDIRS: usize = 77;
const OPENS: usize = 55;
const FORKS: usize = 5;

fn calls() {
    // SAFETY: the paths end with a NUL; the child of a fork does nothing but exit.
    unsafe {
        for _ in 0..GETPPIDS {
            libc::syscall(libc::SYS_getppid);
        }
        for _ in 0..RMDIRS {
            libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, c"/no/such/directory".as_ptr(), libc::AT_REMOVEDIR);
        }
        for _ in 0..OPENS {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null/file".as_ptr(), libc::O_RDONLY);
        }
        for _ in 0..FORKS {
            match libc::fork() {
                0 => libc::_exit(0),
                child => assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child),
            }
        }
    }
}

#[test]
fn syscalls_counts_calls_and_errors_exactly() {
    if skipped() {
        return;
    }
    let out = on_workload("syscalls.py", &["--top", "1000", "--sort", "calls"], "calls");
    let counted = |name: &str| row(&out, name)[1].parse::<usize>().unwrap();
    assert_eq!(counted("getppid"), GETPPIDS, "{out}");
    assert_eq!(counted("unlinkat"), RMDIRS, "{out}");
    assert!(row(&out, "unlinkat").contains(&format!("ENOENT:{RMDIRS}").as_str()), "{out}");
    assert!(row(&out, "openat").contains(&format!("ENOTDIR:{OPENS}").as_str()), "{out}");
    assert!(!row(&out, "getppid").iter().any(|word| word.contains(':')), "{out}");
    // `env`'s own exec was before the start.
    assert_eq!(counted("execve"), 1, "{out}");
    let table = out.lines().skip_while(|line| !line.starts_with("SYSCALL")).skip(1);
    let rows = table.take_while(|line| !line.contains(" calls of "));
    let sum: usize = rows.map(|line| line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()).sum();
    let total = out.lines().find(|line| line.contains(" calls of ")).unwrap();
    assert_eq!(total.split(' ').next().unwrap().parse::<usize>().unwrap(), sum, "{out}");
}

/// Each child comes out of its parent's clone too, and that is no call of its own.
#[test]
fn syscalls_counts_a_fork_once() {
    if skipped() {
        return;
    }
    let out = on_workload("syscalls.py", &["--top", "1000"], "calls");
    assert_eq!(row(&out, "clone")[1], FORKS.to_string(), "{out}");
    assert_eq!(row(&out, "exit_group")[1], (FORKS + 1).to_string(), "{out}");
}

#[test]
fn syscalls_has_a_row_for_each_process_and_says_what_it_leaves_out() {
    if skipped() {
        return;
    }
    let out = on_workload("syscalls.py", &["--by-pid", "--top", "3", "--sort", "calls"], "calls");
    let getppid = out.lines().find(|line| line.contains(" getppid ")).unwrap();
    let words: Vec<&str> = getppid.split_whitespace().collect();
    assert!(words[0].parse::<u32>().is_ok() && words[2] == GETPPIDS.to_string(), "{out}");
    assert!(out.contains(" rows more with a larger --top"), "{out}");
}

fn named(name: &std::ffi::CStr) {
    // SAFETY: the name ends with a NUL and lives across the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Keeps this thread on the first CPU that it may use.
fn pin() {
    // SAFETY: the set lives across the calls.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|&cpu| libc::CPU_ISSET(cpu, &set)).unwrap();
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(first, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

/// Whether this thread now is a real-time one.
fn first_in_first_out() -> bool {
    // SAFETY: the parameter lives across the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &libc::sched_param { sched_priority: 1 }) == 0 }
}

const ROUNDS: usize = 1000;

/// Two tasks that take turns. First in, first out on one CPU means that neither runs before the other has gone to sleep,
/// so every byte wakes somebody up.
fn ping_pong() {
    pin();
    assert!(first_in_first_out());
    let (mut there, mut back) = ([0; 2], [0; 2]);
    let mut byte = 0u8;
    let byte = (&raw mut byte).cast();
    // SAFETY: pipes and byte live across the calls; the child of the fork calls nothing else.
    unsafe {
        assert!(libc::pipe(there.as_mut_ptr()) == 0 && libc::pipe(back.as_mut_ptr()) == 0);
        match libc::fork() {
            0 => {
                named(c"pong");
                libc::write(back[1], byte, 1);
                for _ in 0..ROUNDS {
                    libc::read(there[0], byte, 1);
                    libc::write(back[1], byte, 1);
                }
                libc::_exit(0)
            }
            child => {
                libc::read(back[0], byte, 1);
                named(c"ping");
                for _ in 0..ROUNDS {
                    libc::write(there[1], byte, 1);
                    libc::read(back[0], byte, 1);
                }
                named(c"done");
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
        }
    }
}

#[test]
fn wakeups_counts_a_ping_pong_exactly() {
    // In a thread of its own: it stays a real-time one.
    if skipped() || !thread::spawn(first_in_first_out).join().unwrap() {
        return println!("skipped: no tracing or no real-time scheduling");
    }
    for name in ["ping", "pong"] {
        let out = on_workload("wakeups.py", &["-i", "100000", "--comm", name], "ping-pong");
        let total = format!("whole run: {ROUNDS} wake-ups, 1 task");
        assert!(out.lines().any(|line| line == total), "{out}");
        assert_eq!(row(&out, name)[2], ROUNDS.to_string(), "{out}");
    }
}

const SLEEPS: u64 = 50;

/// How often this thread, or a process, came to its CPU, by the kernel's own count: the third number of `schedstat`.
fn arrivals(who: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{who}/schedstat")).unwrap();
    text.split_whitespace().nth(2).unwrap().parse().unwrap()
}

/// Sleeps beside a busy loop on the same CPU, and says what the kernel counted of both.
fn sleeps() {
    pin();
    named(c"rq-busy");
    // SAFETY: the child of the fork calls nothing but getppid.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: takes nothing and cannot fail.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    }
    named(c"rq-sleep");
    let before = arrivals("thread-self");
    for _ in 0..SLEEPS {
        thread::sleep(Duration::from_millis(1));
    }
    let after = arrivals("thread-self");
    println!("\nrq-sleep {}", after - before);
    println!("rq-busy {}", arrivals(&child.to_string()));
    // SAFETY: the child was not reaped yet.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

#[test]
fn runqlat_counts_the_waits_that_the_kernel_counts() {
    if skipped() || !Path::new("/proc/self/schedstat").exists() {
        return println!("skipped: no tracing or no schedstat");
    }
    let (out, truth) = beside("runqlat.py", &["-i", "50"], "sleeps");
    let histograms = histograms(&out);
    for name in ["rq-sleep", "rq-busy"] {
        let true_count: u64 = row(&truth, name)[1].parse().unwrap();
        let waits: u64 = histograms.iter().filter(|(command, _)| command == name).map(|(_, count)| count).sum();
        assert!(true_count >= if name == "rq-sleep" { SLEEPS } else { 1 }, "{truth}");
        // Before the kernel's count is read and after it a task may wait a few times more.
        assert!((true_count..true_count + 10).contains(&waits), "{name}: {waits} waits, the kernel says {true_count}");
    }
}

const NAPS: u64 = 20;

/// Sleeps in a task of its own name, and says how long at least and at most.
fn naps() {
    // On one CPU that is never idle: some kernels do not trace how an idle CPU switches to a task.
    // SAFETY: a set of CPUs is plain data, and the calls read no more than it.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut cpus);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&cpus), &cpus), 0);
    }
    thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    named(c"napper");
    let began = Instant::now();
    for _ in 0..NAPS {
        thread::sleep(Duration::from_millis(10));
    }
    let took = began.elapsed();
    named(c"awake");
    println!("\nnaps {}", took.as_micros());
}

#[test]
fn offcpu_adds_up_the_naps_of_a_sleeper() {
    if skipped() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [folded, svg] = ["off.folded", "off.svg"].map(|name| directory.path().join(name).display().to_string());
    let args = |file| ["-i", "50", "--comm", "napper", "--state", "interruptible", "--flame", file];
    let (out, truth) = beside("offcpu.py", &args(&folded), "naps");
    let took: u64 = row(&truth, "naps")[1].parse().unwrap();
    let lines = fs::read_to_string(&folded).unwrap();
    let asleep = lines.lines().map(|line| line.rsplit_once(' ').unwrap());
    let asleep = asleep.inspect(|(stack, _)| {
        assert!(stack.starts_with("napper;") && stack.contains(";do_nanosleep_[k];schedule_[k]"), "{stack}")
    });
    let sum: u64 = asleep.map(|(_, us)| us.parse::<u64>().unwrap()).sum();
    // Each nap begins a little before it leaves the CPU, and may lose a microsecond by rounding.
    assert!((NAPS * 9_500..=took).contains(&sum), "{sum} us in {lines}, the sleeper measured {took} us");
    // The tables of all intervals together are the same time.
    let tables = out.lines().filter_map(|line| line.split_once(" off CPU in ")).map(|(time, _)| microseconds(time));
    assert!(tables.sum::<u64>().abs_diff(sum) <= sum / 100, "{out}");
    assert!(out.contains(" do_nanosleep\n") && !out.contains("_[k]"), "{out}");

    beside("offcpu.py", &args(&svg), "naps");
    let svg = fs::read_to_string(&svg).unwrap();
    assert!(svg.contains("<title>do_nanosleep (") && svg.contains(" us, 100.00%)"), "{svg}");
}

/// `1.5 s` and `1.5 ms`.
fn microseconds(shown: &str) -> u64 {
    let (number, unit) = shown.trim().split_once(' ').unwrap();
    (number.parse::<f64>().unwrap() * if unit == "s" { 1e6 } else { 1e3 }) as u64
}

/// Compiles a program with frame pointers; `None` where there is no compiler.
fn compile(directory: &Path, name: &str, source: &str) -> Option<PathBuf> {
    let (text, program) = (directory.join(format!("{name}.c")), directory.join(name));
    fs::write(&text, source).unwrap();
    let options = ["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-o"];
    match Command::new("cc").args(options).args([&program, &text]).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            println!("skipped: cc: {error}");
            return None;
        }
    }
    Some(program)
}

/// The words in front of a function's name in a table.
#[track_caller]
fn counts_of<'a>(table: &'a str, function: &str) -> Vec<&'a str> {
    let row = table.lines().find_map(|line| line.strip_suffix(function)?.strip_suffix("  "));
    row.unwrap_or_else(|| panic!("no row {function} in\n{table}")).split_whitespace().collect()
}

/// `70.1%` in tenths of a percent.
fn tenths(share: &str) -> i32 {
    share.strip_suffix('%').unwrap().replace('.', "").parse().unwrap()
}

/// Seventy parts of its CPU time are spent for one function and thirty for another, by its own clock of that.
const SEVENTY_THIRTY: &str = r#"
#include <time.h>
static long cpu_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
__attribute__((noinline)) void burn(long ms) {
    for (long end = cpu_ms() + ms; cpu_ms() < end;)
        for (int i = 0; i < 200000; i++) __asm__ volatile("");
}
__attribute__((noinline)) void seventy(void) { burn(70); }
__attribute__((noinline)) void thirty(void) { burn(30); }
int main(void) { for (int i = 0; i < 10; i++) { seventy(); thirty(); } return 0; }
"#;

#[test]
fn profile_shares_time_out_to_functions() {
    if skipped() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(directory.path(), "hot", SEVENTY_THIRTY) else { return };
    let folded = directory.path().join("hot.folded");
    let options = ["--by-pid", "--sort", "total", "--flame", folded.to_str().unwrap(), "--exec"];
    let out = text(script("profile.py").args(options).arg(&program).output().unwrap());
    let shares = |function: &str| {
        let words = counts_of(&out, function);
        let pid = words[0].parse::<u32>().unwrap();
        (pid, tenths(words[1]), tenths(words[2]), words[3].parse::<u64>().unwrap())
    };
    let (burn, main) = (shares("burn (hot)"), shares("main (hot)"));
    let (seventy, thirty) = (shares("seventy (hot)"), shares("thirty (hot)"));
    assert!(main.0 > 0 && [burn.0, seventy.0, thirty.0] == [main.0; 3], "{out}");
    // All the time is below `main`, its own is that of the loop.
    assert!(main.2 > 950 && main.1 < 20 && burn.1 > 900 && seventy.1 < 20, "{out}");
    assert!(seventy.2.abs_diff(700) < 30 && thirty.2.abs_diff(300) < 30, "{out}");
    assert!((seventy.2 + thirty.2).abs_diff(burn.2) <= 1, "{out}");

    // The graph has the same samples, each of them once.
    let lines = fs::read_to_string(&folded).unwrap();
    let stacks: Vec<(&str, u64)> = lines
        .lines()
        .map(|line| line.rsplit_once(' ').map(|(stack, n)| (stack, n.parse().unwrap())).unwrap())
        .collect();
    let in_burn: u64 = stacks.iter().filter(|(stack, _)| stack.ends_with(";burn")).map(|(_, count)| count).sum();
    assert!(
        stacks.iter().any(|(stack, _)| stack.starts_with("hot;") && stack.ends_with(";main;seventy;burn")),
        "{lines}"
    );
    assert_eq!(in_burn, burn.3, "{out}\n{lines}");
    let all: u64 = stacks.iter().map(|(_, count)| count).sum();
    assert!(out.contains(&format!("\n{all} samples in ")), "{out}\n{lines}");
    assert!(out.ends_with(&format!(": {all} samples in {} stacks\n", stacks.len())), "{out}");
}

const PAGES: u64 = 3000;

/// Touches new pages in one function and pages of a file in another, and says what the kernel counted meanwhile.
const TOUCH: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
// Who asks for its frame has one, also where it calls nothing.
#define FRAME __asm__ volatile("" : : "r"(__builtin_frame_address(0)))
__attribute__((noinline)) void touch_new(volatile char *at, long pages) {
    FRAME;
    for (long page = 0; page < pages; page++) at[page * 4096] = 1;
}
__attribute__((noinline)) void touch_file(volatile char *at, long pages) {
    FRAME;
    for (long page = 0; page < pages; page++) (void)at[page * 4096];
}
int main(int argc, char **argv) {
    long pages = atol(argv[1]);
    int file = open(argv[2], O_RDONLY);
    struct rusage used[3];
    char *fresh = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *mapped = mmap(0, pages * 4096, PROT_READ, MAP_SHARED, file, 0);
    // Huge pages take one fault for many.
    madvise(fresh, pages * 4096, MADV_NOHUGEPAGE);
    // The file's pages are not in memory, and the kernel does not read ahead.
    fsync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    madvise(mapped, pages * 4096, MADV_RANDOM);
    getrusage(RUSAGE_SELF, &used[0]);
    touch_new(fresh, pages);
    getrusage(RUSAGE_SELF, &used[1]);
    touch_file(mapped, pages);
    getrusage(RUSAGE_SELF, &used[2]);
    printf("\npid %d\n", getpid());
    for (int i = 0; i < 2; i++)
        printf("%s %ld %ld\n", i ? "file" : "new", used[i + 1].ru_minflt - used[i].ru_minflt,
               used[i + 1].ru_majflt - used[i].ru_majflt);
    return 0;
}
"#;

/// What `faults.py` prints of the program.
fn faults(program: &Path, options: &[&str]) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("faults-{}", std::process::id()));
    fs::write(&file, vec![1; PAGES as usize * 4096]).unwrap();
    let mut command = script("faults.py");
    command.args(options).arg("--exec").arg(program).arg(PAGES.to_string()).arg(&file);
    let output = command.output().unwrap();
    fs::remove_file(&file).unwrap();
    text(output)
}

#[test]
fn faults_counts_each_page_that_a_function_touches() {
    if skipped() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(directory.path(), "touch", TOUCH) else { return };
    let all = PAGES.to_string();
    let folded = directory.path().join("faults.folded");

    let out = faults(&program, &["--top", "100", "--flame", folded.to_str().unwrap()]);
    assert_eq!(row(&out, "new"), ["new", &all, "0"], "{out}");
    assert_eq!(counts_of(&out, "touch_new (touch)"), [&all, "0", &all], "{out}");
    let (minor, major) = (row(&out, "file")[1], row(&out, "file")[2]);
    assert_eq!(counts_of(&out, "touch_file (touch)")[..2], [minor, major], "{out}");
    if major != all {
        println!("not tested: major faults, this file system has {major} of {PAGES}");
    }
    let main: u64 = counts_of(&out, "main (touch)")[2].parse().unwrap();
    assert!(main >= PAGES + minor.parse::<u64>().unwrap() + major.parse::<u64>().unwrap(), "{out}");
    let lines = fs::read_to_string(&folded).unwrap();
    let line = lines.lines().find(|line| line.contains(";main;touch_new ")).unwrap();
    assert!(line.starts_with("touch;") && line.ends_with(&format!(" {all}")), "{lines}");

    let out = faults(&program, &["--by", "stack", "--sort", "minor", "--top", "1"]);
    let (counts, stack) = out.lines().find_map(|line| line.split_once("  touch_new (touch)")).expect(&out);
    assert_eq!((counts.split_whitespace().collect(), stack), (vec![all.as_str(), "0"], ""), "{out}");
    assert!(out.contains(&format!("touch_new (touch)\n{:21}main (touch)\n", "")), "{out}");

    let out = faults(&program, &["--by", "process", "--sort", "major", "--major"]);
    let pid = row(&out, "pid")[1];
    let process: Vec<&str> = out.lines().rfind(|line| line.ends_with("  touch")).unwrap().split_whitespace().collect();
    assert!(process[0] == "0" && process[2..] == [pid, "touch"], "{out}");
    assert!(process[1].parse::<u64>().unwrap() >= row(&out, "file")[2].parse().unwrap(), "{out}");
}

/// (command, waits) of each histogram, whose rows are checked to add up to the waits.
fn histograms(text: &str) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    let mut sum = 0;
    let mut check = |found: &[(String, u64)], row: Option<u64>| match row {
        Some(count) => sum += count,
        None => {
            assert_eq!(found.last().map_or(0, |&(_, count)| count), sum, "{text}");
            sum = 0;
        }
    };
    for line in text.lines() {
        if let Some(count) = line.strip_suffix(" waits") {
            check(&found, None);
            let (command, count) = count.rsplit_once(": ").unwrap();
            found.push((command.to_owned(), count.parse().unwrap()));
        } else if let (true, Some((_, count))) = (line.contains(" -> "), line.split_once(" : ")) {
            check(&found, Some(count.split_whitespace().next().unwrap().parse().unwrap()));
        }
    }
    check(&found, None);
    assert!(!found.is_empty());
    found
}

/// Where a program lies.
fn program(name: &str) -> PathBuf {
    env::split_paths(&env::var_os("PATH").unwrap()).map(|dir| dir.join(name)).find(|path| path.is_file()).unwrap()
}

/// Processes with known ends. `spawn` returns when the program has been executed.
fn children() {
    let run = |name: &str, args: &[&str]| Command::new(program(name)).args(args).status().unwrap();
    run("true", &[]);
    run("sh", &["-c", "exit 3"]);
    run("sleep", &["0.2"]);
    let real = program("tail").canonicalize().ok();
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGABRT] {
        let mut child = Command::new(program("tail")).args(["-f", "/dev/null"]).spawn().unwrap();
        // `spawn` returns when exec has closed the pipe that would tell of its failure, which is before exec is done.
        let executed = |pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|file| Some(file) == real);
        while !executed(child.id()) {
            thread::sleep(Duration::from_millis(1));
        }
        // The event comes last in exec.
        thread::sleep(Duration::from_millis(20));
        // SAFETY: the child was not reaped yet.
        unsafe { libc::kill(child.id() as i32, signal) };
        child.wait().unwrap();
    }
    let words = workload("threads");
    Command::new(&words[0]).args(&words[1..]).stdout(Stdio::null()).status().unwrap();
}

/// Ends while other threads still run.
fn threads() {
    for _ in 0..4 {
        thread::spawn(|| thread::sleep(Duration::from_secs(1000)));
    }
    std::process::exit(9)
}

#[test]
fn execsnoop_tells_how_processes_end() {
    if skipped() {
        return;
    }
    let out = on_workload("execsnoop.py", &[], "children");
    let ends = |name: &str| -> Vec<String> {
        let file = program(name).display().to_string();
        let lines = out.lines().filter(|line| line.ends_with(&format!("  {file}")) && line.contains(" exit  "));
        let how = |line: &str| line.split_whitespace().skip(4).collect::<Vec<_>>().join(" ");
        lines.map(how).map(|how| how.split(" after").next().unwrap().to_owned()).collect()
    };
    assert_eq!(ends("true"), ["exit 0"], "{out}");
    assert_eq!(ends("sh"), ["exit 3"], "{out}");
    assert_eq!(ends("tail"), ["killed by SIGKILL", "killed by SIGTERM", "killed by SIGABRT"], "{out}");

    let slept = out.lines().find(|line| line.contains("after") && line.contains("/sleep")).unwrap();
    let lifetime: f64 = slept.split("after ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    // In milliseconds below a second, in seconds from there on.
    assert!(lifetime >= 200.0 || slept.contains(" s "), "{slept}");

    // The workload's own process is the parent of all, and its own parent is perf-prof.
    let this = env::current_exe().unwrap().display().to_string();
    let main = out.lines().find(|line| line.contains(" exec ") && line.ends_with(&this)).unwrap();
    let pid = main.split_whitespace().nth(2).unwrap();
    let of_main = out.lines().filter(|line| line.contains(" exec ") && line.split_whitespace().nth(3) == Some(pid));
    assert!(of_main.count() >= 7, "{out}");
}

/// The kernel kills the other threads of a process that exits; that is not how the process ended.
#[test]
fn execsnoop_shows_the_exit_code_of_a_process_with_threads() {
    if skipped() {
        return;
    }
    let out = on_workload("execsnoop.py", &[], "children");
    let this = env::current_exe().unwrap().display().to_string();
    let ends = out.lines().filter(|line| line.contains(" exit  ") && line.ends_with(&this));
    let ends: Vec<&str> = ends.collect();
    assert!(ends.iter().any(|line| line.contains("exit 9 after")), "{out}");
    assert!(!ends.iter().any(|line| line.contains("SIGKILL")), "{out}");
}

/// Measures its own calls, and says how many they were and how long they took: `NAME COUNT NANOSECONDS`.
const MEASURED: &str = r#"
#include <stdio.h>
#include <time.h>
static unsigned long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ul + t.tv_nsec;
}
__attribute__((noinline)) void nap(void) {
    struct timespec t = {0, 5000000};
    nanosleep(&t, 0);
}
__attribute__((noinline)) int nested(int n) {
    int more = n ? nested(n - 1) : 0;
    __asm__ volatile("");
    return more + 1;
}
int main(void) {
    unsigned long begun = now();
    for (int i = 0; i < 20; i++)
        nap();
    printf("\nnaps 20 %lu\n", now() - begun);
    begun = now();
    for (int i = 0; i < 30; i++)
        nested(9);
    printf("nests 300 %lu\n", now() - begun);
    return 0;
}
"#;

#[test]
fn uprobe_latency_agrees_with_the_programs_own_clock() {
    if skipped() || !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        return println!("skipped: no tracing or no uprobes");
    }
    let directory = tempfile::tempdir().unwrap();
    let [source, program] = ["m.c", "m"].map(|name| directory.path().join(name));
    fs::write(&source, MEASURED).unwrap();
    let Ok(status) = Command::new("gcc").args(["-O1", "-o"]).args([&program, &source]).status() else {
        return println!("skipped: no gcc");
    };
    assert!(status.success());
    let mut command = script("uprobe_latency.py");
    for function in ["nap", "nested"] {
        let file = program.display();
        command.args(["-e", &format!("uprobe:{function}@{file},uretprobe:{function}@{file}")]);
    }
    let out = text(command.arg("--exec").arg(&program).output().unwrap());
    // `nap: 20 calls, mean 5123.456 us, longest 5234.567 us`
    let seen = |name: &str| {
        let words = row(&out, &format!("{name}:"));
        (words[1].parse::<u64>().unwrap(), (words[4].parse::<f64>().unwrap() * 1000.0) as u64)
    };
    let own = |name: &str| {
        let words = row(&out, name);
        (words[1].parse::<u64>().unwrap(), words[2].parse::<u64>().unwrap())
    };
    let ((count, mean), (own_count, own_time)) = (seen("nap"), own("naps"));
    assert_eq!(count, own_count, "{out}");
    // Its clock has the calls and what the probes take around them, the script what is within; neither less than a nap, but
    // for how differently the two clocks run.
    assert!((4_950_000..=own_time / own_count * 101 / 100).contains(&mean), "{out}");

    // Each of ten nested calls takes no longer than the outermost.
    let ((count, mean), (own_count, own_time)) = (seen("nested"), own("nests"));
    assert_eq!(count, own_count, "{out}");
    assert!(mean > 0 && mean * 30 <= own_time * 101 / 100, "{out}");
    assert!(!out.contains("not counted"), "{out}");
    // The rows of a histogram are its calls.
    let histogram = out.split("nested: ").nth(1).unwrap().lines().skip(2).take_while(|line| !line.is_empty());
    let rows = histogram.filter_map(|line| line.split_once(" : ")?.1.split_whitespace().next()?.parse::<u64>().ok());
    assert_eq!(rows.sum::<u64>(), 300, "{out}");
}

/// What a script does with made-up events: `script` is its module, `event(**members)` makes one.
fn on_made_up_events(name: &str, test: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name);
    let prelude = format!(
        "
import importlib.util, sys
def dummy(event): pass
class event(dict):
    __getattr__ = dict.__getitem__
    def __init__(self, **members): super().__init__(members)
sys.argv = ['{name}']
spec = importlib.util.spec_from_file_location('tested', {path:?})
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
"
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t.py");
    fs::write(&file, prelude + test).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
    command.args(["python", "-q", "-e", "dummy"]).arg(file).args(["--exec", "true"]);
    text(command.output().unwrap())
}

/// The time between an exit and the next task with the same number was shown as off CPU.
#[test]
fn offcpu_does_not_take_a_dead_task_for_the_next_one_with_its_number() {
    if skipped() {
        return;
    }
    let out = on_made_up_events(
        "offcpu.py",
        "
class Table(list):
    def add(self, began, us): self.append((began.prev_pid, us))
script.table = Table()
def switch(us, prev, state, next):
    script.sched__sched_switch(event(
        _time=us * 1000, _pid=prev, prev_pid=prev, prev_comm='t', prev_state=state, next_pid=next))
switch(0, 7, 1, 8)
switch(5, 8, 0, 7)
for at, dead in (10, 0x10), (1000, 0x20):  # EXIT_DEAD, EXIT_ZOMBIE
    switch(at, 7, dead, 8)
    switch(at + 700, 8, 1, 7)
print(script.table, [event.prev_pid for event in script.left.values()])
",
    );
    assert_eq!(out, "[(7, 5), (8, 5), (8, 290)] [8]\n");
}

/// Each was held for ever: calls left by longjmp(), threads that ended in one.
#[test]
fn uprobe_latency_holds_no_more_than_it_says() {
    if skipped() {
        return;
    }
    let out = on_made_up_events(
        "uprobe_latency.py",
        "
def enter(us, tid, ip): script.__sample__(event(_time=us * 1000, _tid=tid, _pid=1 << 30, _event='uprobe:f', __probe_ip=ip))
def leave(us, tid, ip): script.__sample__(event(_time=us * 1000, _tid=tid, _pid=1 << 30, _event='uretprobe:f', __probe_func=ip))
for n in range(script.DEEPEST * 3): enter(n, 1, 16)
print(len(script.open_calls[1]) == script.DEEPEST)
enter(9000, 2, 32)
for n in range(100): enter(9001, 2, 16)
leave(9003, 2, 32)
print(2 in script.open_calls, [(calls.total, len(calls.histogram)) for calls in script.functions.values()])
for tid in range(script.MOST_THREADS * 2): enter(1, tid, 16)
print(len(script.open_calls) == script.MOST_THREADS)
",
    );
    assert!(out.starts_with("True\nFalse [(3000, 1)]\nTrue\n"), "{out}");
}

/// Nothing was said, and each call was held for ever.
#[test]
fn uprobe_latency_wants_the_return_of_each_entry() {
    if skipped() || !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        return println!("skipped: no tracing or no uprobes");
    }
    for (one, other) in [("uprobe", "uretprobe"), ("uretprobe", "uprobe")] {
        let out = script("uprobe_latency.py").args(["-e", &format!("{one}:getpid@libc"), "--exec", "true"]).output();
        let out = out.unwrap();
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{err}");
        assert!(err.contains(&format!("{one}:getpid is selected without {other}:getpid")), "{err}");
    }
}

/// They were one histogram.
#[test]
fn uprobe_latency_tells_functions_of_one_name_in_two_files_apart() {
    if skipped() || !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        return println!("skipped: no tracing or no uprobes");
    }
    const TWICE: &str = "#include <unistd.h>
__attribute__((noinline)) void same(void) { usleep(100); }
int main(void) {
    for (int i = 0; i < 10; i++) same();
    sleep(1);
    return 0;
}
";
    let directory = tempfile::tempdir().unwrap();
    let Some(one) = compile(directory.path(), "one", TWICE) else { return println!("skipped: no gcc") };
    let two = compile(directory.path(), "two", &format!("int pad(void) {{ return 1; }}\n{TWICE}")).unwrap();
    let mut command = script("uprobe_latency.py");
    for file in [&one, &two] {
        let file = file.display();
        command.args(["-e", &format!("uprobe:same@{file},uretprobe:same@{file}")]);
    }
    let shell = format!("{} & {} & wait", one.display(), two.display());
    let out = text(command.args(["--exec", "sh", "-c", &shell]).output().unwrap());
    for file in [&one, &two] {
        assert!(out.contains(&format!("same ({}): 10 calls, ", file.display())), "{out}");
    }
}

/// It was said at the end of the run, when what had been seen was lost.
#[test]
fn a_flame_graph_that_cannot_be_saved_is_refused_at_once() {
    if skipped() {
        return;
    }
    for name in ["profile.py", "faults.py", "offcpu.py"] {
        for (file, why) in
            [("x.png", "saved as .svg or .folded"), ("/no/such/x.svg", "no file can be made in /no/such")]
        {
            let out = script(name).args(["--flame", file, "--exec", "echo", "ran"]).output().unwrap();
            let err = String::from_utf8_lossy(&out.stderr);
            assert_eq!((out.status.code(), &*out.stdout), (Some(2), &b""[..]), "{name} {err}");
            assert!(err.contains(&format!("--flame {file}: ")) && err.contains(why), "{name} {err}");
        }
    }
}

/// It said that nobody was off CPU, and not why.
#[test]
fn offcpu_of_a_command_says_why_it_sees_nothing() {
    if skipped() {
        return;
    }
    let shown = text(script("offcpu.py").args(["--exec", "sleep", "0.1"]).output().unwrap());
    assert!(
        shown.contains("0.000 ms off CPU in 0 stacks; with -p, -t or --exec nobody is seen to come back: use --pid"),
        "{shown}"
    );
}

#[test]
fn scripts_explain_themselves() {
    if skipped() {
        return;
    }
    for name in [
        "wakeups.py",
        "runqlat.py",
        "syscalls.py",
        "execsnoop.py",
        "offcpu.py",
        "profile.py",
        "faults.py",
        "uprobe_latency.py",
    ] {
        let out = text(script(name).arg("--usage").output().unwrap());
        assert!(out.starts_with(&format!("usage: {name}")), "{out}");
        let wrong = script(name).arg("--no-such-option").output().unwrap();
        let err = String::from_utf8(wrong.stderr).unwrap();
        assert_eq!(wrong.status.code(), Some(2), "{err}");
        assert!(err.contains("unrecognized arguments: --no-such-option") && wrong.stdout.is_empty(), "{err}");
    }
}

/// The blocks of Python in a document.
fn python_blocks(document: &str) -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(document)).unwrap();
    let blocks = text.split("```python\n").skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// `system:name` of each handler in a script whose event this kernel has; an alias is none.
fn handled_events(script: &str) -> Vec<String> {
    let names = script.lines().filter_map(|line| line.strip_prefix("def ")?.strip_suffix("(event):")?.split_once("__"));
    let there = |(system, name): &(&str, &str)| {
        !system.is_empty() && Path::new("/sys/kernel/tracing/events").join(system).join(name).exists()
    };
    names.filter(there).map(|(system, name)| format!("{system}:{name}")).collect()
}

#[test]
fn examples_in_the_documents_run() {
    if skipped() {
        return;
    }
    let mut ran = 0;
    for document in ["README.md", "docs/writing-scripts.md"] {
        for example in python_blocks(document) {
            let events = handled_events(&example);
            if events.is_empty() {
                continue;
            }
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("example.py"), &example).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
            command.current_dir(&directory).args(["python", "-i", "50", "-e", &events.join(","), "example.py"]);
            // Opens, fails to open, wakes up, allocates.
            let work = "for i in 1 2 3 4 5 6 7 8 9 10; do ls /nonexistent /tmp | cat; done >/dev/null 2>&1";
            text(command.args(["--exec", "sh", "-c", work]).output().unwrap());
            ran += 1;
        }
    }
    assert!(ran >= 6, "{ran} examples ran");
}

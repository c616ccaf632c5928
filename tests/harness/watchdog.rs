//! Kills hanging programs of tests, because a failed test is better than one that never ends.

use std::{
    env, fs, process,
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

/// The time after which a test, or a program that a test has started, is taken for hanging.
const LIMIT: Duration = Duration::from_secs(300);

/// The time after which the name of a running test is printed.
const SLOW: Duration = Duration::from_secs(60);

/// How long a test may go on after its programs were killed.
const REST: Duration = Duration::from_secs(60);

/// The environment variable that all programs of tests inherit. It identifies them even if their parents have exited.
const MARK: &str = "PERF_PROF_TESTS_RUN";

/// From now on, kills hanging programs of tests. No other thread may run yet.
pub fn start() {
    if env::var_os(MARK).is_some() {
        // A test started these tests, and its watchdog finds all programs.
        return;
    }
    // SAFETY: no other thread runs yet.
    unsafe { env::set_var(MARK, process::id().to_string()) };
    let watch = || {
        loop {
            thread::sleep(Duration::from_secs(5));
            kill(LIMIT);
        }
    };
    thread::Builder::new().name("watchdog".to_owned()).spawn(watch).unwrap();
}

/// Kills the programs of tests that are at least this old. A program that a failed test left behind would disturb other
/// tests. The reader of the results would also wait for a pipe that this program keeps open.
pub fn kill(age: Duration) {
    for pid in older_than(age) {
        eprintln!("\nkilled, because it still ran after {} s: {}", age.as_secs(), described(pid));
        // SAFETY: kill takes no pointer.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

/// Returns the process ids of the programs of tests that are at least this old.
fn older_than(age: Duration) -> Vec<i32> {
    let mark = format!("{MARK}={}", process::id());
    let is_old = |pid: &i32| -> Option<bool> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let started: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        let uptime: f64 = fs::read_to_string("/proc/uptime").ok()?.split(' ').next()?.parse().ok()?;
        // SAFETY: sysconf takes no pointer.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        if uptime - started as f64 / ticks < age.as_secs_f64() {
            return None;
        }
        let variables = fs::read(format!("/proc/{pid}/environ")).ok()?;
        Some(variables.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes()))
    };
    let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_old(pid) == Some(true)).collect()
}

/// Returns the command of a process, and the kernel functions in which its threads wait.
fn described(pid: i32) -> String {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let waits = tasks.map(|task| {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        format!("\n  thread {} in {}, system call {}", read("comm").trim(), read("wchan"), read("syscall").trim())
    });
    String::from_utf8_lossy(&command).replace('\0', " ") + &waits.collect::<String>()
}

/// Waits for the end of a test's thread. The thread first sends its id, and drops its end of the channel when it ends.
/// Returns an error if the test takes too long.
pub fn await_end(name: &str, thread: &Receiver<i32>) -> Result<(), String> {
    let (begin, tid) = (Instant::now(), thread.recv().unwrap_or_default());
    let goes_on = |time: Duration| {
        let left = time.saturating_sub(begin.elapsed());
        thread.recv_timeout(left) == Err(RecvTimeoutError::Timeout)
    };
    if goes_on(SLOW) {
        // The standard harness prints the same line.
        println!("test {name} has been running for over {} seconds", SLOW.as_secs());
    }
    if goes_on(LIMIT + REST) {
        let place = fs::read_to_string(format!("/proc/self/task/{tid}/wchan")).unwrap_or_default();
        return Err(format!("it hangs, in {place}, and its thread is left alone"));
    }
    let took = begin.elapsed();
    if took < LIMIT {
        Ok(())
    } else {
        Err(format!("it took {} s, so its programs may have been killed", took.as_secs()))
    }
}

//! Tests `execsnoop.py` with processes that end in known ways.

use std::{
    env, fs,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::harness::{
    machine::{Need, needs},
    scripts::{on_workload, program, script, text},
    wait, workload,
};

/// A workload whose child processes end in known ways.
pub fn children() {
    let run = |name: &str, args: &[&str]| Command::new(program(name)).args(args).status().unwrap();
    run("true", &[]);
    run("sh", &["-c", "exit 3"]);
    run("sleep", &["0.2"]);
    let real = program("tail").canonicalize().ok();
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGABRT] {
        let mut child = Command::new(program("tail")).args(["-f", "/dev/null"]).spawn().unwrap();
        // `spawn` returns when exec closes the pipe for its error. Exec is not finished yet then.
        let executed = |pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|file| Some(file) == real);
        wait::until("exec is done", || executed(child.id()));
        // The event of exec happens at its very end.
        thread::sleep(Duration::from_millis(20));
        // SAFETY: the child was not reaped yet.
        unsafe { libc::kill(child.id() as i32, signal) };
        child.wait().unwrap();
    }
    let words = workload::words("threads");
    Command::new(&words[0]).args(&words[1..]).stdout(Stdio::null()).status().unwrap();
}

/// A workload whose main thread ends while other threads still run.
pub fn threads() {
    for _ in 0..4 {
        thread::spawn(|| thread::sleep(Duration::from_secs(1000)));
    }
    std::process::exit(9)
}

#[test]
fn execsnoop_tells_how_processes_end() {
    needs([Need::Tracefs]);
    let out = on_workload("execsnoop.py", &[], "children");
    let ends = |name: &str| -> Vec<String> {
        let file = program(name).display().to_string();
        let lines = out.lines().filter(|line| line.ends_with(&format!("  {file}")) && line.contains(" exit  "));
        let how = |line: &str| line.split_whitespace().skip(4).collect::<Vec<_>>().join(" ");
        lines.map(how).map(|how| how.split(" after").next().unwrap().to_owned()).collect()
    };
    assert_eq!(ends("true"), ["exit 0"], "{out}");
    assert_eq!(ends("sh"), ["exit 3"], "{out}");
    // Only the workload executes this program and has children.
    let this = env::current_exe().unwrap().display().to_string();
    let main = out.lines().find(|line| line.contains(" exec ") && line.contains(&this)).unwrap();
    let pid = main.split_whitespace().nth(2).unwrap();
    // The kernel cuts comms to 15 bytes (TASK_COMM_LEN).
    let comm: String = this.rsplit('/').next().unwrap().chars().take(15).collect();
    let killed = ["KILL", "TERM", "ABRT"].map(|signal| format!("killed by SIG{signal} from {comm} {pid}"));
    assert_eq!(ends("tail"), killed, "{out}");

    let slept = out.lines().find(|line| line.contains("after") && line.contains("/sleep")).unwrap();
    let lifetime: f64 = slept.split("after ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    // Times below a second are shown in milliseconds, and longer times in seconds.
    assert!(lifetime >= 200.0 || slept.contains(" s "), "{slept}");

    // The workload is the parent of all other processes, and perf-prof is its parent.
    let of_main = out.lines().filter(|line| line.contains(" exec ") && line.split_whitespace().nth(3) == Some(pid));
    assert!(of_main.count() >= 7, "{out}");
}

/// The arguments are read from /proc, so the program has to run for a while.
#[test]
fn execsnoop_shows_the_arguments_of_a_program() {
    needs([Need::Tracefs]);
    let out = text(script("execsnoop.py").args(["--exec", "sh", "-c", "sleep 2.125 0.5s; :"]).output().unwrap());
    let line = format!("  {} 2.125 0.5s", program("sleep").display());
    let shown = out.lines().filter(|shown| shown.contains(" exec ") && shown.ends_with(&line));
    assert_eq!(shown.count(), 1, "{line} in {out}");
    // The line of the end contains only the file.
    let file = format!("  {}", program("sleep").display());
    assert!(out.lines().any(|shown| shown.contains(" exit ") && shown.ends_with(&file)), "{out}");
}

/// The kernel kills the other threads of an exiting process, but the process itself is not killed.
#[test]
fn execsnoop_shows_the_exit_code_of_a_process_with_threads() {
    needs([Need::Tracefs]);
    let out = on_workload("execsnoop.py", &[], "children");
    let this = env::current_exe().unwrap().display().to_string();
    let ends = out.lines().filter(|line| line.contains(" exit  ") && line.ends_with(&this));
    let ends: Vec<&str> = ends.collect();
    assert!(ends.iter().any(|line| line.contains("exit 9 after")), "{out}");
    assert!(!ends.iter().any(|line| line.contains("SIGKILL")), "{out}");
}

//! Checks which tasks are counted: the tasks of a command, a process with the children that it creates, and single
//! threads.

use std::process::Stdio;

use super::{counts, json, needs_bpf};
use crate::harness::{
    cgroup::Cgroup,
    counting::{CALL, Waiting, objects, words},
    run::{PATIENCE, perf_prof, with_patience},
};

/// The counts include neither the calls before the command's exec nor the calls of other programs.
#[test]
fn a_command_counts_with_all_that_it_creates() {
    needs_bpf();
    let other = Waiting::new(1000, 1, 0);
    let object = json("always", &["top", CALL, "--by", "tid"], &words(50, 3, 2));
    other.go();
    assert_eq!(counts(&object), [50; 6]);
}

/// Starts `perf-prof top` on a waiting program, starts the program's work, and returns the counts.
fn counted(waiting: Waiting, args: &[&str]) -> Vec<u64> {
    let mut command = perf_prof(&["top", CALL, "--by", "_pid", "--in-kernel", "always", "--json", "-v"]);
    let child = with_patience(command.args(args), PATIENCE).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    // This line is printed when the BPF programs are attached.
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("counted in the kernel") {
        line.clear();
        assert_ne!(std::io::BufRead::read_line(&mut said, &mut line).unwrap(), 0);
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    waiting.go();
    let output = child.wait_with_output().unwrap();
    counts(&objects(std::str::from_utf8(&output.stdout).unwrap()).pop().unwrap())
}

#[test]
fn a_process_counts_with_its_threads_and_the_children_that_it_creates() {
    needs_bpf();
    let (waiting, other) = (Waiting::new(40, 2, 3), Waiting::new(1000, 0, 0));
    let pid = waiting.pid();
    let both = std::thread::spawn(move || other.go());
    // The main thread, two threads from before, and two that are created later.
    assert_eq!(counted(waiting, &["-p", &pid]), [200, 40, 40, 40]);
    both.join().unwrap();
}

#[test]
fn a_thread_counts_alone() {
    needs_bpf();
    let waiting = Waiting::new(40, 2, 1);
    // The thread with the highest id makes the calls.
    let threads = std::fs::read_dir(format!("/proc/{}/task", waiting.pid())).unwrap();
    let tids = threads.map(|thread| thread.unwrap().file_name().into_string().unwrap().parse::<u32>().unwrap());
    let tid = tids.max().unwrap().to_string();
    assert_eq!(counted(waiting, &["-t", &tid]), [40]);
}

#[test]
fn the_tasks_of_a_cgroup_count() {
    needs_bpf();
    let cgroup = Cgroup::new();
    let waiting = Waiting::new(40, 2, 0);
    std::fs::write(cgroup.procs(), waiting.pid()).unwrap();
    let mut command = perf_prof(&["top", CALL, "--by", "_pid", "--json", "--duration", "1s"]);
    let child = command.args(["--cgroups", &cgroup.name]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(400));
    waiting.go();
    let output = child.wait_with_output().unwrap();
    assert_eq!(counts(&objects(std::str::from_utf8(&output.stdout).unwrap()).pop().unwrap()), [200]);
}

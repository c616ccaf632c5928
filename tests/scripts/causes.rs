//! Scripts that show why tasks wait or stop, on tasks that wait for known reasons.

use std::path::Path;

use crate::harness::{
    machine::{Need, needs},
    scripts::{row, script, text},
};

/// A task sleeps 20 times on a CPU on which another task always computes.
const SHARED_CPU: &str = "
import os, time
os.sched_setaffinity(0, {0})
def name(text):
    open('/proc/self/comm', 'w').write(text)
child = os.fork()
if child == 0:
    name('sb-hog')
    while True:
        sum(range(1000))
name('sb-nap')
for _ in range(20):
    time.sleep(0.005)
    sum(range(1000))
os.kill(child, 9)
os.wait()
";

/// A task waits 5 times for a byte, which another task writes after 20 ms.
const PIPE: &str = "
import os, time
os.sched_setaffinity(0, {0})
there, back = os.pipe(), os.pipe()
def name(text):
    open('/proc/self/comm', 'w').write(text)
if os.fork() == 0:
    name('ow-reader')
    for _ in range(5):
        os.read(there[0], 1)
        os.write(back[1], b'x')
    os._exit(0)
name('ow-writer')
for _ in range(5):
    time.sleep(0.02)
    os.write(there[1], b'x')
    os.read(back[0], 1)
os.wait()
";

/// A byte passes through three tasks. The last one waits for the middle one, which waits for the first one, which
/// sleeps.
const THROUGH: &str = "
import os, time
os.sched_setaffinity(0, {0})
there, back = os.pipe(), os.pipe()
def task(name, begin, end):
    if os.fork() == 0:
        open('/proc/self/comm', 'w').write(name)
        for _ in range(5):
            end(begin())
        os._exit(0)
task('ow-last', lambda: os.read(back[0], 1), lambda byte: None)
task('ow-middle', lambda: os.read(there[0], 1), lambda byte: os.write(back[1], byte))
task('ow-first', lambda: time.sleep(0.05), lambda byte: os.write(there[1], b'x'))
for _ in range(3):
    os.wait()
";

fn run(name: &str, options: &[&str], program: &str) -> String {
    text(script(name).args(options).args(["--exec", "python3", "-c", program]).output().unwrap())
}

#[test]
fn schedblame_names_the_task_that_ran_meanwhile() {
    needs([Need::Tracefs]);
    let out = run("schedblame.py", &["--top", "1000", "--culprits", "1000"], SHARED_CPU);
    let waits: u64 = row(&out, "sb-nap")[1].parse().unwrap();
    // The task waits after each nap, and perhaps more often, because its time slice may end.
    assert!(waits >= 20, "{out}");
    let hog = row(&out, "sb-hog").join(" ");
    assert!(hog.contains("sb-nap"), "{out}");
    // With thread ids, the row of one task contains the id of the other task.
    let out = run("schedblame.py", &["--culprits", "1000", "--by-thread", "--comm", "sb-nap"], SHARED_CPU);
    let nap = row(&out, "sb-nap");
    assert!(nap[1].parse::<u32>().is_ok() && nap[2].parse::<u32>().unwrap() >= 20, "{out}");
    let ran = nap.windows(2).find(|words| words[0] == "sb-hog").unwrap_or_else(|| panic!("{out}"));
    assert!(ran[1].parse::<u32>().is_ok(), "{out}");
}

#[test]
fn runqlen_shows_the_cpu_for_which_tasks_wait() {
    needs([Need::Tracefs]);
    let out = run("runqlen.py", &[], SHARED_CPU);
    let cpu = row(&out, "0");
    // Two tasks share the CPU, so one waits whenever both could run. But the napping task sleeps most of the time.
    let (waits, length): (u64, f64) = (cpu[1].parse().unwrap(), cpu[2].parse().unwrap());
    assert!(waits >= 20 && length < 2.0, "{out}");
    let all: u64 = row(&out, "all")[1].parse().unwrap();
    assert!(all >= waits, "{out}");
}

#[test]
fn cpudist_tells_runs_that_end_by_a_wait_from_others() {
    needs([Need::Tracefs]);
    let out = run("cpudist.py", &["--by", "why", "--comm", "sb-nap"], SHARED_CPU);
    let waits: u64 = row(&out, "sleeping")[1].parse().unwrap();
    // On some machines the kernel hides switches of an idle CPU. What is missing is told.
    let told = out.split_once(" of sb-nap/").and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok());
    let missing: u64 = told.unwrap_or(0);
    assert!(waits >= 10 && waits + missing >= 20, "{out}");
    let hog = run("cpudist.py", &["--by", "why", "--comm", "sb-hog"], SHARED_CPU);
    assert!(row(&hog, "preempted")[1].parse::<u64>().unwrap() >= 1, "{hog}");
}

#[test]
fn offwake_shows_the_task_that_woke_another() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let flame = folder.path().join("o.folded");
    let options = ["--comm", "ow-reader", "--min", "10000", "--flame", flame.to_str().unwrap()];
    let out = run("offwake.py", &options, PIPE);
    let lines: Vec<&str> = out.lines().map(str::trim).collect();
    assert!(lines.iter().any(|line| line.ends_with("%  ow-reader")), "{out}");
    assert!(lines.contains(&"woken by ow-writer") && lines.contains(&"schedule"), "{out}");
    let stacks = std::fs::read_to_string(Path::new(&flame)).unwrap();
    let us: u64 = stacks.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    assert!(us >= 80_000, "{stacks}");
    assert!(stacks.lines().any(|line| line.starts_with("ow-reader;") && line.contains(";--;")), "{stacks}");
}

#[test]
fn offwake_follows_the_wakers_to_the_start_of_the_chain() {
    needs([Need::Tracefs]);
    let out = run("offwake.py", &["--comm", "ow-last", "--min", "10000", "--by-thread"], THROUGH);
    let after = |line: &str| out.lines().position(|other| other.trim_start().starts_with(line));
    let (waker, start) = (after("woken by ow-middle "), after("which waited for ow-first "));
    assert!(waker.is_some() && waker < start, "{out}");
    // The first task waits for a timer and for no task.
    assert!(!out.contains("which waited for (interrupt)"), "{out}");
}

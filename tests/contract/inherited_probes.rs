//! Probes in tasks that create tasks: new threads and children inherit the probes, and no definition is left in
//! tracefs.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

#[cfg(target_arch = "x86_64")]
use perf_prof_symbols::symbol::elf;

#[cfg(target_arch = "x86_64")]
use super::probes::Defined;
use super::probes::{PROBES, gcc};
use crate::harness::{
    machine::{Need, needs, skip},
    run::tested_program,
    script::Run,
};

/// A program that creates threads and children when its input ends. The children create threads too. It prints how many
/// tasks could not be created.
const BEARING: &str = r#"
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <stdlib.h>
__attribute__((noinline)) void waiting(void) { __asm__ volatile(""); }
__attribute__((noinline)) void born(void) { __asm__ volatile(""); }
static int failures;
static void *thread(void *unused) { for (int i = 0; i < 10; i++) born(); return unused; }
static void threads(int count) {
    for (int i = 0; i < count; i++) {
        pthread_t id;
        if (pthread_create(&id, 0, thread, 0)) failures++; else pthread_join(id, 0);
    }
}
int main(void) {
    struct pollfd input = { .fd = 0, .events = POLLIN };
    while (poll(&input, 1, 1) == 0) waiting();
    threads(5);
    for (int i = 0; i < 5; i++) {
        int status;
        pid_t child = fork();
        if (child < 0) { failures++; continue; }
        if (child == 0) { born(); threads(2); _exit(failures); }
        waitpid(child, &status, 0);
        failures += WEXITSTATUS(status);
    }
    fprintf(stderr, "failures %d\n", failures);
    return 0;
}
"#;

/// Five threads make ten calls each. Five children make one call each, and each child has two threads that make ten
/// calls each.
const BIRTHS: &str = "uprobe:born 155\nuretprobe:born 155\n";

/// A script that prints a line at the first event, and the count of each event at the end.
const BIRTHS_SCRIPT: &str = "
import sys
n = {}
def __sample__(e):
    if not n: print('begun', flush=True)
    n[e._event] = n.get(e._event, 0) + 1
def __exit__(): [print(name, n[name]) for name in sorted(n) if name != 'uprobe:waiting']";

/// Returns the definitions in tracefs that the perf-prof process `pid` has made and not removed.
fn definitions_of(pid: u32) -> Vec<String> {
    let list = fs::read_to_string("/sys/kernel/tracing/uprobe_events").unwrap_or_default();
    list.lines().filter(|line| line.contains(&format!(":perf_prof_{pid}_"))).map(str::to_owned).collect()
}

/// A run on a program whose path contains a blank and a `#`. The kernel's list of probes would split such a path.
fn bearing() -> Run {
    let run = Run::script(BIRTHS_SCRIPT).file("a b#/p.c", BEARING);
    gcc(run.dir.path(), &["-O1", "-pthread", "a b#/p.c", "-o", "a b#/p"]);
    let events = "uprobe:born@\"./a b#/p\",uretprobe:born@\"./a b#/p\",uprobe:waiting@\"./a b#/p\"";
    run.event(events).options(["-m1M"])
}

/// With inherited probes, fork() and pthread_create() must not fail with EFAULT.
#[test]
fn threads_and_children_of_a_command_with_probes_are_counted() {
    needs(PROBES);
    let outcome = bearing().exec(["sh", "-c", "'./a b#/p' < /dev/null"]).run();
    let counts: String =
        outcome.stdout.lines().filter(|line| *line != "begun").map(|line| format!("{line}\n")).collect();
    assert_eq!((outcome.status, counts.as_str(), outcome.stderr.lines().last()), (0, BIRTHS, Some("failures 0")));
}

/// With inherited probes, fork() and pthread_create() must not fail with EFAULT.
#[test]
fn threads_and_children_of_a_process_with_probes_are_counted() {
    needs(PROBES);
    let run = bearing();
    let program = Command::new(run.path("a b#/p")).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let run = run.options(["-p", &program.id().to_string()]);
    let (mut tracer, mut lines) = run.start();
    assert_eq!(lines.next().unwrap(), "begun");
    let defined = definitions_of(tracer.id()).len();
    let ended = program.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "failures 0\n");
    let counts: String = lines.map(|line| line + "\n").collect();
    assert!(tracer.wait().unwrap().success());
    assert_eq!(counts, BIRTHS);
    assert_eq!(defined, 3);
    assert_eq!(definitions_of(tracer.id()), [""; 0]);
}

/// A killed process cannot remove its definitions. The next process that defines probes removes them.
#[test]
fn definitions_of_a_killed_process_are_removed_by_the_next() {
    needs(PROBES);
    let run = bearing();
    let mut program = Command::new(run.path("a b#/p")).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let run = run.options(["-p", &program.id().to_string()]);
    let mut tracer = run.command().stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tracer.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "begun");
    // The definitions are checked before the tracer ends. Afterwards, another test may remove them at any time.
    assert_eq!(definitions_of(tracer.id()).len(), 3);
    tracer.kill().unwrap();
    tracer.wait().unwrap();
    assert_eq!(bearing().exec(["true"]).run().status, 0);
    assert_eq!(definitions_of(tracer.id()), [""; 0]);
    drop(program.stdin.take());
    program.wait().unwrap();
}

/// If tracefs is unmounted during a run, the end of the run cannot remove the definitions either.
#[test]
fn doctor_names_definitions_that_are_left_over_and_how_to_remove_them() {
    needs(PROBES);
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    let digits: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let name = format!("perf_prof_{}_{digits}/left", ended.id());
    // A run of another test removes the definition too, so several attempts are made.
    let said = (0..100).find_map(|_| {
        let mut list = fs::OpenOptions::new().append(true).open("/sys/kernel/tracing/uprobe_events").unwrap();
        list.write_all(format!("p:{name} /bin/sh:0x10 n=%di").as_bytes()).unwrap();
        let output = Command::new(tested_program()).arg("doctor").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.contains(&name).then_some(said)
    });
    let said = said.unwrap();
    let fix = said.lines().find_map(|line| line.trim().strip_prefix("to fix it: echo")).unwrap();
    let (fix, _) = fix.split_once(" (the next run").unwrap();
    // Another test may have removed the definition. Then the kernel refuses.
    let _ = Command::new("sh").args(["-c", &format!("echo{fix}")]).output().unwrap();
    assert_eq!(definitions_of(ended.id()), [""; 0]);
}

/// A program that creates children, one after the other, which create threads. All run on one CPU, so tasks follow each
/// other directly.
const ON_ONE_CPU: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void born(void) { __asm__ volatile(""); }
static void *thread(void *unused) { born(); return unused; }
int main(void) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);
    for (int i = 0; i < 20; i++) {
        if (fork() == 0) {
            for (int j = 0; j < 4; j++) {
                pthread_t id;
                if (pthread_create(&id, 0, thread, 0) == 0) pthread_join(id, 0);
            }
            born();
            _exit(0);
        }
        wait(0);
    }
    return 0;
}
"#;

/// Since Linux 6.12, a tracer can prevent that the kernel moves a task's events to another task.
fn needs_events_that_stay() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|byte: char| !byte.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap());
    let older = (numbers.next().unwrap(), numbers.next().unwrap()) < (6, 12);
    if older {
        skip(Need::Kernel, format!("Linux {} lets tasks exchange inherited events", release.trim()));
    }
}

/// If the kernel passed a parent's events to its child, they would end with the child, and most of the 510 calls would
/// be missing.
#[test]
fn probes_stay_with_tasks_that_follow_each_other_on_a_cpu() {
    needs(PROBES);
    needs_events_that_stay();
    let run = Run::script(BIRTHS_SCRIPT).file("p.c", ON_ONE_CPU);
    gcc(run.dir.path(), &["-O1", "-pthread", "p.c", "-o", "p"]);
    let run = run.event("uprobe:born@\"./p\"").exec(["sh", "-c", "./p; true"]);
    let outcome = run.run();
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, "begun\nuprobe:born 100\n"), "{}", outcome.stderr);
    let mut counting = Command::new(tested_program());
    counting.args(["stat", "--json", "-e", "uprobe:born@\"./p\"", "--", "sh", "-c", "./p; true"]);
    let counted = counting.current_dir(run.dir.path()).output().unwrap();
    let counted = String::from_utf8(counted.stderr).unwrap();
    assert!(counted.contains("\"event\":\"uprobe:born\",\"status\":\"counted\",\"value\":100,"), "{counted}");
}

/// Probes that a user has defined in tracefs also stay with their tasks.
#[cfg(target_arch = "x86_64")]
#[test]
fn probes_defined_in_tracefs_stay_with_tasks_that_follow_each_other_on_a_cpu() {
    needs(PROBES);
    needs_events_that_stay();
    let run = Run::script(BIRTHS_SCRIPT).file("p.c", ON_ONE_CPU);
    gcc(run.dir.path(), &["-O1", "-pthread", "p.c", "-o", "p"]);
    let offset = elf::function(&run.path("p"), "born").unwrap().file_offset;
    let place = format!("{}:{offset:#x}", run.path("p").display());
    let defined = Defined::new(format!("perf_prof_births_{}", std::process::id()), &place);
    let event = defined.event();
    let outcome = run.event(&event).exec(["sh", "-c", "./p; true"]).run();
    let expected = format!("begun\n{event} 100\n");
    assert_eq!((outcome.status, outcome.stdout), (0, expected), "{}", outcome.stderr);
}

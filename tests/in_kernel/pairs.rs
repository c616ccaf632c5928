//! Checks that system calls that BPF programs pair and write equal the calls that perf-prof pairs from samples.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStderr, Stdio},
};

use super::needs_bpf;
use crate::harness::{
    counting::{Waiting, words},
    script::{Outcome, Run, finish, workload},
    seccomp::refuse,
};

/// A script that prints its system calls and the counts of the run.
const SCRIPT: &str = r#"
import itertools, os, struct, sys, perf_prof
calls = []
asked = itertools.cycle((300, 600))
def syscall(e):
    assert e.begin.id == e.nr and struct.unpack("6Q", e.begin.args) == e.args and e.end.ret == e.ret
    assert e.duration == e._time - e.begin._time and e._time == e.end._time and e.begin._tid == e._tid
    assert {e.begin._cpu, e._cpu} <= os.sched_getaffinity(0)
    calls.append((e.name, e.args[0] if e.name == "getpgid" else 0, e.errno, e.comm))
    if e.name == "clock_nanosleep": print("slept as asked", e.duration >= next(asked) * 1_000_000)
def __exit__():
    print(sorted(calls))
    counts = perf_prof.stats()["events"]["syscall"]
    print(*(f"{name} {counts[name]}" for name in ("delivered", "opened", "ended", "open", "dropped", "without_begin")))
    print(counts["where"], file=sys.stderr)
"#;

/// Runs the script in the kernel and in perf-prof. Checks that both outputs are equal, and returns the output.
fn in_both(event: &str, options: &[&str], program: &[String]) -> String {
    let run = |when: &str| {
        let run = Run::script(SCRIPT).event(event).options(["--in-kernel", when, "-q"]).options(options);
        run.exec(program).run()
    };
    let [kernel, samples] = ["always", "never"].map(run);
    assert_eq!([&kernel.stderr, &samples.stderr], ["kernel\n", "perf-prof\n"], "{}", kernel.stdout);
    assert_eq!(kernel.stdout, samples.stdout, "{event}");
    kernel.stdout
}

#[test]
fn a_function_gets_the_calls_that_last_long_enough() {
    needs_bpf();
    let printed =
        in_both("syscall/min=200ms/", &[], &workload("calls 1000 sleep-ms 300 calls 10 sleep-ms 600 sleep-ms 1"));
    assert_eq!(printed.lines().take(2).collect::<Vec<_>>(), ["slept as asked True"; 2], "{printed}");
    assert_eq!(printed.matches("clock_nanosleep").count(), 2, "{printed}");
    assert!(printed.contains("\ndelivered 2 opened "), "{printed}");
}

#[test]
fn the_calls_are_those_of_samples() {
    needs_bpf();
    let program = words(200, 2, 1);
    let of_both = |event: &str| in_both(event, &["--order"], &program);
    let all = of_both("syscall/name=getpgid/");
    assert!(all.contains("delivered 800 opened 800 ended 800 open 0 dropped 0 without_begin 0"), "{all}");
    // BPF programs test some of these conditions. perf-prof tests the remaining conditions when it reads the calls.
    assert!(of_both("syscall/name=getpgid, failed/").contains("ESRCH"));
    assert!(of_both("syscall/name=getpgid, comm=wide/").contains("delivered 800 "));
}

/// Records with frames of Python need maps of some 4 MB besides the open calls. A quarter of `--buffer` is for both.
#[test]
fn the_maps_of_pairs_are_a_part_of_the_buffer() {
    needs_bpf();
    let run = |when: &str, buffer: &str| {
        let run = Run::script("def syscall(e): pass").event("syscall/min=1s, stack/").exec(words(1, 0, 0));
        run.options(["--python-frames", "--in-kernel", when, "--buffer", buffer, "-v"]).run()
    };
    let reason = "its maps would take ";
    let refused = run("always", "16M");
    assert!(refused.status != 0 && refused.stderr.contains(reason), "{}", refused.stderr);
    let falls_back = run("auto", "16M");
    let told = falls_back.stderr.contains("syscall: in perf-prof") && falls_back.stderr.contains(reason);
    assert!(falls_back.status == 0 && told, "{}", falls_back.stderr);
    let paired = run("always", "64M");
    assert!(paired.status == 0 && paired.stderr.contains("syscall: paired in the kernel"), "{}", paired.stderr);
}

/// All calls of a program without threads are the same in each run.
#[test]
fn all_calls_of_a_program_are_those_of_samples() {
    needs_bpf();
    let program = workload("calls 3 open /no/file fork calls 2 comm other faults 10 fork open /no/other/file");
    for event in
        ["syscall", "syscall/ret < 1000000000 && name == getpgid/", "syscall/errno == ENOENT/", "syscall/failed/"]
    {
        in_both(event, &["--order"], &program);
    }
}

/// BPF programs read the strings at the entry of a call.
#[test]
fn strings_are_those_of_samples() {
    needs_bpf();
    let script = "
def syscall(e):
    print(e.name, e.filename_str, e.pathname_str, e.newname_str, e.errno)
    assert e.end.arg0_str is None
";
    let run = |when: &str| {
        let long = format!("/strings/{}", "x".repeat(400));
        let operations = format!("open /strings/a open {long} fork syscall {} 0 0 0 open /strings/c", libc::SYS_execve);
        let program = [
            &["sh".to_owned(), "-c".to_owned(), "\"$0\" \"$@\"; exec \"$0\" \"$1\" open /strings/d".to_owned()],
            &workload(&operations)[..],
        ];
        let event = "syscall/name=openat|execve|unlink|rename,str/";
        let run =
            Run::script(script).event(event).options(["--in-kernel", when, "-q", "--order"]).exec(program.concat());
        run.run()
    };
    let [kernel, samples] = ["always", "never"].map(run);
    assert_eq!(kernel.stderr, "");
    assert_eq!(kernel.stdout, samples.stdout);
    assert!(kernel.stdout.contains("openat /strings/a None None ENOENT\n"), "{}", kernel.stdout);
    assert!(kernel.stdout.contains("execve None None None EFAULT\n"), "{}", kernel.stdout);
    assert!(kernel.stdout.contains("execve WORKLOAD None None \n"), "{}", kernel.stdout);
}

/// The number of the call of bpf(2) that attaches a program to a raw tracepoint: `BPF_RAW_TRACEPOINT_OPEN`.
const ATTACH: u32 = 17;

#[test]
fn calls_are_paired_in_perf_prof_if_the_programs_cannot_be_attached() {
    needs_bpf();
    let run = |options: &[&str]| {
        let run = Run::script(SCRIPT).event("syscall/name=getpgid/").options(options).exec(words(20, 1, 1));
        let mut command = run.command();
        refuse(&mut command, libc::SYS_bpf, Some(ATTACH));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        finish(child, Path::new("/"))
    };
    let outcome = run(&["-v"]);
    assert_eq!(outcome.status, 0, "{outcome:?}");
    assert!(outcome.stdout.contains("delivered 60 opened 60 ended 60 open 0 dropped 0 without_begin 0"), "{outcome:?}");
    let told = outcome.stderr.matches("syscall: in perf-prof, because").count();
    assert!(told == 1 && outcome.stderr.contains("BPF_RAW_TRACEPOINT_OPEN"), "{outcome:?}");
    let outcome = run(&["--in-kernel", "always"]);
    let error = "--in-kernel always: syscall cannot be added up in the kernel, because";
    assert!(outcome.status == 1 && outcome.stderr.contains(error), "{outcome:?}");
}

/// Starts a run of the script, and waits until its programs are attached.
fn start(run: &Run) -> (Child, BufReader<ChildStderr>) {
    let mut child = run.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("paired in the kernel") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0);
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    (child, said)
}

#[test]
fn a_process_is_selected_with_the_children_that_it_creates() {
    needs_bpf();
    let (waiting, other) = (Waiting::new(40, 2, 3), Waiting::new(1000, 0, 0));
    let run = Run::script(SCRIPT).event("syscall/name=getpgid/").options(["-v", "-p", &waiting.pid()]);
    let (child, _said) = start(&run);
    other.go();
    waiting.go();
    let Outcome { stdout, .. } = finish(child, Path::new("/"));
    // The main thread, two threads from before, two that are created later, and three children.
    assert!(stdout.contains("delivered 320 opened 320 ended 320 open 0 dropped 0 without_begin 0"), "{stdout}");
}

#[test]
fn the_calls_of_all_tasks_are_without_those_of_perf_prof() {
    needs_bpf();
    let script = "
import os, perf_prof
pids, own = set(), set()
def syscall(e):
    os.getpgid(0)
    (own if e._pid == os.getpid() else pids).add(e._pid)
def __exit__(): print(len(pids) > 0, own, perf_prof.stats()['own'] > 0)
";
    let run = Run::script(script).event("syscall/name=getpgid/").options(["-v"]);
    let (child, _said) = start(&run);
    Waiting::new(40, 0, 0).go();
    // SAFETY: the child has not been waited for, so the id is still its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_eq!(finish(child, Path::new("/")).stdout, "True set() True\n");
}

/// Each lost record is one lost span.
#[test]
fn lost_records_are_counted_as_dropped_spans() {
    needs_bpf();
    let script = "
import time, perf_prof
def syscall(e): time.sleep(0.001)
def __exit__():
    stats = perf_prof.stats()
    counts = stats['events']['syscall']
    print(counts['opened'], counts['ended'] + counts['dropped'], counts['open'], counts['partial'])
    print(counts['delivered'] == counts['ended'], counts['dropped'] == stats['lost'] > 0)
";
    let run = Run::script(script).event("syscall/name=getpgid/").options(["-m", "1", "--buffer", "64K"]);
    let outcome = run.exec(words(30_000, 0, 0)).run();
    assert_eq!(outcome.stdout, "30000 30000 0 True\nTrue True\n", "{}", outcome.stderr);
    assert!(outcome.stderr.contains("lost"), "{}", outcome.stderr);
}

/// Returns the ids of the BPF programs that a process has open.
fn programs(process: u32) -> Vec<u32> {
    let facts = fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap();
    // A descriptor may be closed while they are listed.
    let facts = facts.filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok());
    let id = |text: String| text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse::<u32>().ok());
    facts.filter_map(id).collect()
}

#[test]
fn nothing_stays_in_the_kernel_after_a_run_that_was_killed() {
    needs_bpf();
    let run = Run::script(SCRIPT).event("syscall/min=10s/").options(["-v"]);
    let (mut child, _said) = start(&run);
    let ids = programs(child.id());
    assert!(ids.len() >= 2, "{ids:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    // The kernel frees BPF programs with a delay.
    let is_gone = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        ids.iter().all(|&id| !super::beside::is_program(id))
    });
    assert!(is_gone);
}

/// A program that imports the package also gets paired calls, beside spans of other sources.
#[test]
fn a_program_gets_the_calls() {
    needs_bpf();
    let script = r#"
import sys, perf_prof
from perf_prof import Count
def __sample__(event): pass
for when in "always", "never":
    names, called = [], Count("name")
    handlers = {"syscall": lambda call: names.append(call.name)}
    print(perf_prof.run("syscall/name=getpgid/", handlers=handlers, in_kernel=when, exec=sys.argv[1:]), len(names))
with perf_prof.trace("syscall/name=getpgid/", exec=sys.argv[1:]) as calls:
    print(sum(call.duration > 0 for call in calls), [calls.stats()["events"]["syscall"][name] for name in ("ended", "where")])
"#;
    let run = Run::script(script).call_event().args(words(50, 1, 1)).workload("exit 0").run();
    let result = "RunResult(delivered=150, lost=0, status=0) 150\n";
    let expected = [result, result, "150 [150, 'kernel']\n"].concat();
    assert_eq!((run.status, run.stdout.as_str()), (0, expected.as_str()), "{}", run.stderr);
}

#[test]
fn what_needs_samples_says_why() {
    needs_bpf();
    let reason = |event: &str, options: &[&str]| {
        let run =
            Run::script("def syscall(e): pass\n").event(event).options(["--in-kernel", "always"]).options(options);
        run.workload("exit 0").run().stderr
    };
    for (event, options, expected) in [
        ("syscall", &["--all-cgroups"][..], "its samples have cgroups"),
        ("syscall", &["--record", "r.data"], "it is recorded"),
        ("syscall", &["--sampling-limit", "100"], "the number of samples is limited"),
    ] {
        let said = reason(event, options);
        let expected = format!("--in-kernel always: syscall cannot be added up in the kernel, because {expected}");
        assert!(said.contains(&expected), "{said}");
    }
}

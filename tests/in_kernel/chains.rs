//! Tables by call chain that the kernel fills, for programs with known chains.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value as Json;

use super::{json, needs_bpf, run};
use crate::harness::{
    compile::{FRAMES, compile},
    recording::Folder,
    run::said,
    script::Run,
};

/// A program that calls getppid() at known depths, also in a child. With a second argument, it then executes that
/// program, which has other functions at the same addresses.
const SOURCE: &str = r#"
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void leaf(int calls) {
    for (int i = 0; i < calls; i++) {
        long result;
        __asm__ volatile("syscall" : "=a"(result) : "0"(SYS_getppid) : "rcx", "r11", "memory");
    }
    __asm__ volatile("");
}
__attribute__((noinline)) void down(int depth, int calls) {
    if (depth) down(depth - 1, calls); else leaf(calls);
    __asm__ volatile("");
}
__attribute__((noinline)) void first(int calls) { down(1, calls); __asm__ volatile(""); }
__attribute__((noinline)) void second(int calls) { down(40, calls); __asm__ volatile(""); }
__attribute__((noinline)) void third(int calls) { down(200, calls); __asm__ volatile(""); }
int main(int argc, char **argv) {
    int calls = atoi(argv[1]);
    first(calls);
    second(2 * calls);
    third(3 * calls);
    if (!fork()) { first(4 * calls); _exit(0); }
    wait(0);
    if (argc > 2) execv(argv[2], (char *[]){argv[2], argv[1], 0});
}
"#;

const CALL: &str = "syscalls:sys_enter_getppid";

/// Returns a command that makes the calls in two programs, one after the other.
fn calls(folder: &Path, calls: u32) -> Vec<String> {
    // With equal code, both programs would get the same build id, and so the same symbols.
    let other = SOURCE.replace("first", "fifth").replace("second", "eighth").replace("down(40,", "down(41,");
    let flags = [FRAMES, &["-no-pie"]].concat();
    let [one, two] = [("one", SOURCE), ("two", &other)].map(|(name, source)| compile(folder, name, source, &flags));
    [one.into_os_string(), calls.to_string().into(), two.into_os_string()]
        .map(|word| word.into_string().unwrap())
        .into()
}

/// Returns the counts of an object's rows by their keys. Process ids are removed, because they differ between runs. One
/// frame is removed too, which chains contain only while the tracepoint has several users. In a chain of `most` frames,
/// it replaces the outermost frame, so the number of repeated frames is removed as well.
fn rows(object: &Json, most: usize) -> BTreeMap<String, u64> {
    let mut rows = BTreeMap::new();
    for mut row in object["rows"].as_array().unwrap().iter().cloned() {
        let members = row.as_object_mut().unwrap();
        ["per_second", "share", "pid"].iter().for_each(|name| _ = members.remove(*name));
        let count = members.remove("count").unwrap().as_u64().unwrap();
        let stack = members["stack"].as_str().unwrap();
        let innermost = stack.rfind(";__traceiter_").unwrap_or(stack.len());
        let has_kernel_frames = stack.ends_with("_[k]");
        let is_cut_off = has_kernel_frames && stack.matches(';').count() + 1 >= most;
        let shown = stack[..innermost].replace(if is_cut_off { "down;" } else { "\0" }, "");
        members["stack"] = shown.into();
        *rows.entry(row.to_string()).or_default() += count;
    }
    rows
}

#[test]
fn calls_are_counted_by_their_chains() {
    needs_bpf();
    let folder = Folder::new();
    let work = calls(&folder.path(""), 10);
    // Both programs may have exited before perf-prof reads the records.
    for _ in 0..3 {
        let object = json("always", &["top", CALL, "--by", "stack", "-n", "100"], &work);
        let own = |row: &Json| {
            let stack = row["stack"].as_str().unwrap().replace("down;", "");
            let own = stack.split_once(";main;").map_or(stack.as_str(), |(_, own)| own);
            (row["count"].as_u64().unwrap(), own.to_owned())
        };
        let mut found: Vec<(u64, String)> = object["rows"].as_array().unwrap().iter().map(own).collect();
        found.sort();
        // The kernel takes 127 of 202 frames.
        let expected = [(20, "eighth;leaf"), (20, "second;leaf"), (50, "fifth;leaf"), (50, "first;leaf"), (60, "leaf")];
        assert_eq!(found, expected.map(|(count, stack)| (count, stack.to_owned())));
        assert_eq!(object["events"], 200);
    }
}

#[test]
fn chains_are_those_of_samples() {
    needs_bpf();
    let folder = Folder::new();
    let work = calls(&folder.path(""), 10);
    let of_kernel_and_program = "raw_syscalls:sys_enter/id == 110/";
    for (args, most) in [
        (&[CALL, "--by", "stack"][..], 127),
        (&[CALL, "--by", "comm,stack,pid", "--sum", "__syscall_nr"], 127),
        (&[of_kernel_and_program, "--by", "stack"], 127),
        (&["syscalls:sys_enter_getppid//max-stack=5/", "--by", "stack,__syscall_nr"], 5),
        (&["syscalls:sys_enter_getppid//max-stack=60/", "--by", "stack"], 60),
        (&["task:task_rename,sched:sched_process_exec,sched:sched_process_fork", "--by", "event,stack"], 127),
    ] {
        let args = [&["top", "-n", "1000"], args].concat();
        let [kernel, samples] = ["always", "never"].map(|when| rows(&json(when, &args, &work), most));
        assert_eq!(kernel, samples, "{args:?}");
        assert!(!kernel.is_empty());
    }
}

const SCRIPT: &str = r#"
import collections, perf_prof
from perf_prof import Hist, Stacks
whole = Stacks(by="_comm")
few = Stacks(limit=3)
called = Stacks(by="_comm")
spread = Hist("id", by="_stack")
raw_syscalls__sys_enter = called, few, spread
intervals = 0
def __interval__():
    global intervals
    intervals += called.total > 0
    whole.update(called)
    called.clear()
def __exit__():
    whole.update(called)
    print(intervals > 1, whole.total, few.total, len(few) <= 3, spread.total.count)
    # The innermost frame, and so the number of frames, depends on how many users the tracepoint has.
    for counts in whole.to_dict(), {key: spread[key].count for key in spread}:
        by_chain = collections.Counter()
        for key, count in counts.items():
            by_chain[str(key).replace(";__traceiter_sys_enter_[k]", "").replace("down;", "")] += count
        print(sorted((chain, count * 2000 // whole.total) for chain, count in by_chain.items()))
    print(perf_prof.stats()["events"]["raw_syscalls:sys_enter"]["where"])
"#;

#[test]
fn stacks_of_a_script_are_those_of_samples() {
    needs_bpf();
    let folder = Folder::new();
    let lines = |when: &str, count: u32, interval: &str| {
        let work = calls(&folder.path(""), count);
        let events = "raw_syscalls:sys_enter/id == 110/";
        let options = ["--in-kernel", when, "-i", interval, "-g", "--user-callchain", "-e", events];
        let run = Run::script(SCRIPT).options(options).exec(work).run();
        assert_eq!(run.status, 0, "{run:?}");
        run.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (kernel, samples) = (lines("always", 100, "100000"), lines("never", 100, "100000"));
    assert_eq!(kernel[..3], samples[..3]);
    assert_eq!(kernel[0], "False 2000 2000 True 2000");
    assert_eq!([&kernel[3], &samples[3]], ["kernel", "perf-prof"]);
    // Each reading exchanges the rows and the segments of chains. Nothing may be counted twice or be missing.
    let long = lines("always", 4_000, "20");
    assert_eq!(long[0], "True 80000 80000 True 80000");
    assert_eq!(long[1..3], kernel[1..3]);
}

#[test]
fn a_program_gets_stacks() {
    needs_bpf();
    let folder = Folder::new();
    let script = r#"
import sys, perf_prof
from perf_prof import Stacks
def __sample__(event): pass
for when in "always", "never":
    stacks = Stacks()
    handlers = {"syscalls__sys_enter_getppid": stacks}
    perf_prof.run("syscalls:sys_enter_getppid//stack/", handlers=handlers, in_kernel=when, user_callchain=True, exec=sys.argv[1:])
    print(stacks.total, sorted((count, str(key).rsplit(";main;", 1)[-1].replace("down;", "")) for key, count in stacks.items()))
"#;
    let run = Run::script(script)
        .event("syscalls:sys_enter_getppid")
        .args(calls(&folder.path(""), 5))
        .workload("exit 0")
        .run();
    assert_eq!(run.status, 0, "{run:?}");
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines[0], lines[1]);
    assert!(lines[0].starts_with("100 [(10, \"eighth;leaf')\")"), "{}", lines[0]);
}

#[test]
fn chains_that_perf_prof_unwinds_stay_there() {
    needs_bpf();
    let folder = Folder::new();
    let args = ["top", CALL, "--by", "stack", "-v", "--call-graph", "dwarf"];
    let said = said(&run("auto", &args, &calls(&folder.path(""), 1)));
    assert!(said.contains(&format!("{CALL}: in perf-prof, because perf-prof unwinds its call chains")), "{said}");
}

/// Prints the call chain of each call without the frame that chains contain only while the tracepoint has several users. In a chain that
/// is cut off, it replaces the outermost frame, so repeated frames are left out there.
const CHAINS: &str = r#"
def syscall(e):
    frames = [(frame["symbol"], frame["dso"]) for frame in e._callchain]
    left_out = ("__traceiter_", "down") if len(frames) == 127 else "__traceiter_"
    print(e.name, *(frame for frame in frames if not frame[0].startswith(left_out)))
"#;

#[test]
fn chains_of_calls_that_are_paired_in_the_kernel_are_those_of_samples() {
    needs_bpf();
    let folder = Folder::new();
    let work = calls(&folder.path(""), 2);
    let of_kernel_and_program = ["syscall_trace_enter", "do_syscall_64", "leaf", "first", "second"];
    for (event, options, expected) in [
        ("syscall/name=getppid,stack/", &[][..], &of_kernel_and_program[..]),
        ("syscall/name=getppid,stack=both/", &[], &of_kernel_and_program),
        ("syscall/name=getppid,stack=end/", &[], &of_kernel_and_program[1..]),
        ("syscall/name=getppid/", &["-g"], &of_kernel_and_program[..2]),
        ("syscall/name=getppid,stack/", &["--no-kernel-callchain"], &of_kernel_and_program[2..]),
        ("syscall/name=getppid,str,stack/", &["--call-graph", "dwarf"], &of_kernel_and_program),
    ] {
        let [kernel, samples] = ["always", "never"].map(|when| {
            let run = Run::script(CHAINS).event(event).options(["--in-kernel", when, "--order", "-q"]).options(options);
            run.exec(&work).run()
        });
        assert_eq!((&*kernel.stderr, &kernel.stdout), ("", &samples.stdout), "{event} {options:?}");
        assert_eq!(kernel.stdout.lines().count(), 40, "{event} {options:?}: {}", kernel.stdout);
        let missing: Vec<_> = expected.iter().filter(|name| !kernel.stdout.contains(**name)).collect();
        assert!(missing.is_empty(), "{event} {options:?}: {missing:?} {}", kernel.stdout);
    }
}

//! Frames of Python functions at probes.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

use super::python_frames::{UNPACKED, check, interpreters};
use crate::harness::{
    compile::compile,
    machine::{Need, needs, skip},
    run::{perf_prof, stdout, with_patience},
};

const NEEDS: [Need; 6] = [Need::Bpf, Need::Python, Need::Tracefs, Need::Uprobes, Need::Compilers, Need::StaticProbes];

/// A function with a static probe at two places, which have their arguments in other registers.
const LIBRARY: &str = r#"
#include <sys/sdt.h>
__attribute__((noinline)) int passes(int a, int b) {
    DTRACE_PROBE1(test, passes, a);
    DTRACE_PROBE1(test, passes, b);
    return a + b;
}
"#;

/// Calls the function of the library in argv[1] from two functions, after perf-prof had time to see the program.
const CALLS: &str = "\
import ctypes, sys, time
passes = ctypes.CDLL(sys.argv[1]).passes
def first():
    passes(1, 2)
def second():
    passes(3, 4)
time.sleep(1)
for _ in range(50):
    first()
    second()
time.sleep(2)
";

/// Prints how many events have each value and each chain of Python frames.
const COUNTS: &str = "\
import collections
counts = collections.Counter()
def __sample__(event):
    frames = [frame['symbol'] for frame in event._callchain or () if frame.get('python')]
    value = [getattr(event, name) for name in ('arg1', 'ret', 'a') if hasattr(event, name)]
    counts[' '.join(map(str, value + frames))] += 1
def __exit__():
    for counted, count in sorted(counts.items()):
        print(count, counted)
";

fn some_interpreter() -> PathBuf {
    let found = interpreters().into_values().next();
    found.unwrap_or_else(|| skip(Need::Python, "there is no CPython 3.11 to 3.15"))
}

#[test]
fn functions_and_lines_at_a_probe_are_those_of_faulthandler() {
    needs(NEEDS);
    // Interpreters of another release have a libc of their own.
    let of_this_libc = interpreters().into_values().filter(|python| !python.starts_with(UNPACKED));
    of_this_libc.for_each(|python| check(&python, "uprobe:getppid@libc"));
}

#[test]
fn probes_have_their_arguments_and_the_functions_that_hit_them_live_and_in_a_recording() {
    needs(NEEDS);
    let (python, folder) = (some_interpreter().display().to_string(), TempDir::new().unwrap());
    compile(folder.path(), "libpasses.so", LIBRARY, &["-O1", "-shared", "-fPIC"]);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [library, program, script, recording] = ["libpasses.so", "calls.py", "counts.py", "perf.data"].map(path);
    fs::write(&program, CALLS).unwrap();
    fs::write(&script, COUNTS).unwrap();
    let printed = |args: &[&str]| {
        let args = [&["python", "--python-frames=only"], args].concat();
        let output = with_patience(&mut perf_prof(&args), 60).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        stdout(&output)
    };
    let all = "50 1 first <module>\n50 2 first <module>\n50 3 second <module>\n50 4 second <module>\n";
    for (selector, expected) in [
        (format!("usdt:test:passes@{library}"), all),
        (format!("usdt:test:passes@{library}//alias=p/"), all),
        (format!("uprobe:passes@\"{library}\"/a == 3/a=%di:s32/"), "50 3 second <module>\n"),
        (format!("function:passes@{library}"), "50 3 first <module>\n50 7 second <module>\n"),
    ] {
        let command = ["--exec", &python, &program, &library];
        let live = [&["-e", &selector, "--record", &recording, &script], &command[..]].concat();
        assert_eq!(printed(&live), expected, "{selector}");
        assert_eq!(printed(&["-e", &selector, "--input", &recording, &script]), expected, "{selector}");
    }
}

/// Calls getppid() in threads and children that start after perf-prof had time to see the program.
const THREADS: &str = "\
import os, threading, time
def child():
    for _ in range(5): os.getppid()
def worker():
    for _ in range(7): os.getppid()
time.sleep(2)
for _ in range(3):
    thread = threading.Thread(target=worker)
    thread.start()
    thread.join()
    if os.fork() == 0:
        time.sleep(1)
        child()
        time.sleep(2)
        os._exit(0)
time.sleep(4)
";

#[test]
fn threads_and_children_that_start_later_have_frames_also_after_others_have_ended() {
    needs(NEEDS);
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("threads.py").display().to_string();
    fs::write(&program, THREADS).unwrap();
    let python = some_interpreter().display().to_string();
    let args = ["trace", "-e", "uprobe:getppid@libc", "--python=only", "--", &python, &program];
    let shown = stdout(&with_patience(&mut perf_prof(&args), 60).output().unwrap());
    let calls = ["uprobe:getppid", "child (threads.py:3)", "worker (threads.py:5)"].map(|of| shown.matches(of).count());
    assert_eq!(calls, [36, 15, 21], "{shown}");
}

#[test]
fn the_memory_of_a_probes_programs_is_a_part_of_the_buffer() {
    needs(NEEDS);
    let (folder, python) = (TempDir::new().unwrap(), some_interpreter().display().to_string());
    let script = folder.path().join("counts.py").display().to_string();
    fs::write(&script, COUNTS).unwrap();
    let run = |buffer: &str| {
        let event = ["-e", "uprobe:getppid@libc", "--python-frames", "--buffer", buffer];
        let args = [&["python"][..], &event, &[&script, "--exec", &python, "-c", "pass"]].concat();
        with_patience(&mut perf_prof(&args), 60).output().unwrap()
    };
    let refused = run("256K");
    let said = String::from_utf8_lossy(&refused.stderr);
    let told = "a BPF program, which cannot be started, because its maps would take ";
    assert!(!refused.status.success() && said.contains(told) && said.contains("use a larger --buffer"), "{said}");
    assert!(run("1G").status.success());
}

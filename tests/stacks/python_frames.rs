//! Frames of Python functions, compared with the output of `faulthandler` in the traced program.

use std::{
    collections::{BTreeMap, BTreeSet},
    env::consts::ARCH,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use perf_prof_format::abi::system_calls;
use tempfile::TempDir;

use crate::harness::{
    machine::{Need, needs, skip},
    run::{perf_prof, stdout, with_patience},
};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stacks/programs/python_frames.py");

/// The folder with interpreters that `tests/debian/interpreter` has unpacked.
pub(super) const UNPACKED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/interpreters");

const HOSTILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stacks/programs/hostile_frames.py");

const FREED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stacks/programs/freed_functions.py");

/// Prints the process and the Python frames of each call, and makes the file `ready` when it sees the program, `done` when the program has reached
/// its end, and `done.slow` when it is told that memory takes too long to read.
const SCRIPT: &str = "\
import os, sys
def __sample__(event):
    frames = [frame for frame in event._callchain if frame.get('python')]
    names = [(frame['symbol'].split('.')[-1], frame['dso'], frame['line']) for frame in frames]
    if any(name[0] == 'ready' for name in names):
        open(sys.argv[2], 'w').close()
    if not os.path.exists(sys.argv[2]) or any(name[0] == 'ready' for name in names):
        return
    print(event._pid, *('%s@%s:%s' % name for name in names), flush=True)
    if any(name[0] == 'last' for name in names):
        open(sys.argv[1], 'w').close()
    if any('takes too long' in name[0] for name in names):
        open(sys.argv[1] + '.slow', 'w').close()
";

/// Returns interpreters of this machine, one for each version that is supported, without and with a shared library.
pub(super) fn interpreters() -> BTreeMap<(String, bool), PathBuf> {
    let versions = Path::new(&std::env::var("HOME").unwrap_or_default()).join(".pyenv/versions");
    let of_pyenv = fs::read_dir(versions).into_iter().flatten().flatten().map(|entry| entry.path().join("bin/python3"));
    let installed = |minor: u8| [UNPACKED, "/usr/bin"].map(|folder| Path::new(folder).join(format!("python3.{minor}")));
    let of_system = (11..=15).flat_map(installed);
    let facts = "import sys; print(sys.version_info[1], '/libpython' in open('/proc/self/maps').read())";
    let fact = |path: PathBuf| {
        let output = Command::new(&path).args(["-c", facts]).output().ok()?;
        let (minor, is_shared) = stdout(&output).trim().split_once(' ').map(|(a, b)| (a.to_owned(), b == "True"))?;
        ["11", "12", "13", "14", "15"].contains(&&*minor).then_some(((minor, is_shared), path))
    };
    of_pyenv.chain(of_system).filter(|path| path.exists()).filter_map(fact).collect()
}

/// Returns the stacks in the text of faulthandler, each as `name@file:line ...`.
fn stacks_of_faulthandler(text: &str) -> Vec<String> {
    let frame = |line: &str| {
        let (file, rest) = line.trim().strip_prefix("File \"")?.split_once("\", line ")?;
        // 3.13 has a frame without a file, which ends calls of `__init__`.
        let (line, name) = rest.split_once(" in ").filter(|(line, _)| *line != "???")?;
        Some(format!("{name}@{}:{line}", file.rsplit('/').next().unwrap_or(file)))
    };
    let stacks = text.split("Stack (most recent call first):\n").skip(1);
    stacks.map(|stack| stack.lines().filter_map(frame).collect::<Vec<_>>().join(" ")).collect()
}

/// A stack that perf-prof reports.
struct Seen {
    pid: String,
    /// As from [`stacks_of_faulthandler`].
    stack: String,
}

/// The event of the calls that the programs make.
const CALL: &str = "syscalls:sys_enter_getppid";

/// Runs a program with this interpreter. Returns the stacks that perf-prof reports of an event of its calls of getppid(), and what the
/// program writes about them.
#[track_caller]
fn seen_and_truth(python: &Path, event: &str, program: &str) -> (Vec<Seen>, String) {
    seen_with(python, event, &[], program)
}

#[track_caller]
fn seen_with(python: &Path, event: &str, options: &[&str], program: &str) -> (Vec<Seen>, String) {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [script, truth, done, ready] = ["frames_of_getppid.py", "truth", "done", "ready"].map(path);
    fs::write(&script, SCRIPT).unwrap();
    let python_path = python.display().to_string();
    let of_events = ["--order", "--python-frames=only", "-e", event, &script, &done, &ready];
    let command = ["--exec", &python_path, program, &truth, &done, &ready];
    let args = [&["python"][..], options, &of_events, &command].concat();
    let output = with_patience(&mut perf_prof(&args), 60).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen = |line: &str| {
        let (pid, stack) = line.split_once(' ').unwrap_or((line, ""));
        Seen { pid: pid.to_owned(), stack: stack.to_owned() }
    };
    (stdout(&output).lines().map(seen).collect(), fs::read_to_string(truth).unwrap())
}

/// Checks that the stacks at an event of the calls of getppid() are those of faulthandler.
#[track_caller]
pub(super) fn check(python: &Path, event: &str) {
    check_with(python, event, &[]);
}

#[track_caller]
fn check_with(python: &Path, event: &str, options: &[&str]) {
    let (seen, truth) = seen_with(python, event, options, PROGRAM);
    let truth = stacks_of_faulthandler(&truth);
    assert!(truth.len() > 500, "{}: {}", python.display(), truth.len());
    let differ = truth.iter().zip(&seen).map(|(truth, seen)| (truth, &seen.stack)).find(|(truth, seen)| truth != seen);
    assert_eq!((seen.len(), differ), (truth.len(), None), "{}", python.display());
}

#[test]
fn functions_and_lines_of_python_are_those_of_faulthandler() {
    needs([Need::Bpf, Need::Python]);
    let found = interpreters();
    if found.is_empty() {
        skip(Need::Python, "there is no CPython 3.11 to 3.15");
    }
    found.values().for_each(|python| check(python, CALL));
}

#[test]
fn calls_that_are_paired_in_the_kernel_have_functions_and_lines() {
    needs([Need::Bpf, Need::Python]);
    for python in interpreters().values() {
        check_with(python, "syscall/name=getppid,stack/", &["--in-kernel", "always"]);
        check_with(python, "syscall/name=getppid,str,stack=end/", &["--in-kernel", "always"]);
    }
}

#[test]
fn a_function_that_was_freed_has_its_own_name_or_none() {
    needs([Need::Bpf, Need::Python]);
    // Since 3.12, code objects have numbers, which distinguish them.
    let found = interpreters();
    for ((minor, _), python) in found.iter().filter(|((minor, _), _)| minor != "11") {
        let (seen, truth) = seen_and_truth(python, CALL, FREED);
        let truth: Vec<&str> = truth.lines().collect();
        assert_eq!((seen.len(), truth.len()), (1001, 1001), "3.{minor}");
        let is_wrong = |seen: &str, truth: &str| !seen.starts_with("[python: ") && !seen.starts_with(truth);
        let wrong = seen.iter().map(|seen| &*seen.stack).zip(truth).find(|(seen, truth)| is_wrong(seen, truth));
        assert_eq!(wrong, None, "3.{minor}");
    }
}

/// Returns a stack without lines.
fn names(stack: &str) -> String {
    let name = |frame: &str| frame.split('@').next().unwrap_or_default().to_owned();
    stack.split(' ').map(name).collect::<Vec<_>>().join(" ")
}

#[test]
fn nonsense_in_one_process_takes_no_name_from_another_and_no_long_time() {
    needs([Need::Bpf, Need::Python]);
    for ((minor, _), python) in interpreters() {
        let (seen, truth) = seen_and_truth(&python, CALL, HOSTILE);
        let (child, waits) = truth.trim().split_once(' ').unwrap();
        let (of_child, of_hostile): (Vec<Seen>, Vec<Seen>) = seen.into_iter().partition(|seen| seen.pid == child);
        // The child may be seen before it is known, or while the hostile process has used up the time for reads.
        let is_known = |seen: &&Seen| !seen.stack.is_empty() && !seen.stack.contains("[python: no time is left");
        let of_child: BTreeSet<String> = of_child.iter().filter(is_known).map(|seen| names(&seen.stack)).collect();
        assert_eq!(
            of_child.into_iter().collect::<Vec<_>>(),
            ["child <module>", "innocent child <module>"],
            "3.{minor}"
        );
        let has = |reason: &str| of_hostile.iter().any(|seen| seen.stack.contains(reason));
        let missing: Vec<&str> = ["more frames than perf-prof reads", "too many functions"]
            .into_iter()
            .filter(|reason| !has(reason))
            .collect();
        assert_eq!(missing, [""; 0], "3.{minor}");
        // What is known is told all the same.
        let is_told = |seen: &Seen| {
            seen.stack.starts_with("see@")
                && seen.stack.contains(" [python: reading")
                && seen.stack.contains(" <module>@")
        };
        assert_eq!(of_hostile.iter().any(is_told), waits == "waits", "3.{minor}");
    }
}

#[test]
fn functions_have_their_place_between_those_of_the_interpreter() {
    needs([Need::Bpf, Need::Python]);
    let Some(python) = interpreters().into_values().next() else {
        skip(Need::Python, "there is no CPython 3.11 to 3.15");
    };
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("sorts.py");
    let text =
        "import os, time\ndef key(x):\n    return os.getppid()\ntime.sleep(1)\nsorted([1], key=key)\ntime.sleep(3)\n";
    fs::write(&program, text).unwrap();
    let (python, program) = (python.display().to_string(), program.display().to_string());
    let event = "syscalls:sys_enter_getppid";
    let args = ["trace", "-e", event, "--python", "--call-graph", "dwarf,32768", "--", &python, &program];
    let shown = stdout(&with_patience(&mut perf_prof(&args), 60).output().unwrap());
    let place =
        |text: &str| shown.lines().position(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {shown}"));
    assert!(place("getppid+") < place("key (sorts.py:3)"), "{shown}");
    assert!(place("key (sorts.py:3)") < place("<module> (sorts.py:5)"), "{shown}");
}

/// Calls getppid() below many frames.
const DEEP: &str = "\
import os, time
def even(depth):
    return odd(depth - 1)
def odd(depth):
    return os.getppid() if depth < 1 else even(depth - 1)
time.sleep(1)
even(199)
even(399)
time.sleep(2)
";

#[test]
fn chains_of_two_hundred_frames_are_whole_and_longer_ones_say_that_frames_are_missing() {
    needs([Need::Bpf, Need::Python]);
    for ((minor, _), python) in interpreters() {
        let folder = TempDir::new().unwrap();
        let program = folder.path().join("deep.py");
        fs::write(&program, DEEP).unwrap();
        let (python, program) = (python.display().to_string(), program.display().to_string());
        let args = ["trace", "-e", "syscalls:sys_enter_getppid", "--python=only", "--", &python, &program];
        let shown = stdout(&with_patience(&mut perf_prof(&args), 60).output().unwrap());
        let calls: Vec<&str> = shown.split("sys_getppid()").skip(1).collect();
        let counts = |call: &&str| {
            ["even (deep.py:3)", "odd (deep.py:5)", "<module> (deep.py:7)", "[python: the chain has more frames"]
                .map(|frame| call.matches(frame).count())
        };
        // The shell that starts an interpreter of another release calls it too.
        let counts: Vec<_> = calls.iter().filter(|call| call.contains("deep.py")).map(counts).collect();
        assert_eq!(counts, [[100, 100, 1, 0], [128, 128, 0, 1]], "3.{minor}: {shown}");
    }
}

/// Makes 100 calls of `getppid()` after perf-prof had time to see the program.
const ASKS: &str = "\
import os, time
def asks():
    os.getppid()
def turn():
    for _ in range(100): asks()
time.sleep(1)
turn()
time.sleep(2)
";

/// Prints how many samples of each event have each chain of Python frames.
const CHAINS_OF_EVENTS: &str = "\
import collections
chains = collections.Counter()
def __sample__(event):
    frames = [frame['symbol'] for frame in event._callchain or () if frame.get('python')]
    chains[event._event, ' '.join(frames)] += 1
def __exit__():
    for (event, chain), count in sorted(chains.items()):
        print(count, event, chain)
";

#[test]
fn selectors_with_and_without_strings_that_share_an_event_in_a_recording_have_its_frames() {
    needs([Need::Bpf, Need::Python]);
    let Some(python) = interpreters().into_values().next() else {
        skip(Need::Python, "there is no CPython 3.11 to 3.15");
    };
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [program, script, recording] = ["asks.py", "chains.py", "perf.data"].map(path);
    fs::write(&program, ASKS).unwrap();
    fs::write(&script, CHAINS_OF_EVENTS).unwrap();
    let python = python.display().to_string();
    let getppid = format!("raw_syscalls:sys_enter/id == {}/", system_calls::number(ARCH, "getppid").unwrap());
    let (call, begin) = ("syscall/name=getppid,str/stack/".to_owned(), format!("{getppid}alias=begin/stack/"));
    let printed = |args: &[&str]| {
        let output =
            with_patience(&mut perf_prof(&[&["python", "--python-frames"], args].concat()), 60).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        stdout(&output)
    };
    let expected = "100 raw_syscalls:begin asks turn <module>\n100 syscall asks turn <module>\n";
    for (one, other) in [(&call, &begin), (&begin, &call)] {
        let selectors = ["-e", one, "-e", other];
        let run = ["--record", &recording, &script, "--exec", &python, &program];
        assert_eq!(printed(&[&selectors[..], &run].concat()), expected, "{one} {other}");
        assert_eq!(printed(&[&selectors[..], &["--input", &recording, &script]].concat()), expected, "{one} {other}");
    }
}

/// Counts the Python frames of the samples of an event, and makes the file argv[1] when there are 1,000.
const CHAINS: &str = "\
import collections, sys
chains = collections.Counter()
def EVENT(event):
    frames = [frame for frame in event._callchain if frame.get('python')]
    chain = ' '.join('%s:%s' % (frame['symbol'], frame['line']) for frame in frames)
    if 'turn:' in chain:
        chains[chain] += 1
    if chains.total() == 1000:
        open(sys.argv[1], 'w').close()
def __exit__():
    for chain, count in chains.items():
        print(count, chain)
";

pub(super) const BUSY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stacks/programs/busy_functions.py");

/// Runs a program, and returns how often the samples of an event have each chain of Python frames below `turn()`.
#[track_caller]
fn chains(python: &Path, event: &str, program: &str) -> BTreeMap<String, u64> {
    let folder = TempDir::new().unwrap();
    let [script, done] = ["chains.py", "done"].map(|name| folder.path().join(name).display().to_string());
    fs::write(&script, CHAINS.replace("EVENT", &event.replace('-', "_"))).unwrap();
    let python = python.display().to_string();
    let args =
        ["python", "-F", "997", "--python-frames", "-e", event, &script, &done, "--exec", &python, program, &done];
    let output = with_patience(&mut perf_prof(&args), 120).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let chain = |line: &str| line.split_once(' ').map(|(count, chain)| (chain.to_owned(), count.parse().unwrap()));
    stdout(&output).lines().filter_map(chain).collect()
}

#[test]
fn samples_of_a_timer_have_the_functions_in_their_shares_of_the_time() {
    needs([Need::Bpf, Need::Python]);
    let text = fs::read_to_string(BUSY).unwrap();
    let line = |of: &str| 1 + text.lines().position(|line| line.trim().starts_with(of)).unwrap();
    let outer = format!("<module>:{}", line("turn()"));
    for ((minor, is_shared), python) in interpreters() {
        for event in if minor == "11" { &["profile", "task-clock"][..] } else { &["profile"] } {
            let chains = chains(&python, event, BUSY);
            let all: u64 = chains.values().sum();
            let mut told = 0;
            for (function, call, share) in
                [("half", "spin(0.03)", 1. / 2.), ("third", "spin(0.02)", 1. / 3.), ("sixth", "list(", 1. / 6.)]
            {
                let inner = format!("spin:{} {function}:{}", line("while time"), line(call));
                let count = chains.get(&format!("{inner} turn:{} {outer}", line(&format!("{function}()")))).copied();
                let count = count.unwrap_or(0);
                told += count;
                let difference = count as f64 / all as f64 - share;
                assert!(difference.abs() < 0.04, "3.{minor} {is_shared} {event}: {function} {difference} {chains:?}");
            }
            assert!(all >= 1000 && told * 100 >= all * 98, "3.{minor} {is_shared} {event}: {told} {chains:?}");
        }
    }
}

#[test]
fn context_switches_belong_to_the_function_that_sleeps() {
    needs([Need::Bpf, Need::Python]);
    let Some(python) = interpreters().into_values().next() else {
        skip(Need::Python, "there is no CPython 3.11, 3.12 or 3.13");
    };
    let folder = TempDir::new().unwrap();
    let program = folder.path().join("sleeps.py").display().to_string();
    let text = "\
import os, sys, time
def nap():
    for _ in range(50): time.sleep(0.0001)
def turn():
    nap()
end = time.time() + 60
while not os.path.exists(sys.argv[1]) and time.time() < end:
    turn()
";
    fs::write(&program, text).unwrap();
    let chains = chains(&python, "context-switches", &program);
    let (all, naps) = (chains.values().sum::<u64>(), chains.get("nap:3 turn:5 <module>:8").copied().unwrap_or(0));
    assert!(all >= 1000 && naps * 100 >= all * 95, "{naps} of {all}: {chains:?}");
}

/// Copies an interpreter and the busy program into a folder. Returns the paths of both, and the folder of the interpreter's modules.
fn copied(python: &Path, folder: &Path) -> (String, String, String) {
    let [copy, program] = ["python3", "busy_functions.py"].map(|name| folder.join(name));
    fs::copy(fs::canonicalize(python).unwrap(), &copy).unwrap();
    fs::copy(BUSY, &program).unwrap();
    let prefix = Command::new(python).args(["-c", "import sys; print(sys.base_prefix)"]).output().unwrap();
    (copy.display().to_string(), program.display().to_string(), stdout(&prefix).trim().to_owned())
}

/// Records the CPU time of the busy program for four seconds. `command` is the shell command that runs it. Returns the path of the recording.
#[track_caller]
pub(super) fn record_busy(event: &str, command: &str, folder: &Path) -> String {
    let [recording, done] = ["perf.data", "done"].map(|name| folder.join(name).display().to_string());
    // The program ends after the recording began and had time.
    let ends = format!("{command} {done} & sleep 4; touch {done}; wait");
    let args = ["record", "--python", "-F", "997", "-e", event, "-o", &recording, "--", "sh", "-c", &ends];
    let output = with_patience(&mut perf_prof(&args), 60).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    recording
}

#[test]
fn a_recording_names_functions_without_the_interpreter_and_the_program() {
    needs([Need::Bpf, Need::Python]);
    for ((minor, is_shared), python) in interpreters() {
        let folder = TempDir::new().unwrap();
        let (copy, program, prefix) = copied(&python, folder.path());
        let [script, done] = ["chains.py", "done"].map(|name| folder.path().join(name).display().to_string());
        fs::write(&script, CHAINS.replace("EVENT", "profile")).unwrap();
        let recording = record_busy("profile", &format!("PYTHONHOME={prefix} {copy} {program}"), folder.path());
        fs::remove_file(&copy).unwrap();
        fs::remove_file(folder.path().join("busy_functions.py")).unwrap();
        let args = ["python", "--input", &recording, "-e", "profile", &script, &done];
        let replayed = stdout(&with_patience(&mut perf_prof(&args), 60).output().unwrap());
        let (mut told, mut all) = (0, 0);
        for line in replayed.lines() {
            let (count, chain) = line.split_once(' ').unwrap();
            let count: u64 = count.parse().unwrap();
            all += count;
            told += if chain.starts_with("spin:8 ") && chain.ends_with(" <module>:31") { count } else { 0 };
        }
        assert!(all > 100 && told * 100 >= all * 98, "3.{minor} {is_shared}: {told} of {all}: {replayed}");
        let shown = stdout(&perf_prof(&["trace", "--input", &recording, "--python=only"]).output().unwrap());
        let lines: Vec<&str> = shown.lines().collect();
        let spins = lines.windows(2).find(|lines| lines[1].contains(" spin (busy_functions.py:8)"));
        assert!(spins.is_some_and(|lines| lines[0].contains("profile:")), "{}", &shown[..shown.len().min(3000)]);
    }
}

#[test]
fn an_event_without_python_frames_names_the_one_to_use() {
    needs([Need::Bpf, Need::Tracefs]);
    let refused = perf_prof(&["top", "page-faults", "--python", "--", "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("in place of page-faults, use exceptions:page_fault_user"),
        "{said}"
    );
}

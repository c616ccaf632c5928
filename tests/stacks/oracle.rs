//! Compares call chains with perf. `perf record -g` records the same events at the same time, and `perf script` names
//! their frames.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::programs::Programs;
use crate::harness::{
    machine::{Need, needs},
    run::{tested_program, with_patience},
};

/// Two events with kernel frames and one without.
const EVENTS: [&str; 3] = ["kmem:mm_page_alloc", "sched:sched_switch", "syscalls:sys_enter_getppid"];

/// The time in s after which a program is killed, because it probably hangs.
const PATIENCE: u32 = 300;

/// The largest difference between the times of an event in perf and in perf-prof, in ns. The kernel reads the clock
/// once for each, and an interrupt may happen in between.
const APART: u64 = 1_000_000;

/// The samples by event and task, in the order of time. Each contains its time in ns and its frames.
type Stacks = HashMap<(String, u64), Vec<(u64, Vec<Frame>)>>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    addr: u64,
    /// The name of the function. Empty if it is not known.
    symbol: String,
    dso: String,
    kernel: bool,
    /// Whether the address is the first byte of a function. If it is a return address, the call is the last instruction
    /// of the function before this one.
    at_start: bool,
}

const SCRIPT: &str = "\
import json
def __sample__(event):
    frames = [(f['addr'], f['symbol'], f['dso'], f['kernel']) for f in event._callchain]
    print(json.dumps((event._event, event._tid, event._time, frames)))
";

/// Returns the commands that perf and perf-prof trace: programs with frame pointers, programs of the system, and an
/// interpreter.
fn workload(programs: &Programs) -> String {
    let keeps = &["-O2", "-fno-omit-frame-pointer"];
    let mut lines = vec!["ls -lR /usr/lib > /dev/null".to_owned()];
    for (source, name, extra) in
        [("chain.c", "chain", &[][..]), ("templates.cc", "templates", &[]), ("inlined.c", "inlined", &["-g"])]
    {
        lines.push(programs.build(source, name, &[keeps, extra].concat()).display().to_string());
    }
    if Path::new("/usr/bin/python3").exists() {
        lines.push("/usr/bin/python3 -I -S -c 'import os, json; [os.getppid() for _ in range(50)]; len([bytes(5000) for _ in range(2000)])'".to_owned());
    }
    lines.join("\n")
}

/// Traces the workload with perf and perf-prof: `perf record` runs perf-prof, which runs the workload. Returns the
/// samples of perf-prof and of perf.
fn trace(programs: &Programs) -> (Stacks, Stacks) {
    let workload = workload(programs);
    needs([Need::Tracefs, Need::Perf]);
    let script = programs.path("s.py");
    fs::write(&script, SCRIPT).unwrap();
    let data = programs.path("perf.data");
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-g", "-m", "16M", "-o"]).arg(&data);
    command.args(EVENTS.iter().flat_map(|event| ["-e", event]));
    command.arg("--").arg(tested_program()).args(["python", "-q", "-m", "16M", "--no-demangle"]);
    command.args(["-g", "--user-callchain", "--kernel-callchain"]);
    command.args(EVENTS.iter().flat_map(|event| ["-e".to_owned(), format!("{event}//stack/")]));
    command.arg(&script).args(["--exec", "sh", "-c", &workload]).current_dir(programs.dir()).stdin(Stdio::null());
    with_patience(&mut command, PATIENCE);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let ours = ours(&String::from_utf8_lossy(&output.stdout));
    let theirs = programs.tool(
        "perf",
        &[
            "script",
            "--no-inline",
            "--no-demangle",
            "--ns",
            "-F",
            "tid,time,event,ip,sym,symoff,dso",
            "-i",
            "perf.data",
        ],
    );
    (ours, self::theirs(&theirs))
}

fn ours(text: &str) -> Stacks {
    let mut stacks = Stacks::new();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let name = event[0].as_str().unwrap().to_owned();
        let frames = event[3].as_array().unwrap().iter().map(|frame| {
            let symbol = frame[1].as_str().unwrap();
            Frame {
                addr: frame[0].as_u64().unwrap(),
                symbol: if symbol == "Unknown" { String::new() } else { symbol.to_owned() },
                dso: frame[2].as_str().unwrap().to_owned(),
                kernel: frame[3].as_bool().unwrap(),
                at_start: false,
            }
        });
        let stack = (event[2].as_u64().unwrap(), frames.collect());
        stacks.entry((name, event[1].as_u64().unwrap())).or_default().push(stack);
    }
    stacks.values_mut().for_each(|stacks| stacks.sort_by_key(|&(time, _)| time));
    stacks
}

/// Parses the output of `perf script`. For each sample, it contains a line with task, time and event, a line for each
/// frame, and an empty line.
fn theirs(text: &str) -> Stacks {
    let mut stacks = Stacks::new();
    for stack in text.split("\n\n") {
        let mut lines = stack.lines().filter(|line| !line.trim().is_empty());
        let Some(head) = lines.next() else { continue };
        let words: Vec<_> = head.split_ascii_whitespace().collect();
        let [tid, time, event] = words[..] else { panic!("{head}") };
        let time = time.trim_end_matches(':').replace('.', "").parse().unwrap();
        let frames = lines.map(|line| {
            let (addr, rest) = line.trim_start().split_once(' ').unwrap();
            let (symbol, dso) = rest.rsplit_once(" (").unwrap();
            let (symbol, offset) = symbol.rsplit_once("+0x").unwrap_or((symbol, ""));
            let at_start = offset == "0";
            let addr = u64::from_str_radix(addr, 16).unwrap();
            let symbol = if symbol == "[unknown]" { "" } else { symbol };
            Frame {
                addr,
                symbol: symbol.to_owned(),
                dso: dso.trim_end_matches(')').to_owned(),
                kernel: addr >> 63 == 1,
                at_start,
            }
        });
        let key = (event.trim_end_matches(':').to_owned(), tid.parse().unwrap());
        stacks.entry(key).or_default().push((time, frames.collect()));
    }
    stacks.values_mut().for_each(|stacks| stacks.sort_by_key(|&(time, _)| time));
    stacks
}

/// Returns pairs of stacks of one occurrence of an event: the same task, the same event, nearly the same time.
fn pairs<'a>(ours: &'a Stacks, theirs: &'a Stacks) -> Vec<(&'a [Frame], &'a [Frame])> {
    let mut pairs = Vec::new();
    for (key, stacks) in ours {
        let Some(others) = theirs.get(key) else { continue };
        let mut next = 0;
        for (time, frames) in stacks {
            while others.get(next).is_some_and(|(other, _)| other + APART < *time) {
                next += 1;
            }
            // The sample with the nearest time is used.
            while let (Some((this, _)), Some((after, _))) = (others.get(next), others.get(next + 1))
                && after.abs_diff(*time) < this.abs_diff(*time)
            {
                next += 1;
            }
            if let Some((_, theirs)) = others.get(next).filter(|(other, _)| other.abs_diff(*time) <= APART) {
                pairs.push((&frames[..], &theirs[..]));
                next += 1;
            }
        }
    }
    pairs
}

#[test]
fn frames_have_the_names_that_perf_gives_them() {
    let programs = Programs::new();
    let (ours, theirs) = trace(&programs);
    let pairs = pairs(&ours, &theirs);
    let count = |stacks: &Stacks| stacks.values().map(Vec::len).sum::<usize>();
    println!("{} stacks of ours, {} of perf's, {} pairs", count(&ours), count(&theirs), pairs.len());
    assert!(pairs.len() >= 100 && pairs.len() * 100 >= count(&ours) * 99, "too few");
    let (mut frames, mut differences, mut other_chains) = ([0; 2], BTreeMap::new(), 0);
    let (mut at_functions_end, mut executing) = (0, 0);
    for (ours, theirs) in &pairs {
        // For user frames, perf shows the offset in the file. Whole pages are mapped, so the address and the offset
        // have the same position in the page.
        let place = |frame: &Frame| if frame.addr >> 63 == 1 { frame.addr } else { frame.addr % 4096 };
        let places = |frames: &[Frame]| frames.iter().map(place).collect::<Vec<_>>();
        if places(ours) != places(theirs) {
            other_chains += 1;
            continue;
        }
        for (at, (ours, theirs)) in ours.iter().zip(*theirs).enumerate() {
            frames[usize::from(ours.kernel)] += 1;
            if at > 0 && theirs.at_start {
                at_functions_end += 1;
            } else if ours.symbol.is_empty() && theirs.symbol.contains("execve") {
                // The process executes another program. Its old mappings are gone, but perf still knows them.
                executing += 1;
            } else if ours.symbol != theirs.symbol {
                let names = (ours.kernel, ours.dso.clone(), ours.symbol.clone(), theirs.symbol.clone());
                *differences.entry(names).or_insert(0) += 1;
            }
        }
    }
    // If a task has two events at nearly the same time, the wrong samples may be paired.
    println!("{other_chains} pairs are of different occurrences");
    println!("{executing} frames of processes that were executing another program");
    println!("{at_functions_end} return addresses at a function's end, where perf names the next function");
    assert!(other_chains * 100 <= pairs.len(), "{other_chains} of {}", pairs.len());
    let (mut different, mut named_by_us) = ([0; 2], [0; 2]);
    for ((kernel, dso, ours, theirs), count) in &differences {
        let counts = if theirs.is_empty() { &mut named_by_us } else { &mut different };
        counts[usize::from(*kernel)] += count;
        println!("{count:6} {dso}: `{ours}`, perf `{theirs}`");
    }
    for (kind, at) in [("user", 0), ("kernel", 1)] {
        let [all, ours, other] = [frames[at], named_by_us[at], different[at]];
        println!("{kind}: {all} frames, {ours} named by us alone, {other} named otherwise");
        assert!(all > 1000 && other * 100 <= all - ours, "{kind}: {other} of {all}");
    }
}

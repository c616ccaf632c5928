//! The oracle: `perf record -g` of the same events at the same time, and the names that `perf script` gives their frames.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::programs::{Programs, Skipped, test};

/// Events with kernel frames, and one without.
const EVENTS: [&str; 3] = ["kmem:mm_page_alloc", "sched:sched_switch", "syscalls:sys_enter_getppid"];

/// What runs for so many seconds hangs, and is ended.
const PATIENCE: u32 = 300;

/// Both read the clock for themselves, one after the other, and may be interrupted in between.
const APART: u64 = 1_000_000;

/// Occurrences of one event in one task, in the order of time.
type Stacks = HashMap<(String, u64), Vec<(u64, Vec<Frame>)>>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    addr: u64,
    /// Empty where there is none.
    symbol: String,
    dso: String,
    kernel: bool,
    /// At a function's first byte: a return address there is of a call at the end of the function before.
    at_start: bool,
}

const SCRIPT: &str = "\
import json
def __sample__(event):
    frames = [(f['addr'], f['symbol'], f['dso'], f['kernel']) for f in event._callchain]
    print(json.dumps((event._event, event._tid, event._time, frames)))
";

/// What both trace: programs with and without frame pointers, an interpreter, and the system's own.
fn workload(programs: &Programs) -> Result<String, Skipped> {
    let keeps = &["-O2", "-fno-omit-frame-pointer"];
    let mut lines = vec!["ls -lR /usr/lib > /dev/null".to_owned()];
    for (source, name, extra) in
        [("chain.c", "chain", &[][..]), ("templates.cc", "templates", &[]), ("inlined.c", "inlined", &["-g"])]
    {
        lines.push(programs.build(source, name, &[keeps, extra].concat())?.display().to_string());
    }
    if Path::new("/usr/bin/python3").exists() {
        lines.push("/usr/bin/python3 -I -S -c 'import os, json; [os.getppid() for _ in range(50)]; len([bytes(5000) for _ in range(2000)])'".to_owned());
    }
    Ok(lines.join("\n"))
}

/// Traces the workload with both, one inside the other.
fn trace(programs: &Programs) -> Result<(Stacks, Stacks), Skipped> {
    let workload = workload(programs)?;
    programs.tool("perf", &["--version"])?;
    let script = programs.path("s.py");
    fs::write(&script, SCRIPT).unwrap();
    let data = programs.path("perf.data");
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-g", "-m", "16M", "-o"]).arg(&data);
    command.args(EVENTS.iter().flat_map(|event| ["-e", event]));
    command.arg("--").arg(env!("CARGO_BIN_EXE_perf-prof")).args(["python", "-q", "-m", "16M", "--no-demangle"]);
    command.args(["-g", "--user-callchain", "--kernel-callchain"]);
    command.args(EVENTS.iter().flat_map(|event| ["-e".to_owned(), format!("{event}//stack/")]));
    command.arg(&script).args(["--exec", "sh", "-c", &workload]).current_dir(programs.dir()).stdin(Stdio::null());
    // SAFETY: alarm is async-signal-safe. An alarm outlives exec.
    unsafe {
        command.pre_exec(|| {
            libc::alarm(PATIENCE);
            Ok(())
        });
    }
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
    )?;
    Ok((ours, self::theirs(&theirs)))
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

/// The text of `perf script`: a line with task, time and event, a line per frame, an empty line.
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

/// The pairs of stacks of one occurrence: of the same task and event, and of nearly the same time.
fn pairs<'a>(ours: &'a Stacks, theirs: &'a Stacks) -> Vec<(&'a [Frame], &'a [Frame])> {
    let mut pairs = Vec::new();
    for (key, stacks) in ours {
        let Some(others) = theirs.get(key) else { continue };
        let mut next = 0;
        for (time, frames) in stacks {
            while others.get(next).is_some_and(|(other, _)| other + APART < *time) {
                next += 1;
            }
            // The nearest of those that are left.
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
    test(|| {
        let programs = Programs::new();
        let (ours, theirs) = trace(&programs)?;
        let pairs = pairs(&ours, &theirs);
        let count = |stacks: &Stacks| stacks.values().map(Vec::len).sum::<usize>();
        println!("{} stacks of ours, {} of perf's, {} pairs", count(&ours), count(&theirs), pairs.len());
        assert!(pairs.len() >= 100 && pairs.len() * 100 >= count(&ours) * 99, "too few");
        let (mut frames, mut differences, mut other_chains) = ([0; 2], BTreeMap::new(), 0);
        let mut at_functions_end = 0;
        for (ours, theirs) in &pairs {
            // perf shows the place in the file for user frames, and the file's begin is at a page's.
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
                } else if ours.symbol != theirs.symbol {
                    let names = (ours.kernel, ours.dso.clone(), ours.symbol.clone(), theirs.symbol.clone());
                    *differences.entry(names).or_insert(0) += 1;
                }
            }
        }
        // Two events of one task within a moment may be paired crosswise.
        println!("{other_chains} pairs are of different occurrences");
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
        Ok(())
    });
}

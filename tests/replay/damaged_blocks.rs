//! Damaged blocks of a stored index: what can still be read, and that each number of processes reads the same.

use std::{
    fs,
    path::{Path, PathBuf},
};

use perf_prof_recordings::Recording;

use crate::harness::{
    machine::{Need, needs},
    recording::{Folder, python, record_here},
    run::{perf_prof, printed, stdout},
};

/// Counts the calls, and their spans.
const COUNT: &str = "
from collections import Counter
import perf_prof
from perf_prof import Parts

parts = Parts(total=Counter())
__partial__, __merge__ = parts.partial, parts.merge

def raw_syscalls__sys_enter(event):
    parts._total['calls'] += 1

def syscall(event):
    parts._total['spans'] += 1
    parts._total['ns'] += event.duration

def __exit__():
    print(parts._total['calls'], parts._total['spans'], parts._total['ns'], perf_prof.stats()['partial'])
";

/// Prints when `__lost__` is called, and what [`Pairs`] pairs over the place. `Pairs` forgets what began before.
const PAIRS: &str = "
from collections import Counter
import perf_prof
from perf_prof import Parts
from perf_prof.script import Pairs

counts = Counter()
parts = Parts(total=counts)
entered = Pairs(parts, counts)
__partial__, __merge__ = parts.partial, parts.merge

def __lost__(start, end):
    assert start < end and perf_prof.lost_cpu() is None
    counts['told'] += perf_prof.shard() is None
    entered.lost(start, end)

@entered.ends
def leaves(now, tid):
    took, _ = entered.end(now, tid) or (0, None)
    counts['calls'] += took > 0
    counts['ns'] += took

def raw_syscalls__sys_enter(event):
    entered.begins(event._time, event._tid, event._cpu)

def raw_syscalls__sys_exit(event):
    leaves(event._time, event._tid)

def __exit__():
    print(counts['told'], counts['calls'], counts['ns'], counts['untold'] > 0)
";

/// Records many system calls of a task: a few MB.
pub fn record_calls(path: &Path) {
    let command = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=4000", "status=none"];
    record_here(path, &[&["-e", "raw_syscalls:*", "--"][..], &command].concat());
}

/// Returns the offset and the size of each block of a recording.
fn blocks(path: &Path) -> Vec<(usize, usize)> {
    let blocks = Recording::open(path).unwrap().known_blocks().unwrap().remove(0);
    blocks.blocks.iter().map(|block| (block.offset as usize, block.size as usize)).collect()
}

/// Runs the script in `jobs` processes. Returns what it printed, and its messages.
fn counted(path: &Path, script: &Path, jobs: &str) -> (Vec<String>, String) {
    let select = ["-e", "raw_syscalls:sys_enter,syscall", "--input", path.to_str().unwrap()];
    let shares = if jobs == "1" { vec![] } else { vec!["--jobs", jobs] };
    let output = python(&[&select[..], &shares, &[script.to_str().unwrap()]].concat());
    (printed(&output)[0].split(' ').map(str::to_owned).collect(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A recording of system calls, and the script that counts the read calls.
struct Recorded {
    folder: Folder,
    script: PathBuf,
    bytes: Vec<u8>,
    blocks: Vec<(usize, usize)>,
    /// The number of read calls.
    all: usize,
}

impl Recorded {
    fn new() -> Recorded {
        needs([Need::Tracefs]);
        let folder = Folder::new();
        let path = folder.path("perf.data");
        record_calls(&path);
        let script = folder.write("count.py", COUNT.as_bytes());
        let all = counted(&path, &script, "1").0[0].parse().unwrap();
        Recorded { script, bytes: fs::read(&path).unwrap(), blocks: blocks(&path), all, folder }
    }
}

/// Returns the number of read calls of a damaged recording, which does not depend on the number of processes.
#[track_caller]
fn calls_of_damaged(folder: &Folder, script: &Path, bytes: &[u8]) -> usize {
    let path = folder.write("damaged.data", bytes);
    let (one, said) = counted(&path, script, "1");
    assert!(one[3] == "True" && said.contains("damaged.data is damaged: "), "{one:?}{said}");
    for jobs in ["2", "5"] {
        let (several, said) = counted(&path, script, jobs);
        assert_eq!(one, several, "{jobs}: {said}");
    }
    one[0].parse().unwrap()
}

/// One process read all other blocks, and several processes nothing after the damage.
#[test]
fn damage_costs_one_block_with_any_number_of_processes() {
    let Recorded { folder, script, bytes, blocks, all } = Recorded::new();
    let count = blocks.len();
    assert!(count > 4, "{blocks:?}");
    // The first block has records about tasks, which are read before the recording is divided.
    for block in [0, count / 2, count - 1] {
        let (offset, size) = blocks[block];
        let mut bytes = bytes.clone();
        bytes[offset + size / 2..][..500].fill(0);
        let left = calls_of_damaged(&folder, &script, &bytes);
        assert!(left < all && left + all * 5 / 4 / count >= all, "{block} of {count}: {left} of {all}");
    }
}

/// The end of the file is that of the last recording: with its index and its times, the first one had wrong rates.
#[test]
fn of_recordings_in_one_file_the_first_is_read_with_its_own_times_and_is_partial() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let names = ["plain", "packed"].map(|name| folder.path(&format!("{name}.data")));
    record_calls(&names[0]);
    record_here(&names[1], &["-z", "-e", "raw_syscalls:*", "--", "sleep", "0.2"]);
    let facts = "import perf_prof\ncount = 0\ndef __sample__(event):\n    global count, end\n    count += 1\n    \
                 end = perf_prof.recording()['end']\ndef __exit__(): print(count, end, perf_prof.stats()['partial'])\n";
    let script = folder.write("facts.py", facts.as_bytes());
    for [first, second] in [[0, 1], [1, 0], [0, 0]].map(|pair| pair.map(|at| &names[at])) {
        let (alone, said) = counted(first, &script, "1");
        assert!(alone[2] == "False" && !said.contains("warning"), "{alone:?}{said}");
        let both = folder.write("both.data", &[first, second].map(|path| fs::read(path).unwrap()).concat());
        let (of_both, said) = counted(&both, &script, "1");
        assert_eq!(of_both, [&*alone[0], &*alone[1], "True"]);
        let place = format!("both.data has another recording at byte {}", fs::metadata(first).unwrap().len());
        assert_eq!(said.matches(&place).count(), 1, "{said}");
    }
}

/// The blocks behind the place were read where the index says, so nothing of them was found.
#[test]
fn missing_and_added_bytes_cost_one_block() {
    let Recorded { folder, script, bytes, blocks, all } = Recorded::new();
    let (count, (offset, size)) = (blocks.len(), blocks[1]);
    let at = offset + size / 2;
    let without = |missing: usize| [&bytes[..at], &bytes[at + missing..]].concat();
    let with = |added: usize| [&bytes[..at], &vec![9; added], &bytes[at..]].concat();
    for (what, bytes) in [("-1", without(1)), ("-5000", without(5000)), ("1", with(1)), ("5000", with(5000))] {
        let left = calls_of_damaged(&folder, &script, &bytes);
        assert!(left + all * 5 / 4 / count >= all, "{what}: {left} of {all} in {count} blocks");
    }
    // Two blocks and the halves of two others are missing.
    let left = calls_of_damaged(&folder, &script, &without(3 * size));
    assert!(left + all * 5 / count >= all, "{left} of {all} in {count} blocks");
}

/// Scripts paired an entry before the damage with an exit after it, because only derived spans were told.
#[test]
fn scripts_that_pair_events_do_not_pair_them_over_damage() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("perf.data");
    record_calls(&path);
    let (bytes, blocks) = (fs::read(&path).unwrap(), blocks(&path));
    let pairs = folder.write("pairs.py", PAIRS.as_bytes());
    let paired = |path: &Path, shares: &[&str]| {
        let select = ["-e", "raw_syscalls:*", "--input", path.to_str().unwrap()];
        let output = python(&[&select[..], shares, &[pairs.to_str().unwrap()]].concat());
        let words: Vec<String> = printed(&output)[0].split(' ').map(str::to_owned).collect();
        words
    };
    let whole = paired(&path, &[]);
    assert_eq!((whole[0].as_str(), whole[3].as_str()), ("0", "False"), "{whole:?}");
    let (offset, size) = blocks[blocks.len() / 2];
    let mut damaged = bytes.clone();
    damaged[offset + size / 2..][..500].fill(0);
    let path = folder.write("damaged.data", &damaged);
    let one = paired(&path, &[]);
    // Once where the time of the missing records begins, and once where it ends.
    assert_eq!((one[0].as_str(), one[3].as_str()), ("2", "True"), "{one:?}");
    let number = |words: &[String], at: usize| -> u64 { words[at].parse().unwrap() };
    assert!(number(&one, 1) < number(&whole, 1) && number(&one, 1) > number(&whole, 1) / 2, "{one:?} {whole:?}");
    // The pairs of one process are those of the spans, and those of several processes.
    for jobs in ["2", "5"] {
        assert_eq!(paired(&path, &["--jobs", jobs])[1..], one[1..], "{jobs}");
    }
    let count = folder.write("count.py", COUNT.as_bytes());
    let of_spans = counted(&path, &count, "1").0;
    assert!(number(&one, 2) <= of_spans[2].parse().unwrap(), "{one:?} {of_spans:?}");
}

/// Spans by name were none, and nothing said so.
#[test]
fn an_architecture_that_does_not_exist_is_named_and_spans_keep_their_names() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("perf.data");
    record_calls(&path);
    let mut bytes = fs::read(&path).unwrap();
    let arch = Recording::open(&path).unwrap().features.arch.unwrap();
    let at =
        bytes.windows(arch.len() + 1).position(|bytes| bytes.strip_suffix(b"\0") == Some(arch.as_bytes())).unwrap();
    bytes[at + 4] ^= 1;
    let wrong = String::from_utf8_lossy(&bytes[at..at + arch.len()]).into_owned();
    let damaged = folder.write("damaged.data", &bytes);
    let top = |path: &Path| {
        let output = perf_prof(&["top", "write", "--by", "name", "--json", "--input"]).arg(path).output().unwrap();
        (stdout(&output), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let ((before, _), (after, said)) = (top(&path), top(&damaged));
    assert!(before.contains("\"write\"") && before == after, "{before}{after}");
    assert!(said.contains(&format!("its architecture '{wrong}' is not known")), "{said}");
}

//! Compares the text of a recording with the text of the real `perf script`, line by line. Counts the differences that
//! `docs/recordings.md` allows.

use std::{fmt, path::Path};

use crate::harness::{
    older_perf,
    recording::{ours, perf},
};

/// Which differences are allowed, as `docs/recordings.md` explains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// None: the texts are equal, byte by byte.
    None,
    /// Names of code may differ. Its addresses are equal.
    Differ,
    /// User frames may differ, because each program unwinds them in its own way.
    Unwound,
}

/// The result of a comparison, in lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compared {
    /// The lines that were compared.
    lines: usize,
    /// Lines with another name for the same address.
    renamed: usize,
    /// Lines with an address that is in no mapping after an exec.
    before_exec: usize,
    /// User frames, which are left out of both texts, because each program unwinds them in its own way.
    unwound: usize,
    /// Inlined functions, which are left out of both texts: perf looks them up at the return address, perf-prof at the call.
    inlined: usize,
    /// Frames of call chains that perf leaves out because it takes the chains for damaged.
    damaged: usize,
    /// The outermost frames of long chains, which perf does not show.
    last: usize,
    /// Lines of tasks that had exited, whose comms perf has forgotten.
    ended: usize,
    /// Lines of events in the same nanosecond, in another order.
    tied: usize,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Compared { lines, renamed, before_exec, unwound, inlined, damaged, last, ended, tied } = *self;
        write!(f, "{lines:>8} lines {:>8} equal", lines - renamed - before_exec - ended - tied)?;
        let all = [
            (renamed, "by another name"),
            (before_exec, "of before exec"),
            (unwound, "unwound frames not compared"),
            (inlined, "inlined functions not compared"),
            (damaged, "in chains that perf leaves out"),
            (last, "beyond frame 120"),
            (ended, "of tasks that had ended"),
            (tied, "of one nanosecond in another order"),
        ];
        all.iter().filter(|(count, _)| *count > 0).try_for_each(|(count, what)| write!(f, ", {count} {what}"))
    }
}

/// Compares what `perf script` and `perf-prof script` print for a recording.
#[track_caller]
pub fn compare(path: &Path, options: &[&str], names: Names) -> Compared {
    let perf = perf(&[&["script"], options].concat(), path);
    compare_texts(perf, ours(&[older_perf::script_words(), options].concat(), path), names)
}

/// Compares two texts.
#[track_caller]
pub fn compare_texts(perf: Vec<String>, ours: Vec<String>, names: Names) -> Compared {
    let (perf, ours) = older_perf::comparable_lines(perf, ours);
    let mut compared = Compared::default();
    let all = ours.len();
    let (mut perf, mut ours) = (without_last_frames(perf), without_last_frames(ours));
    compared.last = all - ours.len();
    if names == Names::Unwound {
        let all = ours.len();
        (perf, ours) = (without_user_frames(perf), without_user_frames(ours));
        compared.unwound = all - ours.len();
    }
    if names != Names::None {
        let is_other = |line: &String| !line.ends_with(" (inlined)");
        let all = ours.len();
        (perf, ours) = (perf.into_iter().filter(is_other).collect(), ours.into_iter().filter(is_other).collect());
        compared.inlined = all - ours.len();
        let all = ours.len();
        ours = without_damaged_chains(&perf, ours);
        compared.damaged = all - ours.len();
    }
    let before = ours.iter().zip(&perf).filter(|(ours, perf)| ours != perf).count();
    (perf, ours) = (with_ties_sorted(perf), with_ties_sorted(ours));
    let after = ours.iter().zip(&perf).filter(|(ours, perf)| ours != perf).count();
    compared.tied = before.saturating_sub(after);
    assert!(perf.len() > 10, "perf shows {} lines", perf.len());
    for (at, (perf, ours)) in perf.iter().zip(&ours).enumerate() {
        if perf == ours {
            continue;
        }
        let same_place = without_name(perf).is_some_and(|place| Some(place) == without_name(ours));
        match (names, same_place, is_of_before_exec(ours)) {
            (Names::Differ | Names::Unwound, true, _) => compared.renamed += 1,
            (Names::Differ | Names::Unwound, false, true) => compared.before_exec += 1,
            _ if is_of_ended(perf, ours) => compared.ended += 1,
            _ => panic!("line {}:\n{perf}\n{ours}", at + 1),
        }
    }
    assert_eq!(ours.len(), perf.len());
    compared.lines = perf.len();
    compared
}

/// Sorts events of the same nanosecond. On different CPUs, their order is not known: perf reads the files of a
/// directory in the order in which the file system lists them.
fn with_ties_sorted(lines: Vec<String>) -> Vec<String> {
    let time = |line: &str| {
        let is_time = |word: &&str| {
            let digits = word.strip_suffix(':').and_then(|word| word.split_once('.')).map(|(_, digits)| digits);
            digits.is_some_and(|digits| digits.len() == 9 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        };
        line.split_whitespace().take(5).find(is_time).map(str::to_owned)
    };
    let mut events: Vec<(Option<String>, Vec<String>)> = Vec::new();
    for line in lines {
        match events.last_mut() {
            // Frames, and the empty line after them.
            Some((_, event)) if line.is_empty() || line.starts_with('\t') => event.push(line),
            _ => events.push((time(&line), vec![line])),
        }
    }
    for tied in events.chunk_by_mut(|one, other| one.0.is_some() && one.0 == other.0) {
        tied.sort();
    }
    events.into_iter().flat_map(|(_, lines)| lines).collect()
}

/// Returns whether the lines differ because the task had exited. A task still runs for a moment after the record of its
/// exit, and perf then shows its id instead of its comm.
fn is_of_ended(perf: &str, ours: &str) -> bool {
    let without_task = |line: &str| {
        let (task, rest) = line.trim_start().split_once(' ')?;
        Some((task.to_owned(), rest.trim_start().to_owned()))
    };
    let (Some((of_perf, perf)), Some((_, ours))) = (without_task(perf), without_task(ours)) else { return false };
    let tid = of_perf.strip_prefix(':').filter(|tid| tid.parse::<u32>().is_ok());
    perf == ours && tid.is_some_and(|tid| perf.split(' ').next() == Some(tid))
}

/// perf takes 127 entries of a call chain, and counts context markers too. So it omits the last frames of long chains.
fn without_last_frames(lines: Vec<String>) -> Vec<String> {
    let mut frames = 0;
    let is_among_first = |line: &String| {
        frames = if line.starts_with('\t') { frames + 1 } else { 0 };
        frames <= 120
    };
    lines.into_iter().filter(is_among_first).collect()
}

/// The chain of a program without frame pointers may contain any number, even one in the range of the context markers.
/// perf omits a chain that contains a number in this range.
fn without_damaged_chains(perf: &[String], ours: Vec<String>) -> Vec<String> {
    let mut perf = perf.iter().peekable();
    let mut has_chain = true;
    let mut kept = Vec::new();
    for line in ours {
        if line.starts_with('\t') {
            // Both texts have a first line for each event.
            has_chain = perf.next_if(|line| line.starts_with('\t')).is_some() || (has_chain && perf.peek().is_none());
            if !has_chain {
                continue;
            }
        } else {
            perf.by_ref().find(|line| !line.starts_with('\t'));
        }
        kept.push(line);
    }
    kept
}

/// Removes user frames.
fn without_user_frames(lines: Vec<String>) -> Vec<String> {
    let is_user = |line: &String| line.starts_with('\t') && !line.ends_with("([kernel.kallsyms])");
    lines.into_iter().filter(|line| !is_user(line)).collect()
}

/// Returns a line's code address and its other text, without the name of the function. Names may differ: perf and the
/// kernel choose differently among several names for an address. For a return address, perf looks up the address
/// itself, and perf-prof looks up the call. Some names of PLT entries, and some names in large files, are known to only
/// one of the programs.
fn without_name(line: &str) -> Option<(String, String)> {
    let (begin, dso) = line.rsplit_once(" (")?;
    let is_number = |word: &&str| u64::from_str_radix(word, 16).is_ok();
    let addr = match line.starts_with('\t') {
        true => begin.split_whitespace().next().filter(is_number)?,
        // The address comes after the time and the event's name.
        false => {
            let mut words = begin.split_whitespace();
            words.by_ref().filter(|word| word.ends_with(':')).nth(1)?;
            words.filter(|word| word.len() > 5).find(is_number)?
        }
    };
    let at = begin.find(addr)? + addr.len();
    Some((begin[..at].to_owned(), dso.to_owned()))
}

/// Returns whether a frame is from the time between an exec and the new program's first instruction. A call chain then
/// still contains the caller's address, which no mapping of the new program contains. perf looks it up in the old
/// mappings.
fn is_of_before_exec(ours: &str) -> bool {
    ours.starts_with('\t') && ours.ends_with(" [unknown] ([unknown])")
}

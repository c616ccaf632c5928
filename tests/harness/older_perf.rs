//! Texts of a perf that is older than the one that perf-prof follows. perf-prof prints what perf 7.2 prints. If the
//! installed perf is older than 7, tests turn its text into that of 7.2 before they compare. What the older text does not
//! contain is left out of both texts.

use std::{process::Command, sync::OnceLock};

/// Returns whether the installed perf is older than 7.
pub fn is_installed() -> bool {
    static IS_OLDER: OnceLock<bool> = OnceLock::new();
    *IS_OLDER.get_or_init(|| {
        let version = Command::new("perf").arg("--version").output();
        let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let number = version.rsplit(' ').next().and_then(|number| number.split('.').next()?.parse::<u32>().ok());
        number.is_some_and(|number| number < 7)
    })
}

/// Makes the lines of `perf script` and those of `perf-prof script` comparable.
pub fn comparable_lines(perf: Vec<String>, ours: Vec<String>) -> (Vec<String>, Vec<String>) {
    if !is_installed() {
        return (perf, ours);
    }
    (perf.iter().map(|line| widened(line)).collect(), ours)
}

/// Widens the column of the process and thread ids from 5 characters to 7. The CPU or the time comes after this column.
fn widened(line: &str) -> String {
    let Some((start, ids)) = ids(line) else { return line.to_owned() };
    let (first, second) = ids.split_once('/').map_or((ids, None), |(pid, tid)| (pid, Some(tid)));
    let before = &line[..start - 5_usize.saturating_sub(first.len()).min(start)];
    // A second id is padded on the right.
    let padding = second.map_or(0, |tid| 5_usize.saturating_sub(tid.len()));
    let after = &line[start + ids.len() + padding..];
    let second = second.map(|tid| format!("/{tid:<7}")).unwrap_or_default();
    format!("{before}{first:>7}{second}{after}")
}

/// Returns the ids in a line, `tid` or `pid/tid`, and where they start. Frames of call chains have none.
fn ids(line: &str) -> Option<(usize, &str)> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_id = |text: &str| is_number(text.strip_prefix('-').unwrap_or(text));
    let is_cpu = |word: &str| word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).is_some_and(is_number);
    let is_time = |word: &str| {
        let parts = word.strip_suffix(':').and_then(|word| word.split_once('.'));
        parts.is_some_and(|(seconds, digits)| is_number(seconds) && is_number(digits))
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let pair = words.windows(2).find(|pair| pair[0].split('/').all(is_id) && (is_cpu(pair[1]) || is_time(pair[1])))?;
    Some((pair[0].as_ptr() as usize - line.as_ptr() as usize, pair[0]))
}

#[test]
fn the_column_of_ids_becomes_that_of_a_newer_perf() {
    for (older, newer) in [
        (
            "              sh 12345 [001]   917.421530: sched:x: a 1 [000]",
            "              sh   12345 [001]   917.421530: sched:x: a 1 [000]",
        ),
        ("a b   77   917.421530: x:", "a b     77   917.421530: x:"),
        ("    7/77    [000] 91", "      7/77      [000] 91"),
        ("\tffff8151b6b8 f+0x8 ([kernel.kallsyms])", "\tffff8151b6b8 f+0x8 ([kernel.kallsyms])"),
    ] {
        assert_eq!(widened(older), newer);
    }
}

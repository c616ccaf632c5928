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

/// Returns the words after `perf-prof`: `script`, without inlined functions if perf is older. An older perf has them only in call
/// chains that it unwinds itself.
pub fn script_words() -> &'static [&'static str] {
    if is_installed() { &["script", "--no-inline"] } else { &["script"] }
}

/// Makes the lines of `perf script` and those of `perf-prof script` comparable.
pub fn comparable_lines(perf: Vec<String>, ours: Vec<String>) -> (Vec<String>, Vec<String>) {
    if !is_installed() {
        return (perf, ours);
    }
    let perf = perf.iter().map(|line| without_mapping(&widened(line)));
    (perf.collect(), ours.iter().map(|line| without_mapping(line)).collect())
}

/// Makes the texts of a script that prints whole samples, or rows of the database export, comparable.
pub fn comparable_samples(perf: String, ours: String) -> (String, String) {
    if !is_installed() {
        return (perf, ours);
    }
    let mut perf = perf.replace("'transaction': ", "'ins_lat': 0, 'transaction': ");
    for (older, newer) in [("84410401", "128933429281"), ("|LVL N/A or N/A|", "|LVL N/A|")] {
        perf = perf.replace(older, newer);
    }
    // The end of the attr, which is longer now, and registers that were not recorded.
    let more = "\\x00".repeat(16);
    for end in ["', 'sample': {", "\", 'sample': {"] {
        perf = perf.replace(end, &format!("{more}{end}"));
    }
    for registers in [", 'iregs': ''", ", 'uregs': ''"] {
        perf = perf.replace(registers, "");
    }
    let ours = ours.split('\n').map(|line| without_newer_entries(&without_columns(line)));
    (perf, ours.collect::<Vec<_>>().join("\n"))
}

/// Removes the entries that an older perf does not have from the dicts in a line. perf's template prints dicts in a form of
/// its own.
fn without_newer_entries(line: &str) -> String {
    let keys: &[&str] = match line.starts_with("Sample: {") {
        true => &[", id=", ", ins_lat=", ", stream_id="],
        false => &[", 'map_pgoff': ", ", 'addr_map_pgoff': "],
    };
    keys.iter().fold(without_ids(line), |line, key| {
        let (first, rest) = line.split_once(*key).unwrap_or((&line, ""));
        rest.split(*key).fold(first.to_owned(), |line, part| line + part.trim_start_matches(is_digit))
    })
}

/// Removes the first two entries of each dict of a sample, which are its ids.
fn without_ids(line: &str) -> String {
    let mut parts = line.split(", 'stream_id': ");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let before = kept.trim_end_matches(is_digit);
        kept.truncate(before.strip_suffix("'id': ").unwrap_or(before).len());
        kept += part.trim_start_matches(is_digit).trim_start_matches(", ");
    }
    kept
}

fn is_digit(character: char) -> bool {
    character.is_ascii_digit()
}

/// Removes the last three columns of a row of samples, which an older perf does not have.
fn without_columns(line: &str) -> String {
    let (separator, end) = if line.starts_with("sample_table (") { (", ", ")") } else { (" ", "") };
    match line.starts_with("sample ") || !end.is_empty() {
        true => line.rsplitn(4, separator).last().unwrap_or_default().to_owned() + end,
        false => line.to_owned(),
    }
}

/// Cuts the address of a user frame in a call chain to its place in a page. An older perf shows the offset in the file, and
/// files are mapped by pages.
fn without_mapping(line: &str) -> String {
    let addr = line.strip_prefix('\t').and_then(|frame| frame.split_whitespace().next());
    match addr.and_then(|addr| Some((addr, u64::from_str_radix(addr, 16).ok()?))) {
        Some((text, addr)) if addr >> 63 == 0 => {
            let end = line.find(text).unwrap_or_default() + text.len();
            format!("\t{:>16x}{}", addr % 4096, &line[end..])
        }
        _ => line.to_owned(),
    }
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
fn samples_are_without_what_an_older_perf_does_not_know() {
    if !is_installed() {
        return;
    }
    let perf =
        "{'attr': b'\\x01', 'sample': {'pid': 1, 'weight': 0, 'transaction': 0, 'datasrc': 84410401}, 'iregs': ''}\n";
    let attr = format!("b'\\x01{}'", "\\x00".repeat(16));
    let sample = "'pid': 1, 'weight': 0, 'ins_lat': 0, 'transaction': 0, 'datasrc': 128933429281";
    let ours = format!("{{'attr': {attr}, 'sample': {{'id': 7, 'stream_id': 8, {sample}, 'addr_map_pgoff': 0}}}}\n");
    let (perf, ours) = comparable_samples(perf.to_owned(), ours);
    assert_eq!(perf, ours);
    let (perf, ours) =
        comparable_samples("sample_table (1, 2)\n".to_owned(), "sample_table (1, 2, 3, 4, 5)\n".to_owned());
    assert_eq!(perf, ours);
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

//! Shows the hits: as text, grouped by kind, or as JSON.

use std::io::{self, IsTerminal, Write};

use super::{
    commands::joined,
    entry::{Entry, Kind},
    search::Found,
};

/// The number of entries of each kind that are shown without `--all`.
const OF_KIND: usize = 4;
/// The number of kinds that are shown without `--all`.
const KINDS: usize = 7;

/// How many hits are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The best hits of each kind.
    Best,
    /// All hits.
    All,
}

/// Returns the entries to show, best first.
pub fn chosen(found: Found, amount: Amount) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for hit in found.hits.into_iter().filter(|hit| hit.is_good || amount == Amount::All) {
        let same = |entry: &&mut Entry| entry.kind == hit.entry.kind && entry.name == hit.entry.name;
        match entries.iter_mut().find(same) {
            // Several commands may describe the same option in different words. A single entry is shown, which names
            // all of these commands.
            Some(entry) if hit.entry.kind == Kind::Option => {
                let place = hit.entry.place.trim_start_matches("perf-prof ").trim_end_matches(" --help");
                entry.place = joined(&entry.place, place);
            }
            Some(_) => {}
            None => entries.push(hit.entry),
        }
    }
    entries
}

/// Prints entries grouped by kind. The first kind is the kind of the best entry. `words` are the searched words.
pub fn text(out: &mut dyn Write, entries: &[Entry], amount: Amount, words: &str) -> io::Result<()> {
    let wanted = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let (bold, reset) = if wanted { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let mut kinds: Vec<Kind> = Vec::new();
    for entry in entries.iter().filter(|entry| !kinds.contains(&entry.kind)).collect::<Vec<_>>() {
        if !kinds.contains(&entry.kind) {
            kinds.push(entry.kind);
        }
    }
    let (of_kind, of_kinds) = if amount == Amount::All { (usize::MAX, usize::MAX) } else { (OF_KIND, KINDS) };
    let mut shown = 0;
    for (at, kind) in kinds.iter().take(of_kinds).enumerate() {
        let gap = if at > 0 { "\n" } else { "" };
        writeln!(out, "{gap}{bold}{}{reset}", kind.heading())?;
        for entry in entries.iter().filter(|entry| entry.kind == *kind).take(of_kind) {
            shown += 1;
            writeln!(out, "  {}  ({})", entry.name, entry.place)?;
            if !entry.text.is_empty() {
                writeln!(out, "      {}", entry.text)?;
            }
        }
    }
    match entries.len() - shown {
        0 => Ok(()),
        more => writeln!(out, "\n{more} more: perf-prof help --all {words}"),
    }
}

/// Prints entries as a JSON array.
pub fn json(out: &mut dyn Write, entries: &[Entry]) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, entries)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::{super::matching::Hit, *};

    fn found(names: &[&str]) -> Found {
        let entry = |name: &&str| Entry::new(Kind::Option, *name, "about it", "perf-prof top --help");
        let hits = names.iter().map(|name| Hit { entry: entry(name), score: 1.0, is_good: true }).collect();
        Found { hits, ..Found::default() }
    }

    fn shown(entries: &[Entry], amount: Amount) -> String {
        let mut out = Vec::new();
        text(&mut out, entries, amount, "word").expect("a vector takes all text");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_best_ones_are_shown_and_the_others_are_counted() {
        let entries = chosen(found(&["--a", "--b", "--c", "--d", "--e", "--f", "--g"]), Amount::Best);
        let text = shown(&entries, Amount::Best);
        assert!(text.contains("  --d  (perf-prof top --help)\n      about it\n"), "{text}");
        assert!(!text.contains("--e") && text.ends_with("\n3 more: perf-prof help --all word\n"), "{text}");
        assert!(shown(&entries, Amount::All).ends_with("  --g  (perf-prof top --help)\n      about it\n"));
    }

    #[test]
    fn options_that_several_commands_describe_are_shown_once() {
        let mut hits = found(&["--time", "--time"]);
        hits.hits[1].entry.place = "perf-prof hist --help".into();
        let entries = chosen(hits, Amount::Best);
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].place, "perf-prof top, hist --help");
    }

    #[test]
    fn json_has_the_fields_of_an_entry() {
        let mut out = Vec::new();
        json(&mut out, &chosen(found(&["--a"]), Amount::Best)).expect("a vector takes all text");
        let value: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(value[0]["kind"], "option");
        assert_eq!(value[0]["place"], "perf-prof top --help");
    }
}

//! Computes how well an entry matches the typed words. The words, or synonyms of the words, may match the name or the
//! text of the entry.

use super::{
    entry::Entry,
    synonyms,
    words::{excerpt, matches, words},
};

/// The score if the whole name of an entry matches. `NAME`, `TEXT` and `MORE` are the lower scores if a part of the
/// name, the line of text, or one of the further lines matches.
const WHOLE: f32 = 15.0;
/// See [`WHOLE`].
pub const NAME: f32 = 10.0;
const TEXT: f32 = 5.0;
const MORE: f32 = 2.0;
/// The factor for a match of the first synonym. Each further synonym decreases it by `FURTHER`.
const SYNONYM: f32 = 0.75;
const FURTHER: f32 = 0.05;
/// The maximum number of characters in the line of text of a hit.
const WIDTH: usize = 106;

/// A search term: a typed word or phrase, and its synonyms.
#[derive(Clone, Debug)]
pub struct Term {
    /// The typed text.
    pub typed: String,
    /// The typed words, and those synonyms that are words or phrases.
    phrases: Vec<Phrase>,
    /// Those synonyms that are names of entries.
    names: Vec<Name>,
}

/// Words that must all be in the same text.
#[derive(Clone, Debug)]
struct Phrase {
    words: Vec<String>,
    /// The factor for the score of a match.
    weight: f32,
}

/// The name of an entry, such as `--time`.
#[derive(Clone, Debug)]
struct Name {
    name: &'static str,
    /// The factor for the score of a match.
    weight: f32,
}

impl Term {
    /// Returns the term for typed text.
    pub fn new(typed: &str) -> Term {
        let mut term = Term { typed: typed.to_owned(), phrases: Vec::new(), names: Vec::new() };
        term.phrases.push(Phrase { words: words(typed), weight: 1.0 });
        for (at, other) in synonyms::others(typed).into_iter().enumerate() {
            let weight = SYNONYM - FURTHER * at.min(6) as f32;
            // A synonym such as `--time` is the name of an option. It is not searched in texts.
            match other.starts_with(['-', '_']) {
                true => term.names.push(Name { name: other, weight }),
                false => term.phrases.push(Phrase { words: words(other), weight }),
            }
        }
        term
    }

    /// Returns whether the typed text contains no letter and no digit.
    pub fn is_empty(&self) -> bool {
        self.phrases[0].words.is_empty()
    }
}

/// How an entry matches a term.
#[derive(Clone, Copy, Debug)]
pub struct Match<'t> {
    /// How well the entry matches; larger is better.
    pub score: f32,
    /// The words of the term that match.
    phrase: &'t [String],
    /// The index in `more` of the line that matches; `None` if the name or the text matches.
    line: Option<usize>,
}

/// An entry that matches.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The entry. Its text is replaced by the line that matches.
    pub entry: Entry,
    /// How well the entry matches; larger is better.
    pub score: f32,
    /// True if the hit is among the best.
    pub is_good: bool,
}

/// An entry with its words.
pub struct Indexed<'a> {
    entry: &'a Entry,
    /// The words of the entry's name.
    pub name: Vec<String>,
    /// The words of the full name. For a method, these words include the class. `name` does not include the class,
    /// because the entry is not about the class.
    whole_name: Vec<String>,
    /// The words of the entry's line of text.
    pub text: Vec<String>,
    more: Vec<Vec<String>>,
}

impl<'a> Indexed<'a> {
    /// Splits an entry into words.
    pub fn new(entry: &'a Entry) -> Indexed<'a> {
        let more = entry.more.iter().map(|line| words(line)).collect();
        let (name, whole_name) = (words(entry.own_name()), words(&entry.name));
        Indexed { entry, name, whole_name, text: words(&entry.text), more }
    }

    /// Returns how the entry matches a term, if it does.
    pub fn matching<'t>(&self, term: &'t Term) -> Option<Match<'t>> {
        let mut best: Option<Match<'t>> = None;
        let mut keep = |score: f32, phrase: &'t Phrase, line| {
            if score > best.map_or(0.0, |best| best.score) {
                best = Some(Match { score, phrase: &phrase.words, line });
            }
        };
        if self.entry.is_named(&term.typed) {
            keep(WHOLE, &term.phrases[0], None);
        }
        for name in term.names.iter().filter(|name| self.entry.is_named(name.name)) {
            keep(WHOLE * name.weight, &term.phrases[0], None);
        }
        for phrase in &term.phrases {
            let score = |kind: f32, text: &[String]| phrase.weight * kind * matches(text, &phrase.words);
            // If the name has few words besides the phrase, it matches better than a longer name.
            let length = phrase.words.len() as f32 / self.name.len().max(1) as f32;
            keep(score(NAME, &self.name) * (0.7 + 0.3 * length.min(1.0)), phrase, None);
            keep(score(TEXT, &self.text), phrase, None);
            keep(score(MORE, &self.whole_name), phrase, None);
            for (line, words) in self.more.iter().enumerate() {
                keep(score(MORE, words), phrase, Some(line));
            }
        }
        best
    }

    /// Returns the hit for these terms, if at least `needed` terms match.
    pub fn hit(&self, terms: &[Term], needed: usize) -> Option<Hit> {
        let found: Vec<_> = terms.iter().filter_map(|term| self.matching(term)).collect();
        let best = found.iter().max_by(|a, b| a.score.total_cmp(&b.score)).filter(|_| found.len() >= needed)?;
        let mut entry = self.entry.clone();
        let shown = best.line.map_or(&self.entry.text, |line| &self.entry.more[line]);
        entry.text = excerpt(shown, best.phrase, WIDTH);
        entry.name = short_name(&entry.name, best.phrase);
        let score = found.iter().map(|found| found.score).sum::<f32>() * entry.kind.weight();
        Some(Hit { score, entry, is_good: true })
    }
}

/// Returns a name of at most `WIDTH` characters. If it has too many parameters, only parameters that match are kept.
fn short_name(name: &str, phrase: &[String]) -> String {
    match name.split_once('(').filter(|_| name.len() > WIDTH) {
        None => excerpt(name, phrase, WIDTH),
        Some((function, parameters)) => {
            let parameters = parameters.trim_end_matches(')').split(", ");
            let matching: Vec<&str> = parameters.filter(|name| matches(&words(name), phrase) > 0.0).collect();
            let parts = matching.iter().flat_map(|name| [*name, "..."]);
            format!("{function}({})", ["..."].into_iter().chain(parts).collect::<Vec<_>>().join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_by_its_own_name() {
        let program = crate::program();
        for entry in crate::help::index(&program) {
            let typed = entry.own_name().trim().to_lowercase();
            let (indexed, term) = (Indexed::new(&entry), Term::new(&typed));
            let found = indexed.matching(&term);
            assert!(found.is_some_and(|found| found.score > TEXT) || words(&typed).is_empty(), "{typed}: {entry:?}");
        }
    }
}

//! Finds the entries that match what the user typed, best first.

use std::collections::BTreeSet;

use super::{
    entry::{Entry, Kind},
    matching::{Hit, Indexed, NAME, Term},
    synonyms,
};

/// The minimum score of a good hit, divided by the best score. All other hits are shown only with `--all`.
const GOOD: f32 = 0.3;
/// The minimum score of a good hit that is a document, divided by the best score. This minimum is lower than `GOOD`, so
/// that documents are shown even if a name matches well.
const GOOD_DOCUMENT: f32 = 0.1;
/// The minimum likeness of a word that is searched instead of a mistyped word.
const MISTYPED: f64 = 0.7;
/// The minimum likeness of a word that is suggested to the user.
const NEAR: f64 = 0.45;

/// The result of a search.
#[derive(Debug, Default)]
pub struct Found {
    /// All hits, best first.
    pub hits: Vec<Hit>,
    /// The typed words without a match, each with the word that was searched instead.
    pub mistyped: Vec<Mistyped>,
    /// Words of the index that are similar to a typed word without a match.
    pub near: Vec<String>,
}

/// A typed word without a match.
#[derive(Debug, PartialEq, Eq)]
pub struct Mistyped {
    /// The word.
    pub typed: String,
    /// The word that was searched instead.
    pub meant: String,
}

/// A word of the index that is similar to a typed word.
struct Near {
    /// How similar the word is, from 0 to 1.
    likeness: f64,
    word: String,
}

impl Found {
    /// Returns whether the best hit matches by its name.
    pub fn is_name(&self) -> bool {
        self.hits.first().is_some_and(|hit| hit.score >= NAME * 0.5)
    }
}

/// Searches for these words in all entries.
pub fn search(entries: &[Entry], typed: &[String]) -> Found {
    let indexed: Vec<Indexed<'_>> = entries.iter().map(Indexed::new).collect();
    let mut found = Found::default();
    let mut terms = terms(typed);
    for term in &mut terms {
        if indexed.iter().any(|entry| entry.matching(term).is_some()) {
            continue;
        }
        let near = near(&indexed, &term.typed);
        match near.first().filter(|near| near.likeness >= MISTYPED) {
            Some(near) => {
                found.mistyped.push(Mistyped { typed: term.typed.clone(), meant: near.word.clone() });
                *term = Term::new(&near.word);
            }
            None => found.near.extend(near.into_iter().take(3).map(|near| near.word)),
        }
    }
    let hits = |needed: usize| {
        let hits = indexed.iter().filter_map(|entry| entry.hit(&terms, needed));
        let mut hits: Vec<Hit> = hits.collect();
        hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.entry.name.cmp(&b.entry.name)));
        hits
    };
    // If no entry matches all words, the entries that match the most words are taken.
    found.hits = (1..=terms.len()).rev().map(hits).find(|hits| !hits.is_empty()).unwrap_or_default();
    let best = found.hits.first().map_or(0.0, |hit| hit.score);
    for hit in &mut found.hits {
        hit.is_good = hit.score >= best * if hit.entry.kind == Kind::Document { GOOD_DOCUMENT } else { GOOD };
    }
    found
}

/// Splits the typed words into terms. Words that form a phrase in the table of synonyms become one term. If the first
/// word is a tool, such as `strace`, options that are not part of a phrase are left out, because options of perf-prof
/// with these names have other meanings.
fn terms(typed: &[String]) -> Vec<Term> {
    let typed = typed.join(" ").to_lowercase();
    let all: Vec<&str> = typed.split_whitespace().collect();
    let mut terms = Vec::new();
    let mut rest = all.as_slice();
    while !rest.is_empty() {
        let phrase = (2..=rest.len()).rev().find(|&count| !synonyms::others(&rest[..count].join(" ")).is_empty());
        let count = phrase.unwrap_or(1);
        let term = rest[..count].join(" ");
        let is_of_tool = count == 1 && term.starts_with('-') && synonyms::is_tool(all[0]);
        if !is_of_tool && (!synonyms::is_empty(&term) || all.len() == 1) {
            terms.push(Term::new(&term));
        }
        rest = &rest[count..];
    }
    terms.retain(|term| !term.is_empty());
    terms
}

/// Returns the words of the index that are similar to a word, the most similar first.
fn near(indexed: &[Indexed<'_>], typed: &str) -> Vec<Near> {
    let names = indexed.iter().flat_map(|entry| entry.name.iter().chain(&entry.text));
    let words = names.map(String::as_str).chain(synonyms::all().map(|(typed, _)| typed));
    let words: BTreeSet<&str> = words.filter(|word| word.len() > 2).collect();
    let near =
        |word: &str| Near { likeness: strsim::normalized_damerau_levenshtein(typed, word), word: word.to_owned() };
    let mut near: Vec<Near> = words.into_iter().map(near).filter(|near| near.likeness >= NEAR).collect();
    near.sort_by(|a, b| b.likeness.total_cmp(&a.likeness));
    near
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(typed: &str) -> Found {
        let entries = [
            Entry::new(Kind::Option, "--watermark <PCT>", "Read a ring buffer when it is PCT percent full", "python"),
            Entry::new(Kind::Module, "Distribution.percentile(percent)", "Returns a percentile", "aggregators"),
            Entry::new(Kind::Option, "--cgroups <LIST>", "Only these cgroups", "python"),
        ];
        search(&entries, &[typed.to_owned()])
    }

    fn names(typed: &str) -> Vec<String> {
        found(typed).hits.into_iter().map(|hit| hit.entry.name).collect()
    }

    #[test]
    fn names_come_before_texts() {
        assert_eq!(names("percent"), ["Distribution.percentile(percent)", "--watermark <PCT>"]);
        assert_eq!(names("--watermark"), ["--watermark <PCT>"]);
    }

    #[test]
    fn synonyms_lead_to_what_has_another_name() {
        assert_eq!(names("docker"), ["--cgroups <LIST>"]);
    }

    #[test]
    fn mistyped_words_are_replaced_and_others_are_suggested() {
        let mistyped = Mistyped { typed: "cgruops".to_owned(), meant: "cgroups".to_owned() };
        assert_eq!(found("cgruops").mistyped, [mistyped]);
        let nothing = found("watershed");
        assert!(nothing.hits.is_empty() && nothing.near.contains(&"watermark".to_owned()), "{nothing:?}");
    }

    #[test]
    fn all_words_count() {
        assert_eq!(names("ring percent"), ["--watermark <PCT>"]);
    }
}

//! Splits texts into words, and computes how well a word of a text matches a typed word.

/// The likeness of a word to a typed word if only their endings differ. The two lower values are for a word that starts
/// with the typed word, and for a word that contains the typed word.
const STEM: f32 = 0.9;
const START: f32 = 0.65;
const INSIDE: f32 = 0.4;

/// Returns the words of a text in lower case. A name such as `Log2Hist` or `max-stack` is also split into its parts.
pub fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '%').filter(|word| !word.is_empty()) {
        let parts = humps(word);
        if parts.len() > 1 {
            found.extend(parts.iter().map(|part| part.to_lowercase()));
        }
        found.push(word.to_lowercase());
    }
    found
}

/// Splits a name at its capital letters: `FlameGraph` becomes `Flame` and `Graph`. A word in capitals is a single part.
fn humps(word: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut before = ' ';
    for (at, c) in word.char_indices() {
        if c.is_uppercase() && (before.is_lowercase() || before.is_ascii_digit()) {
            parts.push(&word[start..at]);
            start = at;
        }
        before = c;
    }
    parts.push(&word[start..]);
    parts
}

/// Returns a word without the endings of English plurals and verbs.
pub fn stem(word: &str) -> &str {
    let endings = ["ies", "ing", "es", "ed", "s", "y"];
    let cut = endings.iter().find_map(|ending| word.strip_suffix(ending).filter(|rest| rest.len() >= 3));
    match cut {
        Some(_) if word.ends_with("ss") => word,
        Some(rest) => rest.strip_suffix('e').unwrap_or(rest),
        None => word.strip_suffix('e').filter(|rest| rest.len() >= 3).unwrap_or(word),
    }
}

/// Returns the likeness of a word of a text to a typed word, from 0 to 1.
pub fn likeness(word: &str, typed: &str) -> f32 {
    match () {
        () if word == typed => 1.0,
        () if stem(word) == stem(typed) => STEM,
        () if typed.len() >= 3 && word.starts_with(typed) => START,
        () if typed.len() >= 4 && word.contains(typed) => INSIDE,
        () => 0.0,
    }
}

/// Returns how well a text matches a phrase: the likeness of the phrase's word that matches worst.
pub fn matches(text: &[String], phrase: &[String]) -> f32 {
    let best = |typed: &String| text.iter().map(|word| likeness(word, typed)).fold(0.0, f32::max);
    phrase.iter().map(best).fold(1.0, f32::min)
}

/// Returns an excerpt of a line that contains the phrase: at most `width` characters, cut between words.
pub fn excerpt(line: &str, phrase: &[String], width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let pieces: Vec<&str> = line.split(' ').collect();
    let hit = |piece: &str| words(piece).iter().any(|word| phrase.iter().any(|typed| likeness(word, typed) > 0.0));
    let at = pieces.iter().position(|piece| hit(piece)).unwrap_or(0);
    let length = |pieces: &[&str]| pieces.iter().map(|piece| piece.chars().count() + 1).sum::<usize>();
    // Half of the width is for the words before the hit, because these words help to understand the hit.
    let mut from = at;
    while from > 0 && length(&pieces[from - 1..=at]) < width / 2 {
        from -= 1;
    }
    let mut to = at + 1;
    while to < pieces.len() && length(&pieces[from..=to]) + 6 < width {
        to += 1;
    }
    while from > 0 && length(&pieces[from - 1..to]) + 6 < width {
        from -= 1;
    }
    let (head, tail) = (if from > 0 { "... " } else { "" }, if to < pieces.len() { " ..." } else { "" });
    format!("{head}{}{tail}", pieces[from..to].join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_their_parts_and_as_a_whole() {
        assert_eq!(words("Log2Hist(name)"), ["log2", "hist", "log2hist", "name"]);
        assert_eq!(words("-m, --mmap-pages <N>"), ["m", "mmap", "pages", "n"]);
        assert_eq!(words("JSON: CAP_PERFMON"), ["json", "cap", "perfmon"]);
    }

    #[test]
    fn endings_do_not_matter() {
        for (one, other) in [("latency", "latencies"), ("share", "shares"), ("drop", "dropped"), ("lose", "loses")] {
            assert!(likeness(one, other) > 0.0 || likeness(other, one) > 0.0, "{one} {other}");
        }
        assert!(likeness("process", "proces") < 1.0);
        assert_eq!(likeness("cpu", "gpu"), 0.0);
    }

    #[test]
    fn excerpts_show_the_word_and_whole_words() {
        let line = "The first words of this line are about something else, and the last ones name a bucket of water.";
        let shown = excerpt(line, &["bucket".to_owned()], 40);
        assert!(shown.contains("bucket") && shown.len() <= 40, "{shown}");
        assert!(shown.starts_with("... "), "{shown}");
        assert_eq!(excerpt("short", &["bucket".to_owned()], 40), "short");
    }
}

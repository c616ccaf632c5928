//! The lines below the title of a picture. Pictures do not wrap text, and cut off what is wider than they are.

/// The maximum length of a line, in characters. It also fits into notebooks, which are narrower than a picture in a window.
const LINE: usize = 120;

/// Returns the lines of a caption: those of the subtitle, then what is missing in the picture, and the command that drew it. Long
/// lines are wrapped.
pub(super) fn caption(subtitle: Option<&str>, partial: Option<&str>, command: Option<&str>) -> Vec<String> {
    let partial = partial.map(|text| format!("partial: {text}"));
    let lines = subtitle.into_iter().chain(partial.as_deref()).chain(command).flat_map(str::lines);
    lines.flat_map(wrapped).collect()
}

/// Wraps a line, between its parts if these fit, such as a date and a command, and otherwise between words. A word that is longer
/// than a line is divided.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in text.split_inclusive("; ").map(str::trim_end) {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + part.chars().count() <= LINE) {
            Some(line) => *line = format!("{line} {part}"),
            None => lines.extend(wrapped_words(part)),
        }
    }
    lines
}

fn wrapped_words(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        match lines.last_mut().filter(|line| line.chars().count() + 1 + letters.len() <= LINE) {
            Some(line) => *line = format!("{line} {word}"),
            None => lines.extend(letters.chunks(LINE).map(|part| part.iter().collect::<String>())),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_and_nothing_is_cut_off() {
        let (text, word) = ("5 events were lost; ".repeat(20), "w".repeat(LINE + 1));
        let lines = caption(Some(&format!("a {word} b\nc")), Some(&text), None);
        assert_eq!(lines[..4], ["a", &word[1..], "w b", "c"]);
        assert!(lines[4].starts_with("partial: 5 events were lost; "), "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= LINE), "{lines:?}");
        assert_eq!(lines[4..].join(" "), format!("partial: {}", text.trim_end()));
        assert_eq!(caption(None, None, None), [""; 0]);
        let (command, date) = ("c".repeat(100), "recorded 2026-11-29 12:00:00 UTC");
        assert_eq!(caption(Some(&format!("{command}; {date}")), None, None), [format!("{command};"), date.to_owned()]);
        assert_eq!(caption(Some("short"), None, Some("perf-prof top")), ["short", "perf-prof top"]);
    }
}

//! The formats of many events in one text, as perf-prof ships them. For each event, the text contains a line `===
//! system`, and then the text of the event's `format` file.

use std::{collections::BTreeMap, fmt::Write, io, ops::Range, sync::Arc};

use super::{EventFormat, FormatError};

/// The start of the line before each format.
const MARK: &str = "=== ";

/// The formats of a kernel. A format is parsed when it is requested.
pub struct FormatCollection {
    text: String,
    /// The range in `text` that contains each format, by system and name.
    places: BTreeMap<(String, String), Range<usize>>,
}

impl FormatCollection {
    /// Finds the formats in the text. A format without a name is left out.
    pub fn new(text: String) -> Self {
        let mut places = BTreeMap::new();
        let starts = text.match_indices(MARK).map(|(at, _)| at);
        let starts: Vec<usize> = starts.filter(|&at| at == 0 || text.as_bytes()[at - 1] == b'\n').collect();
        let ends = starts.iter().skip(1).copied().chain([text.len()]);
        for (&start, end) in starts.iter().zip(ends) {
            let Some((system, format)) = text[start + MARK.len()..end].split_once('\n') else { continue };
            let name = format.lines().find_map(|line| line.strip_prefix("name:"));
            if let Some(name) = name {
                places.insert((system.to_owned(), name.trim().to_owned()), end - format.len()..end);
            }
        }
        FormatCollection { text, places }
    }

    /// Finds the formats in a text that is compressed by zstd.
    pub fn from_zstd(bytes: &[u8]) -> io::Result<Self> {
        let text = String::from_utf8(zstd::decode_all(bytes)?);
        Ok(FormatCollection::new(text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?))
    }

    /// Returns the events as (system, name), sorted.
    pub fn events(&self) -> impl Iterator<Item = (&str, &str)> {
        self.places.keys().map(|(system, name)| (system.as_str(), name.as_str()))
    }

    /// Returns the text of an event's format.
    pub fn text(&self, system: &str, name: &str) -> Option<&str> {
        let place = self.places.get(&(system.to_owned(), name.to_owned()))?;
        Some(&self.text[place.clone()])
    }

    /// Returns the format of an event, or `None` if there is no such event.
    pub fn format(&self, system: &str, name: &str) -> Option<Result<Arc<EventFormat>, FormatError>> {
        self.text(system, name).map(|text| EventFormat::parse(system, text).map(Arc::new))
    }

    /// Returns the text of a collection of these formats, each with its system.
    pub fn text_of<'a>(formats: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
        let mut text = String::new();
        for (system, format) in formats {
            let end = if format.ends_with('\n') { "" } else { "\n" };
            // Writing to a String cannot fail.
            let _ = write!(text, "{MARK}{system}\n{format}{end}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(name: &str) -> String {
        format!(
            "name: {name}\nID: 5\nformat:\n\tfield:int x;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"=== %d\"\n"
        )
    }

    #[test]
    fn formats_are_found_by_system_and_name() {
        let (one, two) = (format("one"), format("two"));
        let text = FormatCollection::text_of([("b", one.as_str()), ("a", two.as_str()), ("a", one.trim_end())]);
        let formats = FormatCollection::new(text);
        assert_eq!(formats.events().collect::<Vec<_>>(), [("a", "one"), ("a", "two"), ("b", "one")]);
        assert_eq!(formats.text("b", "one"), Some(one.as_str()));
        assert_eq!(formats.text("a", "one"), Some(one.as_str()));
        assert_eq!(formats.format("a", "two").unwrap().unwrap().name, "two");
        assert!(formats.format("b", "two").is_none());
    }

    #[test]
    fn a_text_without_formats_has_no_events() {
        for text in ["", "=== ", "=== a", "=== a\n", "=== a\nID: 5\n", "x=== a\nname: y\n"] {
            assert_eq!(FormatCollection::new(text.into()).events().count(), 0, "{text:?}");
        }
    }
}

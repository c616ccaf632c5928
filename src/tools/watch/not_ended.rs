//! Spans that had not ended when the run ended, so that a table lacks them: of sources whose spans often outlast a run.

use perf_prof_events::{
    derive::source,
    event::{EventType, Format},
};
use perf_prof_format::spec::OpenAtEnd;
use serde_json::{Value as Json, json};

/// The spans that had not ended, for each event that tells their number.
pub struct NotEnded(Vec<OfEvent>);

struct OfEvent {
    /// The index of the event among the events of the run.
    event: usize,
    /// The name of the event, and the name of its source.
    name: String,
    source: &'static str,
    /// What the source calls one span, and several.
    words: [&'static str; 2],
    /// `None` if it is not known: the run goes on, or ended early.
    number: Option<u64>,
}

impl NotEnded {
    /// Creates the numbers for these events, which are not known yet.
    pub fn of_events<'e>(events: impl Iterator<Item = (usize, &'e EventType)>) -> NotEnded {
        let of_event = |(event, of): (usize, &EventType)| {
            let Format::Span(span) = &of.format else { return None };
            let is_counted = span.is_source() && span.at_end == OpenAtEnd::Counted;
            let source = source::source(&span.format.name).filter(|_| is_counted)?;
            Some(OfEvent { event, name: of.shown_name(), source: source.name, words: source.outlasting?, number: None })
        };
        NotEnded(events.filter_map(of_event).collect())
    }

    /// Notes how many spans of an event had not ended.
    pub fn note(&mut self, event: usize, number: u64) {
        self.0.iter_mut().filter(|of| of.event == event).for_each(|of| of.number = Some(number));
    }

    /// Returns the lines below a table that lacks such spans.
    pub fn lines(&self) -> Vec<String> {
        self.0.iter().filter_map(OfEvent::line).collect()
    }

    /// Returns the member of a JSON object, which is null if a number is not known. `None` if no event tells the number.
    pub fn member(&self) -> Option<(String, Json)> {
        let number: Option<u64> = self.0.iter().map(|of| of.number).sum();
        (!self.0.is_empty()).then(|| ("not_ended".to_owned(), json!(number)))
    }
}

impl OfEvent {
    /// Returns the line about these spans, if there are any.
    fn line(&self) -> Option<String> {
        let OfEvent { name, source, words: [one, several], number, .. } = self;
        let what = match (*number)? {
            0 => return None,
            1 => format!("1 {one} had not ended and is not in this table; the option `open` adds it"),
            number => {
                format!("{number} {several} had not ended and are not in this table; the option `open` adds them")
            }
        };
        Some(format!("{name}: {what} (`{source}/open/`)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_with_such_spans_have_a_line() {
        let of = |event| OfEvent {
            event,
            name: format!("tcp{event}"),
            source: "tcp",
            words: ["connection", "connections"],
            number: None,
        };
        let mut spans = NotEnded(vec![of(2), of(4), of(5)]);
        assert_eq!((spans.lines().len(), spans.member().unwrap().1), (0, Json::Null));
        [(2, 1), (4, 0), (5, 7), (3, 9)].into_iter().for_each(|(event, number)| spans.note(event, number));
        let lines = [
            "tcp2: 1 connection had not ended and is not in this table; the option `open` adds it (`tcp/open/`)",
            "tcp5: 7 connections had not ended and are not in this table; the option `open` adds them (`tcp/open/`)",
        ];
        assert_eq!((spans.lines(), spans.member().unwrap().1), (lines.map(str::to_owned).to_vec(), json!(8)));
        assert_eq!(NotEnded(Vec::new()).member(), None);
    }
}

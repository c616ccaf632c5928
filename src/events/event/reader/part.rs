//! Reads keys and values from the event that begins or ends a span: `begin.NAME` and `end.NAME`.

use super::{Input, Read, ReadError, ReadKind, names, resolve};
use crate::event::{EventType, Format, SpanFormat, SpanPart};

/// The parts of a span, each with the prefix of the names of its values.
const PARTS: [(&str, SpanPart); 2] = [("begin.", SpanPart::Begin), ("end.", SpanPart::End)];

/// How to read a value from a part of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRead {
    part: SpanPart,
    /// How to read the value, for each input event type of the span; `None` for an input that lacks the value.
    of_inputs: Box<[Option<Read>]>,
}

impl PartRead {
    /// Resolves a name for the spans of an event type. Returns `None` if the name has no prefix of a part, or if the events
    /// are not spans.
    pub(super) fn resolve(name: &str, event: &EventType) -> Option<Result<PartRead, ReadError>> {
        let Format::Span(span) = &event.format else { return None };
        let (part, name) = PARTS.iter().find_map(|(start, part)| Some((*part, name.strip_prefix(start)?)))?;
        let found: Vec<Result<Read, ReadError>> = span.inputs.iter().map(|input| resolve(name, input)).collect();
        let of_inputs: Box<[Option<Read>]> = found.iter().map(|read| read.clone().ok()).collect();
        if of_inputs.iter().any(Option::is_some) {
            return Some(Ok(PartRead { part, of_inputs }));
        }
        // Prefer the error of an input that has the name: it says more than "unknown".
        let errors = found.into_iter().filter_map(Result::err);
        Some(Err(errors.max_by_key(|error| *error != ReadError::Unknown).unwrap_or(ReadError::Unknown)))
    }

    /// Returns the part of the span, and how to read the value if the part is a sample of this input.
    pub fn of_input(&self, input: usize) -> (SpanPart, Option<&Read>) {
        (self.part, self.of_inputs.get(input).and_then(Option::as_ref))
    }

    /// Returns how to read the value from each input that has it.
    pub fn reads(&self) -> impl Iterator<Item = &Read> {
        self.of_inputs.iter().flatten()
    }

    /// Returns the kind of the value in the first input that has the value.
    pub(super) fn kind(&self) -> ReadKind {
        self.of_inputs.iter().flatten().next().map_or(ReadKind::Number, Read::kind)
    }

    /// Returns the part of a span as an event, and how to read the value from it. Returns `None` if the part is the end of
    /// an open span, or lacks the value.
    #[inline]
    pub fn of<'a>(&self, input: &Input<'a>) -> Option<(&Read, Input<'a>)> {
        let Format::Span(span) = &input.sample.event.format else { return None };
        let (of, _) = span.part(self.part, input.sample.raw())?;
        let sample = span.sample(self.part, input.sample.raw())?;
        let facts = input.facts.of_part(self.part);
        Some((self.of_inputs.get(of)?.as_ref()?, Input { sample, facts }))
    }
}

/// Returns the names that can be read from the parts of a span, with their prefixes.
pub(super) fn part_names(span: &SpanFormat) -> Vec<String> {
    let mut of_inputs: Vec<String> = span.inputs.iter().flat_map(names).collect();
    of_inputs.sort_unstable();
    of_inputs.dedup();
    PARTS.iter().flat_map(|(start, _)| of_inputs.iter().map(move |name| format!("{start}{name}"))).collect()
}

//! The events of a span: `BEGIN|BEGIN..END|END`. Each of them is a tracepoint or a probe.

use super::{
    error::SpanSyntaxError,
    event::EventKind,
    parse::find,
    probe::{self, ProbeSyntaxError},
};

/// The events that begin a span, the events that end it, and the length in bytes of the text that names them.
pub(super) struct ParsedEvents {
    pub begin: Vec<EventKind>,
    pub end: Vec<EventKind>,
    pub length: usize,
}

/// The text between the events that begin a span and the events that end a span.
const RANGE: &str = "..";

/// Parses the events at the start of `text`. After them, `text` may continue with the sections of the selector, or with
/// the next selector.
pub(super) fn parse(text: &str) -> Result<ParsedEvents, SpanSyntaxError> {
    let (mut begin, mut end) = (Vec::new(), None);
    let mut at = 0;
    loop {
        let (event, length) = event(&text[at..])?;
        at += length;
        end.as_mut().unwrap_or(&mut begin).push(event);
        let rest = &text[at..];
        if rest.starts_with('|') {
            at += 1;
        } else if rest.starts_with(RANGE) && end.is_none() {
            at += RANGE.len();
            end = Some(Vec::new());
        } else {
            let end = end.ok_or(SpanSyntaxError::Form)?;
            return Ok(ParsedEvents { begin, end, length: at });
        }
    }
}

/// Parses one event. Returns the event and the length of its text.
fn event(text: &str) -> Result<(EventKind, usize), SpanSyntaxError> {
    let text = &text[..end_of_event(text)];
    let blank = text.len() - text.trim_start().len();
    match probe::parse(&text[blank..]) {
        Some(Ok((probe, length))) => return Ok((EventKind::Probe(probe), blank + length)),
        // A probe without a file is parsed as the tracepoint `system:name`, because recordings contain the names of
        // probes, but not their files.
        Some(Err(ProbeSyntaxError::NoFile { .. })) | None => {}
        Some(Err(error)) => return Err(SpanSyntaxError::Probe(error)),
    }
    let length = find(text, 0, &[',', '/']).ok().flatten().unwrap_or(text.len());
    Ok((tracepoint(text[..length].trim())?, length))
}

/// Returns the length of the first event in `text`. The event ends at a `|` or at `..`, except for the dots of a path
/// such as `../lib`.
fn end_of_event(text: &str) -> usize {
    let mut from = 0;
    while let Ok(Some(at)) = find(text, from, &['|', '.']) {
        let is_range = text[at..].starts_with(RANGE) && !text[..at].ends_with(['/', '@']);
        if text[at..].starts_with('|') || is_range && !text[at..].starts_with("../") {
            return at;
        }
        from = at + text[at..].bytes().take_while(|&byte| byte == b'.').count().max(1);
    }
    text.len()
}

fn tracepoint(text: &str) -> Result<EventKind, SpanSyntaxError> {
    let is_word =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-*?[]!^".contains(c));
    match text.split_once(':') {
        Some((system, name)) if is_word(system) && is_word(name) => {
            Ok(EventKind::Tracepoint { system: system.to_owned(), name: name.to_owned() })
        }
        _ => Err(SpanSyntaxError::Event(text.to_owned())),
    }
}

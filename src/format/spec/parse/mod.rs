//! The grammar of selectors: `name[/filter/ATTR/ATTR/.../]`, separated by commas, and groups of them, `{a,b}[:S]`.

use std::borrow::Cow;

use super::{
    attrs::Attrs,
    breakpoint,
    error::{Bracket, SpecError},
    event::{EventKind, EventSpec},
    glob::is_glob,
    grouping::{GroupText, Grouping},
    modifiers::Modifiers,
    perf_names::named_event,
    probe,
    probe_args::ProbeArgument,
    span::SpanSpec,
};

/// Parses a list of selectors.
///
/// Inside a section, a comma belongs to the section (`cpus=0,2`), because only a `/` closes the section.
pub fn parse_events(list: &str) -> Result<Vec<EventSpec>, SpecError> {
    let mut events = Vec::new();
    let mut rest = list;
    loop {
        let after = match GroupText::parse(rest.trim_start())? {
            Some(braced) => {
                let mut group = members(&braced)?;
                braced.group(&mut group)?;
                events.append(&mut group);
                braced.after
            }
            None => {
                let (event, after) = event(list, rest.trim_start())?;
                events.push(event);
                after
            }
        };
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok(events),
        }
    }
}

/// Parses the selectors between the braces of a group.
fn members(braced: &GroupText<'_>) -> Result<Vec<EventSpec>, SpecError> {
    let group = || braced.text.to_owned();
    if braced.inner.trim().is_empty() {
        return Err(SpecError::EmptyGroup { group: group() });
    }
    let mut events = Vec::new();
    let mut rest = braced.inner;
    loop {
        rest = rest.trim_start();
        if rest.starts_with('{') {
            return Err(SpecError::NestedGroup { group: group(), inner: rest.to_owned() });
        }
        let (event, after) = event(braced.text, rest)?;
        events.push(event);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Ok(events),
        }
    }
}

/// Parses one selector at the start of `text`. Returns its event and the text after the selector. The text after the
/// selector is empty or starts with a comma.
fn event<'a>(list: &str, text: &'a str) -> Result<(EventSpec, &'a str), SpecError> {
    let (kind, function, end) = head(text)?;
    let name = text[..end].trim();
    if name.is_empty() {
        return Err(SpecError::Missing { list: list.to_owned() });
    }
    let mut span = match (function, &kind) {
        (Some(span), _) => Some(span),
        (None, None) => SpanSpec::parse_source(name),
        (None, Some(_)) => None,
    };
    let takes_modifiers = matches!(kind, Some(EventKind::Breakpoint { .. })) || !name.contains(':');
    let Sections { sections, modifiers: behind, end } = sections(text, name, end, takes_modifiers)?;
    let selector = text[..end].trim().to_owned();
    let (first, attrs) = attributes(&selector, &sections, kind.as_ref(), span.as_mut())?;
    let mut filter = None;
    let kind = kind.or(span.map(|span| EventKind::Span(Box::new(span))));
    let kind = match kind.map_or_else(|| self::kind(&selector, name), Ok)? {
        EventKind::Source { name, modifiers, .. } => {
            EventKind::Source { name, option: first, modifiers: behind.unwrap_or(modifiers) }
        }
        EventKind::Breakpoint { breakpoint, modifiers, .. } => {
            EventKind::Breakpoint { breakpoint, option: first, modifiers: behind.unwrap_or(modifiers) }
        }
        kind => {
            filter = first;
            if let Some(attribute) = attrs.non_tracepoint_attribute() {
                return Err(SpecError::NotForTracepoints { selector, attribute });
            }
            kind
        }
    };
    if !attrs.strings.is_empty() && !matches!(kind, EventKind::Tracepoint { .. }) {
        return Err(SpecError::OnlyForTracepoints { selector, attribute: "str" });
    }
    let spec = EventSpec { selector, kind, filter, attrs, grouping: Grouping::Alone };
    Ok((spec, text[end..].trim_start()))
}

/// Parses the part of a selector before its sections. Returns the event if this part is a probe or a breakpoint, the
/// span if this part starts with `span:` or `function:`, and the offset at which this part ends. These kinds of
/// selectors are parsed first, because a `/` in them does not always start a section.
fn head(text: &str) -> Result<(Option<EventKind>, Option<SpanSpec>, usize), SpecError> {
    if let Some(probe) = probe::parse(text) {
        let wrong = |error| SpecError::Probe { selector: text.trim().to_owned(), error };
        let (probe, end) = probe.map_err(wrong)?;
        return Ok((Some(EventKind::Probe(probe)), None, end));
    }
    if let Some((breakpoint, modifiers, end)) = breakpoint::parse(text)? {
        return Ok((Some(EventKind::Breakpoint { breakpoint, option: None, modifiers }), None, end));
    }
    if let Some((span, end)) = SpanSpec::parse_with_events(text).transpose()? {
        return Ok((None, Some(span), end));
    }
    let unclosed = |bracket| SpecError::Unclosed { bracket, text: text.to_owned() };
    Ok((None, None, find(text, 0, &[',', '/']).map_err(unclosed)?.unwrap_or(text.len())))
}

/// The sections of a selector, between slashes.
struct Sections<'a> {
    sections: Vec<&'a str>,
    /// The modifiers after the last section.
    modifiers: Option<Modifiers>,
    /// The offset at which the selector ends.
    end: usize,
}

/// Finds the sections of the selector `name` in `text`. `end` is the offset at which the part before the sections ends.
fn sections<'a>(text: &'a str, name: &str, mut end: usize, takes_modifiers: bool) -> Result<Sections<'a>, SpecError> {
    let unclosed = |bracket| SpecError::Unclosed { bracket, text: text.to_owned() };
    let mut sections = Vec::new();
    if !text[end..].starts_with('/') {
        return Ok(Sections { sections, modifiers: None, end });
    }
    end += 1;
    loop {
        let close = find(text, end, &['/'])
            .map_err(unclosed)?
            .ok_or_else(|| SpecError::UnclosedSection { selector: name.to_owned(), section: text[end..].to_owned() })?;
        sections.push(text[end..close].trim());
        end = close + 1;
        let after = text[end..].trim_start();
        if after.is_empty() || after.starts_with(',') {
            return Ok(Sections { sections, modifiers: None, end });
        }
        // As in perf, modifiers may follow the terms: `cpu/event=0xc0/u`.
        let colon = usize::from(after.starts_with(':'));
        let letters = &after[colon..after.find(',').unwrap_or(after.len())];
        if let Some(modifiers) = Modifiers::parse(letters.trim()).filter(|_| takes_modifiers) {
            let end = text.len() - after.len() + colon + letters.len();
            return Ok(Sections { sections, modifiers: Some(modifiers), end });
        }
    }
}

/// Parses the sections of a selector. Returns the text of the first section, which is a filter or the option of a
/// source, and the attributes in the other sections.
fn attributes(
    selector: &str,
    sections: &[&str],
    kind: Option<&EventKind>,
    mut span: Option<&mut SpanSpec>,
) -> Result<(Option<String>, Attrs), SpecError> {
    let mut sections = sections.iter().copied();
    let first = sections.next().map(unquote).filter(|first| !first.trim().is_empty()).map(str::to_owned);
    let mut attrs = Attrs::default();
    let wrong_span = |error| SpecError::Span { selector: selector.to_owned(), error };
    let are_options = match (&mut span, &first) {
        (Some(span), Some(first)) => span.add_options(first).map_err(wrong_span)?,
        _ => false,
    };
    for section in sections {
        if let Some(span) = &mut span
            && (span.add(section).map_err(wrong_span)?
                || span.add_argument(section).map_err(wrong_span)?
                || span.add_as_option(section))
        {
            continue;
        }
        let argument = match kind {
            Some(EventKind::Probe(_)) => ProbeArgument::parse(section),
            _ => None,
        };
        match argument {
            Some(Ok(argument)) => attrs.arguments.push(argument),
            Some(Err(reason)) => {
                return Err(SpecError::Value { selector: selector.to_owned(), attribute: "argument", reason });
            }
            None => attrs.add(selector, section)?,
        }
    }
    if let Some(span) = span {
        span.finish().map_err(wrong_span)?;
    }
    Ok((first.filter(|_| !are_options), attrs))
}

fn kind(selector: &str, name: &str) -> Result<EventKind, SpecError> {
    let wrong = |name: &str| SpecError::Name { selector: selector.to_owned(), name: name.to_owned() };
    let is_word = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c) || "*?[]!^".contains(c))
    };
    let Some((system, event)) = name.split_once(':') else {
        if is_glob(name) {
            return Err(SpecError::Wildcard { selector: selector.to_owned() });
        }
        return if is_word(name) { Ok(source(name, Modifiers::default())) } else { Err(wrong(name)) };
    };
    // If the part before the colon is the name of an event, and only modifier letters come after the colon, the letters
    // are modifiers. A tracepoint system could have the same name as the event, but the names of its tracepoints would
    // be longer.
    if let (Some(_), Some(modifiers)) = (named_event(system), Modifiers::parse(event)) {
        return Ok(source(system, modifiers));
    }
    if !is_word(system) || !is_word(event) {
        return Err(wrong(name));
    }
    Ok(EventKind::Tracepoint { system: system.to_owned(), name: event.to_owned() })
}

fn source(name: &str, modifiers: Modifiers) -> EventKind {
    EventKind::Source { name: name.to_owned(), option: None, modifiers }
}

/// Returns the offset of the first of `separators` in `text` after `from`, outside quotes and parentheses.
pub(super) fn find(text: &str, from: usize, separators: &[char]) -> Result<Option<usize>, Bracket> {
    let mut quote = None;
    let mut depth = 0usize;
    for (at, c) in text[from..].char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(') => depth += 1,
            // An extra `)` is not reported here. The kernel, which knows the filter's grammar, will refuse the filter.
            (None, ')') => depth = depth.saturating_sub(1),
            (None, c) if depth == 0 && separators.contains(&c) => return Ok(Some(from + at)),
            (None, _) => {}
        }
    }
    match quote {
        Some('\'') => Err(Bracket::Single),
        Some(_) => Err(Bracket::Double),
        None if depth > 0 => Err(Bracket::Parenthesis),
        None => Ok(None),
    }
}

/// Returns `text` without the pair of quotes that encloses all of it. Quotes inside a filter belong to the filter.
pub(super) fn unquote(text: &str) -> &str {
    for quote in ['\'', '"'] {
        let inner = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner.filter(|inner| !inner.contains(quote)) {
            return inner;
        }
    }
    text
}

/// Returns `text` as it has to be written in a selector: in quotes if this is necessary.
pub(super) fn quoted(text: &str) -> Cow<'_, str> {
    let reads_as_itself = matches!(find(text, 0, &['/']), Ok(None)) && unquote(text.trim()) == text;
    match reads_as_itself {
        true => Cow::Borrowed(text),
        // Text that needs quotes was in quotes when it was parsed. So the text cannot contain both kinds of quotes.
        false if text.contains('"') => Cow::Owned(format!("'{text}'")),
        false => Cow::Owned(format!("\"{text}\"")),
    }
}

#[cfg(test)]
mod tests;

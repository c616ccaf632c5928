//! The grammar of selectors: `name[/filter/ATTR/ATTR/.../]`, separated by commas, and groups of them, `{a,b}[:S]`. Knows
//! nothing of the machine.

use std::borrow::Cow;

use super::{
    attrs::Attrs,
    breakpoint,
    error::{Bracket, SpecError},
    event::{EventKind, EventSpec},
    glob::is_glob,
    grouping::{Braced, Grouping},
    modifiers::Modifiers,
    perf_names::named_event,
    probe,
};

/// Parses a list of selectors.
///
/// Inside a section a comma belongs to the section (`cpus=0,2`), since only `/` closes it.
pub fn parse_events(list: &str) -> Result<Vec<EventSpec>, SpecError> {
    let mut events = Vec::new();
    let mut rest = list;
    loop {
        let after = match Braced::take(rest.trim_start())? {
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

/// The selectors in braces.
fn members(braced: &Braced<'_>) -> Result<Vec<EventSpec>, SpecError> {
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

/// One selector at the beginning of `text`, and what follows it: nothing, or a comma and more.
fn event<'a>(list: &str, text: &'a str) -> Result<(EventSpec, &'a str), SpecError> {
    let unclosed = |bracket| SpecError::Unclosed { bracket, text: text.to_owned() };
    // What has a `/` of its own in its name.
    let with_slashes = match probe::take(text) {
        Some(probe) => {
            let wrong = |error| SpecError::Probe { selector: text.trim().to_owned(), error };
            probe.map(|(probe, end)| Some((EventKind::Probe(probe), end))).map_err(wrong)?
        }
        None => breakpoint::take(text)?
            .map(|(breakpoint, modifiers, end)| (EventKind::Breakpoint { breakpoint, option: None, modifiers }, end)),
    };
    let (kind, mut end) = match with_slashes {
        Some((kind, end)) => (Some(kind), end),
        None => (None, find(text, 0, &[',', '/']).map_err(unclosed)?.unwrap_or(text.len())),
    };
    let name = text[..end].trim();
    if name.is_empty() {
        return Err(SpecError::Missing { list: list.to_owned() });
    }
    let takes_modifiers = matches!(kind, Some(EventKind::Breakpoint { .. })) || !name.contains(':');
    let mut behind = None;
    let mut sections = Vec::new();
    if text[end..].starts_with('/') {
        end += 1;
        loop {
            let close = find(text, end, &['/']).map_err(unclosed)?.ok_or_else(|| SpecError::UnclosedSection {
                selector: name.to_owned(),
                section: text[end..].to_owned(),
            })?;
            sections.push(text[end..close].trim());
            end = close + 1;
            let after = text[end..].trim_start();
            if after.is_empty() || after.starts_with(',') {
                break;
            }
            // As perf has it, letters may stand behind the terms: `cpu/event=0xc0/u`.
            let colon = usize::from(after.starts_with(':'));
            let letters = &after[colon..after.find(',').unwrap_or(after.len())];
            if let Some(modifiers) = Modifiers::parse(letters.trim()).filter(|_| takes_modifiers) {
                behind = Some(modifiers);
                end = text.len() - after.len() + colon + letters.len();
                break;
            }
        }
    }
    let selector = text[..end].trim().to_owned();
    let mut sections = sections.into_iter();
    let first = sections.next().map(unquote).filter(|first| !first.trim().is_empty()).map(str::to_owned);
    let mut attrs = Attrs::default();
    for section in sections {
        attrs.add(&selector, section)?;
    }
    let mut filter = None;
    let kind = match kind.map_or_else(|| self::kind(&selector, name), Ok)? {
        EventKind::Source { name, modifiers, .. } => {
            EventKind::Source { name, option: first, modifiers: behind.unwrap_or(modifiers) }
        }
        EventKind::Breakpoint { breakpoint, modifiers, .. } => {
            EventKind::Breakpoint { breakpoint, option: first, modifiers: behind.unwrap_or(modifiers) }
        }
        kind => {
            filter = first;
            if let Some(attribute) = attrs.of_sources() {
                return Err(SpecError::NotOfTracepoints { selector, attribute });
            }
            kind
        }
    };
    let spec = EventSpec { selector, kind, filter, attrs, grouping: Grouping::Alone };
    Ok((spec, text[end..].trim_start()))
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
    // A tracepoint's name is longer than a few letters of modifiers, should there ever be a system of that name.
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

/// Where the first of `separators` stands in `text` after `from`, outside of quotes and parentheses.
pub(super) fn find(text: &str, from: usize, separators: &[char]) -> Result<Option<usize>, Bracket> {
    let mut quote = None;
    let mut depth = 0usize;
    for (at, c) in text[from..].char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(') => depth += 1,
            // A `)` too many is the kernel's to refuse: it knows the filter's grammar.
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

/// `text` without the pair of quotes that encloses all of it. Quotes inside a filter are the filter's own.
pub(super) fn unquote(text: &str) -> &str {
    for quote in ['\'', '"'] {
        let inner = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner.filter(|inner| !inner.contains(quote)) {
            return inner;
        }
    }
    text
}

/// `text` as it has to stand in a selector so that it is read as `text`.
pub(super) fn quoted(text: &str) -> Cow<'_, str> {
    let reads_as_itself = matches!(find(text, 0, &['/']), Ok(None)) && unquote(text.trim()) == text;
    match reads_as_itself {
        true => Cow::Borrowed(text),
        // Text that needs quotes came out of quotes, so it lacks at least one of the two kinds.
        false if text.contains('"') => Cow::Owned(format!("'{text}'")),
        false => Cow::Owned(format!("\"{text}\"")),
    }
}

#[cfg(test)]
mod tests;

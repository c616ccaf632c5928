//! The terms of a perf event, for example `event=0xc0,umask=1,period=1000`, and the rate at which an event is sampled.

use std::str::FromStr;

use super::parse::unquote;

/// One term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The term's name.
    pub name: String,
    /// The text after `=`, if there is one.
    pub value: Option<String>,
}

/// How often an event is sampled, as the user requested it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// One sample each time the event has occurred this many times.
    Period(u64),
    /// This many samples per second.
    Frequency(u64),
    /// As often as the kernel allows.
    MaxFrequency,
}

/// Parses terms that are separated by commas. Empty terms are ignored.
pub fn terms(text: &str) -> Vec<Term> {
    let mut terms = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut quote = None;
        let end = rest.find(|c: char| {
            match quote {
                Some(open) if c == open => quote = None,
                None if c == '\'' || c == '"' => quote = Some(c),
                _ => {}
            }
            c == ',' && quote.is_none()
        });
        let (term, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after.strip_prefix(',').unwrap_or(after);
        let (name, value) = match term.split_once('=') {
            Some((name, value)) => (name.trim(), Some(unquote(value.trim()).to_owned())),
            None => (term.trim(), None),
        };
        if !name.is_empty() || value.is_some() {
            terms.push(Term { name: name.to_owned(), value });
        }
    }
    terms
}

/// Parses a number: decimal, or hexadecimal after `0x`.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok(),
        None if !text.starts_with('+') => text.parse().ok(),
        _ => None,
    }
}

impl Rate {
    /// Parses a period: a number above 0.
    pub fn period(text: &str) -> Option<Rate> {
        number(text).filter(|&period| period > 0).map(Rate::Period)
    }

    /// Parses a frequency: a number above 0, or `max`.
    pub fn frequency(text: &str) -> Option<Rate> {
        if text == "max" {
            return Some(Rate::MaxFrequency);
        }
        u64::from_str(text).ok().filter(|&frequency| frequency > 0 && !text.starts_with('+')).map(Rate::Frequency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_and_numbers() {
        let shown = |text| {
            let show = |term: Term| format!("{}={}", term.name, term.value.unwrap_or_else(|| "-".into()));
            terms(text).into_iter().map(show).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown("event=0xc0, umask=1,inv,,name='a,b'"), "event=0xc0 umask=1 inv=- name=a,b");
        assert_eq!(shown(""), "");
        assert_eq!(
            (number("0x1F"), number("12"), number("x"), number("0x"), number("+1")),
            (Some(31), Some(12), None, None, None)
        );
        assert_eq!((Rate::period("0"), Rate::frequency("max")), (None, Some(Rate::MaxFrequency)));
    }
}

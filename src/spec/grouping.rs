//! Groups of events, `{a,b}` and `{a,b}:S`: where each begins and ends in a list, and which event has which part in it. Knows
//! nothing of the machine.

use super::{
    attrs::Stack,
    error::{Bracket, SpecError},
    event::{EventKind, EventSpec},
    modifiers::{Modifiers, Precise},
    parse::find,
};

/// An event's part in a group, which is scheduled as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// It is in no group.
    #[default]
    Alone,
    /// The first of its group.
    Leader(Sampled),
    /// A member of the group whose leader is the nearest one before it.
    Member(Sampled),
}

/// Which events of a group are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// Each on its own.
    Each,
    /// The leader alone, with the counts of all (`:S`).
    Leader,
}

impl Grouping {
    /// The part of what comes behind it when one selector stands for several events.
    pub fn of_next(self) -> Grouping {
        match self {
            Grouping::Leader(sampled) => Grouping::Member(sampled),
            other => other,
        }
    }

    /// Whether it is turned on and off with its leader.
    pub fn is_member(self) -> bool {
        matches!(self, Grouping::Member(_))
    }

    /// Whether its leader's samples tell what all of its group count.
    pub fn is_read_by_leader(self) -> bool {
        matches!(self, Grouping::Leader(Sampled::Leader) | Grouping::Member(Sampled::Leader))
    }
}

/// A group at the beginning of a list.
pub(super) struct Braced<'a> {
    /// All of it, for messages.
    pub text: &'a str,
    /// What is in the braces.
    pub inner: &'a str,
    /// The letters behind it.
    pub letters: Option<&'a str>,
    /// What follows in the list: nothing, or a comma and more.
    pub after: &'a str,
}

impl<'a> Braced<'a> {
    /// The group that `text` begins with, if it begins with one.
    pub fn take(text: &'a str) -> Result<Option<Self>, SpecError> {
        let Some(opened) = text.strip_prefix('{') else { return Ok(None) };
        let unclosed = |bracket| SpecError::Unclosed { bracket, text: text.to_owned() };
        // Sections may have braces of their own (`CPUS{0,2}`); behind those the section goes on.
        let (mut from, mut wrong) = (0, None);
        let end = loop {
            let Some(end) = find(opened, from, &['}']).map_err(unclosed)? else {
                return Err(wrong.unwrap_or_else(|| unclosed(Bracket::Brace)));
            };
            let behind = opened[end + 1..].trim_start();
            if behind.is_empty() || behind.starts_with([',', ':']) {
                break end;
            }
            wrong = Some(SpecError::BehindGroup { group: text[..end + 2].to_owned(), behind: behind.to_owned() });
            from = end + 1;
        };
        let (inner, behind) = (&opened[..end], opened[end + 1..].trim_start());
        let (letters, after) = match behind.strip_prefix(':') {
            None => (None, behind),
            Some(letters) => {
                let end = letters.find(',').unwrap_or(letters.len());
                (Some(letters[..end].trim()), &letters[end..])
            }
        };
        Ok(Some(Braced { text: text[..text.len() - after.len()].trim_end(), inner, letters, after }))
    }

    /// Makes its events a group.
    pub fn group(&self, events: &mut [EventSpec]) -> Result<(), SpecError> {
        let (sampled, modifiers) = self.modifiers()?;
        for (index, event) in events.iter_mut().enumerate() {
            event.grouping = if index == 0 { Grouping::Leader(sampled) } else { Grouping::Member(sampled) };
            if let (Some(attribute), true) = (only_of_sampled(event), index > 0 && sampled == Sampled::Leader) {
                return Err(SpecError::NotSampled { selector: event.selector.clone(), attribute });
            }
            match &mut event.kind {
                EventKind::Source { modifiers: own, .. } | EventKind::Breakpoint { modifiers: own, .. } => {
                    *own = own.and(modifiers);
                }
                EventKind::Tracepoint { .. } | EventKind::Probe(_) if modifiers.is_empty() => {}
                EventKind::Tracepoint { .. } | EventKind::Probe(_) => {
                    let (selector, modifiers) = (event.selector.clone(), modifiers.to_string());
                    return Err(SpecError::GroupModifiers { selector, modifiers });
                }
            }
        }
        Ok(())
    }

    fn modifiers(&self) -> Result<(Sampled, Modifiers), SpecError> {
        let Some(letters) = self.letters else { return Ok((Sampled::Each, Modifiers::default())) };
        let others = letters.replace('S', "");
        let sampled = if others.len() < letters.len() { Sampled::Leader } else { Sampled::Each };
        match Modifiers::parse(&others) {
            Some(modifiers) => Ok((sampled, modifiers)),
            None if others.is_empty() && sampled == Sampled::Leader => Ok((sampled, Modifiers::default())),
            None => {
                let (group, behind) = (format!("{{{}}}", self.inner), format!(":{letters}"));
                Err(SpecError::BehindGroup { group, behind })
            }
        }
    }
}

/// An attribute that says how the event is sampled.
fn only_of_sampled(event: &EventSpec) -> Option<&'static str> {
    let attrs = &event.attrs;
    attrs.of_sources().or_else(|| (attrs.stack == Stack::On).then_some("stack"))
}

impl Modifiers {
    /// These and those of the group. How precise it is says the event first.
    fn and(self, group: Modifiers) -> Modifiers {
        Modifiers {
            user: self.user || group.user,
            kernel: self.kernel || group.kernel,
            hv: self.hv || group.hv,
            guest: self.guest || group.guest,
            host: self.host || group.host,
            not_idle: self.not_idle || group.not_idle,
            precise: if self.precise == Precise::Any { group.precise } else { self.precise },
        }
    }
}

//! Groups of events, `{a,b}` and `{a,b}:S`. Finds the start and the end of each group in a list, and the role of each
//! event in its group.

use super::{
    attrs::Stack,
    error::{Bracket, SpanSyntaxError, SpecError},
    event::{EventKind, EventSpec},
    modifiers::{Modifiers, Precise},
    parse::find,
};

/// An event's role in a group. The kernel schedules a group as one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// The event is in no group.
    #[default]
    Alone,
    /// The first event of its group.
    Leader(Sampled),
    /// An event after the first event of its group. The leader of the group is the nearest leader before this event in
    /// the list.
    Member(Sampled),
}

/// Which events of a group are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// Each event is sampled.
    Each,
    /// Only the leader is sampled. The leader's samples contain the counts of all events of the group (`:S`).
    Leader,
}

impl Grouping {
    /// Returns the role of the next event that has the same selector. (A selector with wildcards can stand for several
    /// events.)
    pub fn next_role(self) -> Grouping {
        match self {
            Grouping::Leader(sampled) => Grouping::Member(sampled),
            other => other,
        }
    }

    /// Returns whether the event is turned on and off with its leader.
    pub fn is_member(self) -> bool {
        matches!(self, Grouping::Member(_))
    }

    /// Returns whether the samples of the group's leader hold the counts of all events of the group.
    pub fn is_read_by_leader(self) -> bool {
        matches!(self, Grouping::Leader(Sampled::Leader) | Grouping::Member(Sampled::Leader))
    }
}

/// A group at the start of a list.
pub(super) struct GroupText<'a> {
    /// The text of the whole group, for messages.
    pub text: &'a str,
    /// The text between the braces.
    pub inner: &'a str,
    /// The letters after the closing brace and the colon.
    pub letters: Option<&'a str>,
    /// The text after the group: empty, or a comma and more selectors.
    pub after: &'a str,
}

impl<'a> GroupText<'a> {
    /// Parses the group at the start of `text`. Returns `None` if `text` does not start with a group.
    pub fn parse(text: &'a str) -> Result<Option<Self>, SpecError> {
        let Some(opened) = text.strip_prefix('{') else { return Ok(None) };
        let unclosed = |bracket| SpecError::Unclosed { bracket, text: text.to_owned() };
        // A section may contain braces (`CPUS{0,2}`). After the `}` of a section, more text of the section follows.
        // After the `}` of the group, a comma, a colon or the end of the list follows.
        let (mut from, mut wrong) = (0, None);
        let end = loop {
            let Some(end) = find(opened, from, &['}']).map_err(unclosed)? else {
                return Err(wrong.unwrap_or_else(|| unclosed(Bracket::Brace)));
            };
            let behind = opened[end + 1..].trim_start();
            if behind.is_empty() || behind.starts_with([',', ':']) {
                break end;
            }
            wrong = Some(SpecError::AfterGroup { group: text[..end + 2].to_owned(), behind: behind.to_owned() });
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
        Ok(Some(GroupText { text: text[..text.len() - after.len()].trim_end(), inner, letters, after }))
    }

    /// Makes `events` a group: sets their roles and adds the group's modifiers to them.
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
                EventKind::Span(_) => {
                    let error = SpanSyntaxError::InGroup;
                    return Err(SpecError::Span { selector: event.selector.clone(), error });
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
                Err(SpecError::AfterGroup { group, behind })
            }
        }
    }
}

/// If the event has an attribute for sampling, returns the name of this attribute.
fn only_of_sampled(event: &EventSpec) -> Option<&'static str> {
    let attrs = &event.attrs;
    attrs.non_tracepoint_attribute().or_else(|| (attrs.stack == Stack::On).then_some("stack"))
}

impl Modifiers {
    /// Returns these modifiers combined with the modifiers of the group. If both have a precision, the precision of the
    /// event is used.
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

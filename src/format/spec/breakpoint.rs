//! Breakpoints: `mem:ADDR[/LEN][:rwx]`. A breakpoint watches an address in memory.

use std::fmt;

use super::{error::SpecError, modifiers::Modifiers, terms::number};

/// A breakpoint, as a `mem:` selector requests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breakpoint {
    /// The address that is watched.
    pub addr: u64,
    /// The length of the watched memory in bytes. If the length is `None`, it depends on the kind of access.
    pub len: Option<u8>,
    /// The accesses that are watched.
    pub access: Access,
}

/// Kinds of memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// `r`: reads.
    pub read: bool,
    /// `w`: writes.
    pub write: bool,
    /// `x`: executed instructions.
    pub execute: bool,
}

/// The start of a breakpoint's selector.
const PREFIX: &str = "mem:";

/// Parses a breakpoint at the start of `text`. The `/` in `mem:ADDR/LEN` does not start a section. Returns the
/// breakpoint, its modifiers, and the offset of the text after the modifiers. Returns `None` if `text` does not start
/// with `mem:`.
pub(super) fn parse(text: &str) -> Result<Option<(Breakpoint, Modifiers, usize)>, SpecError> {
    let Some(rest) = text.strip_prefix(PREFIX) else { return Ok(None) };
    let word = |text: &str| text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let end = word(rest);
    let wrong = || SpecError::Breakpoint { selector: text[..PREFIX.len() + end].to_owned() };
    let addr = number(&rest[..end]).ok_or_else(wrong)?;
    let mut at = PREFIX.len() + end;
    let mut len = None;
    if let Some(after) = text[at..].strip_prefix('/') {
        let digits = word(after);
        if digits > 0 {
            let bytes = after[..digits].parse().ok().filter(|bytes| [1, 2, 4, 8].contains(bytes));
            let wrong = || SpecError::Breakpoint { selector: text[..at + 1 + digits].to_owned() };
            len = Some(bytes.ok_or_else(wrong)?);
            at += 1 + digits;
        }
    }
    let (mut access, mut modifiers) = (None, Modifiers::default());
    while let Some(after) = text[at..].strip_prefix(':') {
        let letters = &after[..word(after)];
        let wrong = || SpecError::Breakpoint { selector: text[..at + 1 + letters.len()].to_owned() };
        match access {
            None if modifiers.is_empty() && letters.chars().all(|c| "rwx".contains(c)) && !letters.is_empty() => {
                let has = |letter| letters.contains(letter);
                access = Some(Access { read: has('r'), write: has('w'), execute: has('x') });
            }
            _ if modifiers.is_empty() => modifiers = Modifiers::parse(letters).ok_or_else(wrong)?,
            _ => return Err(wrong()),
        }
        at += 1 + letters.len();
    }
    // Without access letters, reads and writes are watched, as in perf.
    let access = access.unwrap_or(Access { read: true, write: true, execute: false });
    Ok(Some((Breakpoint { addr, len, access }, modifiers, at)))
}

/// Parses `ADDR[/LEN][:rwx]`, a breakpoint without `mem:` and without modifiers. Returns `None` for any other text.
pub fn breakpoint_at(text: &str) -> Option<Breakpoint> {
    let selector = format!("{PREFIX}{text}");
    let (breakpoint, modifiers, end) = parse(&selector).ok()??;
    (modifiers.is_empty() && end == selector.len()).then_some(breakpoint)
}

impl fmt::Display for Breakpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Breakpoint { addr, len, access: Access { read, write, execute } } = self;
        write!(f, "{PREFIX}{addr:#x}")?;
        len.iter().try_for_each(|len| write!(f, "/{len}"))?;
        f.write_str(":")?;
        let letters = [(read, "r"), (write, "w"), (execute, "x")];
        letters.into_iter().filter(|&(on, _)| *on).try_for_each(|(_, letter)| f.write_str(letter))
    }
}

//! `mem:ADDR[/LEN][:rwx]`, a place in memory that is watched. Knows nothing of what lies there.

use std::fmt;

use super::{error::SpecError, modifiers::Modifiers, terms::number};

/// What `mem:` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breakpoint {
    /// The address.
    pub addr: u64,
    /// How many bytes; `None` leaves it to the kind of access.
    pub len: Option<u8>,
    /// The accesses it stops at.
    pub access: Access,
}

/// Accesses of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// `r`.
    pub read: bool,
    /// `w`.
    pub write: bool,
    /// `x`.
    pub execute: bool,
}

/// What it begins with.
const PREFIX: &str = "mem:";

/// Takes `mem:...` at the beginning of `text`, in which its own `/LEN` is no section; gives the place behind it.
pub(super) fn take(text: &str) -> Result<Option<(Breakpoint, Modifiers, usize)>, SpecError> {
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
    // As perf: what is read and written, unless it says otherwise.
    let access = access.unwrap_or(Access { read: true, write: true, execute: false });
    Ok(Some((Breakpoint { addr, len, access }, modifiers, at)))
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

//! Glob patterns that compile to code without loops: `text*`, `*text` and `*text*`.

use super::text::jump_unless_bytes;
use crate::instruction::{Code, Condition, Label, Place, Register, Size};

/// A pattern. Each variant contains the text without its `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Glob {
    /// `text*`
    Prefix(Vec<u8>),
    /// `*text`
    Suffix(Vec<u8>),
    /// `*text*`
    Part(Vec<u8>),
}

impl Glob {
    /// Parses a pattern. Returns `None` if it has none of the three forms.
    pub fn parse(pattern: &str) -> Option<Glob> {
        let is_plain = |text: &str| text.is_ascii() && !text.contains(['*', '?', '[', '\0']);
        let (before, after) = (pattern.strip_prefix('*'), pattern.strip_suffix('*'));
        let (text, of): (&str, fn(Vec<u8>) -> Glob) = match (before, after) {
            (Some(rest), Some(_)) => (rest.strip_suffix('*').unwrap_or(rest), Glob::Part),
            (Some(rest), None) => (rest, Glob::Suffix),
            (None, Some(rest)) => (rest, Glob::Prefix),
            (None, None) => return None,
        };
        is_plain(text).then(|| of(text.as_bytes().to_vec()))
    }

    /// Writes code that jumps to `to` unless the text in the array matches. The text ends at its first NUL, or at the end of
    /// the array.
    pub(super) fn jump_unless(&self, code: &mut Code, (array, size): (Place, usize), to: Label) {
        match self {
            Glob::Prefix(text) if text.len() <= size => jump_unless_bytes(code, array, text, to),
            Glob::Suffix(text) | Glob::Part(text) if text.len() <= size => {
                self.search(code, text, (array, size), to);
            }
            Glob::Prefix(_) | Glob::Suffix(_) | Glob::Part(_) => code.jump(to),
        }
    }

    /// Writes code that compares the pattern's text with the array at each offset.
    fn search(&self, code: &mut Code, text: &[u8], (array, size): (Place, usize), fails: Label) {
        let found = code.label();
        for at in 0..=size - text.len() {
            let next = code.label();
            jump_unless_bytes(code, array.after(at), text, next);
            let end = at + text.len();
            if matches!(self, Glob::Suffix(_)) && end < size {
                code.load(Size::Byte, Register::R1, array.after(end));
                code.jump_if(Condition::Equal, Register::R1, 0, found);
            } else {
                code.jump(found);
            }
            code.here(next);
            if end < size {
                code.load(Size::Byte, Register::R1, array.after(at));
                code.jump_if(Condition::Equal, Register::R1, 0, fails);
            }
        }
        code.jump(fails);
        code.here(found);
    }
}

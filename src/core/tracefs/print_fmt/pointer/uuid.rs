//! `%pUb`, `%pUB`, `%pUl` and `%pUL`: UUIDs (big-endian, the default) and GUIDs (little-endian).

use std::io::Write;

/// The notation of the sixteen bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uuid {
    little: bool,
    upper: bool,
}

impl Uuid {
    pub fn named(rest: &[u8]) -> Self {
        Self { little: matches!(rest.first(), Some(b'l' | b'L')), upper: matches!(rest.first(), Some(b'L' | b'B')) }
    }

    pub fn show(self, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut uuid: [u8; 16] = *bytes.first_chunk()?;
        if self.little {
            uuid[..4].reverse();
            uuid[4..6].reverse();
            uuid[6..8].reverse();
        }
        for (i, byte) in uuid.into_iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            // Writing to a Vec cannot fail.
            let _ = if self.upper { write!(out, "{dash}{byte:02X}") } else { write!(out, "{dash}{byte:02x}") };
        }
        Some(())
    }
}

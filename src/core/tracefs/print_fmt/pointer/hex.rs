//! `%*ph`: bytes in hexadecimal.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The character between two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    Space,
    Colon,
    Dash,
    None,
}

impl Separator {
    pub fn named(rest: &[u8]) -> Self {
        match rest.first() {
            Some(b'C') => Separator::Colon,
            Some(b'D') => Separator::Dash,
            Some(b'N') => Separator::None,
            _ => Separator::Space,
        }
    }

    fn bytes(self) -> &'static [u8] {
        match self {
            Separator::Space => b" ",
            Separator::Colon => b":",
            Separator::Dash => b"-",
            Separator::None => b"",
        }
    }
}

/// Appends `bytes` with `separator` between them.
pub(crate) fn hex(bytes: &[u8], separator: Separator, out: &mut Vec<u8>) {
    for (i, byte) in bytes.iter().enumerate() {
        if i > 0 {
            out.extend(separator.bytes());
        }
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

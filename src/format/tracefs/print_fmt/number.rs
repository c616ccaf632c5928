//! Formats numbers by the rules of `number` in the kernel's `lib/vsprintf.c`. Does not know about print formats.
//!
//! The rules differ from those of C: `%#x` of 0 is `0x0`, a precision does not disable zero padding, and the number 0
//! with a precision of 0 is printed as `0`.

use super::spec::{Base, Flags};

/// The layout of a number. A width or precision of `*` has already been replaced by its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub flags: Flags,
    pub width: i32,
    pub precision: i32,
    pub base: Base,
    pub signed: bool,
}

impl Layout {
    /// Returns a layout in `base` without flags.
    pub fn plain(base: Base) -> Self {
        Self { flags: Flags::default(), width: 0, precision: 0, base, signed: false }
    }

    /// Returns a hexadecimal layout that is padded with zeros to `width`.
    pub fn hex(width: i32) -> Self {
        Self { flags: Flags { zero: true, ..Flags::default() }, width, ..Self::plain(Base::Hex) }
    }
}

/// Appends `value` in this layout.
pub(super) fn number(layout: Layout, value: u64, out: &mut Vec<u8>) {
    let Layout { mut flags, mut width, mut precision, base, signed } = layout;
    if flags.left {
        flags.zero = false;
    }
    let negative = signed && (value as i64) < 0;
    let magnitude = if negative { value.wrapping_neg() } else { value };
    let sign = match (signed, negative) {
        (true, true) => Some(b'-'),
        (true, false) if flags.plus => Some(b'+'),
        (true, false) if flags.space => Some(b' '),
        _ => None,
    };
    width -= i32::from(sign.is_some());
    let prefix: &[u8] = match base {
        Base::Hex if flags.special => b"0x",
        Base::UpperHex if flags.special => b"0X",
        Base::Octal if flags.special && value != 0 => b"0",
        _ => b"",
    };
    width -= prefix.len() as i32;

    let mut digits = [0; 24];
    let digits = digits_of(magnitude, base, &mut digits);
    precision = precision.max(digits.len() as i32);
    width -= precision;
    if !flags.zero && !flags.left {
        pad(out, b' ', width);
    }
    out.extend(sign);
    out.extend(prefix);
    if flags.zero {
        pad(out, b'0', width);
    }
    pad(out, b'0', precision - digits.len() as i32);
    out.extend(digits);
    if flags.left {
        pad(out, b' ', width);
    }
}

/// Appends `byte` `count` times; appends nothing if `count` is negative.
pub(super) fn pad(out: &mut Vec<u8>, byte: u8, count: i32) {
    out.resize(out.len() + usize::try_from(count).unwrap_or(0), byte);
}

fn digits_of(mut value: u64, base: Base, room: &mut [u8; 24]) -> &[u8] {
    let (radix, letters) = match base {
        Base::Octal => (8, b"0123456789abcdef"),
        Base::Decimal => (10, b"0123456789abcdef"),
        Base::Hex => (16, b"0123456789abcdef"),
        Base::UpperHex => (16, b"0123456789ABCDEF"),
    };
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = letters[(value % radix) as usize];
        value /= radix;
        if value == 0 {
            return &room[at..];
        }
    }
}

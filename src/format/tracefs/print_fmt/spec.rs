//! Splits a printf format string into literals and conversions. The rules are the same as in `format_decode` in the
//! kernel's `lib/vsprintf.c`. Does not know about arguments.

use super::{PrintFmtError, ctype::IntType, pointer::Pointer};

/// The largest width, in bytes. A line of the kernel's own text ends at 8 KiB (`TRACE_SEQ_BUFFER_SIZE`).
const MAX_WIDTH: i32 = 8192;

/// A width or a precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// The conversion has no width or precision.
    None,
    /// A number in the format.
    Fixed(i32),
    /// `*`: the next argument is the width or precision.
    Argument,
}

/// The kind of value that a conversion shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int { ty: IntType, base: Base },
    Char,
    Text,
    Pointer(Pointer),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Octal,
    Decimal,
    Hex,
    UpperHex,
}

/// The flags of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// `-`
    pub left: bool,
    /// `+`
    pub plus: bool,
    /// A space.
    pub space: bool,
    /// `#`
    pub special: bool,
    /// `0`
    pub zero: bool,
}

/// A conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub flags: Flags,
    pub width: Size,
    pub precision: Size,
    pub kind: Kind,
}

/// A part of a format string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Literal(Box<[u8]>),
    Conversion(Spec),
}

/// Limits a width to the range from `-MAX_WIDTH` to `MAX_WIDTH`.
pub(super) fn capped(width: i32) -> i32 {
    width.clamp(-MAX_WIDTH, MAX_WIDTH)
}

/// Splits a format string into its parts.
pub(super) fn parts(format: &[u8]) -> Result<Vec<Part>, PrintFmtError> {
    let mut parts = Vec::new();
    let mut literal = Vec::new();
    let mut cursor = Cursor { bytes: format, at: 0 };
    while let Some(byte) = cursor.next() {
        if byte != b'%' {
            literal.push(byte);
            continue;
        }
        let start = cursor.at - 1;
        match cursor.conversion() {
            Some(None) => literal.push(b'%'),
            Some(Some(spec)) => {
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal).into()));
                }
                parts.push(Part::Conversion(spec));
            }
            None => {
                let conversion = String::from_utf8_lossy(&format[start..cursor.at]).into_owned();
                return Err(PrintFmtError::UnknownConversion { conversion });
            }
        }
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal.into()));
    }
    Ok(parts)
}

struct Cursor<'f> {
    bytes: &'f [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn accept(&mut self, byte: u8) -> bool {
        let here = self.peek() == Some(byte);
        self.at += usize::from(here);
        here
    }

    fn digits(&mut self) -> Option<i32> {
        let mut value = None;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            value = Some(capped(value.unwrap_or(0i32).saturating_mul(10).saturating_add(i32::from(digit - b'0'))));
            self.at += 1;
        }
        value
    }

    fn size(&mut self) -> Size {
        if self.accept(b'*') {
            return Size::Argument;
        }
        self.digits().map_or(Size::None, Size::Fixed)
    }

    /// Parses the text after a `%`. Returns the conversion, or an inner `None` if the text is `%%`. Returns an outer
    /// `None` if the kernel has no such conversion.
    fn conversion(&mut self) -> Option<Option<Spec>> {
        let mut flags = Flags::default();
        loop {
            match self.peek()? {
                b'-' => flags.left = true,
                b'+' => flags.plus = true,
                b' ' => flags.space = true,
                b'#' => flags.special = true,
                b'0' => flags.zero = true,
                _ => break,
            }
            self.at += 1;
        }
        let width = self.size();
        let precision = if self.accept(b'.') {
            match self.size() {
                Size::None => Size::Fixed(0),
                size => size,
            }
        } else {
            Size::None
        };
        let width_of_int = self.qualifier();
        let int = |signed, base| Kind::Int { ty: IntType::new(width_of_int, signed), base };
        let kind = match self.next()? {
            b'%' => return Some(None),
            b'd' | b'i' => int(true, Base::Decimal),
            b'u' => int(false, Base::Decimal),
            b'x' => int(false, Base::Hex),
            b'X' => int(false, Base::UpperHex),
            b'o' => int(false, Base::Octal),
            b'c' => Kind::Char,
            b's' => Kind::Text,
            b'p' => {
                // The kernel treats all letters and digits after `%p` as part of the conversion (`pointer` in
                // lib/vsprintf.c).
                let rest = &self.bytes[self.at..];
                let len = rest.iter().position(|b| !b.is_ascii_alphanumeric()).unwrap_or(rest.len());
                self.at += len;
                Kind::Pointer(Pointer::named(&rest[..len]))
            }
            _ => return None,
        };
        Some(Some(Spec { flags, width, precision, kind }))
    }

    /// Reads a length modifier, if there is one. Returns the integer's size in bytes.
    fn qualifier(&mut self) -> u8 {
        match self.peek() {
            Some(b'h') => {
                self.at += 1;
                if self.accept(b'h') { 1 } else { 2 }
            }
            Some(b'l') => {
                self.at += 1;
                self.accept(b'l');
                8
            }
            Some(b'L' | b'q' | b'z' | b'Z' | b't' | b'j') => {
                self.at += 1;
                8
            }
            _ => 4,
        }
    }
}

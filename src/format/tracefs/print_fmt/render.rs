//! Writes the text of an event. The input is the compiled print format; this module does not know its text. The rules
//! are the same as in `vsnprintf` in the kernel's `lib/vsprintf.c`.

use super::{
    Conversion, Piece, PrintFmt,
    ctype::IntType,
    expr::{Context, Expr},
    number::{Layout, number, pad},
    pointer::{Pointer, symbol},
    spec::{Base, Flags, Kind, Size, capped},
};

/// The maximum length of an event's text in bytes. The kernel's own text ends at 8 KiB.
pub(super) const MAX_TEXT: usize = 64 * 1024;

/// The text that is shown instead of a value that is not known.
const UNKNOWN: &[u8] = b"?";

/// The text that is shown instead of an unknown number in the record of a span (`FieldKind::NumberIfKnown`).
const NO_NUMBER: &[u8] = b"-";

impl PrintFmt {
    /// Appends the text of an event.
    pub(super) fn render(&self, cx: Context<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(literal) => out.extend(literal),
                Piece::Conversion(conversion) => conversion.render(cx, out),
            }
            if out.len() - start > MAX_TEXT {
                out.truncate(start + MAX_TEXT);
                return;
            }
        }
    }
}

impl Conversion {
    /// Appends the value's text. If the value is not known, appends `-` for a number of a span that may be unknown, and
    /// `?` for all other values.
    pub(super) fn render(&self, cx: Context<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        if self.try_render(cx, out).is_none() {
            out.truncate(start);
            out.extend(if matches!(self.value, Expr::LoadIfKnown(_)) { NO_NUMBER } else { UNKNOWN });
        }
    }

    /// Returns whether the conversion shows a field as something other than a plain number.
    pub(super) fn is_more_than_number(&self) -> bool {
        match self.spec.kind {
            Kind::Text => true,
            Kind::Pointer(Pointer::Address) => matches!(self.value, Expr::Load { .. }),
            Kind::Pointer(_) => true,
            Kind::Int { .. } | Kind::Char => false,
        }
    }

    fn try_render(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        let width = size(self.spec.width, &self.width, cx)?;
        let precision = size(self.spec.precision, &self.precision, cx)?;
        let mut flags = self.spec.flags;
        // A negative width means left-aligned.
        flags.left |= width.is_some_and(|width| width < 0);
        let columns = width.unwrap_or(0).abs();
        let start = out.len();
        match self.spec.kind {
            Kind::Int { ty, base } => {
                let precision = precision.unwrap_or(0).max(0);
                let layout = Layout { flags, width: columns, precision, base, signed: ty.signed };
                number(layout, ty.wrap(self.value.int(cx)?), out);
            }
            Kind::Char => {
                out.push(self.value.int(cx)? as u8);
                align(out, start, flags, columns);
            }
            Kind::Text => {
                self.value.text(cx, out)?;
                if let Some(precision) = precision {
                    out.truncate(start + (out.len() - start).min(precision.max(0) as usize));
                }
                align(out, start, flags, columns);
            }
            Kind::Pointer(Pointer::Address) => {
                let addr = self.value.int(cx)?;
                let layout = match width {
                    None => Layout::hex(16),
                    Some(_) => Layout { flags, width: columns, ..Layout::plain(Base::Hex) },
                };
                number(layout, addr, out);
            }
            Kind::Pointer(Pointer::Symbol(style)) => {
                symbol(self.value.int(cx)?, style, cx.kernel, out);
                align(out, start, flags, columns);
            }
            Kind::Pointer(pointer) => {
                match self.value.bytes(cx) {
                    Some(bytes) => pointer.show(bytes, width, out)?,
                    None if self.value.int(cx)? == 0 => out.extend(b"(null)"),
                    None => return None,
                }
                let counts = matches!(pointer, Pointer::Hex(_) | Pointer::Bitmap | Pointer::BitmapList);
                align(out, start, flags, if counts { 0 } else { columns });
            }
        }
        Some(())
    }
}

/// Returns the value of a width or a precision. An inner `None` means that the conversion has no width or precision.
/// The outer `None` means that an argument gives the width or precision, and that the value of this argument is not
/// known.
fn size(size: Size, argument: &Option<Expr>, cx: Context<'_>) -> Option<Option<i32>> {
    Some(match size {
        Size::None => None,
        Size::Fixed(fixed) => Some(fixed),
        Size::Argument => Some(capped(IntType::INT.wrap(argument.as_ref()?.int(cx)?) as i32)),
    })
}

/// Pads the text that was appended since `start` with spaces, up to `columns` bytes.
fn align(out: &mut Vec<u8>, start: usize, flags: Flags, columns: i32) {
    let missing = columns - (out.len() - start).min(i32::MAX as usize) as i32;
    if missing <= 0 {
        return;
    }
    pad(out, b' ', missing);
    if !flags.left {
        out[start..].rotate_right(missing as usize);
    }
}

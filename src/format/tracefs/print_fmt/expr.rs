//! A compiled expression and its evaluation for one event. Does not know the text of the print format.

use super::{
    PrintFmt,
    ctype::{BinaryOp, IntType},
    functions::Function,
};
use crate::tracefs::{
    BitField, Kernel, UNKNOWN_NUMBER,
    field::{Extent, up_to_nul},
};

/// The input of an evaluation: the event's raw data and the kernel's facts.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub raw: &'a [u8],
    pub kernel: &'a dyn Kernel,
}

/// The size of the object that a pointer points to: a number of bytes, or the size of a type that the kernel knows.
#[derive(Clone, Debug)]
pub(super) enum Scale {
    Bytes(u64),
    Type(Box<str>),
}

/// An expression in which all names and types are resolved.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Int(u64),
    Text(Box<[u8]>),
    Load {
        offset: usize,
        ty: IntType,
    },
    /// The number of a [`FieldKind::NumberIfKnown`] at this offset.
    LoadIfKnown(usize),
    Data(Extent),
    DataLen(Extent),
    /// An enumerator or a variable of the kernel.
    Name(Box<str>),
    SizeOf(Scale),
    Wrap(IntType, Box<Expr>),
    Not(Box<Expr>),
    Binary(BinaryOp, IntType, Box<[Expr; 2]>),
    And(Box<[Expr; 2]>),
    Or(Box<[Expr; 2]>),
    Cond(Box<[Expr; 3]>),
    /// `base[index]`
    Element {
        base: Box<Expr>,
        index: Box<Expr>,
        ty: IntType,
    },
    /// `base + by`, where `base` is a pointer.
    Offset {
        base: Box<Expr>,
        by: Box<Expr>,
        scale: Scale,
    },
    /// An element of an array that is written in the print format itself. The elements are expressions.
    Choice {
        elements: Box<[Expr]>,
        index: Box<Expr>,
    },
    /// A member of a struct or union. All bits of the struct or union are stored in one integer.
    Member {
        value: Box<Expr>,
        tag: Box<str>,
        member: Box<str>,
    },
    JiffiesToMsecs(Box<Expr>),
    Swapped(u8, Box<Expr>),
    Function(Box<Function>),
    /// The text that calls of `trace_seq_printf` in a block print.
    Printed(Box<[PrintFmt]>),
}

impl Expr {
    /// Returns the value as a number, or `None` if it is not known or not a number.
    pub fn int(&self, cx: Context<'_>) -> Option<u64> {
        Some(match self {
            Expr::Int(value) => *value,
            Expr::Load { offset, ty } => ty.load(cx.raw, *offset)?,
            Expr::LoadIfKnown(offset) => {
                IntType::ULONG.load(cx.raw, *offset).filter(|number| *number != UNKNOWN_NUMBER)?
            }
            Expr::DataLen(extent) => extent.len(cx.raw)?,
            Expr::Name(name) => match cx.kernel.constant(name) {
                Some(constant) => constant as u64,
                None => cx.kernel.variable(name)?,
            },
            Expr::SizeOf(scale) => scale.size(cx)?,
            Expr::Wrap(ty, value) => ty.wrap(value.int(cx)?),
            Expr::Not(value) => (!value.truth(cx)?).into(),
            Expr::Binary(op, ty, operands) => {
                let [a, b] = &**operands;
                // In C, the shift count keeps its own type. Here, the count is converted to the type of the value. This
                // changes nothing, because only the low bits of the count are used.
                op.apply(*ty, ty.wrap(a.int(cx)?), ty.wrap(b.int(cx)?))?
            }
            Expr::And(operands) => (operands[0].truth(cx)? && operands[1].truth(cx)?).into(),
            Expr::Or(operands) => (operands[0].truth(cx)? || operands[1].truth(cx)?).into(),
            Expr::Cond(_) => self.chosen(cx)?.int(cx)?,
            Expr::Choice { .. } => self.chosen(cx)?.int(cx)?,
            Expr::Element { base, index, ty } => {
                let at = usize::try_from(index.int(cx)?).ok()?.checked_mul(ty.width.into())?;
                let mut text = Vec::new();
                let bytes = match base.bytes(cx) {
                    Some(bytes) => bytes,
                    None => {
                        base.text(cx, &mut text);
                        text.push(0);
                        &text
                    }
                };
                ty.load(bytes, at)?
            }
            Expr::Offset { base, by, scale } => base.int(cx)?.wrapping_add(by.int(cx)?.wrapping_mul(scale.size(cx)?)),
            Expr::Member { value, tag, member } => {
                let BitField { offset, size } = cx.kernel.member(tag, member)?;
                let value = value.int(cx)?.checked_shr(offset)?;
                if size == 0 || size > 63 { value } else { value & ((1 << size) - 1) }
            }
            Expr::JiffiesToMsecs(value) => {
                let (jiffies, hz) = (value.int(cx)?, u64::from(cx.kernel.hz()?));
                // This is `jiffies_to_msecs` in kernel/time/time.c. If 1000 is not a multiple of CONFIG_HZ, the kernel
                // rounds in another way.
                IntType::UINT.wrap(if hz != 0 && 1000 % hz == 0 {
                    jiffies.wrapping_mul(1000 / hz)
                } else {
                    (u128::from(jiffies) * 1000).checked_div(hz.into())? as u64
                })
            }
            Expr::Swapped(width, value) => value.int(cx)?.swap_bytes() >> (64 - 8 * u32::from(*width)),
            Expr::Text(_) | Expr::Data(_) | Expr::Function(_) | Expr::Printed(_) => return None,
        })
    }

    /// Returns whether the value is not zero. A pointer into the event is never zero.
    fn truth(&self, cx: Context<'_>) -> Option<bool> {
        match self {
            Expr::Text(_) | Expr::Data(_) | Expr::Function(_) | Expr::Printed(_) => Some(true),
            Expr::Cond(_) | Expr::Choice { .. } => self.chosen(cx)?.truth(cx),
            _ => Some(self.int(cx)? != 0),
        }
    }

    /// Returns the branch that the condition selects, or the element that the index selects.
    fn chosen(&self, cx: Context<'_>) -> Option<&Expr> {
        match self {
            Expr::Cond(parts) => {
                let [cond, yes, no] = &**parts;
                Some(if cond.truth(cx)? { yes } else { no })
            }
            Expr::Choice { elements, index } => elements.get(usize::try_from(index.int(cx)?).ok()?),
            _ => None,
        }
    }

    /// Returns the bytes that the expression points to, if they are in the event or in the print format. Otherwise
    /// returns `None`.
    pub fn bytes<'a>(&'a self, cx: Context<'a>) -> Option<&'a [u8]> {
        match self {
            Expr::Text(text) => Some(text),
            Expr::Data(extent) => extent.bytes(cx.raw),
            Expr::Offset { base, by, scale } => {
                let by = usize::try_from(by.int(cx)?.checked_mul(scale.size(cx)?)?).ok()?;
                base.bytes(cx)?.get(by..)
            }
            Expr::Cond(_) | Expr::Choice { .. } => self.chosen(cx)?.bytes(cx),
            _ => None,
        }
    }

    /// Appends the text that `%s` shows for the value. Returns `None` if the text is not known.
    pub fn text(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        match self {
            Expr::Function(function) => function.show(cx, out),
            Expr::Cond(_) | Expr::Choice { .. } => self.chosen(cx)?.text(cx, out),
            Expr::Printed(printed) => {
                let start = out.len();
                printed.iter().for_each(|print_fmt| print_fmt.render(cx, out));
                let len = up_to_nul(&out[start..]).len();
                out.truncate(start + len);
                Some(())
            }
            _ => {
                if let Some(bytes) = self.bytes(cx) {
                    out.extend(up_to_nul(bytes));
                    return Some(());
                }
                match self.int(cx)? {
                    0 => out.extend(b"(null)"),
                    // Values that cannot be an address are not dereferenced, as in `check_pointer_msg` in
                    // lib/vsprintf.c.
                    1..4096 | 0xffff_ffff_ffff_f001.. => out.extend(b"(efault)"),
                    addr => match cx.kernel.string(addr) {
                        Some(string) => out.extend(string),
                        None => out.extend(format!("{addr:#x}").as_bytes()),
                    },
                }
                Some(())
            }
        }
    }

    /// Returns whether the value is text and not a number.
    pub fn is_text(&self) -> bool {
        match self {
            Expr::Text(_) | Expr::Data(_) | Expr::Function(_) | Expr::Printed(_) => true,
            Expr::Cond(parts) => parts[1].is_text() || parts[2].is_text(),
            Expr::Choice { elements, .. } => elements.iter().any(Expr::is_text),
            _ => false,
        }
    }
}

impl Scale {
    fn size(&self, cx: Context<'_>) -> Option<u64> {
        match self {
            Scale::Bytes(bytes) => Some(*bytes),
            Scale::Type(name) => cx.kernel.size_of(name),
        }
    }
}

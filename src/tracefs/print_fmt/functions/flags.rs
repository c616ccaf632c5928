//! `__print_flags`: the names of the bits that are set (`trace_print_flags_seq`).

use std::io::Write;

use super::{Context, Expr, Names};

#[derive(Clone, Debug)]
pub(in super::super) struct Flags {
    pub value: Expr,
    pub delimiter: Expr,
    pub names: Names,
}

impl Flags {
    pub fn show(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        let mut left = self.value.int(cx)?;
        let mut first = true;
        let mut delimit = |out: &mut Vec<u8>| {
            if !std::mem::take(&mut first) && !matches!(self.delimiter, Expr::Int(0)) {
                self.delimiter.text(cx, out)?;
            }
            Some(())
        };
        for (mask, name) in &self.names.0 {
            if left == 0 {
                break;
            }
            // A mask whose value is not known may be any of the bits.
            let mask = mask.int(cx)?;
            if left & mask == mask {
                left &= !mask;
                delimit(out)?;
                name.text(cx, out)?;
            }
        }
        if left != 0 {
            delimit(out)?;
            // Writing to a Vec cannot fail.
            let _ = write!(out, "{left:#x}");
        }
        Some(())
    }
}

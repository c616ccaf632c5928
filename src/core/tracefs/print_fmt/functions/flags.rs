//! `__print_flags`: the names of the bits that are set, as `trace_print_flags_seq` prints them.

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
            // If the value of a mask is not known, any bit could be in the mask. So the whole text is not known.
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

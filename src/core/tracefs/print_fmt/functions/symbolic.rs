//! `__print_symbolic`: the name of a value, as `trace_print_symbols_seq` prints it.

use std::io::Write;

use super::{Context, Expr, Names};

#[derive(Clone, Debug)]
pub(in super::super) struct Symbolic {
    pub value: Expr,
    pub names: Names,
}

impl Symbolic {
    pub fn show(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        let value = self.value.int(cx)?;
        let start = out.len();
        for (candidate, name) in &self.names.0 {
            if candidate.int(cx)? == value {
                name.text(cx, out)?;
                break;
            }
        }
        // The kernel prints the number if no name matches, and also if the matching name is empty.
        if out.len() == start {
            // Writing to a Vec cannot fail.
            let _ = write!(out, "{value:#x}");
        }
        Some(())
    }
}

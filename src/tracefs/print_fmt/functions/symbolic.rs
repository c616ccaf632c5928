//! `__print_symbolic`: the name of a value (`trace_print_symbols_seq`).

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
        // The kernel too takes an empty name for none.
        if out.len() == start {
            // Writing to a Vec cannot fail.
            let _ = write!(out, "{value:#x}");
        }
        Some(())
    }
}

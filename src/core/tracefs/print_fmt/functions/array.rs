//! `__print_array` and `__print_dynamic_array`: integers like `{0x1,0x2}`, as `trace_print_array_seq` prints them.

use std::io::Write;

use super::{Context, Expr};
use crate::tracefs::print_fmt::ctype::IntType;

#[derive(Clone, Debug)]
pub(in super::super) struct Array {
    pub array: Expr,
    /// The number of elements; all elements if it is `None`.
    pub count: Option<Expr>,
    pub size: Expr,
}

impl Array {
    pub fn show(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        let bytes = self.array.bytes(cx)?;
        let size = usize::try_from(self.size.int(cx)?).ok()?;
        let count = match &self.count {
            Some(count) => usize::try_from(IntType::INT.wrap(count.int(cx)?) as i64).unwrap_or(0),
            None => bytes.len().checked_div(size)?,
        };
        out.push(b'{');
        let stride = if matches!(size, 1 | 2 | 4 | 8) { size } else { 1 };
        for (i, element) in bytes.chunks_exact(stride).take(count).enumerate() {
            let comma = if i > 0 { "," } else { "" };
            let value = IntType::new(stride as u8, false).load(element, 0)?;
            // Writing to a Vec cannot fail.
            let _ = if stride == size {
                write!(out, "{comma}{value:#x}")
            } else {
                write!(out, "{comma}BAD SIZE:{size} {value:#x}")
            };
        }
        out.push(b'}');
        Some(())
    }
}

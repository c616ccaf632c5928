//! `__print_hex` and `__print_hex_str`: bytes in hexadecimal, as `trace_print_hex_seq` prints them.

use super::{Context, Expr};
use crate::tracefs::print_fmt::{
    ctype::IntType,
    pointer::{self, Separator},
};

#[derive(Clone, Debug)]
pub(in super::super) struct Hex {
    pub array: Expr,
    pub len: Expr,
    /// True if there are no spaces between the bytes.
    pub together: bool,
}

impl Hex {
    pub fn show(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        let bytes = self.array.bytes(cx)?;
        let len = usize::try_from(IntType::INT.wrap(self.len.int(cx)?) as i64).unwrap_or(0).min(bytes.len());
        pointer::hex(&bytes[..len], if self.together { Separator::None } else { Separator::Space }, out);
        Some(())
    }
}

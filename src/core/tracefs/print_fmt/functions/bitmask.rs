//! `__get_bitmask` and `__get_cpumask`: a bitmap in hexadecimal, as `trace_print_bitmask_seq` prints it.

use super::Context;
use crate::tracefs::{
    Extent,
    print_fmt::pointer::{BitmapStyle, bits},
};

#[derive(Clone, Debug)]
pub(in super::super) struct Bitmask {
    pub extent: Extent,
}

impl Bitmask {
    pub fn show(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        let bytes = self.extent.bytes(cx.raw)?;
        bits(bytes, bytes.len() * 8, BitmapStyle::Hex, out)
    }
}

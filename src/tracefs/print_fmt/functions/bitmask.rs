//! `__get_bitmask` and `__get_cpumask`: a bitmap in hexadecimal (`trace_print_bitmask_seq`).

use super::Context;
use crate::tracefs::{
    field::Extent,
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

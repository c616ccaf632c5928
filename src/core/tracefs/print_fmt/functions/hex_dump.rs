//! `__print_hex_dump`: rows of bytes in hexadecimal, as `trace_print_hex_dump_seq` and `hex_dump_to_buffer` print them.

use std::io::Write;

use super::{Context, Expr};
use crate::tracefs::print_fmt::{ctype::IntType, render::MAX_TEXT};

/// `DUMP_PREFIX_NONE` of `include/linux/printk.h`. The value 1, `DUMP_PREFIX_ADDRESS`, has no constant here.
const PREFIX_NONE: u64 = 0;
const PREFIX_OFFSET: u64 = 2;

#[derive(Clone, Debug)]
pub(in super::super) struct HexDump {
    pub prefix: Expr,
    pub kind: Expr,
    pub row: Expr,
    pub group: Expr,
    pub array: Expr,
    pub len: Expr,
    pub ascii: Expr,
}

impl HexDump {
    pub fn show(&self, cx: Context<'_>, out: &mut Vec<u8>) -> Option<()> {
        let bytes = self.array.bytes(cx)?;
        let len = usize::try_from(self.len.int(cx)?).ok()?.min(bytes.len());
        let row = if self.row.int(cx)? == 32 { 32 } else { 16 };
        let group = self.group.int(cx)? as usize;
        let (kind, ascii) = (self.kind.int(cx)?, self.ascii.int(cx)? != 0);
        let start = out.len();
        out.push(b'\n');
        for (i, bytes) in bytes[..len].chunks(row).enumerate() {
            if out.len() - start > MAX_TEXT {
                break;
            }
            self.prefix.text(cx, out)?;
            // Writing to a Vec cannot fail.
            match kind {
                PREFIX_NONE => {}
                PREFIX_OFFSET => {
                    let _ = write!(out, "{:08x}: ", i * row);
                }
                // The kernel would print the address of its own copy of the bytes, which is not known.
                _ => out.extend(b"?: "),
            }
            let column = out.len();
            let group = if matches!(group, 2 | 4 | 8) && bytes.len().is_multiple_of(group) { group } else { 1 };
            for (i, unit) in bytes.chunks(group).enumerate() {
                let space = if i > 0 { " " } else { "" };
                let ty = IntType::new(unit.len() as u8, false);
                let value = ty.load(unit, 0)?;
                let _ = write!(out, "{space}{value:0width$x}", width = unit.len() * 2);
            }
            if ascii {
                let text = column + row * 2 + row / group + 1;
                out.resize(out.len().max(text), b' ');
                out.extend(bytes.iter().map(|&b| if b.is_ascii_graphic() || b == b' ' { b } else { b'.' }));
            }
            out.push(b'\n');
        }
        Some(())
    }
}

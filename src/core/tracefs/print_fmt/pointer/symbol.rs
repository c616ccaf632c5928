//! `%pS`, `%ps` and `%pB`: the symbol of an address.

use std::io::Write;

use crate::tracefs::Kernel;

/// The parts of the symbol that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `name+0xoffset/0xsize [module]`
    Offset,
    /// `name [module]`
    Name,
    /// Like `Offset`, but for a return address: shows the symbol that contains the address minus one, because this byte
    /// belongs to the call instruction.
    Backtrace,
}

/// Appends the symbol of `addr` in the notation of `__sprint_symbol` in the kernel's `kernel/kallsyms.c`.
pub(crate) fn symbol(addr: u64, style: Style, kernel: &dyn Kernel, out: &mut Vec<u8>) {
    let back = u64::from(style == Style::Backtrace);
    // Writing to a Vec cannot fail.
    let _ = match kernel.symbol(addr.wrapping_sub(back)) {
        None => write!(out, "0x{addr:x}"),
        Some(symbol) => {
            let name = write!(out, "{}", symbol.name);
            if style != Style::Name {
                let _ = write!(out, "+{:#x}/{:#x}", symbol.offset.wrapping_add(back), symbol.size);
            }
            if let Some(module) = symbol.module {
                let _ = write!(out, " [{module}]");
            }
            name
        }
    };
}

//! `%pS %ps %pB`: an address as its symbol.

use std::io::Write;

use crate::tracefs::Kernel;

/// What of the symbol is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `name+0xoffset/0xsize [module]`
    Offset,
    /// `name [module]`
    Name,
    /// As `Offset`, of the call before a return address.
    Backtrace,
}

/// Appends the symbol of `addr` as `__sprint_symbol` in the kernel's `kernel/kallsyms.c` does.
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

//! The range and the binding of a symbol, from its symbol table.

/// The range and the binding of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The start of the symbol. For a symbol in a file, it is the offset in the file in bytes. For a symbol of the
    /// kernel or of code that was generated at run time, it is the address.
    pub start: u64,
    /// The offset or address after the symbol's last byte.
    pub end: u64,
    /// Which other files can refer to the symbol: STB_LOCAL, STB_GLOBAL or STB_WEAK, as a number.
    pub binding: u8,
}

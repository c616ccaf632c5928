//! The range and the binding of a symbol, from its symbol table.

/// The range and the binding of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its start. For a symbol of a file, this is an offset in the file in bytes. For a symbol of the kernel and for
    /// code that was generated at run time, this is an address.
    pub start: u64,
    /// The offset or address after its end.
    pub end: u64,
    /// Which other files can refer to the symbol: STB_LOCAL, STB_GLOBAL or STB_WEAK, as a number.
    pub binding: u8,
}

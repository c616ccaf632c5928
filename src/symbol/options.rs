//! What a `Symbolizer` is asked for.

/// How symbols are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of memory that symbols and debug information may take.
    pub cache_bytes: usize,
    /// Names as written in the source, or as the linker has them.
    pub demangle: Demangle,
    /// Whether functions that were inlined are told.
    pub inline: Inline,
    /// Whether the lines in the source are told.
    pub srcline: Srcline,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 256 << 20, demangle: Demangle::Yes, inline: Inline::No, srcline: Srcline::No }
    }
}

/// Names of C++ and Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demangle {
    /// As written in the source.
    Yes,
    /// As the linker has them.
    No,
}

/// Functions that were inlined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inline {
    /// Are frames of their own. Reads DWARF.
    Yes,
    /// Are part of the function that they were inlined into.
    No,
}

/// Files and lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Srcline {
    /// Are looked up for every address. Reads DWARF.
    Yes,
    /// Are not.
    No,
}

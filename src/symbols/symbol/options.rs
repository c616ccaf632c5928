//! The options of a `Symbolizer`.

/// How symbols are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The maximum memory for symbols and debug information, in bytes.
    pub cache_bytes: usize,
    /// The form in which names are shown: as in the source, or mangled.
    pub demangle: Demangle,
    /// Whether inlined functions are reported.
    pub inline: Inline,
    /// Whether source lines are reported.
    pub srcline: Srcline,
    /// Whether addresses of data are looked up too.
    pub data: Data,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            demangle: Demangle::Yes,
            inline: Inline::No,
            srcline: Srcline::No,
            data: Data::No,
        }
    }
}

/// How names of C++ and Rust functions are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demangle {
    /// As written in the source.
    Yes,
    /// As written in the source, but without the parameters and the return type. perf shows names in this form
    /// (`dso__demangle_sym()` in `tools/perf/util/symbol-elf.c`).
    NameOnly,
    /// Mangled, as in the symbol table.
    No,
}

/// How inlined functions are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inline {
    /// As frames of their own. This reads DWARF for every address.
    Yes,
    /// As frames of their own where a caller asks for them. This reads DWARF only for these addresses.
    OnRequest,
    /// As part of the functions into which they were inlined.
    No,
}

/// When source files and lines are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Srcline {
    /// For every address, which reads DWARF.
    Yes,
    /// Only when a caller asks for the line of one address.
    No,
}

/// Whether addresses of data get names, and not only addresses of code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// Addresses of code and of data get names. Mappings of data are kept if they were recorded, which takes several
    /// times the memory.
    Yes,
    /// Only addresses of code get names. Mappings of data are not kept.
    #[default]
    No,
}

//! The formats of events that are shipped with perf-prof: all tracepoints of a modern kernel.

use std::sync::LazyLock;

use perf_prof_format::tracefs::FormatCollection;

/// The formats of the tracepoints of Linux 6.18 for x86-64. `docs/testing.md` says how the file is made.
const FORMATS: &[u8] = include_bytes!("linux-6.18-x86_64.zst");

/// The shipped formats. They are decompressed at the first use.
static SHIPPED: LazyLock<FormatCollection> = LazyLock::new(|| {
    // The data is part of the program, and a test reads all of it. If it were damaged, no event would be known.
    FormatCollection::from_zstd(FORMATS).unwrap_or_else(|_| FormatCollection::new(String::new()))
});

/// Returns the shipped formats.
pub fn shipped() -> &'static FormatCollection {
    &SHIPPED
}

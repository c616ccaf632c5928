//! Why an address has no name.

/// No symbol, because: a value that is shown, not an error that ends anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The kernel shows zeroes in the place of its addresses.
    #[error(
        "the kernel hides its addresses (kernel.kptr_restrict); run as root, or set it with `sysctl kernel.kptr_restrict=0`"
    )]
    AddressesHidden,
    /// A file could not be read.
    #[error("cannot read {path}: {error}")]
    Unreadable {
        /// Which file.
        path: String,
        /// Why.
        error: String,
    },
    /// There was nothing in the list: a kernel without CONFIG_KALLSYMS.
    #[error("the kernel has no symbols (CONFIG_KALLSYMS)")]
    NoSymbols,
    /// The process has no mapping there.
    #[error("the address is in no mapping of the process")]
    NotMapped,
    /// Nobody has told of the process's mappings, and it cannot be asked.
    #[error("the process has exited, and nothing is known of its mappings")]
    ProcessGone,
    /// It is memory that has no functions.
    #[error("{mapping} has no functions")]
    NoCode {
        /// Which.
        mapping: String,
    },
    /// The kernel's library in a 32-bit process is another one than in this one.
    #[error("[vdso] of a 32-bit process, or of another kernel")]
    OtherVdso,
    /// The file was removed, and nobody has it mapped any more.
    #[error("{path} is gone")]
    FileGone {
        /// Which file.
        path: String,
    },
    /// There is another file in its place.
    #[error("{path} has been replaced since it was mapped")]
    Replaced {
        /// Which file.
        path: String,
    },
    /// It is no ELF file, or a damaged one.
    #[error("{path}: {error}")]
    Damaged {
        /// Which file.
        path: String,
        /// What is wrong.
        error: String,
    },
    /// It was stripped.
    #[error("{path} has no symbols, nor has a debug file of it been found")]
    NoSymbolsIn {
        /// Which file.
        path: String,
    },
    /// Its functions are elsewhere.
    #[error("no function of {path} is there")]
    NoFunction {
        /// Which file.
        path: String,
    },
    /// It tells nothing of lines.
    #[error("{path} has no debug information, nor has a debug file of it been found")]
    NoDebugInfo {
        /// Which file.
        path: String,
    },
    /// The debug information does not tell the line.
    #[error("debug information has no line for the address")]
    NoLine,
    /// Reading it would take more memory than there is for symbols.
    #[error("{path}: symbols of {bytes} bytes are more than the cache may hold (--symbol-cache)")]
    TooLarge {
        /// Which file.
        path: String,
        /// How large they are.
        bytes: u64,
    },
    /// Code that was made at run time, by a process that does not tell of it.
    #[error("code made at run time; process {pid} writes neither a perf map nor a jitdump")]
    NoPerfMap {
        /// The process.
        pid: u32,
    },
    /// Code that was made at run time, and is not among what the process told.
    #[error("code made at run time, which process {pid} has not told of")]
    NotInPerfMap {
        /// The process.
        pid: u32,
    },
}

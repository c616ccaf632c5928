//! The reasons why an address has no name.

/// The reason why an address has no symbol. It is shown to the user, and does not end the run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The kernel shows zeros in place of its addresses.
    #[error(
        "the kernel hides its addresses (kernel.kptr_restrict); run as root, or run `sysctl kernel.kptr_restrict=0`"
    )]
    AddressesHidden,
    /// A file could not be read.
    #[error("cannot read {path}: {error}")]
    Unreadable {
        /// The file's path.
        path: String,
        /// The error.
        error: String,
    },
    /// kallsyms contains no symbols: the kernel was built without CONFIG_KALLSYMS.
    #[error("the kernel has no list of symbols (it was built without CONFIG_KALLSYMS)")]
    NoSymbols,
    /// The process has no mapping at the address.
    #[error("the process has no mapping at this address")]
    NotMapped,
    /// The mappings of the process were not reported. They cannot be read from procfs either, because the process has
    /// exited.
    #[error("the process has exited, and its mappings are not known")]
    ProcessGone,
    /// The mapping is memory without code, such as `[vsyscall]`.
    #[error("{mapping} has no functions")]
    NoCode {
        /// The mapping's name.
        mapping: String,
    },
    /// The vdso of a 32-bit process differs from the vdso of perf-prof.
    #[error("no symbols are known for this [vdso]: it belongs to a 32-bit process or to another kernel")]
    OtherVdso,
    /// The file is not at its path, and cannot be opened through the process either.
    #[error("{path} no longer exists")]
    FileGone {
        /// The file's path.
        path: String,
    },
    /// Another file is now at the path of the mapped file.
    #[error("{path} has been replaced since it was mapped")]
    Replaced {
        /// The file's path.
        path: String,
    },
    /// In a recording: the recording contains no build id of the file.
    #[error("the recording has no build id for {path}, so perf-prof cannot find the same file on this machine")]
    NoBuildId {
        /// The file's path.
        path: String,
    },
    /// In a recording: this machine has no file with the build id.
    #[error(
        "no file on this machine has the build id {build_id} of {path}; run `perf archive` on the recorded machine to pack its files"
    )]
    BuildNotFound {
        /// The file's path.
        path: String,
        /// The file's build id.
        build_id: String,
    },
    /// In a recording: the code was generated at run time.
    #[error("the code was generated at run time, and its names are not in the recording")]
    RunTimeCodeNotRecorded,
    /// The file is not an ELF file, or it is damaged.
    #[error("{path}: {error}")]
    Damaged {
        /// The file's path.
        path: String,
        /// A description of the error.
        error: String,
    },
    /// The file was stripped.
    #[error("{path} has no symbols, and no debug file was found for it")]
    NoSymbolsIn {
        /// The file's path.
        path: String,
    },
    /// The file contains no function with the address.
    #[error("{path} has no function at this address")]
    NoFunction {
        /// The file's path.
        path: String,
    },
    /// The file contains no debug information, so source lines are not known.
    #[error("{path} has no debug information, and no debug file was found for it")]
    NoDebugInfo {
        /// The file's path.
        path: String,
    },
    /// The debug information has no line for the address.
    #[error("the debug information has no line for this address")]
    NoLine,
    /// The symbols would take more memory than the symbol cache may use.
    #[error("{path}: {bytes} bytes of symbols do not fit in the symbol cache; enlarge it with --symbol-cache")]
    TooLarge {
        /// The file's path.
        path: String,
        /// The size of the symbols in bytes.
        bytes: u64,
    },
    /// The code was generated at run time, and the process wrote no file with the names of its functions.
    #[error("the code was generated at run time; process {pid} writes neither a perf map nor a jitdump")]
    NoPerfMap {
        /// The process id.
        pid: u32,
    },
    /// The code was generated at run time, and the process's perf map or jitdump does not contain the address.
    #[error("the code was generated at run time; the perf map or jitdump of process {pid} does not have this address")]
    NotInPerfMap {
        /// The process id.
        pid: u32,
    },
}

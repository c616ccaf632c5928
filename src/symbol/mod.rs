//! Address to name, or the reason why not: kallsyms. Knows nothing of events.

mod kallsyms;

pub use kallsyms::{Kallsyms, Symbol};

/// No symbol, because: a value that is shown, not an error that ends anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The kernel shows zeroes in the place of its addresses.
    #[error(
        "the kernel hides its addresses (kernel.kptr_restrict); run as root, or set it with `sysctl kernel.kptr_restrict=0`"
    )]
    AddressesHidden,
    /// The list could not be read.
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
}

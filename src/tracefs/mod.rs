//! Format text to `EventFormat`: fields and print formats. Knows nothing of files and of time.
//!
//! What rendering asks of the machine comes in through [`Kernel`].

mod btf;
mod field;
mod filter;
mod format;
mod kernel;
mod kernel_text;
pub mod learn;
pub mod print_fmt;
pub mod printk_formats;

pub use btf::{BitField, Btf};
pub use field::{Array, ElementType, Field, FieldKind};
pub use filter::{Filter, FilterError};
pub use format::{EventFormat, FormatError};
pub use kernel::{Kernel, KernelSymbol, NoKernel};
pub use print_fmt::{PrintFmt, PrintFmtError};

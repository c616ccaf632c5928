//! Parser for the `format` files of tracefs. The parser makes an `EventFormat` from the text, with the fields and the
//! print format.
//!
//! Rendering gets facts about the machine through [`Kernel`].

mod btf;
mod collection;
mod encode;
mod field;
mod filter;
mod format;
mod interpreter_frames;
mod kernel;
pub mod kernel_facts;
mod kernel_text;
pub mod print_fmt;
pub mod printk_formats;
mod strings;

pub use btf::{BitField, Btf, Enumerators, PerCpuVariable};
pub use collection::FormatCollection;
pub use encode::{EncodeError, FieldInput};
pub use field::Extent;
pub use field::{Array, ElementType, Field, FieldKind, NUMBER_IF_KNOWN, UNKNOWN_NUMBER};
pub use filter::{Comparison, Data as FilterData, Filter, FilterError, Node as FilterNode, TextComparison};
pub use format::{EventFormat, FormatError};
pub use interpreter_frames::{
    FRAMES_WITHOUT_FIELDS, FramesState, INSTRUCTION_BITS, INTERPRETER_FRAME_BYTES, INTERPRETER_HEADER_BYTES,
    InterpreterFrame, InterpreterFrames, MOST_INTERPRETER_FRAMES,
};
pub use kernel::{Kernel, KernelSymbol, NoKernel, PerfKernelSymbol, dso_of_symbol};
pub use print_fmt::{Defined, Definition, PrintFmt, PrintFmtError, ctype::IntType, symbol_name};
pub use strings::{
    ARGUMENTS, CURRENT_FOLDER, CUT_MARK, LONGEST_STRING, MOUNT_NAMESPACE, MOUNT_NAMESPACE_ID, ROOT_FOLDER,
    StringAddress, StringError, StringPlace, USER_TEXT, points_to_text, string_of_argument,
};

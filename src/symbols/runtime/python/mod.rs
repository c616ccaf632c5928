//! CPython 3.11 to 3.13.

mod build;
mod code;
mod lines;

pub use build::{Build, NotSupported};
pub use code::{function, is_internal};
pub use lines::line;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A frame of a Python function.
    Function,
    /// As `Function`, and the interpreter's C function that runs it was entered with it.
    Entry,
    /// No function: it stands for the entry of the interpreter's C function.
    Boundary,
}

#[cfg(test)]
mod tests;

//! Support for CPython 3.11 to 3.15: names and lines of Python functions.

mod build;
mod code;
mod lines;

pub use build::{Build, NotSupported};
pub use code::{function, is_internal};
pub use lines::line;

/// What a frame of the interpreter represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A Python function.
    Function,
    /// A Python function. Its frame is the outermost frame of a call of the interpreter's loop.
    Entry,
    /// No Python function. The frame is the outermost frame of a call of the interpreter's loop.
    Boundary,
}

#[cfg(test)]
pub mod tests;

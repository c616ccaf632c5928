//! Names of functions that an interpreter runs: which processes run an interpreter, how a BPF program finds the frames
//! of a thread, and how frames get names.
//!
//! When an event happens, a BPF program reads only pointers. A [`Walk`] tells the program where the pointers are. Names
//! and lines are read from the process later. They can be read later because the objects that contain them do not
//! change. If a frame gets no name, an [`Unnamed`] is the reason.
//!
//! Support for another language is a module beside [`python`]. The module creates a [`Walk`] from an ELF file, and
//! [`Function`]s from objects in memory.

mod budget;
mod changes;
mod files;
mod functions;
mod interpreters;
pub mod python;
mod reader;
mod walk;

pub use interpreters::{Interpreters, Publish};
pub use walk::{Walk, WalkWord};

use std::sync::Arc;

use thiserror::Error;

/// The memory of a process.
pub trait Memory {
    /// Fills `to` with the bytes from `address` on. Returns false if not all of the bytes can be read.
    fn read(&self, address: u64, to: &mut [u8]) -> bool;

    /// Reads the word of 8 bytes at an address.
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_ne_bytes(bytes))
    }
}

/// A function in the source of the interpreted program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The qualified name, with the classes and functions around the function: `Class.method`.
    pub name: Arc<str>,
    /// The path of the source file, as the interpreter stores it.
    pub file: Arc<str>,
    /// The address of the function's first instruction.
    pub instructions: u64,
    /// The function's first line.
    pub first_line: u32,
    /// The table of the lines of all instructions, in the interpreter's format.
    pub lines: Box<[u8]>,
}

/// Why a frame has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Unnamed {
    /// No interpreter of the process was known when the event happened. The process is too new, or its files cannot be
    /// read.
    #[error("no supported interpreter was found in the process before the event")]
    NotKnown,
    /// The interpreter is not supported.
    #[error("{0}")]
    NotSupported(python::NotSupported),
    /// The process has ended.
    #[error("the process has ended")]
    Ended,
    /// The process executes another program now.
    #[error("the process has executed another program")]
    Replaced,
    /// The memory of the process cannot be read now.
    #[error("the memory of the process cannot be read")]
    Unreadable,
    /// The limit on the bytes that are read from the process, or from all processes, is reached. More is read later.
    #[error("too many functions to read them now")]
    TooMuch,
    /// An earlier read from the process took too long.
    #[error("reading the memory of the process takes too long")]
    Slow,
    /// Earlier reads from other processes took so long that no time is left for a read.
    #[error("no time is left for reads, because other processes let them wait")]
    Busy,
    /// The memory of the code object was freed or reused after the event.
    #[error("the function was freed before its name was read")]
    Freed,
    /// The frame's memory was not readable when the event happened, for example because its page was swapped out.
    #[error("the frame was not in memory when the event happened")]
    NotInMemory,
    /// The interpreter has no thread with the kernel's thread id.
    #[error("the interpreter does not list the thread")]
    NoThread,
    /// The recording contains no name for the frame.
    #[error("the recording does not contain its name")]
    NotRecorded,
    /// The call chain has more frames than fit into a record.
    #[error("the chain has more frames than perf-prof reads")]
    Cut,
}

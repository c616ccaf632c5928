//! Functions of programs that an interpreter runs: which processes have one, how a BPF program finds the frames of a thread, and
//! the names of what it found.
//!
//! A program in the kernel reads only pointers when an event happens ([`Walk`] says how). Names and lines are read from the process
//! later, because the objects that have them do not change, and are kept. What cannot be read is an [`Unnamed`].
//!
//! An interpreter of another language is a file beside [`python`]: it finds a [`Walk`] in an ELF file, and makes [`Function`]s of
//! objects in memory.

mod interpreters;
pub mod python;
mod walk;

pub use interpreters::{Interpreters, Publish};
pub use walk::{Walk, WalkWord};

use std::sync::Arc;

use thiserror::Error;

/// The memory of a process.
pub trait Memory {
    /// Fills `to` with the bytes from an address on. Returns false if not all of them can be read.
    fn read(&self, address: u64, to: &mut [u8]) -> bool;

    /// Reads a word.
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_ne_bytes(bytes))
    }
}

/// A function of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, with those of its classes and of the functions around it.
    pub name: Arc<str>,
    /// The path of its source file, as the interpreter knows it.
    pub file: Arc<str>,
    /// The address of its first instruction.
    pub instructions: u64,
    /// Its first line.
    pub first_line: u32,
    /// The lines of its instructions, in the form of the interpreter.
    pub lines: Box<[u8]>,
}

/// Why a frame has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Unnamed {
    /// No interpreter of the process was known when the event happened: the process is too new, or its interpreter is none of those that
    /// can be read.
    #[error("no interpreter that can be read was known in the process")]
    NotKnown,
    /// The process is gone.
    #[error("the process has ended")]
    Ended,
    /// Another program runs in the process now.
    #[error("the process has executed another program")]
    Replaced,
    /// The memory cannot be read now.
    #[error("the memory of the process cannot be read")]
    Unreadable,
    /// The memory was used again since the event.
    #[error("the function was freed before its name was read")]
    Freed,
    /// The memory was not readable when the event happened.
    #[error("not in memory when the event happened")]
    NotInMemory,
    /// The interpreter does not list the thread.
    #[error("the interpreter does not list the thread")]
    NoThread,
    /// There are more frames than a record has room for.
    #[error("more frames than are read")]
    Cut,
}

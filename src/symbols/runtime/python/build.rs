//! A build of CPython: where its structures have what is read. Everything comes from its file, so it is known before the process
//! has run an instruction.

use std::{collections::BTreeSet, path::Path};

use thiserror::Error;

use super::FrameKind;
use crate::{
    runtime::{Walk, WalkWord},
    symbol::elf::{Elf, variables},
};

/// The section of the interpreter's state, its symbol, and that of the number of the version.
const SECTION: &str = ".PyRuntime";
const RUNTIME: &str = "_PyRuntime";
const VERSION: &str = "Py_Version";
/// The classes of code objects, strings and bytes. Extensions use them, so every file has these symbols.
const CLASSES: [&str; 3] = ["PyCode_Type", "PyUnicode_Type", "PyBytes_Type"];
/// The start of `_Py_DebugOffsets`, with which the state starts since 3.13.
const COOKIE: &[u8; 8] = b"xdebugpy";

/// Why frames of a build cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotSupported {
    /// The file has no interpreter.
    #[error("no interpreter")]
    NoInterpreter,
    /// The version is another one.
    #[error("CPython {0}.{1}")]
    Version(u8, u8),
    /// It is a free-threaded build.
    #[error("a free-threaded build of CPython")]
    FreeThreaded,
    /// The offsets do not fit together.
    #[error("unusual offsets")]
    Offsets,
}

/// Where a code object and what it points to have their parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// The minor version: 11 for 3.11.
    pub minor: u8,
    /// The address of the state in the file.
    pub runtime: u64,
    /// The addresses of the classes in the file.
    pub(super) classes: Classes,
    offsets: Offsets,
}

/// The addresses of classes, which objects point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Classes {
    pub code: u64,
    pub text: u64,
    pub bytes: u64,
}

impl Classes {
    /// Returns the addresses in a process in which the file is `bias` bytes behind its own addresses.
    pub fn at(self, bias: u64) -> Classes {
        let Classes { code, text, bytes } = self;
        let [code, text, bytes] = [code, text, bytes].map(|class| class.wrapping_add(bias));
        Classes { code, text, bytes }
    }
}

/// Offsets in structures of the interpreter, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offsets {
    interpreters: u64,
    next_interpreter: u64,
    threads: u64,
    next_thread: u64,
    thread_id: u64,
    holder: u64,
    current: u64,
    code: u64,
    previous: u64,
    instruction: u64,
    mark: u64,
    of_code: CodeOffsets,
}

/// Offsets in code objects, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CodeOffsets {
    pub file: u64,
    /// The table of lines is behind it.
    pub name: u64,
    pub first_line: u64,
    /// The number that the interpreter gave the code object. 3.11 gives none, so this is the word with the first line there.
    pub version: u64,
    pub instructions: u64,
    /// The text of a string that is not ASCII, and that of one that is.
    pub text: [u64; 2],
}

/// `offsetof` in the headers of 3.11.7 (`pycore_runtime.h`, `pycore_interp.h`, `pycore_frame.h`, `cpython/code.h`), printed by a
/// program that was compiled with them. In place of an owner, frames have `is_entry`.
const OF_3_11: Offsets = Offsets {
    interpreters: 40,
    next_interpreter: 0,
    threads: 16,
    next_thread: 8,
    thread_id: 160,
    holder: 56,
    current: 8,
    code: 32,
    previous: 48,
    instruction: 56,
    mark: 68,
    of_code: CodeOffsets { file: 112, name: 128, first_line: 72, version: 72, instructions: 184, text: [72, 48] },
};

/// As [`OF_3_11`], from the headers of 3.12.1.
const OF_3_12: Offsets = Offsets {
    interpreters: 40,
    next_interpreter: 0,
    threads: 72,
    next_thread: 8,
    thread_id: 144,
    holder: 56,
    current: 0,
    code: 0,
    previous: 8,
    instruction: 56,
    mark: 70,
    of_code: CodeOffsets { file: 112, name: 128, first_line: 68, version: 92, instructions: 192, text: [56, 40] },
};

/// The number of words of `_Py_DebugOffsets` in 3.13.
const WORDS_OF_3_13: usize = 73;

impl Build {
    /// Finds the interpreter in a file.
    pub fn of(elf: &Elf, path: &Path) -> Result<Build, NotSupported> {
        let runtime = elf.section(SECTION).map(|section| section.address);
        let names = [RUNTIME, VERSION].into_iter().chain(CLASSES).collect::<BTreeSet<_>>();
        let found = variables(elf, path, &names);
        let class = |name: &str| found.get(name).copied().ok_or(NotSupported::NoInterpreter);
        let [code, text, bytes] = CLASSES.map(class);
        let classes = Classes { code: code?, text: text?, bytes: bytes? };
        let runtime = runtime.or_else(|| found.get(RUNTIME).copied()).ok_or(NotSupported::NoInterpreter)?;
        let read = |address: u64, bytes: usize| elf.read(elf.offset_of(address)?, bytes as u64, 4096).ok();
        let words = read(runtime, 8 * WORDS_OF_3_13).ok_or(NotSupported::NoInterpreter)?;
        if words.starts_with(COOKIE) {
            let words: Vec<u64> =
                words.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes)).collect();
            return Build::of_debug_offsets((runtime, classes), &words);
        }
        let version = found.get(VERSION).and_then(|&address| read(address, 8)).ok_or(NotSupported::NoInterpreter)?;
        let (major, minor) = (version.get(3).copied().unwrap_or(0), version.get(2).copied().unwrap_or(0));
        let offsets = match (major, minor) {
            (3, 11) => OF_3_11,
            (3, 12) => OF_3_12,
            _ => return Err(NotSupported::Version(major, minor)),
        };
        Ok(Build { minor, runtime, classes, offsets })
    }

    /// Takes the offsets from `_Py_DebugOffsets`. The indexes are those of 3.13 (`pycore_runtime.h`).
    pub(super) fn of_debug_offsets((runtime, classes): (u64, Classes), words: &[u64]) -> Result<Build, NotSupported> {
        let at = |index: usize| words.get(index).copied().unwrap_or(u64::MAX);
        let (major, minor) = ((at(1) >> 24) as u8, (at(1) >> 16) as u8);
        if (major, minor) != (3, 13) {
            return Err(NotSupported::Version(major, minor));
        }
        if at(2) != 0 {
            return Err(NotSupported::FreeThreaded);
        }
        let offsets = Offsets {
            interpreters: at(5),
            next_interpreter: at(8),
            threads: at(9),
            next_thread: at(21),
            thread_id: at(25),
            holder: Walk::ITSELF,
            current: at(23),
            code: at(30),
            previous: at(29),
            instruction: at(31),
            mark: at(33),
            // `PyCompactUnicodeObject` has two words more than `PyASCIIObject`.
            of_code: CodeOffsets {
                file: at(35),
                name: at(37),
                first_line: at(39),
                // `co_version` is not among them: `offsetof` in the headers of 3.13.0.
                version: 92,
                instructions: at(43),
                text: [at(70).saturating_add(16), at(70)],
            },
        };
        let is_behind = at(38).checked_sub(8) == Some(offsets.of_code.name);
        if is_behind { Ok(Build { minor, runtime, classes, offsets }) } else { Err(NotSupported::Offsets) }
    }

    /// Returns how frames are found in a process in which the file is `bias` bytes behind its own addresses.
    pub fn walk(&self, bias: u64, number: u32) -> Result<Walk, NotSupported> {
        let Offsets { interpreters, next_interpreter, threads, next_thread, thread_id, .. } = self.offsets;
        let Offsets { holder, current, code, previous, instruction, mark, of_code, .. } = self.offsets;
        let head = self.runtime.wrapping_add(bias).wrapping_add(interpreters);
        Walk::new(&[
            (WalkWord::Number, number.into()),
            (WalkWord::Interpreters, head),
            (WalkWord::NextInterpreter, next_interpreter),
            (WalkWord::Threads, threads),
            (WalkWord::NextThread, next_thread),
            (WalkWord::ThreadId, thread_id),
            (WalkWord::Holder, holder),
            (WalkWord::Current, current),
            (WalkWord::Code, code),
            (WalkWord::Previous, previous),
            (WalkWord::Instruction, instruction),
            (WalkWord::Mark, mark),
            (WalkWord::Identity, of_code.name),
            (WalkWord::Version, of_code.version),
        ])
        .ok_or(NotSupported::Offsets)
    }

    /// Returns where code objects have their parts.
    pub fn of_code(&self) -> CodeOffsets {
        self.offsets.of_code
    }

    /// Returns what a frame with this mark is.
    pub fn kind(&self, mark: u8) -> FrameKind {
        /// `FRAME_OWNED_BY_CSTACK` of 3.12 and 3.13 (`pycore_frame.h`).
        const C_STACK: u8 = 3;
        match (self.minor, mark) {
            (11, 0) => FrameKind::Function,
            (11, _) => FrameKind::Entry,
            (_, C_STACK) => FrameKind::Boundary,
            _ => FrameKind::Function,
        }
    }
}

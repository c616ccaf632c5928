//! The layout of CPython's structures in one build of CPython. All offsets come from the executable or library, so they
//! are known before the process runs its first instruction.

use std::collections::BTreeSet;

use thiserror::Error;

use super::FrameKind;
use crate::{
    runtime::{Walk, WalkWord},
    symbol::elf::{Elf, exported_variables},
};

/// The names of the section with the interpreter's state (`_PyRuntimeState`), of the state's symbol, and of the symbol
/// of the version number.
const SECTION: &str = ".PyRuntime";
const RUNTIME: &str = "_PyRuntime";
const VERSION: &str = "Py_Version";
/// The symbols of the classes of code objects, strings and bytes. Every build exports these symbols, because extensions
/// use them.
const CLASSES: [&str; 3] = ["PyCode_Type", "PyUnicode_Type", "PyBytes_Type"];
/// The first bytes of `_Py_DebugOffsets`. Since 3.13, the interpreter's state starts with this structure.
const COOKIE: &[u8; 8] = b"xdebugpy";

/// Why the frames of a build cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum NotSupported {
    /// The file contains no interpreter.
    #[error("no interpreter")]
    NoInterpreter,
    /// The version (major, minor) is not supported.
    #[error("frames of CPython {0}.{1} cannot be read")]
    Version(u8, u8),
    /// The version is older than 3.11. Files of these versions do not contain the version number.
    #[error("frames of CPython before 3.11 cannot be read")]
    TooOld,
    /// The build is free-threaded.
    #[error("frames of a free-threaded CPython cannot be read")]
    FreeThreaded,
    /// The offsets contradict each other, or are larger than expected.
    #[error("the offsets of the interpreter do not fit together")]
    Offsets,
}

/// One build of CPython, with the offsets of the fields that perf-prof and its BPF programs read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// The minor version: 11 for CPython 3.11.
    pub minor: u8,
    /// The address of the interpreter's state, as the file counts addresses.
    pub runtime: u64,
    /// The addresses of the classes, as the file counts addresses.
    pub(super) classes: Classes,
    offsets: Offsets,
}

/// The addresses of classes. Each object contains the address of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Classes {
    pub code: u64,
    pub text: u64,
    pub bytes: u64,
}

impl Classes {
    /// Converts addresses in the file to addresses in a process. `bias` is the address in the process minus the address
    /// in the file.
    pub fn at(self, bias: u64) -> Classes {
        let Classes { code, text, bytes } = self;
        let [code, text, bytes] = [code, text, bytes].map(|class| class.wrapping_add(bias));
        Classes { code, text, bytes }
    }
}

/// Offsets in the interpreter's structures, in bytes. [`WalkWord`] explains the fields with the same names.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CodeOffsets {
    pub file: u64,
    /// The offset of the pointer to the name. The pointer to the table of lines follows the pointer to the name.
    pub name: u64,
    pub first_line: u64,
    /// The offset of the version, a number that the interpreter gives each code object. 3.11 gives no such number.
    /// There, it is the offset of the first line.
    pub version: u64,
    pub instructions: u64,
    /// The offsets of the text in a string object: first for strings that are not ASCII, then for ASCII strings.
    pub text: [u64; 2],
}

/// The offsets in 3.11: the values of `offsetof` with the headers of 3.11.7 (`pycore_runtime.h`, `pycore_interp.h`,
/// `pycore_frame.h`, `cpython/code.h`). `mark` is the offset of `is_entry`, because frames of 3.11 have no `owner`.
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

/// The offsets in 3.12: like [`OF_3_11`], with the headers of 3.12.1.
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

/// The positions of groups of words in `_Py_DebugOffsets`, as indexes of words from its start. A group describes one
/// structure. Its first word is the size of the structure, and the other words are offsets of fields.
#[derive(Clone, Copy, Debug)]
struct Groups {
    thread: usize,
    /// The index of the offset of `native_thread_id`, counted from the start of the group `thread`.
    native_thread_id: usize,
    frame: usize,
    code: usize,
    /// The index of the word that contains the size of `PyASCIIObject`.
    ascii: usize,
}

/// The minor versions with their groups, as in `pycore_runtime.h` of 3.13.0, and in `pycore_debug_offsets.h` of 3.14.10
/// and 3.15.2.
const GROUPS: [(u8, Groups); 3] = [
    (13, Groups { thread: 19, native_thread_id: 6, frame: 28, code: 34, ascii: 70 }),
    (14, Groups { thread: 22, native_thread_id: 6, frame: 31, code: 39, ascii: 80 }),
    (15, Groups { thread: 22, native_thread_id: 9, frame: 39, code: 47, ascii: 92 }),
];

/// The number of words of `_Py_DebugOffsets` that are read. `_Py_DebugOffsets` is the start of the interpreter's state,
/// and the state is longer than these words in all versions.
const MOST_WORDS: usize = 93;

/// Returns the minor version in a version number (`PY_VERSION_HEX`). Fails if the major version is not 3. Fails for
/// alphas and betas, because their structures can differ from those of the release.
fn minor_of(number: u64) -> Result<u8, NotSupported> {
    /// The release level of a release candidate. A release has a larger level, and alphas and betas have smaller
    /// levels.
    const CANDIDATE: u64 = 0xc;
    let [major, minor] = [24, 16].map(|bits| (number >> bits) as u8);
    let is_supported = major == 3 && number >> 4 & 0xf >= CANDIDATE;
    if is_supported { Ok(minor) } else { Err(NotSupported::Version(major, minor)) }
}

impl Build {
    /// Finds the interpreter in a file.
    pub fn of(elf: &Elf) -> Result<Build, NotSupported> {
        let runtime = elf.section(SECTION).map(|section| section.address);
        let names = [RUNTIME, VERSION].into_iter().chain(CLASSES).collect::<BTreeSet<_>>();
        let found = exported_variables(elf, &names);
        let class = |name: &str| found.get(name).copied().ok_or(NotSupported::NoInterpreter);
        let [code, text, bytes] = CLASSES.map(class);
        let classes = Classes { code: code?, text: text?, bytes: bytes? };
        let runtime = runtime.or_else(|| found.get(RUNTIME).copied()).ok_or(NotSupported::NoInterpreter)?;
        let read = |address: u64, bytes: usize| elf.read(elf.offset_of(address)?, bytes as u64, 4096).ok();
        let words = read(runtime, 8 * MOST_WORDS).ok_or(NotSupported::NoInterpreter)?;
        if words.starts_with(COOKIE) {
            let words: Vec<u64> =
                words.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes)).collect();
            return Build::of_debug_offsets((runtime, classes), &words);
        }
        let version = found.get(VERSION).ok_or(NotSupported::TooOld)?;
        let version = read(*version, 8).ok_or(NotSupported::NoInterpreter)?;
        let minor = minor_of(version.try_into().map_or(0, u64::from_ne_bytes))?;
        let offsets = match minor {
            11 => OF_3_11,
            12 => OF_3_12,
            _ => return Err(NotSupported::Version(3, minor)),
        };
        Ok(Build { minor, runtime, classes, offsets })
    }

    /// Creates a build from the words of `_Py_DebugOffsets`, which contain its version and its offsets.
    pub(super) fn of_debug_offsets((runtime, classes): (u64, Classes), words: &[u64]) -> Result<Build, NotSupported> {
        let at = |index: usize| words.get(index).copied().unwrap_or(u64::MAX);
        let minor = minor_of(at(1))?;
        let of_version = GROUPS.iter().find(|(of, _)| *of == minor);
        let Groups { thread, native_thread_id, frame, code, ascii } =
            of_version.ok_or(NotSupported::Version(3, minor))?.1;
        if at(2) != 0 {
            return Err(NotSupported::FreeThreaded);
        }
        let offsets = Offsets {
            interpreters: at(5),
            next_interpreter: at(8),
            threads: at(9),
            next_thread: at(thread + 2),
            thread_id: at(thread + native_thread_id),
            holder: Walk::ITSELF,
            current: at(thread + 4),
            code: at(frame + 2),
            previous: at(frame + 1),
            instruction: at(frame + 3),
            mark: at(frame + 5),
            of_code: CodeOffsets {
                file: at(code + 1),
                name: at(code + 3),
                first_line: at(code + 5),
                // `_Py_DebugOffsets` does not contain the offset of `co_version`. This is the value of `offsetof` with
                // the headers of 3.13.0, 3.14.10 and 3.15.2.
                version: 92,
                instructions: at(code + 9),
                // `PyCompactUnicodeObject` is two words longer than `PyASCIIObject`. `_Py_DebugOffsets` contains its
                // size only since 3.15.
                text: [at(ascii).saturating_add(16), at(ascii)],
            },
        };
        let is_behind = at(code + 4).checked_sub(8) == Some(offsets.of_code.name);
        let is_inside = offsets.thread_id < at(thread) && offsets.mark < at(frame) && offsets.of_code.name < at(code);
        let is_right = is_behind && is_inside;
        if is_right { Ok(Build { minor, runtime, classes, offsets }) } else { Err(NotSupported::Offsets) }
    }

    /// Returns the addresses and offsets that a BPF program needs. `bias` is the address in the process minus the
    /// address in the file. `number` is the number of the process's interpreter.
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

    /// Returns the offsets of fields in code objects.
    pub fn of_code(&self) -> CodeOffsets {
        self.offsets.of_code
    }

    /// Returns a mask of the bits of an object's first word that contain the reference count. Since 3.14, the highest
    /// 16 bits of the word are flags.
    pub fn reference_bits(&self) -> u64 {
        if self.minor < 14 { u64::MAX } else { u64::MAX >> 16 }
    }

    /// Returns the kind of a frame. `mark` is the byte at [`WalkWord::Mark`] in the frame.
    pub fn kind(&self, mark: u8) -> FrameKind {
        /// The lowest mark of a frame that runs no function: `FRAME_OWNED_BY_CSTACK` of 3.12 and 3.13
        /// (`pycore_frame.h`), and `FRAME_OWNED_BY_INTERPRETER` since 3.14. In 3.14, `FRAME_OWNED_BY_CSTACK` is larger.
        const NO_FUNCTION: u8 = 3;
        match (self.minor, mark) {
            (11, 0) => FrameKind::Function,
            (11, _) => FrameKind::Entry,
            (_, NO_FUNCTION..) => FrameKind::Boundary,
            _ => FrameKind::Function,
        }
    }
}

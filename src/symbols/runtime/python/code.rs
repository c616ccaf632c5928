//! Reads code objects: the names, files and lines of functions. The amount that is read is bounded, because the memory
//! may contain anything.

use std::sync::Arc;

use super::build::Build;
use crate::runtime::{Function, Memory, Unnamed};

/// The maximum length of a name or path in characters, and the maximum size of a table of lines in bytes.
const LONGEST_TEXT: u64 = 4096;
const LONGEST_LINES: u64 = 1 << 17;
/// The offset of the class in an object (`ob_type`). The reference count (`ob_refcnt`) comes before the class.
const CLASS: u64 = 8;
/// The offsets of the length and the state in a string, and of the contents in a bytes object. The length of a bytes
/// object is at the same offset as the length of a string. All supported versions have the same offsets.
const LENGTH: u64 = 16;
const STATE: u64 = 32;
const BYTES: u64 = 32;
/// Bits of a string's state. `COMPACT`: the text follows the header. `ASCII`: the text is ASCII. Three lower bits
/// contain the width of a character.
const COMPACT: u32 = 1 << 5;
const ASCII: u32 = 1 << 6;

/// Reads a function from its code object at `code`. `identity` contains the words of the code object when the event
/// happened ([`InterpreterFrame`]). `bias` is the address in the process minus the address in the interpreter's file.
///
/// [`InterpreterFrame`]: perf_prof_format::tracefs::InterpreterFrame
pub fn function(
    build: &Build,
    bias: u64,
    memory: &dyn Memory,
    code: u64,
    identity: [u64; 3],
) -> Result<Function, Unnamed> {
    let offsets = build.of_code();
    let part = |offset: u64| memory.word(code.wrapping_add(offset)).ok_or(Unnamed::Unreadable);
    let [name, lines, version] = identity;
    let file = part(offsets.file)?;
    let read = Function {
        name: text(offsets.text, memory, name)?,
        file: text(offsets.text, memory, file)?,
        instructions: code.wrapping_add(offsets.instructions),
        first_line: part(offsets.first_line)? as u32,
        lines: bytes(memory, lines)?,
    };
    // The checks come after the reads: if an object is still alive at the check, the bytes that were read before belong
    // to it.
    let classes = build.classes.at(bias);
    let objects = [(code, classes.code), (name, classes.text), (file, classes.text), (lines, classes.bytes)];
    let are_alive = objects.into_iter().all(|(object, class)| is_alive(build, memory, object, class));
    let now = [part(offsets.file)?, part(offsets.name)?, part(offsets.name + 8)?, part(offsets.version)?];
    if are_alive && now == [file, name, lines, version] { Ok(read) } else { Err(Unnamed::Freed) }
}

/// Returns whether the object at the address `object` is alive and of the class `class`. The first word of a freed
/// object is no reference count: the allocators of CPython and of C overwrite it with the address of other memory or
/// with 0. An address below 4 GiB looks like a reference count. But only the allocator of C returns such addresses, and
/// this allocator overwrites the class too.
fn is_alive(build: &Build, memory: &dyn Memory, object: u64, class: u64) -> bool {
    // Immortal objects have the reference count u32::MAX (`_Py_IMMORTAL_REFCNT`, since 3.12), or 3 << 30 (since 3.14).
    let references = memory.word(object).unwrap_or(0) & build.reference_bits();
    (1..=u64::from(u32::MAX)).contains(&references) && memory.word(object.wrapping_add(CLASS)) == Some(class)
}

/// Returns whether a function is internal to the interpreter: `_Py_InitCleanup`, which ends calls of `__init__` and has
/// no source file.
pub fn is_internal(function: &Function) -> bool {
    function.name == function.file && &*function.name == "__init__"
}

/// Reads a string object: `PyASCIIObject` or `PyCompactUnicodeObject`. `offsets` is `CodeOffsets::text`.
fn text(offsets: [u64; 2], memory: &dyn Memory, address: u64) -> Result<Arc<str>, Unnamed> {
    let length = memory.word(address.wrapping_add(LENGTH)).ok_or(Unnamed::Unreadable)?;
    let state = memory.word(address.wrapping_add(STATE)).ok_or(Unnamed::Unreadable)? as u32;
    let (width, is_ascii) = (state >> 2 & 7, state & ASCII != 0);
    let is_text = state & COMPACT != 0 && matches!(width, 1 | 2 | 4) && length <= LONGEST_TEXT;
    if !is_text {
        return Err(Unnamed::Freed);
    }
    let mut units = vec![0; length as usize * width as usize];
    if !memory.read(address.wrapping_add(offsets[usize::from(is_ascii)]), &mut units) {
        return Err(Unnamed::Unreadable);
    }
    let point = |unit: &[u8]| unit.iter().rev().fold(0, |point: u32, &byte| point << 8 | u32::from(byte));
    // `?` replaces lone surrogates, which are bytes of a path that is not UTF-8. It also replaces control characters,
    // because they could forge lines on a terminal.
    let shown = |unit: &[u8]| char::from_u32(point(unit)).filter(|character| !character.is_control()).unwrap_or('?');
    let characters = units.chunks_exact(width as usize).map(shown);
    Ok(characters.collect::<String>().into())
}

/// Reads a `PyBytesObject`.
fn bytes(memory: &dyn Memory, address: u64) -> Result<Box<[u8]>, Unnamed> {
    let length = memory.word(address.wrapping_add(LENGTH)).ok_or(Unnamed::Unreadable)?;
    if length > LONGEST_LINES {
        return Err(Unnamed::Freed);
    }
    let mut bytes = vec![0; length as usize];
    let is_read = memory.read(address.wrapping_add(BYTES), &mut bytes);
    is_read.then(|| bytes.into()).ok_or(Unnamed::Unreadable)
}

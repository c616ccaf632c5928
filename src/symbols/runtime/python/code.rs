//! Code objects: names, files, lines. Whatever the memory has, little of it is read.

use std::sync::Arc;

use super::build::Build;
use crate::runtime::{Function, Memory, Unnamed};

/// The most characters of a name or of a path, and the most bytes of a table of lines.
const LONGEST_TEXT: u64 = 4096;
const LONGEST_LINES: u64 = 1 << 17;
/// Where objects have their class. The number of references comes before it.
const CLASS: u64 = 8;
/// Where strings have their length and their kind, and where bytes have their length and start. These are the same in all versions.
const LENGTH: u64 = 16;
const STATE: u64 = 32;
const BYTES: u64 = 32;
/// The bits of the kind: three bits of the width, whether the text follows, and whether it is ASCII.
const COMPACT: u32 = 1 << 5;
const ASCII: u32 = 1 << 6;

/// Reads a function. `identity` are the words that the code object had when the event happened ([`InterpreterFrame`]), and `bias` is the
/// distance between addresses in the process and in the interpreter's file.
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
    // These are read last, so that they hold for what was read before.
    let classes = build.classes.at(bias);
    let objects = [(code, classes.code), (name, classes.text), (file, classes.text), (lines, classes.bytes)];
    let are_alive = objects.into_iter().all(|(object, class)| is_alive(memory, object, class));
    let now = [part(offsets.file)?, part(offsets.name)?, part(offsets.name + 8)?, part(offsets.version)?];
    if are_alive && now == [file, name, lines, version] { Ok(read) } else { Err(Unnamed::Freed) }
}

/// Returns whether there is an object of this class. In freed memory, the allocators of CPython and of C have the address of other
/// memory, or 0, in the place of the number of references. Addresses below 4 GiB could be such a number, but only the allocator of C
/// gives memory there, and it overwrites the class.
fn is_alive(memory: &dyn Memory, object: u64, class: u64) -> bool {
    // Objects that live as long as the interpreter have u32::MAX references (`_Py_IMMORTAL_REFCNT`, since 3.12).
    let references = memory.word(object).unwrap_or(0);
    (1..=u64::from(u32::MAX)).contains(&references) && memory.word(object.wrapping_add(CLASS)) == Some(class)
}

/// Returns whether a function is the interpreter's own: it ends calls of `__init__`, and has no source file (`_Py_InitCleanup`).
pub fn is_internal(function: &Function) -> bool {
    function.name == function.file && &*function.name == "__init__"
}

/// Reads a string: `PyASCIIObject` or `PyCompactUnicodeObject`.
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
    // Lone surrogates stand for bytes of a path that is not UTF-8. Control characters could forge lines on a terminal.
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

//! Code objects: names, files, lines. Whatever the memory has, little of it is read.

use std::sync::Arc;

use super::build::Build;
use crate::runtime::{Function, Memory, Unnamed};

/// The most characters of a name or of a path, and the most bytes of a table of lines.
const LONGEST_TEXT: u64 = 4096;
const LONGEST_LINES: u64 = 1 << 20;
/// Where strings have their length and their kind, and where bytes have their length and start. These are the same in all versions.
const LENGTH: u64 = 16;
const STATE: u64 = 32;
const BYTES: u64 = 32;
/// The bits of the kind: three bits of the width, whether the text follows, and whether it is ASCII.
const COMPACT: u32 = 1 << 5;
const ASCII: u32 = 1 << 6;

/// Reads a function. `identity` are the two pointers that the code object had when the event happened.
pub fn function(build: &Build, memory: &dyn Memory, code: u64, identity: [u64; 2]) -> Result<Function, Unnamed> {
    let offsets = build.of_code();
    let part = |offset: u64| memory.word(code.wrapping_add(offset)).ok_or(Unnamed::Unreadable);
    let [name, lines] = identity;
    let read = Function {
        name: text(offsets.text, memory, name)?,
        file: text(offsets.text, memory, part(offsets.file)?)?,
        instructions: code.wrapping_add(offsets.instructions),
        first_line: part(offsets.first_line)? as u32,
        lines: bytes(memory, lines)?,
    };
    // The identity is read last, so that it holds for what was read before.
    match [part(offsets.name)?, part(offsets.name + 8)?] == identity {
        true => Ok(read),
        false => Err(Unnamed::Freed),
    }
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
    // Lone surrogates stand for bytes of a path that is not UTF-8.
    let characters = units.chunks_exact(width as usize).map(|unit| char::from_u32(point(unit)).unwrap_or('?'));
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

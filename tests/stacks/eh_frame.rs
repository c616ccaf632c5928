//! Writes `.eh_frame` by hand. Knows not what the rules mean.

use crate::elf::{SECTIONS, TEXT};

/// How a function's frame is described.
#[derive(Clone, Copy)]
pub struct Described<'a> {
    /// What kind of entry it is: `zR`, `zRS`.
    pub augmentation: &'a [u8],
    /// The column of the return address.
    pub link: u8,
    /// The rules that hold at its start.
    pub common: &'a [u8],
    /// Where it begins in the code, and its size.
    pub start: u64,
    pub size: u32,
    /// The rules of its instructions.
    pub function: &'a [u8],
}

/// The section of these functions, as the first of a file.
pub fn eh_frame(functions: &[Described<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for described in functions {
        let at = bytes.len();
        // Version 1, factors 1 and -8; addresses are relative to their place, in 4 bytes.
        let head = [&[0, 0, 0, 0, 1], described.augmentation, &[0, 1, 0x78, described.link, 1, 0x1b]].concat();
        push(&mut bytes, [&head, described.common].concat());
        let begin = (TEXT + described.start) as i64 - (SECTIONS as i64 + bytes.len() as i64 + 8);
        let mut entry = ((bytes.len() + 4 - at) as u32).to_le_bytes().to_vec();
        entry.extend((begin as i32).to_le_bytes());
        entry.extend(described.size.to_le_bytes());
        entry.push(0);
        entry.extend(described.function);
        push(&mut bytes, entry);
    }
    bytes.extend([0; 4]);
    bytes
}

/// Adds an entry with its length, filled up with instructions that do nothing.
fn push(bytes: &mut Vec<u8>, mut entry: Vec<u8>) {
    entry.resize(entry.len().next_multiple_of(4), 0);
    bytes.extend((entry.len() as u32).to_le_bytes());
    bytes.extend(entry);
}

//! Writes `.eh_frame` sections for tests. This module does not know what the rules mean.

use super::elf::{SECTIONS, TEXT};

/// The description of a function's frame.
#[derive(Clone, Copy)]
pub struct FrameDescription<'a> {
    /// The augmentation string: `zR`, or `zRS` for a signal frame.
    pub augmentation: &'a [u8],
    /// The register number of the return address.
    pub link: u8,
    /// The rules at the start of the function.
    pub common: &'a [u8],
    /// The start of the function, relative to the code, and its size in bytes.
    pub start: u64,
    pub size: u32,
    /// The rules that the function adds.
    pub function: &'a [u8],
}

/// Returns the section for these functions. It must be the first section of the file.
pub fn eh_frame(functions: &[FrameDescription<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for described in functions {
        let at = bytes.len();
        // Version 1, alignment factors 1 and -8. Addresses have 4 bytes and are relative to their own position.
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

/// Adds an entry with its length. It is padded to a multiple of 4 bytes with instructions that do nothing.
fn push(bytes: &mut Vec<u8>, mut entry: Vec<u8>) {
    entry.resize(entry.len().next_multiple_of(4), 0);
    bytes.extend((entry.len() as u32).to_le_bytes());
    bytes.extend(entry);
}

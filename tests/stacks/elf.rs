//! Makes the smallest ELF files that can be unwound. They contain one loaded segment and the given sections. This
//! module does not know what the sections contain.

use std::{io, sync::Arc};

use perf_prof_symbols::{
    symbol::CodeImage,
    unwind::{FileKey, Mapping, Modules},
};

/// The address at which the file is mapped.
pub const BASE: u64 = 0x7000_0000;
/// The address of the code, relative to the file. The bytes of the code are not needed.
pub const TEXT: u64 = 0x1000;
/// The address of the first section, relative to the file, and its offset in the file.
pub const SECTIONS: u64 = 0x200;
/// The size of the mapping in bytes.
const SIZE: u64 = 0x10_0000;

/// A process into which one file is mapped.
pub struct OneFile(pub Arc<[u8]>);

impl Modules for OneFile {
    fn mapping(&self, address: u64) -> Option<Mapping> {
        let mapping = Mapping { start: BASE, end: BASE + SIZE, offset: 0, file: Some(FileKey([1; 4])) };
        (mapping.start..mapping.end).contains(&address).then_some(mapping)
    }

    fn open(&self, _: u64) -> io::Result<CodeImage> {
        Ok(CodeImage::Bytes(self.0.clone()))
    }
}

/// Returns an ELF file with this `e_machine` and these sections, one after the other.
pub fn elf(machine: u16, sections: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut names = vec![0u8];
    let mut bodies = Vec::new();
    let mut headers = vec![[0u64; 8]];
    for (name, body) in sections {
        let at = SECTIONS + bodies.len() as u64;
        headers.push([names.len() as u64 | 1 << 32, 2, at, at, body.len() as u64, 0, 1, 0]);
        names.extend(*name);
        names.push(0);
        bodies.extend(*body);
    }
    let (own_name, at) = (names.len() as u64, SECTIONS + bodies.len() as u64);
    names.extend(b".shstrtab\0");
    headers.push([own_name | 3 << 32, 0, 0, at, names.len() as u64, 0, 1, 0]);
    bodies.extend(names);
    let sections_at = SECTIONS + bodies.len() as u64;

    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0".to_vec();
    file.extend(machine.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    [TEXT, 64, sections_at].iter().for_each(|word| file.extend(word.to_le_bytes()));
    file.extend(0u32.to_le_bytes());
    let sizes = [64, 56, 1, 64, headers.len() as u16, headers.len() as u16 - 1];
    sizes.iter().for_each(|half| file.extend(half.to_le_bytes()));
    // PT_LOAD, readable and executable. The segment covers more than the whole file.
    let segment = [1 | 5 << 32, 0, 0, 0, SIZE, SIZE, 0x1000u64];
    segment.iter().for_each(|word| file.extend(word.to_le_bytes()));
    file.resize(SECTIONS as usize, 0);
    file.extend(bodies);
    headers.iter().flatten().for_each(|word| file.extend(word.to_le_bytes()));
    file
}

//! The code of processes for who unwinds their stacks: what is mapped at an address, and the file's own bytes.

use std::{fs::File, sync::Arc};

use super::{Reason, Symbolizer, maps::Backing, process::Known};

/// What is mapped at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its first address.
    pub start: u64,
    /// The address behind its last.
    pub end: u64,
    /// Where in the file `start` is.
    pub file_offset: u64,
    /// Tells the file from others; none for code that was made at run time.
    pub file: Option<u64>,
}

/// The bytes of a file that has code.
#[derive(Debug)]
pub enum CodeImage {
    /// An open file.
    File(File),
    /// All of it, for the vdso.
    Bytes(Arc<[u8]>),
}

impl Symbolizer {
    /// What a process has mapped at an address at a time.
    pub fn code(&mut self, pid: u32, address: u64, time: u64) -> Result<Code, Reason> {
        let found = self.processes().locate(pid, address, time)?;
        let Known { start, end, .. } = found.known;
        let known = found.below.as_ref().unwrap_or(&found.known);
        Ok(match known.file.backing {
            Backing::Vdso => Code { start, end, file_offset: 0, file: Some(known.file.id) },
            Backing::File => {
                let file_offset = known.file_offset.wrapping_add(start.wrapping_sub(known.start));
                Code { start, end, file_offset, file: Some(known.file.id) }
            }
            Backing::Anonymous | Backing::Special => Code { start, end, file_offset: 0, file: None },
        })
    }

    /// The file that a process has mapped at an address at a time, also when it has exited meanwhile.
    pub fn code_image(&mut self, pid: u32, address: u64, time: u64) -> Result<CodeImage, Reason> {
        let (id, known) = self.code_object(pid, address, time)?;
        let wrong = |error: String| Reason::Unreadable { path: known.file.dso.to_string(), error };
        let image = self.objects().of(id, |object, _| object.image()).ok_or(Reason::NotMapped)?;
        image.map_err(|error| wrong(error.to_string()))
    }

    /// The separate debug file of that file, if there is one that belongs to it.
    pub fn debug_image(&mut self, pid: u32, address: u64, time: u64) -> Option<CodeImage> {
        let (id, _) = self.code_object(pid, address, time).ok()?;
        self.objects().of(id, |object, _| object.debug_image())?
    }

    fn code_object(&mut self, pid: u32, address: u64, time: u64) -> Result<(u64, Known), Reason> {
        let found = self.processes().locate(pid, address, time)?;
        let known = found.below.unwrap_or(found.known);
        Ok((self.objects().find(pid, &known)?, known))
    }
}

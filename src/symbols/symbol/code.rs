//! Finds the code of processes for stack unwinding: the mapping at an address, and the bytes of the mapped file.

use std::{fs::File, sync::Arc};

use super::{Reason, Symbolizer, mapping_history::TimedMapping, maps::Backing};

/// The mapping that contains an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// The first address of the mapping.
    pub start: u64,
    /// The address after the last address of the mapping.
    pub end: u64,
    /// The offset of `start` in the file, in bytes.
    pub file_offset: u64,
    /// The unique id of the file. `None` for code that was generated at run time.
    pub file: Option<u64>,
}

/// The bytes of a file with code.
#[derive(Debug)]
pub enum CodeImage {
    /// An open file.
    File(File),
    /// All bytes of the file in memory. This is used for the vdso.
    Bytes(Arc<[u8]>),
}

impl<D> Symbolizer<D> {
    /// Returns the mapping that contained `address` in a process at `time`.
    pub fn code(&mut self, pid: u32, address: u64, time: u64) -> Result<Code, Reason> {
        let found = self.processes().locate(pid, address, time)?;
        let TimedMapping { start, end, .. } = found.mapping;
        let known = found.replaced_file_mapping.as_ref().unwrap_or(&found.mapping);
        Ok(match known.file.backing {
            Backing::Vdso => Code { start, end, file_offset: 0, file: Some(known.file.id) },
            Backing::File => {
                let file_offset = known.file_offset.wrapping_add(start.wrapping_sub(known.start));
                Code { start, end, file_offset, file: Some(known.file.id) }
            }
            Backing::Anonymous | Backing::Special => Code { start, end, file_offset: 0, file: None },
        })
    }

    /// Returns the file that a process had mapped at `address` at `time`. The process may have exited since then.
    pub fn code_image(&mut self, pid: u32, address: u64, time: u64) -> Result<CodeImage, Reason> {
        let (id, known) = self.code_object(pid, address, time)?;
        let wrong = |error: String| Reason::Unreadable { path: known.file.dso.to_string(), error };
        let image = self.objects().with_object(id, |object, _| object.image()).ok_or(Reason::NotMapped)?;
        image.map_err(|error| wrong(error.to_string()))
    }

    /// Returns the path of the file that a process had mapped at `address` at `time`, or the name of the mapping.
    pub fn code_path(&mut self, pid: u32, address: u64, time: u64) -> Option<String> {
        let found = self.processes().locate(pid, address, time).ok()?;
        Some(found.replaced_file_mapping.unwrap_or(found.mapping).file.dso.to_string())
    }

    /// Returns the separate debug file of the file that `code_image` returns, if there is one.
    pub fn debug_image(&mut self, pid: u32, address: u64, time: u64) -> Option<CodeImage> {
        let (id, _) = self.code_object(pid, address, time).ok()?;
        self.objects().with_object(id, |object, _| object.debug_image())?
    }

    fn code_object(&mut self, pid: u32, address: u64, time: u64) -> Result<(u64, TimedMapping), Reason> {
        let found = self.processes().locate(pid, address, time)?;
        let known = found.replaced_file_mapping.unwrap_or(found.mapping);
        Ok((self.objects().object_id(pid, &known)?, known))
    }
}

//! Reads `jit-PID.dump`, to which a process writes a record for each function that it generates at run time
//! (tools/perf/Documentation/jitdump-specification.txt in the kernel sources). The file can be in either byte order,
//! and can still grow.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use perf_prof_system::file::fill;

use super::code_map::CodeMap;

/// The magic number at the start of the file, "JiTD".
const MAGIC: u32 = 0x4a69_5444;
/// The types of the records that contain the addresses of code (`JIT_CODE_LOAD` and `JIT_CODE_MOVE`).
const LOAD: u32 = 0;
const MOVE: u32 = 1;
/// The maximum number of bytes that are read from a record. The code after the name is not needed.
const HEAD_LIMIT: usize = 16 << 10;
/// The number of bytes that are read at once. Many records without code fit into this number.
const BLOCK: usize = 64 << 10;
/// The maximum number of bytes that one update reads. The next update continues after these bytes.
pub const UPDATE_LIMIT: u64 = 16 << 20;
/// The maximum number of records that are read from a file.
const RECORDS_LIMIT: u64 = 1 << 24;
/// The size of the prefix of each record, in bytes. The prefix consists of id, total_size and timestamp.
const PREFIX: usize = 16;

/// A jitdump file, as far as it has been read.
#[derive(Debug)]
pub struct JitDump {
    /// The functions in the file.
    pub code: CodeMap,
    at: u64,
    order: Option<ByteOrder>,
    records: u64,
    /// The number of bytes that the last update read.
    last_read: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteOrder {
    Little,
    Big,
}

/// Returns whether `path` has the file name of a jitdump. A process maps its jitdump only so that profilers find the
/// file in the process's mappings.
pub fn is_jitdump_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let number = name.strip_prefix(b"jit-").and_then(|rest| rest.strip_suffix(b".dump"));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

impl JitDump {
    /// Creates an empty jitdump. Nothing is read yet. `limit` is the maximum memory for its functions, in bytes.
    pub fn new(limit: usize) -> Self {
        Self { code: CodeMap::new(limit), at: 0, order: None, records: 0, last_read: 0 }
    }

    /// Returns the number of bytes that the last update read.
    pub fn last_read(&self) -> u64 {
        self.last_read
    }

    /// Reads what was appended to the file since the last call, at most `UPDATE_LIMIT` bytes. Returns whether new
    /// records were read.
    pub fn update(&mut self, file: &File) -> io::Result<bool> {
        let size = file.metadata()?.len();
        self.read(size, |bytes, at| fill(bytes, at, |bytes, at| file.read_at(bytes, at)))
    }

    /// Updates like [`JitDump::update`]. `bytes` is the whole contents of the file.
    pub fn update_from(&mut self, bytes: &[u8]) -> bool {
        let read = |into: &mut [u8], at: u64| {
            let rest = bytes.get(at as usize..).unwrap_or_default();
            let size = rest.len().min(into.len());
            into[..size].copy_from_slice(&rest[..size]);
            Ok(size)
        };
        self.read(bytes.len() as u64, read).unwrap_or(false)
    }

    fn read(&mut self, size: u64, read: impl Fn(&mut [u8], u64) -> io::Result<usize>) -> io::Result<bool> {
        self.last_read = 0;
        let mut block = vec![0; BLOCK];
        if self.order.is_none() {
            let filled = read(&mut block[..40], 0)?;
            let Some((order, header)) = header(&block[..filled]) else { return Ok(false) };
            (self.order, self.at) = (Some(order), header.into());
        }
        let Some(order) = self.order else { return Ok(false) };
        let begin = self.at;
        // `start` is the offset of `block` in the file, and `filled` is the number of bytes in `block`.
        let (mut start, mut filled) = (0, 0);
        while self.at.saturating_add(PREFIX as u64) <= size && self.records < RECORDS_LIMIT {
            let mut into = self.at.saturating_sub(start) as usize;
            if self.at < start || into + HEAD_LIMIT > filled && start + (filled as u64) < size || filled == 0 {
                if self.last_read >= UPDATE_LIMIT {
                    break;
                }
                filled = read(&mut block, self.at)?;
                (start, into) = (self.at, 0);
                self.last_read += filled as u64;
            }
            let head = block.get(into..filled).unwrap_or_default();
            let head = &head[..head.len().min(HEAD_LIMIT)];
            let fields = Fields { bytes: head, order };
            let (Some(id), Some(total)) = (fields.u32(0), fields.u32(4)) else { break };
            // The process is still writing this record.
            if (total as usize) < PREFIX || self.at.saturating_add(total.into()) > size {
                break;
            }
            let fields = Fields { bytes: &head[..head.len().min(total as usize)], order };
            self.record(id, fields);
            self.at += u64::from(total);
            self.records += 1;
        }
        Ok(self.at > begin)
    }

    fn record(&mut self, id: u32, fields: Fields<'_>) {
        // The fields pid, tid and vma follow the prefix. Other fields depend on the type.
        match id {
            LOAD => {
                let (Some(address), Some(size)) = (fields.u64(32), fields.u64(40)) else { return };
                let name = fields.bytes.get(56..).unwrap_or_default();
                let name = &name[..name.iter().position(|&byte| byte == 0).unwrap_or(name.len())];
                self.code.insert(address, size, &String::from_utf8_lossy(name));
            }
            MOVE => {
                let (Some(from), Some(to)) = (fields.u64(32), fields.u64(40)) else { return };
                self.code.move_to(from, to, fields.u64(48).unwrap_or(0));
            }
            // JIT_CODE_CLOSE ends the file. JIT_CODE_DEBUG_INFO and JIT_CODE_UNWINDING_INFO describe the next function.
            _ => {}
        }
    }
}

/// Returns the byte order of a file and the size of its header.
fn header(bytes: &[u8]) -> Option<(ByteOrder, u32)> {
    let order = match u32::from_le_bytes(*bytes.first_chunk()?) {
        MAGIC => ByteOrder::Little,
        magic if magic.swap_bytes() == MAGIC => ByteOrder::Big,
        _ => return None,
    };
    let fields = Fields { bytes, order };
    Some((order, fields.u32(8).filter(|&size| size >= 40)?))
}

#[derive(Clone, Copy)]
struct Fields<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
}

impl Fields<'_> {
    fn u32(self, at: usize) -> Option<u32> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.order == ByteOrder::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn u64(self, at: usize) -> Option<u64> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.order == ByteOrder::Little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Writer {
        bytes: Vec<u8>,
        order: ByteOrder,
    }

    impl Writer {
        fn new(order: ByteOrder) -> Self {
            let mut writer = Self { bytes: Vec::new(), order };
            [MAGIC, 1, 40, 62, 0, 7].iter().for_each(|&word| writer.u32(word));
            [1, 0].iter().for_each(|&word| writer.u64(word));
            writer
        }

        fn u32(&mut self, word: u32) {
            let bytes = if self.order == ByteOrder::Little { word.to_le_bytes() } else { word.to_be_bytes() };
            self.bytes.extend(bytes);
        }

        fn u64(&mut self, word: u64) {
            let bytes = if self.order == ByteOrder::Little { word.to_le_bytes() } else { word.to_be_bytes() };
            self.bytes.extend(bytes);
        }

        fn record(&mut self, id: u32, words: &[u64], tail: &[u8]) {
            self.u32(id);
            self.u32((PREFIX + 8 + 8 * words.len() + tail.len()) as u32);
            self.u64(5);
            self.u32(7);
            self.u32(7);
            words.iter().for_each(|&word| self.u64(word));
            self.bytes.extend(tail);
        }
    }

    fn shown(dump: &JitDump, at: u64) -> String {
        dump.code.lookup(at).map_or("-".into(), |(start, name)| format!("{name}+{:#x}", at - start))
    }

    #[test]
    fn functions_are_loaded_and_moved_in_both_byte_orders() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut writer = Writer::new(order);
            writer.record(LOAD, &[0x1000, 0x1000, 0x10, 1], b"first\0\x90\x90\x90");
            writer.record(2, &[0x2000, 0], b"");
            writer.record(LOAD, &[0x2000, 0x2000, 0x10, 2], b"second\0");
            let mut dump = JitDump::new(1 << 20);
            assert!(dump.update_from(&writer.bytes));
            assert_eq!((shown(&dump, 0x100f), shown(&dump, 0x2001)), ("first+0xf".into(), "second+0x1".into()));
            writer.record(MOVE, &[0x1000, 0x1000, 0x3000, 0x10, 1], b"");
            writer.record(3, &[], b"");
            let whole = std::mem::take(&mut writer.bytes);
            dump.update_from(&whole[..whole.len() - 30]);
            assert_eq!(shown(&dump, 0x1000), "first+0x0");
            assert!(dump.update_from(&whole));
            assert_eq!((shown(&dump, 0x1000), shown(&dump, 0x3000)), ("-".into(), "first+0x0".into()));
            assert!(!dump.update_from(&whole));
        }
    }

    #[test]
    fn many_small_records_are_read_once_and_in_parts() {
        let mut writer = Writer::new(ByteOrder::Little);
        let count = 300_000;
        for at in 0..count {
            writer.record(LOAD, &[16 * at, 16 * at, 16, at], b"f\0");
        }
        let bytes = writer.bytes;
        let read = std::cell::Cell::new(0);
        let mut dump = JitDump::new(1 << 30);
        let mut parts = 0;
        while dump.code.len() < count as usize {
            let more = dump.read(bytes.len() as u64, |into, at| {
                let rest = &bytes[at as usize..];
                let size = rest.len().min(into.len());
                into[..size].copy_from_slice(&rest[..size]);
                read.set(read.get() + size);
                Ok(size)
            });
            assert!(more.unwrap() && dump.last_read() <= UPDATE_LIMIT + BLOCK as u64);
            parts += 1;
        }
        assert!(parts > 1 && read.get() < 2 * bytes.len(), "{parts} {}", read.get());
        assert_eq!(shown(&dump, 16 * count - 1), "f+0xf");
    }

    #[test]
    fn jitdumps_are_recognized_by_their_name() {
        for (name, expected) in
            [("/tmp/jit-12.dump", true), ("jit-.dump", false), ("/a/jit-1x.dump", false), ("/a/jit-1.dumpx", false)]
        {
            assert_eq!(is_jitdump_name(Path::new(name)), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(mut bytes in any::<Vec<u8>>(), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..9)) {
            JitDump::new(4096).update_from(&bytes);
            let mut writer = Writer::new(ByteOrder::Little);
            writer.record(LOAD, &[0x1000, 0x1000, 0x10, 1], b"first\0\x90\x90\x90");
            writer.record(MOVE, &[0x1000, 0x1000, 0x3000, 0x10, 1], b"");
            writer.bytes.append(&mut bytes);
            for (at, byte) in flips {
                let at = at.index(writer.bytes.len());
                writer.bytes[at] = byte;
            }
            JitDump::new(4096).update_from(&writer.bytes);
        }
    }
}

//! Parses the bytes of one record, for the record types that are needed.

use crate::abi::{
    PERF_RECORD_CGROUP, PERF_RECORD_COMM, PERF_RECORD_EXIT, PERF_RECORD_FORK, PERF_RECORD_KSYMBOL, PERF_RECORD_LOST,
    PERF_RECORD_LOST_SAMPLES, PERF_RECORD_MISC_COMM_EXEC, PERF_RECORD_MISC_CPUMODE_MASK, PERF_RECORD_MISC_GUEST_KERNEL,
    PERF_RECORD_MISC_GUEST_USER, PERF_RECORD_MISC_MMAP_BUILD_ID, PERF_RECORD_MISC_MMAP_DATA, PERF_RECORD_MMAP,
    PERF_RECORD_MMAP2, PERF_RECORD_SAMPLE, PERF_RECORD_THROTTLE,
};

/// Size of `struct perf_event_header`: u32 type, u16 misc, u16 size.
pub const RECORD_HEADER: usize = 8;

/// Returns the record's type, or 0 for bytes that are too short for a header.
#[inline]
pub fn record_type(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |b: &[u8; 4]| u32::from_ne_bytes(*b))
}

/// Returns the size that the record's header states, or 0 for bytes that are too short for a header.
#[inline]
pub fn record_size(bytes: &[u8]) -> usize {
    bytes.get(6..8).map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]) as usize)
}

/// Returns whether the header says that the record belongs to a virtual machine.
#[inline]
pub fn is_of_guest(bytes: &[u8]) -> bool {
    let mode = misc(bytes).unwrap_or(0) & PERF_RECORD_MISC_CPUMODE_MASK;
    mode == PERF_RECORD_MISC_GUEST_KERNEL || mode == PERF_RECORD_MISC_GUEST_USER
}

/// An iterator over the records in a run of bytes. It ends at the first record that is cut off or that states a size
/// below the header's size.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Returns an iterator over the records in `bytes`. A record must start at the first byte.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes that the iterator has not read yet. After the last record, these are the bytes of an
    /// incomplete record, if there are any.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let size = record_size(self.rest);
        if size < RECORD_HEADER {
            return None;
        }
        let (record, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        Some(record)
    }
}

/// A parsed record. The layouts of the record types are those of `enum perf_event_type` in
/// `include/uapi/linux/perf_event.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A sample. Its event determines its layout (`SampleLayout`).
    Sample,
    /// The kernel dropped `lost` records because the ring was full.
    Lost {
        /// The number of dropped records.
        lost: u64,
    },
    /// A task has a new name.
    Comm {
        /// The process id.
        pid: u32,
        /// The thread id.
        tid: u32,
        /// The new name, up to its NUL.
        comm: &'a [u8],
        /// True if exec set the name.
        exec: bool,
    },
    /// A task was created.
    Fork {
        /// The process id of the task.
        pid: u32,
        /// The process id of its parent.
        ppid: u32,
        /// The thread id of the task.
        tid: u32,
        /// The id of the thread that created the task.
        ptid: u32,
    },
    /// A task exited.
    Exit {
        /// The process id of the task.
        pid: u32,
        /// The thread id of the task.
        tid: u32,
    },
    /// A process mapped a file or memory. PERF_RECORD_MMAP, which contains less information than PERF_RECORD_MMAP2, is
    /// returned as this variant without an inode.
    Mmap2(Mmap2<'a>),
    /// The kernel added or removed code, for example because a BPF program was loaded or unloaded.
    Ksymbol(Ksymbol<'a>),
    /// A cgroup that exists at the start of a recording, or was created.
    Cgroup {
        /// The id of the cgroup, as in samples with PERF_SAMPLE_CGROUP.
        id: u64,
        /// The path of the cgroup from the root of its hierarchy, up to its NUL.
        path: &'a [u8],
    },
    /// The kernel throttles an event, because the event took too many samples in one timer tick. There is no variant
    /// for the end of throttling, because it is not needed.
    Throttle,
    /// A record of a type that sessions ignore, or a record that is too short for its type.
    Other(u32),
}

/// Code that the kernel added or removed (PERF_RECORD_KSYMBOL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ksymbol<'a> {
    /// The address of the code's first byte.
    pub addr: u64,
    /// The length of the code in bytes.
    pub len: u32,
    /// The kind of code.
    pub kind: KsymbolKind,
    /// True if the code was removed, false if it was added.
    pub removed: bool,
    /// The name of the code.
    pub name: &'a [u8],
}

/// The kind of kernel code (PERF_RECORD_KSYMBOL_TYPE_* in `include/uapi/linux/perf_event.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KsymbolKind {
    /// A BPF program, or a trampoline to one.
    Bpf,
    /// Code that runs in place of other code: trampolines of ftrace, and instructions that a probe replaced.
    OutOfLine,
    /// A kind that is unknown here, from a later kernel.
    Other,
}

/// A mapping of a process (PERF_RECORD_MMAP2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmap2<'a> {
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
    /// The address of the mapping.
    pub addr: u64,
    /// The length of the mapping in bytes.
    pub len: u64,
    /// The offset of the mapping in the file, in bytes.
    pub pgoff: u64,
    /// The inode or the build id of the file.
    pub file: MmapFile<'a>,
    /// The protection of the mapping (`PROT_*`).
    pub prot: u32,
    /// The flags of the mapping (`MAP_*`).
    pub flags: u32,
    /// The file's path, or a name such as `[vdso]` or `//anon`.
    pub filename: &'a [u8],
}

/// The identity of a mapped file. It distinguishes the file from others with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmapFile<'a> {
    /// The file's device and inode. All fields are 0 if there is no file.
    Inode {
        /// The major device number.
        major: u32,
        /// The minor device number.
        minor: u32,
        /// The inode number.
        inode: u64,
        /// How often the inode number was reused, if the file system counts this.
        generation: u64,
    },
    /// The file's build id (PERF_RECORD_MISC_MMAP_BUILD_ID).
    BuildId(&'a [u8]),
}

impl<'a> Mmap2<'a> {
    fn parse(bytes: &'a [u8], misc: u16) -> Option<Self> {
        let flagged = misc & PERF_RECORD_MISC_MMAP_BUILD_ID != 0;
        let file = match build_id(bytes.get(40..64)?.first_chunk()?).filter(|_| flagged) {
            Some(build_id) => MmapFile::BuildId(build_id),
            None => {
                let (major, minor) = (u32_at(bytes, 40)?, u32_at(bytes, 44)?);
                MmapFile::Inode { major, minor, inode: u64_at(bytes, 48)?, generation: u64_at(bytes, 56)? }
            }
        };
        let (prot, flags) = match (u32_at(bytes, 64)?, u32_at(bytes, 68)?) {
            // A mapping always has MAP_SHARED or MAP_PRIVATE, so the record does not contain the flags if they are 0.
            // Kernels before 4.9 left out the protection and the flags of mappings without a file
            // (`perf_event_mmap_event()` in kernel/events/core.c). simpleperf never writes the protection and the
            // flags. But for files with generated code, it writes `PROT_JIT_SYMFILE_MAP` in place of the protection
            // (`simpleperf/record.h` of Android).
            (prot, 0) if prot & (PROT_READ | PROT_WRITE | PROT_EXEC) == 0 => (prot | protection(misc), 0),
            stated => stated,
        };
        Self::range(bytes, bytes.get(72..)?, file, prot, flags)
    }

    /// Parses PERF_RECORD_MMAP. This record does not contain `prot`.
    fn parse_mmap(bytes: &'a [u8], misc: u16) -> Option<Self> {
        let file = MmapFile::Inode { major: 0, minor: 0, inode: 0, generation: 0 };
        Self::range(bytes, bytes.get(40..)?, file, protection(misc), 0)
    }

    fn range(bytes: &'a [u8], name: &'a [u8], file: MmapFile<'a>, prot: u32, flags: u32) -> Option<Self> {
        Some(Self {
            pid: u32_at(bytes, 8)?,
            tid: u32_at(bytes, 12)?,
            addr: u64_at(bytes, 16)?,
            len: u64_at(bytes, 24)?,
            pgoff: u64_at(bytes, 32)?,
            file,
            prot,
            flags,
            filename: &name[..name.iter().position(|&b| b == 0).unwrap_or(name.len())],
        })
    }
}

const PROT_READ: u32 = 1;
const PROT_WRITE: u32 = 2;
const PROT_EXEC: u32 = 4;

/// Returns the protection of a mapping whose record does not contain it. The flags in the record's header say whether
/// the mapping is data or code.
fn protection(misc: u16) -> u32 {
    if misc & PERF_RECORD_MISC_MMAP_DATA != 0 { PROT_READ } else { PROT_READ | PROT_EXEC }
}

/// Returns the build id from the bytes that contain either a build id or a device and an inode. Returns `None` if the
/// bytes contain no build id. A build id is stored as its size (one byte), three bytes of 0, and 20 bytes.
///
/// The record's flag for build ids is not enough. While another tracer requests build ids, the kernel also sets the
/// flag in records for events that did not request build ids. (`perf_event_mmap_output()` in kernel/events/core.c sets
/// the flag for one event and does not clear it for the next.)
fn build_id(bytes: &[u8; 24]) -> Option<&[u8]> {
    let ([size, 0, 0, 0], rest) = bytes.split_first_chunk()? else { return None };
    let (id, unused) = rest.split_at_checked(usize::from(*size))?;
    if id.is_empty() || unused.iter().any(|&byte| byte != 0) {
        return None;
    }
    // If `size` is at most 11, it can also be the major number of a disk. In this case, the next four bytes are a minor
    // number, which has 20 bits.
    let minor = u32_at(rest, 0)?;
    (id.len() > 11 || minor >> 20 != 0).then_some(id)
}

impl<'a> Record<'a> {
    /// Parses a whole record, header included.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Record<'a> {
        let kind = record_type(bytes);
        if kind == PERF_RECORD_SAMPLE {
            return Record::Sample;
        }
        Self::side_band(kind, bytes, !0).unwrap_or(Record::Other(kind))
    }

    /// Like [`Record::parse`], but for events that did not request build ids (`attr.build_id`). Ignores the build-id
    /// flag of mmap records. If any tracer on the machine requests build ids, the kernel may set the flag although the
    /// record contains an inode. (`perf_event_mmap_output()` in kernel/events/core.c sets
    /// PERF_RECORD_MISC_MMAP_BUILD_ID for one event and does not clear it for the next.)
    #[inline]
    pub fn parse_without_build_ids(bytes: &'a [u8]) -> Record<'a> {
        let kind = record_type(bytes);
        if kind == PERF_RECORD_SAMPLE {
            return Record::Sample;
        }
        Self::side_band(kind, bytes, !PERF_RECORD_MISC_MMAP_BUILD_ID).unwrap_or(Record::Other(kind))
    }

    /// Parses a record other than a sample. If it is a PERF_RECORD_MMAP2, only the bits of its `misc` field that are
    /// set in `misc_mask` are used.
    fn side_band(kind: u32, bytes: &'a [u8], misc_mask: u16) -> Option<Record<'a>> {
        Some(match kind {
            PERF_RECORD_LOST => Record::Lost { lost: u64_at(bytes, 16)? },
            PERF_RECORD_LOST_SAMPLES => Record::Lost { lost: u64_at(bytes, 8)? },
            PERF_RECORD_COMM => {
                let text = bytes.get(16..)?;
                let comm = &text[..text.iter().position(|&b| b == 0).unwrap_or(text.len())];
                let exec = misc(bytes)? & PERF_RECORD_MISC_COMM_EXEC != 0;
                Record::Comm { pid: u32_at(bytes, 8)?, tid: u32_at(bytes, 12)?, comm, exec }
            }
            PERF_RECORD_FORK => Record::Fork {
                pid: u32_at(bytes, 8)?,
                ppid: u32_at(bytes, 12)?,
                tid: u32_at(bytes, 16)?,
                ptid: u32_at(bytes, 20)?,
            },
            PERF_RECORD_EXIT => Record::Exit { pid: u32_at(bytes, 8)?, tid: u32_at(bytes, 16)? },
            PERF_RECORD_KSYMBOL => {
                let half = |at: usize| Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
                let kind = match half(20)? {
                    1 => KsymbolKind::Bpf,
                    2 => KsymbolKind::OutOfLine,
                    _ => KsymbolKind::Other,
                };
                // The lowest bit is PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER.
                let removed = half(22)? & 1 != 0;
                let name = bytes.get(24..)?;
                let name = &name[..name.iter().position(|&b| b == 0).unwrap_or(name.len())];
                Record::Ksymbol(Ksymbol { addr: u64_at(bytes, 8)?, len: u32_at(bytes, 16)?, kind, removed, name })
            }
            PERF_RECORD_MMAP => Record::Mmap2(Mmap2::parse_mmap(bytes, misc(bytes)?)?),
            PERF_RECORD_MMAP2 => Record::Mmap2(Mmap2::parse(bytes, misc(bytes)? & misc_mask)?),
            PERF_RECORD_CGROUP => {
                let text = bytes.get(16..)?;
                let path = &text[..text.iter().position(|&b| b == 0).unwrap_or(text.len())];
                Record::Cgroup { id: u64_at(bytes, 8)?, path }
            }
            PERF_RECORD_THROTTLE => Record::Throttle,
            _ => return None,
        })
    }
}

/// Returns the flags in the header of a record (PERF_RECORD_MISC_*).
#[inline]
pub fn misc(bytes: &[u8]) -> Option<u16> {
    bytes.get(4..)?.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_ne_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mmap2(misc: u16, union: &[u8; 24]) -> Vec<u8> {
        let mut record = PERF_RECORD_MMAP2.to_ne_bytes().to_vec();
        record.extend(misc.to_ne_bytes());
        record.extend(80u16.to_ne_bytes());
        record.extend([7u32, 8].iter().flat_map(|word| word.to_ne_bytes()));
        record.extend([0x7f00_0000_1000u64, 0x2000, 0x3000].iter().flat_map(|word| word.to_ne_bytes()));
        record.extend(union);
        record.extend([5u32, 2].iter().flat_map(|word| word.to_ne_bytes()));
        record.extend(b"/bin/x\0\0");
        record
    }

    #[test]
    fn parse_without_build_ids_ignores_the_build_id_flag() {
        let mut place = [0; 24];
        (place[0], place[8], place[16]) = (254, 7, 9);
        let bytes = mmap2(PERF_RECORD_MISC_MMAP_BUILD_ID, &place);
        let Record::Mmap2(record) = Record::parse_without_build_ids(&bytes) else { panic!() };
        assert_eq!(record.file, MmapFile::Inode { major: 254, minor: 0, inode: 7, generation: 9 });
    }

    #[test]
    fn mmap2_with_an_inode_and_with_a_build_id() {
        let mut inode = [0; 24];
        (inode[0], inode[4], inode[8], inode[16]) = (8, 1, 42, 3);
        let bytes = mmap2(0, &inode);
        let Record::Mmap2(record) = Record::parse(&bytes) else { panic!("{:?}", Record::parse(&bytes)) };
        assert_eq!(
            (record.pid, record.tid, record.addr, record.len, record.pgoff),
            (7, 8, 0x7f00_0000_1000, 0x2000, 0x3000)
        );
        assert_eq!(record.file, MmapFile::Inode { major: 8, minor: 1, inode: 42, generation: 3 });
        assert_eq!((record.prot, record.flags, record.filename), (5, 2, &b"/bin/x"[..]));

        let mut id = [0xab; 24];
        id[..4].copy_from_slice(&[20, 0, 0, 0]);
        let bytes = mmap2(PERF_RECORD_MISC_MMAP_BUILD_ID, &id);
        let Record::Mmap2(record) = Record::parse(&bytes) else { panic!("{:?}", Record::parse(&bytes)) };
        assert_eq!(record.file, MmapFile::BuildId(&[0xab; 20]));
        for cut in 0..72 {
            assert!(matches!(Record::parse(&bytes[..cut]), Record::Other(_)), "{cut}");
        }
    }

    #[test]
    fn a_mapping_without_protection_and_flags_is_code_unless_its_header_says_data() {
        let prot = |misc: u16, stated: [u32; 2]| {
            let mut bytes = mmap2(misc, &[0; 24]);
            bytes[64..72].copy_from_slice(&stated.map(u32::to_ne_bytes).concat());
            let Record::Mmap2(record) = Record::parse(&bytes) else { panic!() };
            (record.prot, record.flags)
        };
        assert_eq!(prot(0, [0, 0]), (5, 0));
        assert_eq!(prot(PERF_RECORD_MISC_MMAP_DATA, [0, 0]), (1, 0));
        assert_eq!(prot(0, [0x4000, 0]), (0x4005, 0));
        // 0 and 2 stand for PROT_NONE and MAP_PRIVATE.
        assert_eq!(prot(0, [0, 2]), (0, 2));
    }

    /// If perf-prof trusted the flag, it would not know the mappings of processes while another tracer runs, and frames
    /// would have no names.
    #[test]
    fn records_with_the_build_id_flag_of_another_tracer_have_an_inode() {
        let file = |union: &[u8; 24]| match Record::parse(&mmap2(PERF_RECORD_MISC_MMAP_BUILD_ID, union)) {
            Record::Mmap2(Mmap2 { file: MmapFile::BuildId(id), .. }) => {
                union[4..].starts_with(id) && id.len() == usize::from(union[0])
            }
            Record::Mmap2(_) => false,
            other => panic!("{other:?}"),
        };
        // Examples of device numbers: 254:0 is typical of virtual disks, 0:42 of overlays and tmpfs.
        for (major, minor) in [(254u32, 0u32), (8, 1), (259, 3), (0, 42), (9, 0)] {
            for (inode, generation) in [(1234u64, 0u64), (1 << 40, 7)] {
                let words = [major.to_ne_bytes(), minor.to_ne_bytes()].concat();
                let numbers = [inode.to_ne_bytes(), generation.to_ne_bytes()].concat();
                assert!(!file(&[words, numbers].concat().try_into().unwrap()), "{major}:{minor} {inode} {generation}");
            }
        }
        for size in [8, 16, 20] {
            let mut id = [0; 24];
            id[0] = size;
            id[4..4 + usize::from(size)].fill(0xcd);
            assert!(file(&id), "{size}");
        }
    }
}

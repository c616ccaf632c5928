//! Records that tell of what there was before the recording, as the kernel would have: tasks, mappings, the kernel itself.

use crate::abi::{
    PERF_RECORD_CGROUP, PERF_RECORD_COMM, PERF_RECORD_FORK, PERF_RECORD_KSYMBOL, PERF_RECORD_LOST,
    PERF_RECORD_LOST_SAMPLES, PERF_RECORD_MISC_KERNEL, PERF_RECORD_MISC_MMAP_BUILD_ID, PERF_RECORD_MISC_MMAP_DATA,
    PERF_RECORD_MISC_USER, PERF_RECORD_MMAP, PERF_RECORD_MMAP2, PERF_RECORD_NAMESPACES, perf_data::HOST_KERNEL_ID,
};
use crate::record::TrailerLayout;

/// Records, back to back. They have no time and no event: the sample id at their end is all zeroes, as perf's own.
#[derive(Clone, Debug)]
pub struct Synthesis {
    bytes: Vec<u8>,
    trailer: TrailerLayout,
}

/// A range of a process's addresses.
#[derive(Clone, Copy, Debug)]
pub struct Mapped<'a> {
    /// Its first address.
    pub start: u64,
    /// How many bytes.
    pub len: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// `PROT_*`.
    pub prot: u32,
    /// `MAP_*`.
    pub flags: u32,
    /// Its name.
    pub path: &'a [u8],
    /// Which file it is.
    pub file: MappedFile<'a>,
}

/// What tells a mapped file from others of its name.
#[derive(Clone, Copy, Debug)]
pub enum MappedFile<'a> {
    /// Where it is stored: device and inode.
    Inode((u32, u32), u64),
    /// What it was built from, 20 bytes at most.
    BuildId(&'a [u8]),
}

impl Synthesis {
    /// None yet; each record is to have such a sample id at its end.
    pub fn new(trailer: TrailerLayout) -> Self {
        Self { bytes: Vec::new(), trailer }
    }

    /// The records.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The kernel's own code: `name` is `[kernel.kallsyms]` and the symbol at `reference`, by which its addresses are compared
    /// with those of another boot.
    pub fn kernel(&mut self, name: &str, (start, len): (u64, u64), reference: u64, build_id: Option<&[u8]>) {
        self.of_kernel(name.as_bytes(), [start, len, reference], build_id);
    }

    /// The code of a module.
    pub fn module(&mut self, path: &[u8], (start, len): (u64, u64), build_id: Option<&[u8]>) {
        self.of_kernel(path, [start, len, 0], build_id);
    }

    /// What it was built from stands in the record too: a pipe, and a recording that is cut off, have it nowhere else.
    fn of_kernel(&mut self, name: &[u8], range: [u64; 3], build_id: Option<&[u8]>) {
        let (kind, misc) = match build_id {
            Some(_) => (PERF_RECORD_MMAP2, PERF_RECORD_MISC_KERNEL | PERF_RECORD_MISC_MMAP_BUILD_ID),
            None => (PERF_RECORD_MMAP, PERF_RECORD_MISC_KERNEL),
        };
        self.record(kind, misc, |out| {
            words(out, &[HOST_KERNEL_ID, 0]);
            longs(out, &range);
            if let Some(id) = build_id {
                self::build_id(out, id);
                words(out, &[0, 0]);
            }
            text(out, name);
        });
    }

    /// A BPF program is loaded.
    pub fn ksymbol(&mut self, name: &[u8], start: u64, len: u32) {
        const PERF_RECORD_KSYMBOL_TYPE_BPF: u16 = 1;
        self.record(PERF_RECORD_KSYMBOL, 0, |out| {
            longs(out, &[start]);
            words(out, &[len]);
            out.extend([PERF_RECORD_KSYMBOL_TYPE_BPF, 0].map(u16::to_ne_bytes).as_flattened());
            text(out, name);
        });
    }

    /// A task is in these namespaces, each told by device and inode, in the order of `NET_NS_INDEX` and its like.
    pub fn namespaces(&mut self, (pid, tid): (u32, u32), namespaces: &[(u64, u64)]) {
        self.record(PERF_RECORD_NAMESPACES, 0, |out| {
            words(out, &[pid, tid]);
            longs(out, &[namespaces.len() as u64]);
            namespaces.iter().for_each(|&(device, inode)| longs(out, &[device, inode]));
        });
    }

    /// There is a cgroup: its id, and its path from the root of the hierarchy.
    pub fn cgroup(&mut self, id: u64, path: &[u8]) {
        self.record(PERF_RECORD_CGROUP, 0, |out| {
            longs(out, &[id]);
            text(out, path);
        });
    }

    /// A task was created.
    pub fn fork(&mut self, (pid, tid): (u32, u32), (ppid, ptid): (u32, u32)) {
        self.record(PERF_RECORD_FORK, 0, |out| {
            words(out, &[pid, ppid, tid, ptid]);
            longs(out, &[0]);
        });
    }

    /// A task has this name.
    pub fn comm(&mut self, (pid, tid): (u32, u32), name: &[u8]) {
        self.record(PERF_RECORD_COMM, 0, |out| {
            words(out, &[pid, tid]);
            text(out, name);
        });
    }

    /// A process has mapped something.
    pub fn mmap2(&mut self, (pid, tid): (u32, u32), mapped: &Mapped<'_>) {
        let identified = match mapped.file {
            MappedFile::BuildId(_) => PERF_RECORD_MISC_MMAP_BUILD_ID,
            MappedFile::Inode(..) => 0,
        };
        let data = if mapped.prot & libc::PROT_EXEC as u32 == 0 { PERF_RECORD_MISC_MMAP_DATA } else { 0 };
        self.record(PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER | identified | data, |out| {
            words(out, &[pid, tid]);
            longs(out, &[mapped.start, mapped.len, mapped.offset]);
            match mapped.file {
                MappedFile::Inode((major, minor), inode) => {
                    words(out, &[major, minor]);
                    longs(out, &[inode, 0]);
                }
                MappedFile::BuildId(id) => build_id(out, id),
            }
            words(out, &[mapped.prot, mapped.flags]);
            text(out, mapped.path);
        });
    }

    /// So many samples with this id were lost, in all, on this CPU.
    pub fn lost_samples(&mut self, count: u64, id: u64, cpu: u32) {
        self.record(PERF_RECORD_LOST_SAMPLES, 0, |out| longs(out, &[count]));
        self.trailer.put(&mut self.bytes, id, cpu, 0);
    }

    /// So many records were lost in a CPU's ring, of which this id is one, until this time.
    pub fn lost(&mut self, count: u64, id: u64, cpu: u32, time: u64) {
        self.record(PERF_RECORD_LOST, 0, |out| longs(out, &[id, count]));
        self.trailer.put(&mut self.bytes, id, cpu, time);
    }

    fn record(&mut self, kind: u32, misc: u16, body: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        words(&mut self.bytes, &[kind]);
        // The size is not known yet.
        self.bytes.extend([misc, 0].map(u16::to_ne_bytes).as_flattened());
        body(&mut self.bytes);
        self.bytes.resize(self.bytes.len() + self.trailer.size(), 0);
        match u16::try_from(self.bytes.len() - start) {
            Ok(size) => self.bytes[start + 6..start + 8].copy_from_slice(&size.to_ne_bytes()),
            // A path longer than any that the kernel makes.
            Err(_) => self.bytes.truncate(start),
        }
    }
}

fn words(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend(word.to_ne_bytes()));
}

fn longs(out: &mut Vec<u8>, longs: &[u64]) {
    longs.iter().for_each(|long| out.extend(long.to_ne_bytes()));
}

/// A build id in the place of device and inode.
fn build_id(out: &mut Vec<u8>, id: &[u8]) {
    let mut bytes = [0; 24];
    let size = id.len().min(20);
    bytes[0] = size as u8;
    bytes[4..4 + size].copy_from_slice(&id[..size]);
    out.extend(bytes);
}

/// A text with its NUL, filled up to 8 bytes.
fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(text);
    out.resize(out.len() + 8 - text.len() % 8, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        abi::{PERF_SAMPLE_CPU, PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_TID, PERF_SAMPLE_TIME},
        record::{Ksymbol, KsymbolKind, Mmap2, MmapFile, Record, Records, record_type},
    };

    #[test]
    fn records_read_back() {
        let trailer = TrailerLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER);
        let mut synthesis = Synthesis::new(trailer);
        synthesis.kernel("[kernel.kallsyms]_text", (0x1000, 0x2000), 0x1000, Some(&[9; 20]));
        synthesis.fork((7, 8), (1, 7));
        synthesis.comm((7, 8), b"12345678");
        let mapped = |file| Mapped { start: 1, len: 2, offset: 3, prot: 5, flags: 2, path: b"/bin/x", file };
        synthesis.mmap2((7, 7), &mapped(MappedFile::Inode((8, 1), 42)));
        synthesis.mmap2((7, 7), &mapped(MappedFile::BuildId(&[9; 20])));
        synthesis.ksymbol(b"bpf_prog_1_x", 0x3000, 58);
        let long = vec![b'x'; 1 << 16];
        synthesis.comm((1, 1), &long);
        let records: Vec<&[u8]> = Records::new(synthesis.bytes()).collect();
        assert!(records.iter().all(|record| record.len() % 8 == 0 && record.ends_with(&[0; 32])));
        let expected = |file| {
            Record::Mmap2(Mmap2 {
                pid: 7,
                tid: 7,
                addr: 1,
                len: 2,
                pgoff: 3,
                file,
                prot: 5,
                flags: 2,
                filename: b"/bin/x",
            })
        };
        let parsed: Vec<Record<'_>> = records.iter().map(|record| Record::parse(record)).collect();
        assert_eq!(
            parsed[1..],
            [
                Record::Fork { pid: 7, ppid: 1, tid: 8, ptid: 7 },
                Record::Comm { pid: 7, tid: 8, comm: b"12345678", exec: false },
                expected(MmapFile::Inode { major: 8, minor: 1, inode: 42, generation: 0 }),
                expected(MmapFile::BuildId(&[9; 20])),
                Record::Ksymbol(Ksymbol {
                    addr: 0x3000,
                    len: 58,
                    kind: KsymbolKind::Bpf,
                    removed: false,
                    name: b"bpf_prog_1_x"
                }),
            ]
        );
    }

    /// `perf_fill_ns_link_info()` and `perf_event_cgroup()` of kernel/events/core.c.
    #[test]
    fn namespaces_and_cgroups_are_written_as_the_kernel_writes_them() {
        let mut synthesis = Synthesis::new(TrailerLayout::new(0));
        synthesis.namespaces((7, 8), &[(4, 0xf000_0000), (4, 9)]);
        synthesis.cgroup(42, b"/a");
        let records: Vec<&[u8]> = Records::new(synthesis.bytes()).collect();
        let [namespaces, cgroup] = records[..] else { panic!("{records:?}") };
        let ids: Vec<u8> = [7u32, 8].into_iter().flat_map(u32::to_ne_bytes).collect();
        let links: Vec<u8> = [2u64, 4, 0xf000_0000, 4, 9].into_iter().flat_map(u64::to_ne_bytes).collect();
        assert_eq!((record_type(namespaces), &namespaces[8..]), (PERF_RECORD_NAMESPACES, &*[ids, links].concat()));
        let path = [&42u64.to_ne_bytes()[..], b"/a\0\0\0\0\0\0"].concat();
        assert_eq!((record_type(cgroup), &cgroup[8..]), (PERF_RECORD_CGROUP, &*path));
    }

    #[test]
    fn losses_are_of_an_event_and_a_cpu_and_sums_of_no_time() {
        let trailer = TrailerLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER);
        let mut synthesis = Synthesis::new(trailer);
        synthesis.lost_samples(9, 70, 3);
        synthesis.lost(8, 71, 0, 5);
        let records: Vec<&[u8]> = Records::new(synthesis.bytes()).collect();
        assert_eq!(Record::parse(records[0]), Record::Lost { lost: 9 });
        let of = |record: &[u8]| (trailer.id(record), trailer.cpu(record), trailer.time(record));
        assert_eq!(of(records[0]), (Some(70), Some(3), Some(0)));
        assert_eq!(Record::parse(records[1]), Record::Lost { lost: 8 });
        assert_eq!(of(records[1]), (Some(71), Some(0), Some(5)));
    }
}

//! Makes records about the tasks, mappings and kernel code that existed before the recording started. The records have
//! the same form as the kernel's records.

use perf_prof_format::{
    abi::{
        PERF_RECORD_CGROUP, PERF_RECORD_COMM, PERF_RECORD_FORK, PERF_RECORD_KSYMBOL, PERF_RECORD_LOST,
        PERF_RECORD_LOST_SAMPLES, PERF_RECORD_MISC_KERNEL, PERF_RECORD_MISC_MMAP_BUILD_ID, PERF_RECORD_MISC_MMAP_DATA,
        PERF_RECORD_MISC_USER, PERF_RECORD_MMAP, PERF_RECORD_MMAP2, PERF_RECORD_NAMESPACES, perf_data::HOST_KERNEL_ID,
    },
    record::{RECORD_HEADER, TrailerLayout, misc, record_type},
};

use super::features::words;

/// Consecutive records. As in perf's own records, the sample id at the end of each record is all zeros, so the record
/// has no time and no event. Only records about losses differ: each of them contains the id of an event, and
/// PERF_RECORD_LOST also contains a time.
#[derive(Clone, Debug)]
pub struct Synthesis {
    bytes: Vec<u8>,
    trailer: TrailerLayout,
}

/// The ids of a task.
#[derive(Clone, Copy, Debug)]
pub struct TaskIds {
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
}

impl TaskIds {
    /// Returns the ids of a process's first thread.
    pub fn first(pid: u32) -> Self {
        Self { pid, tid: pid }
    }
}

/// A range of the kernel's code.
#[derive(Clone, Copy, Debug)]
pub struct KernelCode<'a> {
    /// The path of a module. For the kernel itself, it is `[kernel.kallsyms]`, followed by the name of the symbol at
    /// `reference`.
    pub name: &'a [u8],
    /// The first address of the range.
    pub start: u64,
    /// The size of the range in bytes.
    pub len: u64,
    /// The address of the kernel's reference symbol; 0 for a module. The difference between the addresses of the
    /// reference symbol in two boots shows how far the kernel was moved.
    pub reference: u64,
    /// The build id, if it is known.
    pub build_id: Option<&'a [u8]>,
}

/// A mapped range of a process's addresses.
#[derive(Clone, Copy, Debug)]
pub struct MappedRange<'a> {
    /// The first address of the range.
    pub start: u64,
    /// The size of the range in bytes.
    pub len: u64,
    /// The offset of the range in the mapped file, in bytes.
    pub offset: u64,
    /// The protection of the range: `PROT_*`.
    pub prot: u32,
    /// The flags of the mapping: `MAP_*`.
    pub flags: u32,
    /// The path of the mapped file, or the name of the mapping if no file is mapped.
    pub path: &'a [u8],
    /// The identity of the file.
    pub file: MappedFile<'a>,
}

/// The identity of a mapped file, which distinguishes it from other files of the same path.
#[derive(Clone, Copy, Debug)]
pub enum MappedFile<'a> {
    /// The device (major, minor) and the inode number of the file.
    Inode((u32, u32), u64),
    /// The build id, at most 20 bytes.
    BuildId(&'a [u8]),
}

impl Synthesis {
    /// Creates a value without records. `trailer` is the layout of the sample id at the end of each record.
    pub fn new(trailer: TrailerLayout) -> Self {
        Self { bytes: Vec::new(), trailer }
    }

    /// Returns the records.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds the mapping of the kernel's own code, or of a module's code.
    pub fn kernel(&mut self, code: &KernelCode<'_>) {
        let &KernelCode { name, start, len, reference, build_id } = code;
        let (kind, misc) = match build_id {
            Some(_) => (PERF_RECORD_MMAP2, PERF_RECORD_MISC_KERNEL | PERF_RECORD_MISC_MMAP_BUILD_ID),
            None => (PERF_RECORD_MMAP, PERF_RECORD_MISC_KERNEL),
        };
        self.record(kind, misc, |out| {
            words(out, &[HOST_KERNEL_ID, 0]);
            longs(out, &[start, len, reference]);
            if let Some(id) = build_id {
                self::build_id(out, id);
                words(out, &[0, 0]);
            }
            push_text(out, name);
        });
    }

    /// Adds a loaded BPF program.
    pub fn ksymbol(&mut self, name: &[u8], start: u64, len: u32) {
        const PERF_RECORD_KSYMBOL_TYPE_BPF: u16 = 1;
        self.record(PERF_RECORD_KSYMBOL, 0, |out| {
            longs(out, &[start]);
            words(out, &[len]);
            out.extend([PERF_RECORD_KSYMBOL_TYPE_BPF, 0].map(u16::to_ne_bytes).as_flattened());
            push_text(out, name);
        });
    }

    /// Adds the namespaces of a task, each as device and inode, in the order of `NET_NS_INDEX` and the other index
    /// constants.
    pub fn namespaces(&mut self, task: TaskIds, namespaces: &[(u64, u64)]) {
        self.record(PERF_RECORD_NAMESPACES, 0, |out| {
            words(out, &[task.pid, task.tid]);
            longs(out, &[namespaces.len() as u64]);
            namespaces.iter().for_each(|&(device, inode)| longs(out, &[device, inode]));
        });
    }

    /// Adds a cgroup: its id, and its path from the root of the hierarchy.
    pub fn cgroup(&mut self, id: u64, path: &[u8]) {
        self.record(PERF_RECORD_CGROUP, 0, |out| {
            longs(out, &[id]);
            push_text(out, path);
        });
    }

    /// Adds the creation of a task.
    pub fn fork(&mut self, task: TaskIds, parent: TaskIds) {
        self.record(PERF_RECORD_FORK, 0, |out| {
            words(out, &[task.pid, parent.pid, task.tid, parent.tid]);
            longs(out, &[0]);
        });
    }

    /// Adds the name of a task.
    pub fn comm(&mut self, task: TaskIds, name: &[u8]) {
        self.record(PERF_RECORD_COMM, 0, |out| {
            words(out, &[task.pid, task.tid]);
            push_text(out, name);
        });
    }

    /// Adds a mapping of a process.
    pub fn mmap2(&mut self, task: TaskIds, mapped: &MappedRange<'_>) {
        let identified = match mapped.file {
            MappedFile::BuildId(_) => PERF_RECORD_MISC_MMAP_BUILD_ID,
            MappedFile::Inode(..) => 0,
        };
        let data = if mapped.prot & libc::PROT_EXEC as u32 == 0 { PERF_RECORD_MISC_MMAP_DATA } else { 0 };
        self.record(PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER | identified | data, |out| {
            words(out, &[task.pid, task.tid]);
            longs(out, &[mapped.start, mapped.len, mapped.offset]);
            match mapped.file {
                MappedFile::Inode((major, minor), inode) => {
                    words(out, &[major, minor]);
                    longs(out, &[inode, 0]);
                }
                MappedFile::BuildId(id) => build_id(out, id),
            }
            words(out, &[mapped.prot, mapped.flags]);
            push_text(out, mapped.path);
        });
    }

    /// Adds the total number of samples that an event lost on a CPU. `id` is the id of the event on this CPU.
    pub fn lost_samples(&mut self, count: u64, id: u64, cpu: u32) {
        self.record(PERF_RECORD_LOST_SAMPLES, 0, |out| longs(out, &[count]));
        self.trailer.put(&mut self.bytes, id, cpu, 0);
    }

    /// Adds the number of records that a CPU's ring lost before `time`. `id` can be the id of any event that writes
    /// into this ring.
    pub fn lost(&mut self, count: u64, id: u64, cpu: u32, time: u64) {
        self.record(PERF_RECORD_LOST, 0, |out| longs(out, &[id, count]));
        self.trailer.put(&mut self.bytes, id, cpu, time);
    }

    /// Adds a copy of a kernel record, without its sample id. If `task` is given, the ids of `task` replace the ids of
    /// the task in the copy. In this case, the record must begin with the ids of a task.
    pub fn again(&mut self, record: &[u8], task: Option<TaskIds>) {
        let end = self.trailer.end(record).saturating_sub(self.trailer.size());
        let Some(body) = record.get(RECORD_HEADER..end) else { return };
        self.record(record_type(record), misc(record).unwrap_or(0), |out| match (task, body.get(8..)) {
            (Some(task), Some(rest)) => {
                words(out, &[task.pid, task.tid]);
                out.extend(rest);
            }
            _ => out.extend(body),
        });
    }

    fn record(&mut self, kind: u32, misc: u16, body: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        words(&mut self.bytes, &[kind]);
        // The size of the record follows below, when it is known.
        self.bytes.extend([misc, 0].map(u16::to_ne_bytes).as_flattened());
        body(&mut self.bytes);
        self.bytes.resize(self.bytes.len() + self.trailer.size(), 0);
        match u16::try_from(self.bytes.len() - start) {
            Ok(size) => self.bytes[start + 6..start + 8].copy_from_slice(&size.to_ne_bytes()),
            // The record is too large, because its path is longer than any path from the kernel.
            Err(_) => self.bytes.truncate(start),
        }
    }
}

fn longs(out: &mut Vec<u8>, longs: &[u64]) {
    longs.iter().for_each(|long| out.extend(long.to_ne_bytes()));
}

/// Writes a build id in place of device and inode.
fn build_id(out: &mut Vec<u8>, id: &[u8]) {
    let mut bytes = [0; 24];
    let size = id.len().min(20);
    bytes[0] = size as u8;
    bytes[4..4 + size].copy_from_slice(&id[..size]);
    out.extend(bytes);
}

/// Writes a text and at least one NUL, padded to a multiple of 8 bytes.
fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(text);
    out.resize(out.len() + 8 - text.len() % 8, 0);
}

#[cfg(test)]
mod tests {
    use perf_prof_format::{
        abi::{PERF_SAMPLE_CPU, PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_TID, PERF_SAMPLE_TIME},
        record::{Ksymbol, KsymbolKind, Mmap2, MmapFile, Record, Records, record_type},
    };

    use super::*;

    #[test]
    fn records_read_back() {
        let trailer = TrailerLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER);
        let mut synthesis = Synthesis::new(trailer);
        synthesis.kernel(&KernelCode {
            name: b"[kernel.kallsyms]_text",
            start: 0x1000,
            len: 0x2000,
            reference: 0x1000,
            build_id: Some(&[9; 20]),
        });
        synthesis.fork(TaskIds { pid: 7, tid: 8 }, TaskIds { pid: 1, tid: 7 });
        synthesis.comm(TaskIds { pid: 7, tid: 8 }, b"12345678");
        let mapped = |file| MappedRange { start: 1, len: 2, offset: 3, prot: 5, flags: 2, path: b"/bin/x", file };
        synthesis.mmap2(TaskIds::first(7), &mapped(MappedFile::Inode((8, 1), 42)));
        synthesis.mmap2(TaskIds::first(7), &mapped(MappedFile::BuildId(&[9; 20])));
        synthesis.ksymbol(b"bpf_prog_1_x", 0x3000, 58);
        let long = vec![b'x'; 1 << 16];
        synthesis.comm(TaskIds::first(1), &long);
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

    /// The kernel writes these records in `perf_fill_ns_link_info()` and `perf_event_cgroup()` of kernel/events/core.c.
    #[test]
    fn namespaces_and_cgroups_are_written_as_the_kernel_writes_them() {
        let mut synthesis = Synthesis::new(TrailerLayout::new(0));
        synthesis.namespaces(TaskIds { pid: 7, tid: 8 }, &[(4, 0xf000_0000), (4, 9)]);
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

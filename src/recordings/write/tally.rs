//! Counts what the written records contain: samples, lost records, the range of times, and mapped files.

use std::collections::{BTreeMap, HashMap};

use perf_prof_format::{
    abi::PERF_RECORD_SAMPLE,
    record::{Mmap2, MmapFile, Record, Records, SampleLayout, TrailerLayout, record_type},
};

use super::ForeignIdCounts;

/// A build id, at most 20 bytes.
pub type BuildId = Box<[u8]>;

/// Files with mapped code, by path.
pub type Dsos = HashMap<Box<[u8]>, Dso>;

/// A file with mapped code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dso {
    /// The build id of the file, if a record stated it.
    pub build_id: Option<BuildId>,
    /// The owner of the file: the kernel or user space.
    pub of: DsoOwner,
}

/// The owner of a file with code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DsoOwner {
    /// The kernel or a kernel module.
    Kernel,
    /// A program or a library.
    User,
}

/// Returns whether a mapping contains code from a file. Mappings without a file have names such as `//anon` or
/// `[vdso]`.
fn is_code_of_a_file(mapped: &Mmap2<'_>) -> bool {
    let is_code = mapped.prot & libc::PROT_EXEC as u32 != 0;
    is_code && mapped.filename.starts_with(b"/") && !mapped.filename.starts_with(b"//")
}

/// Counts of records.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The number of samples.
    pub samples: u64,
    /// The number of records that the kernel reported as lost, by CPU.
    pub lost: BTreeMap<u32, u64>,
    /// The times of the first and the last sample.
    pub times: Option<(u64, u64)>,
    /// The files with mapped code.
    pub dsos: Dsos,
    /// The foreign ids in samples, and the number of samples that were left out because of them.
    pub strays: ForeignIdCounts,
}

impl Tally {
    /// Counts consecutive whole records of one ring. Of the samples, only the times of the first and the last one are
    /// read, because the samples of a ring are nearly sorted. Returns whether a record is longer than its content, so
    /// that `grown.rs` has to cut the record.
    pub fn add(&mut self, records: &[u8], layout: &SampleLayout) -> bool {
        let (mut first, mut last, mut have_grown) = (None, None, false);
        let trailer = TrailerLayout::new(layout.format.sample_type);
        for record in Records::new(records) {
            if record_type(record) == PERF_RECORD_SAMPLE {
                self.samples += 1;
                first = first.or(Some(record));
                last = Some(record);
            } else {
                have_grown |= trailer.end(record) != record.len();
                self.other(record, &trailer);
            }
        }
        for time in [first, last].into_iter().flatten().filter_map(|sample| layout.time(sample)) {
            self.times = Some(self.times.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
        }
        have_grown
    }

    /// Adds the counts of `other`, and sets `other` to zero.
    pub fn absorb(&mut self, other: &mut Tally) {
        let Tally { samples, lost, times, dsos, strays } = std::mem::take(other);
        self.samples += samples;
        lost.into_iter().for_each(|(cpu, lost)| *self.lost.entry(cpu).or_default() += lost);
        self.times = match (self.times, times) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
        self.dsos.extend(dsos);
        self.strays.ids.extend(strays.ids);
        self.strays.left_out += strays.left_out;
    }

    fn other(&mut self, record: &[u8], trailer: &TrailerLayout) {
        match Record::parse(record) {
            Record::Lost { lost } => {
                let cpu = trailer.cpu(record).unwrap_or(0);
                *self.lost.entry(cpu).or_default() += lost;
            }
            Record::Mmap2(mapped) if is_code_of_a_file(&mapped) => {
                let build_id = match mapped.file {
                    MmapFile::BuildId(id) if !id.is_empty() => Some(id.into()),
                    _ => None,
                };
                // If several files were mapped at the same path, only the newest of them can still be read.
                self.dsos.insert(mapped.filename.into(), Dso { build_id, of: DsoOwner::User });
            }
            _ => {}
        }
    }
}

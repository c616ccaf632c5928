//! What records that are written hold: how many samples, how many were lost, from when to when, which files.

use std::collections::{BTreeMap, HashMap};

use super::Met;
use crate::{
    abi::PERF_RECORD_SAMPLE,
    record::{Mmap2, MmapFile, Record, Records, SampleLayout, TrailerLayout, record_type},
};

/// What tells a binary from all others; at most 20 bytes.
pub type BuildId = Box<[u8]>;

/// Files that code is mapped from, by path.
pub type Dsos = HashMap<Box<[u8]>, Dso>;

/// A file that code was mapped from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dso {
    /// What it was built from, where a record told.
    pub build_id: Option<BuildId>,
    /// Whose code it is.
    pub of: DsoOf,
}

/// Whose code a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DsoOf {
    /// The kernel's.
    Kernel,
    /// A program's.
    User,
}

/// What has no file is called `//anon`, `[vdso]` and the like.
fn is_code_of_a_file(mapped: &Mmap2<'_>) -> bool {
    let is_code = mapped.prot & libc::PROT_EXEC as u32 != 0;
    is_code && mapped.filename.starts_with(b"/") && !mapped.filename.starts_with(b"//")
}

/// Counts of records.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Samples.
    pub samples: u64,
    /// Records that the kernel says it dropped, by the CPU that says so.
    pub lost: BTreeMap<u32, u64>,
    /// Times of the first and the last sample.
    pub times: Option<(u64, u64)>,
    /// Files whose code was mapped.
    pub dsos: Dsos,
    /// Samples that have the id of another program's event.
    pub strays: Met,
}

impl Tally {
    /// Counts a run of whole records of one ring, whose samples lie in the order of their times but for a few.
    pub fn add(&mut self, records: &[u8], layout: &SampleLayout) {
        let (mut first, mut last) = (None, None);
        for record in Records::new(records) {
            if record_type(record) == PERF_RECORD_SAMPLE {
                self.samples += 1;
                first = first.or(Some(record));
                last = Some(record);
            } else {
                self.other(record, layout);
            }
        }
        for time in [first, last].into_iter().flatten().filter_map(|sample| layout.time(sample)) {
            self.times = Some(self.times.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
        }
    }

    /// Takes in what another one has counted, which begins anew.
    pub fn take(&mut self, other: &mut Tally) {
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

    fn other(&mut self, record: &[u8], layout: &SampleLayout) {
        match Record::parse(record) {
            Record::Lost { lost } => {
                let cpu = TrailerLayout::new(layout.format.sample_type).cpu(record).unwrap_or(0);
                *self.lost.entry(cpu).or_default() += lost;
            }
            Record::Mmap2(mapped) if is_code_of_a_file(&mapped) => {
                let build_id = match mapped.file {
                    MmapFile::BuildId(id) if !id.is_empty() => Some(id.into()),
                    _ => None,
                };
                // The newest file of a path is the one that can still be looked at.
                self.dsos.insert(mapped.filename.into(), Dso { build_id, of: DsoOf::User });
            }
            _ => {}
        }
    }
}

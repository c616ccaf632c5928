//! Writes records to a descriptor: buffers the records, compresses them if requested, and counts them after they were
//! written.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Seek, Write},
};

use perf_prof_format::{
    abi::PERF_RECORD_SAMPLE,
    record::{Records, SampleLayout, TrailerLayout, record_type},
};

use super::{ForeignIds, Level, Tally, block_index::Blocks, compress::Compressor, grown};
use crate::BlockIndex;

/// The default number of bytes to buffer before a write.
pub const DEFAULT_BUFFER: usize = 256 << 10;

/// A file or pipe that records are written to.
#[derive(Debug)]
pub struct Stream {
    file: File,
    layout: SampleLayout,
    strays: Option<ForeignIds>,
    compressor: Option<Compressor>,
    /// The block index of the records. `None` if no index is made.
    blocks: Option<Blocks>,
    /// Records that are not compressed yet.
    raw: Vec<u8>,
    /// Bytes that are ready to be written to the file.
    buffer: Vec<u8>,
    /// The number of bytes to buffer before a write.
    gathered: usize,
    /// The counts of the records in `raw` and in `buffer`.
    pending: Tally,
    /// The counts of the written records.
    written: Tally,
    /// The offset in the file after the last whole record.
    end: u64,
    state: State,
    /// The number of samples that were dropped because of an error, by id. Samples with unknown ids are not included.
    unwritten: BTreeMap<u64, u64>,
}

/// The state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// A write failed. All later records are counted and dropped.
    Failed {
        dropped: u64,
        /// The time of the first dropped sample; `u64::MAX` if no sample was dropped.
        since: u64,
    },
}

impl State {
    /// Adds the counts of dropped records.
    fn drop(&mut self, records: Tally) {
        if let State::Failed { dropped, since } = self {
            *dropped += records.samples;
            *since = records.times.map_or(*since, |(first, _)| first.min(*since));
        }
    }
}

/// The error of a failed write of records.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct WriteError(#[from] pub io::Error);

impl Stream {
    /// Creates a stream that writes to a file from offset `end` on. `layout` is the layout of all samples. The records
    /// are compressed if `level` is set.
    pub fn new(file: File, end: u64, layout: SampleLayout, level: Option<Level>) -> io::Result<Self> {
        let compressor = level.map(Compressor::new).transpose()?;
        let (pending, written, raw, buffer) = Default::default();
        Ok(Self {
            file,
            layout,
            strays: None,
            compressor,
            blocks: None,
            raw,
            buffer,
            gathered: DEFAULT_BUFFER,
            pending,
            written,
            end,
            state: State::Open,
            unwritten: BTreeMap::new(),
        })
    }

    /// Makes a block index of the records, unless they are compressed.
    pub(super) fn indexed(self) -> Self {
        let blocks = self.compressor.is_none().then(|| Blocks::new(self.end, self.layout));
        Stream { blocks, ..self }
    }

    /// Returns the block index of the records. `None` if no index was made, or if some records were not written.
    pub fn take_index(&mut self) -> Option<BlockIndex> {
        let blocks = self.blocks.take()?;
        let is_whole = self.state == State::Open && self.buffer.is_empty();
        is_whole.then(|| blocks.finish())
    }

    /// Sets the number of bytes to buffer before a write.
    pub fn gather(&mut self, bytes: usize) {
        self.gathered = bytes;
    }

    /// Sets the rule for samples with a foreign id.
    pub fn set_foreign_ids(&mut self, strays: ForeignIds) {
        self.strays = Some(strays);
    }

    /// Writes whole records of one ring, or buffers them. After an error all records are dropped, and no further error
    /// is returned.
    pub fn records(&mut self, records: &[u8]) -> Result<(), WriteError> {
        let claimed;
        let records = match &self.strays {
            Some(strays) => {
                claimed = strays.claim(records, &self.layout, &mut self.pending.strays);
                &*claimed
            }
            None => records,
        };
        let cut;
        let records = match self.pending.add(records, &self.layout) {
            true => {
                cut = grown::cut(records, &TrailerLayout::new(self.layout.format.sample_type));
                &*cut
            }
            false => records,
        };
        if self.state != State::Open {
            self.state.drop(std::mem::take(&mut self.pending));
            count_ids(records, &self.layout, &mut self.unwritten);
            return Ok(());
        }
        if self.compressor.is_none() {
            return self.put(records);
        }
        self.raw.extend(records);
        if self.raw.len() >= self.gathered { self.flush() } else { Ok(()) }
    }

    /// Writes records of the recorder itself, which are never compressed.
    pub fn own(&mut self, records: &[u8]) -> Result<(), WriteError> {
        if matches!(self.state, State::Failed { .. }) {
            return Ok(());
        }
        self.pack()?;
        self.put(records)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        if let Some(blocks) = &mut self.blocks {
            blocks.add(bytes);
        }
        if self.buffer.is_empty() && bytes.len() >= self.gathered / 2 {
            let result = self.file.write_all(bytes);
            if result.is_err() {
                count_ids(bytes, &self.layout, &mut self.unwritten);
            }
            return self.settle(result, bytes.len());
        }
        self.buffer.extend(bytes);
        if self.buffer.len() >= self.gathered { self.flush() } else { Ok(()) }
    }

    /// Compresses the buffered records.
    fn pack(&mut self) -> Result<(), WriteError> {
        match &mut self.compressor {
            Some(compressor) if !self.raw.is_empty() => {
                let result = compressor.pack(&self.raw, &mut self.buffer);
                self.raw.clear();
                if result.is_err() { self.settle(result, 0) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Writes everything that is buffered.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.pack()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let result = self.file.write_all(&self.buffer);
        let size = self.buffer.len();
        if result.is_err() {
            // The ids of samples in compressed records are not visible, so `unwritten` counts fewer samples than
            // `dropped`.
            count_ids(&self.buffer, &self.layout, &mut self.unwritten);
        }
        self.buffer.clear();
        self.settle(result, size)
    }

    /// Handles the result of a write of `size` bytes. After a successful write, counts the written records. After a
    /// failed write, removes the bytes of the incomplete write from the file.
    fn settle(&mut self, result: io::Result<()>, size: usize) -> Result<(), WriteError> {
        match result {
            Ok(()) => {
                self.end += size as u64;
                self.written.absorb(&mut self.pending);
                Ok(())
            }
            Err(error) => {
                self.state = State::Failed { dropped: 0, since: u64::MAX };
                self.state.drop(std::mem::take(&mut self.pending));
                // Truncating fails for a pipe.
                let _ = self.file.set_len(self.end).and_then(|()| self.file.seek(io::SeekFrom::Start(self.end)));
                Err(error.into())
            }
        }
    }

    /// Returns the offset in the file after the last written record.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns whether the records are compressed.
    pub fn is_compressed(&self) -> bool {
        self.compressor.is_some()
    }

    /// Returns the total size of the records before and after compression, in bytes. Both sizes are 0 if records are
    /// not compressed.
    pub fn packed(&self) -> (u64, u64) {
        self.compressor.as_ref().map_or((0, 0), |compressor| (compressor.raw, compressor.packed))
    }

    /// Returns the counts of the written records.
    pub fn written(&self) -> &Tally {
        &self.written
    }

    /// Returns the number of samples that were not written because of an error.
    pub fn dropped(&self) -> u64 {
        match self.state {
            State::Open => 0,
            State::Failed { dropped, .. } => dropped,
        }
    }

    /// Returns the time of the first sample that was not written because of an error. Returns `None` if all samples were
    /// written, or if samples have no times.
    pub fn dropped_since(&self) -> Option<u64> {
        match self.state {
            State::Failed { since, .. } if since != u64::MAX => Some(since),
            State::Open | State::Failed { .. } => None,
        }
    }

    /// Returns, by id, the number of samples that were not written because of an error. In a compressed stream, samples
    /// whose ids are not visible are not counted.
    pub fn unwritten(&self) -> &BTreeMap<u64, u64> {
        &self.unwritten
    }

    /// Tries again to write records after an error, because the disk may have free space by then.
    pub fn own_after_failure(&mut self, records: &[u8]) -> io::Result<()> {
        self.file.write_all(records)?;
        self.end += records.len() as u64;
        Ok(())
    }

    /// Returns the file, to write data after the records.
    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }
}

/// Adds the ids of the samples in `records` to the counts.
fn count_ids(records: &[u8], layout: &SampleLayout, counts: &mut BTreeMap<u64, u64>) {
    let samples = Records::new(records).filter(|record| record_type(record) == PERF_RECORD_SAMPLE);
    samples.filter_map(|sample| layout.id(sample)).for_each(|id| *counts.entry(id).or_default() += 1);
}

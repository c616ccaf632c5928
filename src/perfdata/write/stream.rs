//! Records on their way to a descriptor: gathered, compressed if asked for, and counted once they are written.

use std::{
    fs::File,
    io::{self, Seek, Write},
};

use super::{Level, Strays, Tally, blocks::Blocks, compress::Compressor};
use crate::{perfdata::BlockIndex, record::SampleLayout};

/// How much is gathered before it is written, where nobody says.
pub const GATHERED: usize = 256 << 10;

/// Where records are written to.
#[derive(Debug)]
pub struct Stream {
    file: File,
    layout: SampleLayout,
    strays: Option<Strays>,
    compressor: Option<Compressor>,
    /// Where they lie in time, if that is to be known.
    blocks: Option<Blocks>,
    /// Records that are to be packed.
    raw: Vec<u8>,
    /// Bytes that are to be written.
    buffer: Vec<u8>,
    /// How much is gathered.
    gathered: usize,
    /// What both hold.
    pending: Tally,
    /// What was written.
    written: Tally,
    /// Up to where the file holds whole records.
    end: u64,
    state: State,
}

/// Whether writing goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// It failed; what comes now is counted and dropped.
    Failed {
        dropped: u64,
    },
}

/// Records could not be written.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct WriteError(#[from] pub io::Error);

impl Stream {
    /// Appends to a file whose end is at `end`; samples look like this.
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
            gathered: GATHERED,
            pending,
            written,
            end,
            state: State::Open,
        })
    }

    /// Has it known where its records lie in time, unless they are packed.
    pub(super) fn indexed(self) -> Self {
        let blocks = self.compressor.is_none().then(|| Blocks::new(self.end, self.layout));
        Stream { blocks, ..self }
    }

    /// Where its records lie in time, all of which were written; `None` where that is not known.
    pub fn take_index(&mut self) -> Option<BlockIndex> {
        let blocks = self.blocks.take()?;
        let is_whole = self.state == State::Open && self.buffer.is_empty();
        is_whole.then(|| blocks.finish())
    }

    /// Gathers so many bytes before it writes.
    pub fn gather(&mut self, bytes: usize) {
        self.gathered = bytes;
    }

    /// Has samples with an id of another program belong to one of the recording's events.
    pub fn adopt(&mut self, strays: Strays) {
        self.strays = Some(strays);
    }

    /// Writes whole records of one ring, now or with what follows. After an error what comes is dropped, without another
    /// one.
    pub fn records(&mut self, records: &[u8]) -> Result<(), WriteError> {
        let claimed;
        let records = match &self.strays {
            Some(strays) => {
                claimed = strays.claim(records, &self.layout, &mut self.pending.strays);
                &*claimed
            }
            None => records,
        };
        self.pending.add(records, &self.layout);
        if let State::Failed { dropped } = &mut self.state {
            *dropped += std::mem::take(&mut self.pending).samples;
            return Ok(());
        }
        if self.compressor.is_none() {
            return self.put(records);
        }
        self.raw.extend(records);
        if self.raw.len() >= self.gathered { self.flush() } else { Ok(()) }
    }

    /// Writes records of our own, which are never packed.
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
            return self.settle(result, bytes.len());
        }
        self.buffer.extend(bytes);
        if self.buffer.len() >= self.gathered { self.flush() } else { Ok(()) }
    }

    /// Packs what is to be packed.
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

    /// Writes what was gathered.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.pack()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let result = self.file.write_all(&self.buffer);
        let size = self.buffer.len();
        self.buffer.clear();
        self.settle(result, size)
    }

    /// Counts what was written. Of what could not be written whole, nothing is left.
    fn settle(&mut self, result: io::Result<()>, size: usize) -> Result<(), WriteError> {
        match result {
            Ok(()) => {
                self.end += size as u64;
                self.written.take(&mut self.pending);
                Ok(())
            }
            Err(error) => {
                self.state = State::Failed { dropped: std::mem::take(&mut self.pending).samples };
                // A pipe cannot be cut, and has no end to be found.
                let _ = self.file.set_len(self.end).and_then(|()| self.file.seek(io::SeekFrom::Start(self.end)));
                Err(error.into())
            }
        }
    }

    /// Where the records that were written end.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of records that were packed, and what they became.
    pub fn packed(&self) -> (u64, u64) {
        self.compressor.as_ref().map_or((0, 0), |compressor| (compressor.raw, compressor.packed))
    }

    /// What was written.
    pub fn written(&self) -> &Tally {
        &self.written
    }

    /// Samples that could not be written.
    pub fn dropped(&self) -> u64 {
        match self.state {
            State::Open => 0,
            State::Failed { dropped } => dropped,
        }
    }

    /// The file, to go on with what is no record.
    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }
}

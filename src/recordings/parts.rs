//! Where the records of a recording are: in sections of files, or in a stream.

use std::sync::Arc;

use super::{
    error::PerfDataError,
    format::{bytes::ByteOrder, first_records::Rings, header::Section, layouts::Layouts},
    index::{
        blocks::{BlockIndex, IndexInput, Indexed},
        compressed::CompressedIndex,
    },
    input::{feed::RecordReader, random_access::Input},
    order::{rounds::Ending, sequential::Arrival},
};

/// The location of a recording's records.
pub(crate) enum Data {
    /// In sections of files.
    Parts(Vec<Part>),
    /// In a stream that starts with records about the events and the machine. [`Stored`] is set if the stream was saved
    /// in a file.
    Stream(RecordReader, Arrival, Option<Stored>),
}

/// The records of a stream that was saved in a file. Unlike the records of a pipe, they can be read more than once.
#[derive(Clone)]
pub(crate) struct Stored {
    pub input: Arc<dyn Input>,
    pub section: Section,
    /// The index that was made by decompressing all records once. `None` if the records have not been decompressed yet.
    pub unpacked: Option<CompressedIndex>,
}

/// A section with records in a file.
#[derive(Clone)]
pub(crate) struct Part {
    pub name: String,
    pub input: Arc<dyn Input>,
    pub section: Section,
    /// The result of indexing the section. `None` if the section was not indexed yet.
    pub indexed: Option<Indexed>,
    /// The block index that is stored in the recording, without side-band records. `None` if the recording contains no
    /// index, or if `indexed` is already set.
    pub stored: Option<BlockIndex>,
    /// The index that was made by decompressing all records once. `None` if the section is not compressed, or if its
    /// records have not been decompressed yet.
    pub unpacked: Option<CompressedIndex>,
}

impl Part {
    /// Returns the block index of the part's records, if it is known. Returns `None` if some records are compressed.
    pub fn index(&self) -> Option<&Arc<BlockIndex>> {
        match &self.indexed {
            Some(Indexed::Plain(index)) => Some(index),
            Some(Indexed::Compressed) | None => None,
        }
    }

    /// Returns the block index of the part's samples, if it is known. Unlike [`Part::index`], this method also returns
    /// the index of compressed records.
    pub fn samples(&self) -> Option<&Arc<BlockIndex>> {
        self.index().or(self.unpacked.as_ref().map(|unpacked| &unpacked.samples))
    }

    /// Uses the index that is stored in the recording, without reading the records.
    pub fn use_stored_index(&mut self) {
        if let Some(index) = self.stored.take() {
            self.indexed.get_or_insert(Indexed::Plain(Arc::new(index)));
        }
    }

    /// Finds the blocks of the stored index if what follows the records was moved by `distance` bytes.
    pub fn follow(&mut self, distance: i64, order: ByteOrder, layouts: &Layouts) -> Result<(), PerfDataError> {
        let Part { name, input, stored: Some(index), .. } = self else { return Ok(()) };
        let (ending, rings) = (Ending::Finished, Rings::One);
        let walk = IndexInput { input: &**input, name, order, layouts, room: 0, ending, rings };
        if distance == 0 { Ok(()) } else { walk.follow(index, distance) }
    }

    /// Drops the side-band records that are kept in memory, unless the index is shared.
    pub fn forget_side_band(&mut self) {
        let plain = match &mut self.indexed {
            Some(Indexed::Plain(index)) => Some(index),
            Some(Indexed::Compressed) | None => None,
        };
        let runs = self.unpacked.as_mut().and_then(|unpacked| unpacked.runs.as_mut());
        for index in plain.into_iter().chain(runs).filter_map(Arc::get_mut) {
            index.side_band.forget();
        }
    }

    /// Returns the blocks that can be read independently of each other, if they are known.
    pub fn runs(&self) -> Option<&Arc<BlockIndex>> {
        self.index().or(self.unpacked.as_ref().and_then(|unpacked| unpacked.runs.as_ref()))
    }
}

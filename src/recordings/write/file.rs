//! Writes a recording to one file. The parts of the file are, in this order: header, features that are known at the
//! start, ids, attrs, records, other features. The header is completed last. If the recorder is killed before the
//! header is complete, the header states a data size of 0.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, FileTypeExt},
    path::Path,
};

use perf_prof_format::abi::perf_data::PERF_MAGIC2;

use super::{FINISHED_ROUND, Features, Known, Level, Stream, attr, reserve::Reserve};
use crate::{StoredIndex, format::header::EARLY_FEATURES_MAGIC};

/// The size in bytes of `struct perf_file_header` in `tools/perf/util/header.h`.
const HEADER: u64 = 104;

/// A section: its offset in the file and its size, in bytes.
type Section = (u64, u64);

/// A recording that is being written.
#[derive(Debug)]
pub struct FileWriter {
    /// The stream that records are written to.
    pub stream: Stream,
    /// The features that were written before the records. `known_at` is the file offset of their contents.
    known: Features,
    known_at: u64,
    attrs: Section,
    attr_size: u64,
    data: u64,
    reserve: Option<Reserve>,
}

impl FileWriter {
    /// Starts a recording in an empty file. `known` contains the events, the layout of all samples, and the features
    /// that are known already. These features are written first, so that the file contains them even if the recorder is
    /// killed. `reserve` is the number of bytes of disk space that are kept free for the end of the recording, on the
    /// file system of `folder`.
    pub fn start(
        mut file: File,
        folder: &Path,
        known: &Known<'_>,
        level: Option<Level>,
        reserve: usize,
    ) -> io::Result<FileWriter> {
        let Known { events, layout, features: known } = *known;
        let reserve = Reserve::allocate(folder, reserve as u64);
        if file.metadata()?.file_type().is_fifo() {
            // The header of a pipe cannot be completed at the end. A pipe without a reader would also block the first
            // write.
            return Err(io::Error::other("it is a pipe, which needs the pipe format: use `-o -` and redirect stdout"));
        }
        let size = attr::common_size(events.iter().map(|event| &event.attr), 0);
        let mut head = vec![0; HEADER as usize];
        head.extend(EARLY_FEATURES_MAGIC);
        head.extend(known.bits().map(u64::to_ne_bytes).as_flattened());
        let known_at = head.len() as u64 + 16 * known.iter().count() as u64;
        let (table, _) = table(known, |_, _| None, known_at);
        head.extend(table);
        known.iter().for_each(|(_, bytes)| head.extend(bytes));
        head.resize(head.len().next_multiple_of(8), 0);
        let mut ids = Vec::new();
        for event in events {
            ids.push((head.len() as u64, 8 * event.ids.len() as u64));
            head.extend(event.ids.iter().flat_map(|id| id.to_ne_bytes()));
        }
        let attrs = head.len() as u64;
        for (event, (offset, len)) in events.iter().zip(ids) {
            head.extend(attr::sized(&event.attr, size));
            head.extend([offset, len].map(u64::to_ne_bytes).as_flattened());
        }
        let data = head.len() as u64;
        let (attrs, attr_size) = ((attrs, data - attrs), size as u64 + 16);
        let header = header(attrs, attr_size, (data, 0), [0; 4]);
        head[..HEADER as usize].copy_from_slice(&header);
        file.write_all(&head)?;
        let (stream, known) = (Stream::new(file, data, layout, level)?.indexed(), known.clone());
        Ok(FileWriter { stream, known, known_at, attrs, attr_size, data, reserve })
    }

    /// Writes the features, the header and the block index. Returns the size of the file. `lost` contains records about
    /// losses that the stream could not write after an error. If an event got more ids since the start, `ids` contains
    /// the index of this event and all of its ids.
    pub fn finish(
        mut self,
        lost: &[u8],
        features: &Features,
        blocks: &StoredIndex,
        ids: Option<(usize, &[u64])>,
    ) -> io::Result<u64> {
        let mut end = self.stream.end();
        // The writes below use the reserved disk space.
        self.reserve.into_iter().for_each(Reserve::free);
        if end == self.data {
            // A recording without any record would look as if the recorder had been killed.
            self.stream.file().write_all_at(&FINISHED_ROUND, end)?;
            end += FINISHED_ROUND.len() as u64;
        }
        if !lost.is_empty() {
            // The records about losses come first, because without them the recording would look complete. If the disk
            // has no space for these records, it has no space for the features either, and the recording stays
            // unfinished.
            let whole = header(self.attrs, self.attr_size, (self.data, end - self.data), [0; 4]);
            self.stream.file().write_all_at(&whole, 0)?;
            self.stream.file().write_all_at(lost, end)?;
            end += lost.len() as u64;
        }
        // Returns the offset of a section that was written at the start and has not changed since.
        let is_known = |bit, bytes: &[u8]| {
            let mut at = self.known_at;
            self.known.iter().find_map(|(other, known)| {
                let place = at;
                at += known.len() as u64;
                (bit == other && bytes == known).then_some(place)
            })
        };
        let (table, mut at) = table(features, is_known, end + 16 * features.iter().count() as u64);
        let bits = features.bits();
        let header = |bits| header(self.attrs, self.attr_size, (self.data, end - self.data), bits);
        let file = self.stream.file();
        // With this header, the records are readable even if a write below fails.
        file.write_all_at(&header([0; 4]), 0)?;
        file.seek(SeekFrom::Start(end))?;
        file.write_all(&table)?;
        let mut new = features.iter().filter(|&(bit, bytes)| is_known(bit, bytes).is_none());
        new.try_for_each(|(_, bytes)| file.write_all(bytes))?;
        if let Some((event, ids)) = ids {
            let section = [at, 8 * ids.len() as u64];
            let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_ne_bytes()).collect();
            file.write_all(&bytes)?;
            at += section[1];
            // The location of the ids is the last member of the event's entry in the attr section.
            let place = self.attrs.0 + (event as u64 + 1) * self.attr_size - 16;
            file.write_all_at(section.map(u64::to_ne_bytes).as_flattened(), place)?;
        }
        file.write_all_at(&header(bits), 0)?;
        let mut last = Vec::new();
        blocks.write(&mut last);
        if file.write_all(&last).is_err() {
            // If the disk has no space for the block index, the index is dropped. The recording is complete without it.
            file.set_len(at)?;
            return Ok(at);
        }
        Ok(at + last.len() as u64)
    }
}

/// Returns the bytes of the list of sections, and the offset of the end of the last section. If `elsewhere` returns an
/// offset for a section, the section is at this offset. All other sections are stored one after the other from offset
/// `at` on.
fn table(features: &Features, elsewhere: impl Fn(u32, &[u8]) -> Option<u64>, mut at: u64) -> (Vec<u8>, u64) {
    let mut table = Vec::new();
    for (bit, bytes) in features.iter() {
        let size = bytes.len() as u64;
        let place = elsewhere(bit, bytes).unwrap_or_else(|| {
            at += size;
            at - size
        });
        table.extend([place, size].map(u64::to_ne_bytes).as_flattened());
    }
    (table, at)
}

fn header(attrs: Section, attr_size: u64, data: Section, features: [u64; 4]) -> [u8; HEADER as usize] {
    // The section of event types has not been written since perf 2.6.
    let fixed = [PERF_MAGIC2, HEADER, attr_size, attrs.0, attrs.1, data.0, data.1, 0, 0];
    let mut bytes = [0; HEADER as usize];
    for (place, word) in bytes.chunks_exact_mut(8).zip(fixed.iter().chain(&features)) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

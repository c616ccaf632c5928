//! A recording: what it says of itself and of its events, and where its records are.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    os::fd::AsFd,
    path::Path,
    sync::Arc,
};

use super::{
    attr::Attr,
    bytes::ByteOrder,
    directory,
    error::PerfDataError,
    features::{EventDesc, Features},
    feed::{FileFeed, PipeFeed, Records},
    header::{self, AttrIds, FileHeader, Header, PIPE_HEADER, Section},
    index::{self, BlockIndex, Indexed, Walk},
    input::Input,
    kernel_mapping::KernelMapping,
    layouts::{Layouts, RawWords},
    pipe::{self, Described},
    replay::Replay,
    select::Selection,
    sequential::Arrival,
    side_band::ROOM,
    stored::StoredIndex,
    stream::Gate,
    tracing_data::TracingData,
    unpacked::{self, Unpacked},
};
use crate::{
    abi::PERF_TYPE_TRACEPOINT,
    record::{SampleLayout, TrailerLayout},
    tracefs::EventFormat,
};

/// An event of a recording.
#[derive(Clone, Debug)]
pub struct RecordedEvent {
    /// Its attr.
    pub attr: Attr,
    /// The ids of its events; none where it is the only one.
    pub ids: Vec<u64>,
    /// The name that it was recorded under: `sched:sched_switch`, `cycles:u`; `None` where the recording has none.
    pub name: Option<String>,
    /// How a tracepoint's data look; `None` for other events, and where the recording does not say.
    pub format: Option<Arc<EventFormat>>,
}

impl RecordedEvent {
    /// Where members of its samples lie.
    pub fn layout(&self) -> SampleLayout {
        self.attr.layout()
    }

    /// Where the sample id lies in its records that are no samples.
    pub fn trailer(&self) -> Option<TrailerLayout> {
        self.attr.trailer()
    }
}

/// A recording that was opened.
pub struct Recording {
    /// Its name, for messages.
    pub name: String,
    /// Its byte order. Records are handed out in this machine's.
    pub order: ByteOrder,
    /// Its events, in the order in which they were recorded.
    pub events: Vec<RecordedEvent>,
    /// What else it says of itself.
    pub features: Features,
    /// Where its kernel was.
    pub kernel: Option<KernelMapping>,
    /// What is wrong with it that it can be read all the same with.
    pub warnings: Vec<String>,
    layouts: Arc<Layouts>,
    /// What it says of where records lie, of files that were not opened yet.
    blocks: StoredIndex,
    data: Data,
}

/// Where a recording's records are.
pub(super) enum Data {
    /// In parts of files.
    Parts(Vec<Part>),
    /// In a stream that began with what it says of itself.
    Stream(Records, Arrival, Option<Stored>),
}

/// Where a stream's records lie that were kept in a file: they can be read more than once.
pub(super) struct Stored {
    pub input: Arc<dyn Input>,
    section: Section,
    /// What looking at it gave, if somebody has.
    pub unpacked: Option<Unpacked>,
}

/// A run of records in a file.
pub(super) struct Part {
    pub name: String,
    pub input: Arc<dyn Input>,
    pub section: Section,
    /// What looking at it gave, if somebody has.
    pub indexed: Option<Indexed>,
    /// What the recording itself says of it, where nobody has looked: no side-band is kept.
    stored: Option<BlockIndex>,
    /// What unpacking it gave, if it is compressed and somebody has.
    pub unpacked: Option<Unpacked>,
}

impl Part {
    /// Where its records lie in time, if that is known.
    pub fn index(&self) -> Option<&Arc<BlockIndex>> {
        match &self.indexed {
            Some(Indexed::Plain(index)) => Some(index),
            Some(Indexed::Compressed) | None => None,
        }
    }

    /// Where its samples lie in time, if that is known.
    fn samples(&self) -> Option<&Arc<BlockIndex>> {
        self.index().or(self.unpacked.as_ref().map(|unpacked| &unpacked.samples))
    }

    /// Takes for true what the recording says of it.
    fn believe(&mut self) {
        if let Some(index) = self.stored.take() {
            self.indexed.get_or_insert(Indexed::Plain(Arc::new(index)));
        }
    }

    /// Keeps none of its side-band any more, unless somebody else uses it.
    fn forget_side_band(&mut self) {
        let plain = match &mut self.indexed {
            Some(Indexed::Plain(index)) => Some(index),
            Some(Indexed::Compressed) | None => None,
        };
        let runs = self.unpacked.as_mut().and_then(|unpacked| unpacked.runs.as_mut());
        for index in plain.into_iter().chain(runs).filter_map(Arc::get_mut) {
            index.side_band.forget();
        }
    }

    /// What of it can be read without the rest, if that is known.
    pub fn runs(&self) -> Option<&Arc<BlockIndex>> {
        self.index().or(self.unpacked.as_ref().and_then(|unpacked| unpacked.runs.as_ref()))
    }
}

impl Recording {
    /// Opens a recording: a file, a directory, or `-` for stdin.
    pub fn open(path: &Path) -> Result<Recording, PerfDataError> {
        let name = path.display().to_string();
        let open =
            |path: &Path| File::open(path).map_err(|error| PerfDataError::io(&path.display().to_string(), error));
        if path.as_os_str() == "-" {
            let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(|error| PerfDataError::io("stdin", error))?;
            return Self::of_pipe(stdin.into(), "stdin");
        }
        if !path.is_dir() {
            let file = open(path)?;
            let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
            return if is_regular { Self::of_file(Arc::new(file), &name) } else { Self::of_pipe(file, &name) };
        }
        let data = path.join("data");
        if !data.exists() {
            return Err(PerfDataError::NoDataInDirectory { name });
        }
        let mut recording = Self::of_file(Arc::new(open(&data)?), &data.display().to_string())?;
        recording.name = name.clone();
        let files = directory::files(path).map_err(|error| PerfDataError::io(&name, error))?;
        let mut rings = None;
        if let Data::Parts(parts) = &mut recording.data {
            // Others that perf makes directories for have no files of rings.
            if let (Some(_), Some(Part { input, section, .. })) = (recording.features.dir_format, parts.first()) {
                let feed = FileFeed::new(input.clone(), *section);
                rings = directory::rings(&mut Records::new(&name, recording.order, Box::new(feed)))?;
            }
            for (number, file) in &files {
                let (input, name) = (open(file)?, file.display().to_string());
                let size = input.size().map_err(|error| PerfDataError::io(&name, error))?;
                let section = Section { offset: 0, size };
                let stored = recording.blocks.take(*number, section);
                parts.push(Part { name, input: Arc::new(input), section, indexed: None, stored, unpacked: None });
            }
        }
        recording.warnings.extend(directory::missing(&name, &files, rings));
        Ok(recording)
    }

    /// Opens a recording that is one file, or bytes in memory.
    pub fn of_file(input: Arc<dyn Input>, name: &str) -> Result<Recording, PerfDataError> {
        let size = input.size().map_err(|error| PerfDataError::io(name, error))?;
        let mut header = match header::read(&*input, name)? {
            Header::File(header) => header,
            Header::Pipe(order) => {
                let section = Section { offset: PIPE_HEADER, size: size.saturating_sub(PIPE_HEADER) };
                let records = Records::new(name, order, Box::new(FileFeed::new(input.clone(), section)));
                return Self::of_stream(records, Arrival::Stored, Some(Stored { input, section, unpacked: None }));
            }
        };
        let mut warnings = Vec::new();
        let io = |error| PerfDataError::io(name, error);
        let known = header::known_from_the_begin(&*input, &header).map_err(io)?;
        let is_finished = header.data.size != 0 && !(header.features.is_empty() && known.is_some());
        let list = header.list();
        let features = match &known {
            // The list behind the records was never written, or is cut off.
            Some(known) if !is_finished || list.offset.saturating_add(list.size) > size => {
                Features::read(&*input, name, known, &mut warnings)?
            }
            _ if header.data.size == 0 => Features::default(),
            _ => Features::read(&*input, name, &header, &mut warnings)?,
        };
        if !is_finished {
            warnings.push(format!(
                "{name} was not finished: its recorder did not end in order. What is there is read{}",
                if known.is_some() { "" } else { "; names of events and formats of tracepoints are missing" }
            ));
        }
        let mut blocks = StoredIndex::default();
        if header.data.size == 0 {
            // Everything behind the header are records.
            header.data.size = size.saturating_sub(header.data.offset);
        } else {
            blocks = StoredIndex::read(&*input, header.order).map_err(io)?;
        }
        if header.data.offset.saturating_add(header.data.size) > size {
            warnings.push(format!("{name} is cut off: its records should be {} bytes", header.data.size));
        }
        let FileHeader { order, attrs, data, .. } = header;
        let feed = FileFeed::new(input.clone(), data);
        let kernel = KernelMapping::find(&mut Records::new(name, order, Box::new(feed)))?;
        let stored = blocks.take(StoredIndex::DATA, data);
        let part = Part { name: name.to_owned(), input, section: data, indexed: None, stored, unpacked: None };
        let described = Described { attrs, features, kernel, warnings };
        let recording = Self::new(name, order, described, Data::Parts(vec![part]));
        Ok(Recording { blocks, ..recording })
    }

    /// Opens a recording that comes through a pipe, and reads what it says of itself.
    fn of_pipe(mut file: File, name: &str) -> Result<Recording, PerfDataError> {
        let mut bytes = Vec::new();
        let header = (&mut file).take(PIPE_HEADER).read_to_end(&mut bytes);
        header.map_err(|error| PerfDataError::io(name, error))?;
        let order = header::magic(&bytes, name)?;
        match bytes.get(8..16).and_then(|size| size.try_into().ok()) {
            Some(size) if order.u64(size) == PIPE_HEADER => {}
            Some(_) => return Err(PerfDataError::FileInPipe { name: name.to_owned() }),
            None => return Err(PerfDataError::CutOff { name: name.to_owned(), part: "header" }),
        }
        let arrival = match file.metadata() {
            Ok(metadata) if metadata.is_file() => Arrival::Stored,
            _ => Arrival::Live,
        };
        Self::of_stream(Records::new(name, order, Box::new(PipeFeed::new(file))), arrival, None)
    }

    fn of_stream(mut records: Records, arrival: Arrival, stored: Option<Stored>) -> Result<Recording, PerfDataError> {
        let described = pipe::describe(&mut records)?;
        let (name, order) = (records.name.clone(), records.order);
        Ok(Self::new(&name, order, described, Data::Stream(records, arrival, stored)))
    }

    fn new(name: &str, order: ByteOrder, described: Described, data: Data) -> Recording {
        let Described { attrs, features, kernel, warnings } = described;
        // They stand in the same order; where they do not, the ids tell.
        let by_ids: HashMap<_, _> =
            features.events.iter().rev().map(|event| ((event.attr.kind, &*event.ids), event)).collect();
        let described = |at: usize, ids: &AttrIds| {
            let same = |event: &&EventDesc| event.ids == ids.ids && event.attr.kind == ids.attr.kind;
            let listed = features.events.get(at).filter(same);
            listed.or_else(|| by_ids.get(&(ids.attr.kind, &*ids.ids)).copied())
        };
        let formats = features.tracing_data.as_ref().map(TracingData::by_id).unwrap_or_default();
        let formats: HashMap<u64, Arc<EventFormat>> =
            formats.into_iter().map(|(id, format)| (id, Arc::new(format))).collect();
        let event = |(at, ids): (usize, &AttrIds)| RecordedEvent {
            attr: ids.attr.clone(),
            ids: ids.ids.clone(),
            name: described(at, ids).map(|event| event.name.clone()),
            format: formats.get(&ids.attr.config).filter(|_| ids.attr.kind == PERF_TYPE_TRACEPOINT).cloned(),
        };
        let events: Vec<RecordedEvent> = attrs.iter().enumerate().map(event).collect();
        let mut layouts = Layouts::new(&attrs);
        if order == ByteOrder::Foreign {
            let raw =
                |event: &RecordedEvent| event.format.as_ref().map(|format| RawWords::of(format)).unwrap_or_default();
            layouts = layouts.with_raw_words(events.iter().map(raw).collect());
        }
        let layouts = Arc::new(layouts);
        let (name, blocks) = (name.to_owned(), StoredIndex::default());
        Recording { name, order, events, features, kernel, warnings, layouts, blocks, data }
    }

    /// Which event a record belongs to, and where its time lies.
    pub fn layouts(&self) -> &Arc<Layouts> {
        &self.layouts
    }

    /// Looks at the times of all records, part by part; `None` for what cannot be looked at without being used up or
    /// unpacked.
    pub fn index(&mut self) -> Result<Vec<Option<Arc<BlockIndex>>>, PerfDataError> {
        self.index_keeping(ROOM)
    }

    /// The same, with so much room for side-band.
    fn index_keeping(&mut self, room: usize) -> Result<Vec<Option<Arc<BlockIndex>>>, PerfDataError> {
        let Data::Parts(parts) = &mut self.data else { return Ok(vec![None]) };
        let (order, layouts, room) = (self.order, &self.layouts, room / parts.len().max(1));
        for part in parts.iter_mut().filter(|part| part.indexed.is_none()) {
            let walk = Walk { input: &*part.input, name: &part.name, order, layouts, room };
            let stored = part.stored.take().map(|index| walk.keep_side_band(index)).transpose()?.flatten();
            part.indexed = Some(match stored {
                Some(index) => Indexed::Plain(Arc::new(index)),
                None => index::index(walk, part.section, &mut self.warnings)?,
            });
        }
        Ok(parts.iter().map(|part| part.index().cloned()).collect())
    }

    /// Where the samples lie in time, also those that have to be unpacked for that; empty for a pipe, unless its bytes were
    /// kept in a file.
    pub fn unpacked_index(&mut self) -> Result<Vec<Arc<BlockIndex>>, PerfDataError> {
        self.index()?;
        let (order, layouts) = (self.order, &self.layouts);
        let look = |name: &str, input: &Arc<dyn Input>, section: Section, room| {
            unpacked::index(unpacked::Source { input, name, order, layouts, room }, section)
        };
        match &mut self.data {
            Data::Stream(_, _, None) => Ok(Vec::new()),
            Data::Stream(_, _, Some(Stored { input, section, unpacked })) => {
                let found = unpacked.take().map_or_else(|| look(&self.name, input, *section, ROOM), Ok)?;
                Ok(vec![unpacked.insert(found).samples.clone()])
            }
            Data::Parts(parts) => {
                let room = ROOM / parts.len().max(1);
                for part in parts.iter_mut().filter(|part| part.samples().is_none()) {
                    part.unpacked = Some(look(&part.name, &part.input, part.section, room)?);
                }
                Ok(parts.iter().filter_map(|part| part.samples().cloned()).collect())
            }
        }
    }

    /// The times of the first and the last sample; `None` where there is no sample, and for a pipe that does not say.
    /// Compressed records that do not say are unpacked for it.
    pub fn times(&mut self) -> Result<Option<(u64, u64)>, PerfDataError> {
        if let Some(times) = self.features.sample_time {
            return Ok(Some(times));
        }
        Ok(spanned(self.unpacked_index()?))
    }

    /// The same, but that nothing is unpacked for it: `None` where it would have to be.
    pub fn known_times(&mut self) -> Result<Option<(u64, u64)>, PerfDataError> {
        if let Some(times) = self.features.sample_time {
            return Ok(Some(times));
        }
        self.index()?;
        let Data::Parts(parts) = &self.data else { return Ok(None) };
        let known: Option<Vec<_>> = parts.iter().map(|part| part.samples().cloned()).collect();
        Ok(known.and_then(spanned))
    }

    /// Reads what is selected, in the order of time.
    pub fn replay(mut self, selection: Selection) -> Result<Replay, PerfDataError> {
        // Of all times, blocks are read for their samples, and side-band with them.
        let keeps = !selection.takes_all_times();
        if let Data::Parts(parts) = &mut self.data {
            // What else would be looked at for side-band is read once, and only as far as that is wanted.
            parts.iter_mut().for_each(Part::believe);
        }
        self.index_keeping(if keeps { ROOM } else { 0 })?;
        if let (false, Data::Parts(parts)) = (keeps, &mut self.data) {
            parts.iter_mut().for_each(Part::forget_side_band);
        }
        let (order, layouts, selection) = (self.order, self.layouts.clone(), Arc::new(selection));
        Replay::new(self, Gate { order, layouts, selection, pool: Arc::default() })
    }

    /// Where the records are, which belong to the replay from now on.
    pub(super) fn take_data(&mut self) -> Data {
        std::mem::replace(&mut self.data, Data::Parts(Vec::new()))
    }
}

/// From the first sample to the last.
fn spanned(indexes: impl IntoIterator<Item = Arc<BlockIndex>>) -> Option<(u64, u64)> {
    let times = indexes.into_iter().filter_map(|index| index.samples);
    times.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}

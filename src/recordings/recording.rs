//! A recording: its events, its feature sections, and the location of its records.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fs::File,
    io::{self, Read},
    os::fd::AsFd,
    path::Path,
    sync::Arc,
};

use perf_prof_format::{
    abi::{PERF_SAMPLE_IDENTIFIER, PERF_TYPE_TRACEPOINT, perf_data::HEADER_TRACING_DATA},
    record::{SampleLayout, TrailerLayout},
    tracefs::EventFormat,
};
use perf_prof_system::{budget::Budget, file::open_regular};

use super::{
    error::{PerfDataError, another_behind, cut_off, unfinished_pipe, wrong_types},
    format::{
        attr::{Attr, AttrFlag},
        bytes::ByteOrder,
        features::{EventDesc, Features, feature_name},
        file_features::FileFeatures,
        first_records::{AuxTrace, FirstRecords, IdIndex, RingsOf, aux_warning},
        header::{self, AttrIds, FileHeader, Header, PIPE_HEADER, Section},
        kernel_mapping::KernelMapping,
        layouts::{Layouts, RawNumbers},
        own_updates::{self, OffTimes},
        pipe_header::{self, PipeDescription},
        tracing_data::TracingData,
    },
    index::{
        appended,
        blocks::{self, BlockIndex, IndexInput, Indexed},
        compressed, moved,
        side_band::ROOM,
        trailer::StoredIndex,
    },
    input::{
        directory,
        feed::{FileFeed, PipeFeed, RecordReader},
        random_access::Input,
    },
    limits::{MemoryLimit, ReadLimits},
    order::{
        block_stream::ReplayContext,
        gaps::{FoundGaps, Gap},
        rounds::Ending,
        sequential::Arrival,
    },
    parts::{Data, Part, Stored},
    select::{Gaps, Selection},
    source::Replay,
};

/// An event in a recording.
#[derive(Clone, Debug)]
pub struct RecordedEvent {
    /// The event's attr.
    pub attr: Attr,
    /// The sample ids of the event; may be empty if the recording has only this event.
    pub ids: Vec<u64>,
    /// The name under which the event was recorded, such as `sched:sched_switch` or `cycles:u`. `None` if the recording
    /// contains no name for the event.
    pub name: Option<String>,
    /// The format of the raw data if the event is a tracepoint. `None` for other events, and for a tracepoint whose
    /// format the recording does not contain.
    pub format: Option<Arc<EventFormat>>,
    /// Whether the raw data of the event contains the frames of an interpreter. Only set for events that are no
    /// tracepoints.
    pub has_interpreter_frames: bool,
}

impl RecordedEvent {
    /// Returns the layout of the event's samples.
    pub fn layout(&self) -> SampleLayout {
        self.attr.layout()
    }

    /// Returns the layout of the sample id at the end of records other than samples.
    pub fn trailer(&self) -> Option<TrailerLayout> {
        self.attr.sample_id_layout()
    }
}

/// An open recording.
pub struct Recording {
    /// The name of the recording, for messages.
    pub name: String,
    /// The byte order of the file. Records are delivered in this machine's byte order.
    pub order: ByteOrder,
    /// The events, in the order in which the recording stores their attrs.
    pub events: Vec<RecordedEvent>,
    /// The contents of the feature sections.
    pub features: Features,
    /// The mapping of the recorded kernel.
    pub kernel: Option<KernelMapping>,
    /// The AUX area data that was found so far.
    aux: AuxTrace,
    pub(crate) id_index: IdIndex,
    /// Problems of the recording that do not prevent reading it.
    pub warnings: Vec<String>,
    /// True if some of the warnings in `warnings` say that records are missing.
    pub lacks_records: bool,
    /// How the recording ended.
    pub(crate) ending: Ending,
    /// The gap of rings whose files are missing: the whole time.
    pub(crate) missing_rings: Option<Gap>,
    layouts: Arc<Layouts>,
    /// The limit for the memory that reading the records takes.
    pub(crate) limit: MemoryLimit,
    /// The stored block indexes of files that were not opened yet, the block devices, and the time of the end.
    blocks: StoredIndex,
    /// The filters with which events were recorded, each with an id of the event.
    filters: Vec<(u64, Vec<u8>)>,
    data: Data,
}

impl Recording {
    /// Opens a recording of the user or of root: a file, a directory, or `-` for stdin.
    pub fn open(path: &Path) -> Result<Recording, PerfDataError> {
        Self::open_with(path, &ReadLimits::default())
    }

    /// Like [`Recording::open`], with limits for the owner of the recording and for the memory.
    pub fn open_with(path: &Path, limits: &ReadLimits) -> Result<Recording, PerfDataError> {
        let name = path.display().to_string();
        let open = |path: &Path| {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|error| PerfDataError::io(&name, error))?;
            limits.check_owner(&file, &name).map(|()| file)
        };
        // Only regular files are opened, because opening a pipe would block.
        let open_part = |path: &Path| {
            let name = path.display().to_string();
            let file = open_regular(path).map_err(|error| PerfDataError::io(&name, error.source))?;
            limits.check_owner(&file, &name).map(|()| file)
        };
        if path.as_os_str() == "-" {
            let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(|error| PerfDataError::io("stdin", error))?;
            return Self::of_pipe(stdin.into(), limits.limit("stdin"));
        }
        let limit = limits.limit(&name);
        if !path.is_dir() {
            let file = open(path)?;
            let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
            return if is_regular { Self::of_file_within(Arc::new(file), limit) } else { Self::of_pipe(file, limit) };
        }
        let data = path.join("data");
        if !data.exists() {
            return Err(PerfDataError::NoDataInDirectory { name });
        }
        let mut recording =
            Self::of_file_within(Arc::new(open_part(&data)?), limits.limit(&data.display().to_string()))?;
        (recording.name, recording.limit) = (name.clone(), limit);
        let files = directory::files(path).map_err(|error| PerfDataError::io(&name, error))?;
        // perf makes directories for other purposes too. So ring files are required only if the recording states the version of
        // its directory format.
        let rings = recording.features.dir_format.map(|_| recording.id_index.rings);
        if let Data::Parts(parts) = &mut recording.data {
            for (number, file) in &files {
                let (input, name) = (open_part(file)?, file.display().to_string());
                let size = input.size().map_err(|error| PerfDataError::io(&name, error))?;
                let recorded = recording.blocks.size(*number).unwrap_or(size);
                if size < recorded {
                    recording.warnings.push(cut_off(&name, recorded));
                    recording.lacks_records = true;
                }
                let section = Section { offset: 0, size: size.max(recorded) };
                // The index of a file that was cut off is not used: a warning about each missing block would say no more.
                let stored = recording.blocks.take_matching(*number, Section { size, ..section });
                parts.push(Part { name, input: Arc::new(input), section, indexed: None, stored, unpacked: None });
            }
        }
        let missing_files = directory::missing_files_warning(&name, &files, rings);
        recording.lacks_records |= missing_files.is_some();
        recording.missing_rings = missing_files.as_ref().map(|_| Gap::of_unread(0, u64::MAX));
        recording.warnings.extend(missing_files);
        Ok(recording)
    }

    /// Opens a recording that is one file, or bytes in memory.
    pub fn of_file(input: Arc<dyn Input>, name: &str) -> Result<Recording, PerfDataError> {
        Self::of_file_within(input, ReadLimits::default().limit(name))
    }

    fn of_file_within(input: Arc<dyn Input>, limit: MemoryLimit) -> Result<Recording, PerfDataError> {
        let (name, described_within) = (limit.name(), limit.clone().of_description());
        let size = input.size().map_err(|error| PerfDataError::io(name, error))?;
        let mut header = match header::read(&*input, &described_within)? {
            Header::File(header) => header,
            Header::Pipe(order) => {
                let section = Section { offset: PIPE_HEADER, size: size.saturating_sub(PIPE_HEADER) };
                let records = RecordReader::new(name, order, Box::new(FileFeed::new(input.clone(), section)));
                let stored = Stored { input: input.clone(), section, unpacked: None };
                let recording = Self::of_stream(records, Arrival::Stored, Some(stored), limit)?;
                return recording.with_end_of_pipe(&*input, section);
            }
        };
        let mut warnings = Vec::new();
        let io = |error| PerfDataError::io(name, error);
        let FileFeatures { mut features, is_finished } =
            FileFeatures::read(&*input, &described_within, &header, &mut warnings)?;
        let (mut blocks, mut appended) = (StoredIndex::default(), None);
        let ending = if header.data.size == 0 { Ending::Killed } else { Ending::Finished };
        if ending == Ending::Killed {
            // The recorder never wrote the size of the records. All bytes after the header are records.
            header.data.size = size.saturating_sub(header.data.offset);
        } else {
            (blocks, appended) = appended::index(&*input, &header, &described_within).map_err(io)?;
            warnings.extend(appended.map(|at| another_behind(name, at)));
            // The index has a checksum, and the times of all samples.
            features.sample_time = blocks.sampled().or(features.sample_time);
        }
        let is_cut_off = header.data.offset.saturating_add(header.data.size) > size;
        warnings.extend(is_cut_off.then(|| cut_off(name, header.data.size)));
        let moved = moved::distance(&*input, &header, &blocks).map_err(io)?;
        let FileHeader { order, attrs, data, .. } = header;
        let records = || RecordReader::new(name, order, Box::new(FileFeed::new(input.clone(), data)));
        let FirstRecords { kernel, tracing_data, aux, id_index, own } = FirstRecords::read(&mut records())?;
        if own.is_switchable && blocks == StoredIndex::default() {
            let OffTimes { over, end } = OffTimes::read(&mut records())?;
            (blocks.off, blocks.end) = (over, end);
        }
        if let (None, Some(bytes)) = (&features.tracing_data, tracing_data)
            && let Err(why) = features.add(HEADER_TRACING_DATA, &bytes, order)
        {
            warnings.push(format!("{name}: {} cannot be read: {why}", feature_name(HEADER_TRACING_DATA)));
        }
        let stored = blocks.take_matching(StoredIndex::DATA, data);
        let part = Part { name: name.to_owned(), input, section: data, indexed: None, stored, unpacked: None };
        let described = PipeDescription { attrs, features, kernel, aux, id_index, own, warnings };
        let mut recording = Self::new(limit, order, described, Data::Parts(vec![part]));
        if let Data::Parts(parts) = &mut recording.data {
            parts.iter_mut().try_for_each(|part| part.follow(moved, order, &recording.layouts))?;
        }
        Ok(Recording { blocks, lacks_records: !is_finished || is_cut_off || appended.is_some(), ending, ..recording })
    }

    /// Opens a recording that comes through a pipe, and reads the records at its start that describe it.
    fn of_pipe(mut file: File, limit: MemoryLimit) -> Result<Recording, PerfDataError> {
        let name = limit.name();
        let mut bytes = Vec::new();
        let header = (&mut file).take(PIPE_HEADER).read_to_end(&mut bytes);
        header.map_err(|error| PerfDataError::io(name, error))?;
        let order = header::byte_order_of_magic(&bytes, name)?;
        match bytes.get(8..16).and_then(|size| size.try_into().ok()) {
            Some(size) if order.u64(size) == PIPE_HEADER => {}
            Some(_) => return Err(PerfDataError::FileInPipe { name: name.to_owned() }),
            None => return Err(PerfDataError::CutOff { name: name.to_owned(), part: "header" }),
        }
        let arrival = match file.metadata() {
            Ok(metadata) if metadata.is_file() => Arrival::Stored,
            _ => Arrival::Live,
        };
        let records = RecordReader::new(name, order, Box::new(PipeFeed::new(file)));
        Self::of_stream(records, arrival, None, limit)
    }

    fn of_stream(
        mut records: RecordReader,
        arrival: Arrival,
        stored: Option<Stored>,
        limit: MemoryLimit,
    ) -> Result<Recording, PerfDataError> {
        let described = pipe_header::read_description(&mut records, &limit.clone().of_description())?;
        let order = records.order;
        Ok(Self::new(limit, order, described, Data::Stream(records, arrival, stored)))
    }

    /// Notes whether the end of a pipe that was saved in a file is missing. That of another pipe is known when it was read.
    fn with_end_of_pipe(mut self, input: &dyn Input, section: Section) -> Result<Recording, PerfDataError> {
        if let Data::Stream(records, ..) = &self.data
            && records.awaits_end_mark()
            && let Some(rest) = records.copied()
            && !own_updates::has_end_mark(input, section, rest)?
        {
            self.warnings.push(unfinished_pipe(&self.name));
            (self.lacks_records, self.ending) = (true, Ending::Killed);
        }
        Ok(self)
    }

    fn new(limit: MemoryLimit, order: ByteOrder, described: PipeDescription, data: Data) -> Recording {
        let PipeDescription { attrs, mut features, kernel, aux, id_index, own, mut warnings } = described;
        warnings.extend(features.drop_unknown_machine(limit.name()));
        // The event descriptions and the attrs usually have the same order. If the orders differ, an attr gets the
        // description with the same ids.
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
        let with_frames: HashSet<u64> =
            features.interpreter_frames.iter().flat_map(|frames| &frames.events).copied().collect();
        let event = |(at, ids): (usize, &AttrIds)| RecordedEvent {
            attr: ids.attr.clone(),
            ids: ids.ids.clone(),
            name: described(at, ids).map(|event| event.name.clone()),
            format: formats.get(&ids.attr.config).filter(|_| ids.attr.kind == PERF_TYPE_TRACEPOINT).cloned(),
            has_interpreter_frames: ids.ids.iter().any(|id| with_frames.contains(id)),
        };
        let events: Vec<RecordedEvent> = attrs.iter().enumerate().map(event).collect();
        let mut layouts = Layouts::new(&attrs);
        if order == ByteOrder::Foreign {
            let raw = |event: &RecordedEvent| {
                event.format.as_ref().map(|format| RawNumbers::of_format(format)).unwrap_or_default()
            };
            layouts = layouts.with_raw_words(events.iter().map(raw).collect());
        }
        let layouts = Arc::new(layouts);
        let (name, blocks) = (limit.name().to_owned(), StoredIndex::default());
        Recording {
            name,
            order,
            events,
            features,
            kernel,
            aux,
            id_index,
            warnings,
            lacks_records: false,
            ending: Ending::Finished,
            missing_rings: None,
            layouts,
            limit,
            blocks,
            filters: own.filters,
            data,
        }
    }

    /// Returns when the events were turned off. Only files of `perf-prof record` say it.
    pub fn end(&self) -> Option<u64> {
        self.blocks.end
    }

    /// Returns the times before the end in which the events were off. Only files of `perf-prof record` say them.
    pub fn off_times(&self) -> &[(u64, u64)] {
        &self.blocks.off
    }

    /// Returns the filter with which an event was recorded. Only files of `perf-prof record` have it.
    pub fn filter_of(&self, event: &RecordedEvent) -> Option<Cow<'_, str>> {
        let (_, filter) = self.filters.iter().find(|(id, _)| event.ids.contains(id))?;
        Some(String::from_utf8_lossy(filter))
    }

    /// Returns the latest time that a sample can have. `None` if it is not known: only files of `perf-prof record` say it.
    pub fn last_possible_time(&self) -> Option<u64> {
        let end = self.end()?;
        Some(self.features.sample_time.map_or(end, |(_, last)| last.max(end)))
    }

    /// Returns how many hardware queues the block devices of the recorded machine had, by their device numbers in
    /// events. Empty if the recorder did not store the numbers of hardware queues.
    pub fn hardware_queues(&self) -> HashMap<u64, u32> {
        self.blocks.devices.iter().map(|device| (device.dev.into(), device.queues)).collect()
    }

    /// Returns the layouts, with which the event and the time of each record can be found.
    pub fn layouts(&self) -> &Arc<Layouts> {
        &self.layouts
    }

    /// Returns whether an event was recorded on only some of the CPUs that were online. Returns false if the recording
    /// does not state the CPUs of its rings.
    ///
    /// An event that was opened on CPUs has one id for each of these CPUs. If the event was opened for tasks or
    /// cgroups, it has at least one id for each of these CPUs. Only an event of threads on any CPU may have fewer ids.
    pub fn is_of_some_cpus(&self, event: &RecordedEvent) -> bool {
        let online = self.features.cpus.map_or(0, |(_, online)| online as usize);
        self.id_index.rings_of == RingsOf::Cpus && (1..online).contains(&event.ids.len())
    }

    /// Returns whether an event has only the samples of the tasks that were selected when it was recorded. Returns false
    /// if the recording does not state this: `perf-prof record` writes the same for one thread (`-t`) or one cgroup as for
    /// all tasks.
    pub fn is_of_some_tasks(&self, event: &RecordedEvent) -> bool {
        // Other recorders may set the bit for events of all tasks too, but perf names the threads in the id index.
        if self.is_own() { event.attr.has(AttrFlag::Inherit) } else { self.id_index.has_threads }
    }

    /// Returns whether perf-prof made the recording.
    pub fn is_own(&self) -> bool {
        self.features.version.as_ref().is_some_and(|version| version.starts_with("perf-prof "))
    }

    /// Returns whether the recording contains counts instead of samples. In a recording of `perf stat record`, the
    /// sample format of the events contains only the id of the event, or nothing if the recording was written to a
    /// pipe.
    pub fn holds_counts(&self) -> bool {
        self.events.iter().all(|event| event.attr.format.sample_type & !PERF_SAMPLE_IDENTIFIER == 0)
    }

    /// Returns the block index of each part. If an index is not known yet, reads the times of all records to make it.
    /// The index of a part is `None` if the part would have to be decompressed. For a stream, the only index is `None`,
    /// because a stream can be read only once.
    pub fn index(&mut self) -> Result<Vec<Option<Arc<BlockIndex>>>, PerfDataError> {
        self.index_keeping(ROOM)
    }

    /// Like [`Recording::index`], but keeps at most `room` bytes of side-band records in memory.
    fn index_keeping(&mut self, room: usize) -> Result<Vec<Option<Arc<BlockIndex>>>, PerfDataError> {
        let Data::Parts(parts) = &mut self.data else { return Ok(vec![None]) };
        let (order, layouts, ending) = (self.order, &self.layouts, self.ending);
        let rings = self.id_index.rings_of_part(parts.len());
        let room = room / parts.len().max(1);
        for part in parts.iter_mut().filter(|part| part.indexed.is_none()) {
            let walk = IndexInput { input: &*part.input, name: &part.name, order, layouts, room, ending, rings };
            let warnings_before = self.warnings.len();
            part.indexed = Some(match part.stored.take() {
                Some(index) => Indexed::Plain(Arc::new(walk.keep_side_band(index, &mut self.warnings)?)),
                None => blocks::index(walk, part.section, &mut self.warnings)?,
            });
            if let Some(index) = part.index()
                && self.warnings.len() == warnings_before
                && let count @ 1.. = index.impossible
            {
                self.warnings.push(wrong_types(&part.name, count));
            }
            self.lacks_records |= self.warnings.len() > warnings_before;
            if let Some(bytes @ 1..) = part.index().map(|index| index.aux_bytes) {
                self.warnings.push(aux_warning(&part.name, AuxTrace { bytes, ..self.aux }));
            }
        }
        Ok(parts.iter().map(|part| part.index().cloned()).collect())
    }

    /// Returns block indexes that contain all samples. Decompresses records if this is necessary. Returns an empty
    /// vector for a pipe, unless the stream was saved in a file.
    pub fn unpacked_index(&mut self) -> Result<Vec<Arc<BlockIndex>>, PerfDataError> {
        self.index()?;
        let (order, layouts, memory) = (self.order, &self.layouts, self.limit.bytes() / 4);
        let ending = self.ending;
        let look = |name: &str, input: &Arc<dyn Input>, section: Section, room| {
            compressed::index(compressed::Source { input, name, order, layouts, room, memory, ending }, section)
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

    /// Returns the times of the first and the last sample. Reads the records to find them, and decompresses the records
    /// if necessary, unless perf-prof stored these times. Returns `None` if there are no samples, and for a pipe that does
    /// not state these times.
    pub fn times(&mut self) -> Result<Option<(u64, u64)>, PerfDataError> {
        if let Some(times) = self.stored_times() {
            return Ok(Some(times));
        }
        Ok(spanned(self.unpacked_index()?).or(self.features.sample_time))
    }

    /// Like [`Recording::times`], but decompresses nothing. Returns what the recording states if decompression would be
    /// necessary.
    pub fn known_times(&mut self) -> Result<Option<(u64, u64)>, PerfDataError> {
        if let Some(times) = self.stored_times() {
            return Ok(Some(times));
        }
        self.index()?;
        let known: Option<Vec<_>> = match &self.data {
            Data::Parts(parts) => parts.iter().map(|part| part.samples().cloned()).collect(),
            Data::Stream(..) => None,
        };
        Ok(known.and_then(spanned).or(self.features.sample_time))
    }

    /// Returns the times of the first and the last sample, as perf-prof stored them. Those that perf stored may be wrong:
    /// it reads the records again to find them (`process_buildids()` in `tools/perf/builtin-record.c`), and if it cannot
    /// process one of them, the samples after that record do not count.
    fn stored_times(&self) -> Option<(u64, u64)> {
        self.features.sample_time.filter(|_| self.is_own())
    }

    /// Starts a replay of the selected records, in time order.
    pub fn replay(mut self, selection: Selection) -> Result<Replay, PerfDataError> {
        // If all times are selected, the replay reads every block anyway, including the side-band records. So side-band
        // records need not be kept in memory.
        let keeps = !selection.takes_all_times();
        if let Data::Parts(parts) = &mut self.data {
            // `index_keeping` would read all side-band records now. With the stored index, the replay reads each
            // side-band record later, once, and only if it needs the record.
            parts.iter_mut().for_each(Part::use_stored_index);
        }
        self.index_keeping(if keeps { ROOM } else { 0 })?;
        if selection.gaps == Gaps::Marked && self.has_compressed_losses()? {
            // A record about a loss comes after the loss, and compressed records are read once, from front to back. Their
            // index shows in advance when each loss began, as in the parts of a divided recording.
            self.unpacked_index()?;
        }
        if let (false, Data::Parts(parts)) = (keeps, &mut self.data) {
            parts.iter_mut().for_each(Part::forget_side_band);
        }
        let (order, layouts, selection) = (self.order, self.layouts.clone(), Arc::new(selection));
        let aux = self.aux;
        let (pool, gaps) = (Arc::default(), FoundGaps::default());
        Replay::new(self, ReplayContext { order, layouts, selection, pool, aux, gaps })
    }

    /// Returns whether there are compressed records that were not indexed, and some of all events were lost.
    fn has_compressed_losses(&self) -> Result<bool, PerfDataError> {
        let (order, layouts, ending) = (self.order, &self.layouts, self.ending);
        let states_losses = |name: &str, input: &Arc<dyn Input>, section: Section| {
            let source = compressed::Source { input, name, order, layouts, room: 0, memory: 0, ending };
            source.states_losses(section)
        };
        match &self.data {
            Data::Stream(_, _, Some(Stored { input, section, unpacked: None })) => {
                states_losses(&self.name, input, *section)
            }
            Data::Parts(parts) if parts.iter().any(|part| part.samples().is_none()) => {
                let mut parts = parts.iter().map(|part| states_losses(&part.name, &part.input, part.section));
                parts.find(|found| !matches!(found, Ok(false))).unwrap_or(Ok(false))
            }
            Data::Stream(..) | Data::Parts(_) => Ok(false),
        }
    }

    /// Like [`Recording::replay`], but keeps the recording, so that it can be replayed again. Returns `None` for a
    /// pipe, because the records of a pipe can be read only once.
    pub fn replay_copy(&self, selection: Selection) -> Result<Option<Replay>, PerfDataError> {
        self.copied().map(|copy| copy.replay(selection)).transpose()
    }

    /// Returns a copy for a replay. The copy has the records, but not the descriptions of the events and the machine.
    /// Returns `None` for a pipe, because the records of a pipe can be read only once.
    pub fn copied(&self) -> Option<Recording> {
        let data = match &self.data {
            Data::Parts(parts) => Data::Parts(parts.clone()),
            Data::Stream(records, arrival, stored) => Data::Stream(records.copied()?, *arrival, stored.clone()),
        };
        Some(Recording {
            name: self.name.clone(),
            events: Vec::new(),
            features: Features { cpus: self.features.cpus, ..Features::default() },
            kernel: None,
            warnings: Vec::new(),
            layouts: self.layouts.clone(),
            limit: self.limit.clone(),
            blocks: self.blocks.clone(),
            filters: self.filters.clone(),
            data,
            ..*self
        })
    }

    /// Returns the budget for the recording's records. Tables and open spans take their memory from this budget too.
    pub fn budget(&self) -> &Budget {
        self.limit.budget()
    }

    /// Indexes the records if the recording has no index. Copies that are made later share this index.
    pub fn find_blocks(&mut self) -> Result<(), PerfDataError> {
        let Data::Parts(parts) = &self.data else { return Ok(()) };
        if parts.iter().any(|part| part.indexed.is_none() && part.stored.is_none()) {
            self.index()?;
        }
        Ok(())
    }

    /// Returns the block indexes of all parts; `None` if the index of a part is not known. Side-band records may be
    /// missing from the indexes.
    pub fn known_blocks(&self) -> Option<Vec<Arc<BlockIndex>>> {
        let Data::Parts(parts) = &self.data else { return None };
        let stored = |part: &Part| part.stored.clone().map(Arc::new);
        parts.iter().map(|part| part.index().cloned().or_else(|| stored(part))).collect()
    }

    /// Moves the location of the records out of the recording. From now on the records belong to the replay.
    pub(crate) fn take_data(&mut self) -> Data {
        std::mem::replace(&mut self.data, Data::Parts(Vec::new()))
    }
}

/// Returns the times of the first and the last sample among all indexes.
fn spanned(indexes: impl IntoIterator<Item = Arc<BlockIndex>>) -> Option<(u64, u64)> {
    let times = indexes.into_iter().filter_map(|index| index.samples);
    times.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
}

//! A recording: what it says of itself and of its events, and where its records are.

use std::{
    fs::{self, File},
    path::Path,
    sync::Arc,
};

use super::{
    attr::Attr,
    bytes::ByteOrder,
    error::PerfDataError,
    features::Features,
    header::{self, AttrIds, FileHeader, Header, Section},
    index::{self, BlockIndex, Indexed},
    input::Input,
    layouts::Layouts,
    replay::Replay,
    select::Selection,
    stream::Gate,
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
    /// What is wrong with it that it can be read all the same with.
    pub warnings: Vec<String>,
    layouts: Arc<Layouts>,
    parts: Vec<Part>,
}

/// A run of records in a file.
pub(super) struct Part {
    pub name: String,
    pub input: Arc<dyn Input>,
    pub section: Section,
    pub indexed: Option<Arc<BlockIndex>>,
}

impl Recording {
    /// Opens a recording.
    pub fn open(path: &Path) -> Result<Recording, PerfDataError> {
        let name = path.display().to_string();
        let open = |path: &Path| -> Result<Arc<dyn Input>, PerfDataError> {
            Ok(Arc::new(File::open(path).map_err(|error| PerfDataError::io(&path.display().to_string(), error))?))
        };
        if !path.is_dir() {
            return Self::of_file(open(path)?, &name);
        }
        let data = path.join("data");
        if !data.exists() {
            return Err(PerfDataError::NoDataInDirectory { name });
        }
        let mut recording = Self::of_file(open(&data)?, &data.display().to_string())?;
        recording.name = name.clone();
        // perf names them data.0, data.1 and so on; their order is of no importance.
        let entries = fs::read_dir(path).map_err(|error| PerfDataError::io(&name, error))?;
        let mut members: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        members.retain(|member| member.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"data.")));
        members.sort_by_key(|member| (member.as_os_str().len(), member.clone()));
        for member in members {
            let (input, name) = (open(&member)?, member.display().to_string());
            let size = input.size().map_err(|error| PerfDataError::io(&name, error))?;
            recording.parts.push(Part { name, input, section: Section { offset: 0, size }, indexed: None });
        }
        Ok(recording)
    }

    /// Opens a recording that is one file, or bytes in memory.
    pub fn of_file(input: Arc<dyn Input>, name: &str) -> Result<Recording, PerfDataError> {
        let mut header = match header::read(&*input, name)? {
            Header::File(header) => header,
            Header::Pipe(_) => return Err(PerfDataError::damaged(name, "recordings of a pipe are not read yet")),
        };
        if header.order == ByteOrder::Foreign {
            return Err(PerfDataError::damaged(name, "the other byte order is not read yet"));
        }
        let mut warnings = Vec::new();
        let size = input.size().map_err(|error| PerfDataError::io(name, error))?;
        let features = if header.data.size == 0 {
            // Its end was never written: everything behind the header are records.
            warnings.push(format!(
                "{name} was not finished: `perf record` did not end in order. What is there is read; names of events and \
                 formats of tracepoints are missing"
            ));
            header.data.size = size.saturating_sub(header.data.offset);
            Features::default()
        } else {
            Features::read(&*input, name, &header, &mut warnings)?
        };
        if header.data.offset.saturating_add(header.data.size) > size {
            warnings.push(format!("{name} is cut off: its records should be {} bytes", header.data.size));
        }
        let FileHeader { order, attrs, data, .. } = header;
        let part = Part { name: name.to_owned(), input, section: data, indexed: None };
        Ok(Self::new(name, order, attrs, features, vec![part], warnings))
    }

    fn new(
        name: &str,
        order: ByteOrder,
        attrs: Vec<AttrIds>,
        features: Features,
        parts: Vec<Part>,
        warnings: Vec<String>,
    ) -> Recording {
        let layouts = Arc::new(Layouts::new(&attrs));
        let described = |at: usize, ids: &AttrIds| {
            // They stand in the same order; where they do not, the ids tell.
            let same = |event: &&super::features::EventDesc| event.ids == ids.ids && event.attr.kind == ids.attr.kind;
            features.events.get(at).filter(same).or_else(|| features.events.iter().find(same))
        };
        let format = |attr: &Attr| {
            let tracing = features.tracing_data.as_ref().filter(|_| attr.kind == PERF_TYPE_TRACEPOINT)?;
            tracing.format(attr.config).map(Arc::new)
        };
        let event = |(at, ids): (usize, &AttrIds)| RecordedEvent {
            attr: ids.attr.clone(),
            ids: ids.ids.clone(),
            name: described(at, ids).map(|event| event.name.clone()),
            format: format(&ids.attr),
        };
        let events = attrs.iter().enumerate().map(event).collect();
        Recording { name: name.to_owned(), order, events, features, warnings, layouts, parts }
    }

    /// Which event a record belongs to, and where its time lies.
    pub fn layouts(&self) -> &Arc<Layouts> {
        &self.layouts
    }

    /// Looks at the times of all records, part by part; `None` for a part that cannot be looked at without unpacking.
    pub fn index(&mut self) -> Result<Vec<Option<Arc<BlockIndex>>>, PerfDataError> {
        for part in &mut self.parts {
            if part.indexed.is_none() {
                let Part { name, input, section, .. } = part;
                let indexed = index::index(&**input, name, *section, self.order, &self.layouts, &mut self.warnings)?;
                if let Indexed::Plain(index) = indexed {
                    part.indexed = Some(Arc::new(index));
                }
            }
        }
        Ok(self.parts.iter().map(|part| part.indexed.clone()).collect())
    }

    /// The times of the first and the last sample; `None` where there is no sample, or nobody knows yet.
    pub fn times(&mut self) -> Result<Option<(u64, u64)>, PerfDataError> {
        if let Some(times) = self.features.sample_time {
            return Ok(Some(times));
        }
        let times = self.index()?.into_iter().filter_map(|index| index?.samples);
        Ok(times.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))))
    }

    /// Reads what is selected, in the order of time.
    pub fn replay(mut self, selection: Selection) -> Result<Replay, PerfDataError> {
        self.index()?;
        let gate = Gate {
            order: self.order,
            layouts: self.layouts.clone(),
            selection: Arc::new(selection),
            pool: Arc::default(),
        };
        Replay::new(self, gate)
    }

    /// The runs of records, which belong to the replay from now on.
    pub(super) fn take_parts(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.parts)
    }
}

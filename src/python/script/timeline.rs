//! The Python class `perf_prof.Timeline`: collects slices, instants and counters, and writes them as a trace for
//! Perfetto.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
    sync::Arc,
};

use perf_prof_events::{
    event::Stats,
    picture::{
        perfetto,
        timeline::{Argument, EntryId, NameId, Number, Shape, Timeline as Entries, TimelineError, Track, TrackId},
    },
};
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyString, PyType},
};

use super::{
    module::run,
    pictures::{missing_in_run, os_error},
};

/// Slices, instants and counters on named tracks. save() writes them as a trace for ui.perfetto.dev.
///
/// Times and durations are in nanoseconds, as event._time and event.duration. A track is given by its name, or as the
/// object that track() returns. Arguments are shown with a slice: numbers, bool, str, and other objects as str(). Slices
/// of a track may overlap. If events were lost, the trace has a track that says so. len() is the number of slices,
/// instants and values of counters.
#[pyclass(module = "perf_prof")]
#[derive(Default)]
pub struct Timeline {
    entries: Entries,
    /// The counts of the last run in which entries were added.
    fed: Option<Arc<Stats>>,
}

/// A track of a Timeline.
#[pyclass(name = "Track", module = "perf_prof", frozen)]
pub struct TimelineTrack {
    timeline: Py<Timeline>,
    track: TrackId,
    /// The name of the track.
    #[pyo3(get)]
    name: String,
}

/// A timeline in a pickle: tracks with their parents, names, entries, and flows.
type State = (Vec<(String, Option<u32>)>, Vec<String>, Vec<EntryState>, Vec<(u32, u32)>);

/// An entry: its track, its name, its time, the duration of a slice, the value of a counter, and the arguments.
type EntryState = (u32, Option<u32>, u64, Option<u64>, Option<Scalar>, Vec<(u32, Scalar)>);

/// The value of a counter or of an argument.
#[derive(FromPyObject, IntoPyObject)]
enum Scalar {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(String),
}

#[pymethods]
impl Timeline {
    #[new]
    fn new() -> Timeline {
        Timeline::default()
    }

    /// Returns the track with this name, and creates it at first use. parent is a track (or its name) below which it is
    /// shown.
    #[pyo3(signature = (name, parent=None))]
    fn track(slf: &Bound<'_, Self>, name: &str, parent: Option<&Bound<'_, PyAny>>) -> PyResult<TimelineTrack> {
        let parent = parent.map(|parent| track_of(slf, parent)).transpose()?;
        let track = slf.borrow_mut().entries.track(name, parent).map_err(value_error)?;
        Ok(TimelineTrack { timeline: slf.clone().unbind(), track, name: name.to_owned() })
    }

    /// Adds a slice: something that took duration ns from start on. Returns its number, for flow().
    #[pyo3(signature = (track, name, start, duration, **args))]
    fn slice(
        slf: &Bound<'_, Self>,
        track: &Bound<'_, PyAny>,
        name: &str,
        start: u64,
        duration: u64,
        args: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u32> {
        add(slf, track, Some(name), start, Shape::Slice(duration), args)
    }

    /// Adds a moment. Returns its number, for flow().
    #[pyo3(signature = (track, name, time, **args))]
    fn instant(
        slf: &Bound<'_, Self>,
        track: &Bound<'_, PyAny>,
        name: &str,
        time: u64,
        args: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u32> {
        add(slf, track, Some(name), time, Shape::Instant, args)
    }

    /// Says that the counter has this value (int or float) from time on. The counter is a track of its own.
    #[pyo3(signature = (track, time, value))]
    fn counter(slf: &Bound<'_, Self>, track: &Bound<'_, PyAny>, time: u64, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = match value.extract::<i64>() {
            Ok(value) => Number::Int(value),
            Err(_) => Number::Float(value.extract()?),
        };
        add(slf, track, None, time, Shape::Value(value), None).map(drop)
    }

    /// Draws an arrow from one slice or instant to another. Both are numbers that slice() and instant() returned.
    #[pyo3(signature = (source, target))]
    fn flow(&mut self, source: u32, target: u32) -> PyResult<()> {
        self.entries.flow(EntryId(source), EntryId(target)).map_err(value_error)
    }

    /// Adds everything that is in another Timeline. Tracks with the same name and parent become one.
    #[pyo3(signature = (other))]
    fn update(slf: &Bound<'_, Self>, other: &Bound<'_, Timeline>) -> PyResult<()> {
        // `slf` and `other` may be the same object, so they are not borrowed at the same time.
        let (other, fed) = (other.borrow().entries.clone(), other.borrow().fed.clone());
        let mut this = slf.borrow_mut();
        this.fed = fed.or_else(|| this.fed.take());
        this.entries.update(&other).map_err(value_error)
    }

    /// Writes the trace. Raises ValueError if path does not end in .pftrace, and OSError if it cannot be written.
    #[pyo3(signature = (path))]
    fn save(&self, path: PathBuf) -> PyResult<()> {
        if path.extension().is_none_or(|ending| ending != "pftrace") {
            let shown = path.display();
            return Err(PyValueError::new_err(format!(
                "{shown}: the name of a trace for Perfetto must end in .pftrace"
            )));
        }
        let write = || -> io::Result<()> {
            let mut to = BufWriter::new(File::create(&path)?);
            // The GIL is not released: the timeline is borrowed, and another thread that adds to it would get an error.
            perfetto::write(&self.entries, self.partial().as_deref(), &mut to)?;
            to.flush()
        };
        write().map_err(|error| os_error(&error, &path))
    }

    /// The bytes that save() writes.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut bytes = Vec::new();
        perfetto::write(&self.entries, self.partial().as_deref(), &mut bytes)?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn __repr__(&self) -> String {
        let (tracks, entries) = (self.entries.tracks().len(), self.entries.entries().len());
        format!("<perf_prof.Timeline: {entries} entries on {tracks} tracks>")
    }

    fn __len__(&self) -> usize {
        self.entries.entries().len()
    }

    /// Supports copy and pickle.
    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyType>, (), State) {
        let this = slf.borrow();
        let entries = &this.entries;
        let tracks = entries.tracks().iter().map(|Track { name, parent, .. }| (name.clone(), parent.map(|of| of.0)));
        let state = entries.entries().iter().map(|entry| {
            let (duration, value) = match entry.shape {
                Shape::Slice(duration) => (Some(duration), None),
                Shape::Instant => (None, None),
                Shape::Value(Number::Int(value)) => (None, Some(Scalar::Int(value))),
                Shape::Value(Number::Float(value)) => (None, Some(Scalar::Float(value))),
            };
            let arguments = entry.arguments.iter().map(|(name, value)| (name.0, Scalar::from(value))).collect();
            (entry.track.0, entry.name.map(|name| name.0), entry.time, duration, value, arguments)
        });
        let flows = entries.flows().iter().map(|(source, target)| (source.0, target.0)).collect();
        let state = (tracks.collect(), entries.names().to_vec(), state.collect(), flows);
        (slf.get_type().unbind(), (), state)
    }

    fn __setstate__(&mut self, state: State) -> PyResult<()> {
        let (tracks, names, entries, flows) = state;
        for (name, parent) in &tracks {
            self.entries.track(name, parent.map(TrackId)).map_err(value_error)?;
        }
        let name = |NameId(name): NameId| {
            let found = names.get(name as usize).map(String::as_str);
            found.ok_or_else(|| PyValueError::new_err("the pickle of this Timeline is damaged"))
        };
        for (track, of, time, duration, value, arguments) in entries {
            let shape = match (duration, value) {
                (Some(duration), _) => Shape::Slice(duration),
                (None, None) => Shape::Instant,
                (None, Some(Scalar::Float(value))) => Shape::Value(Number::Float(value)),
                (None, Some(Scalar::Int(value))) => Shape::Value(Number::Int(value)),
                (None, Some(_)) => return Err(PyValueError::new_err("the pickle of this Timeline is damaged")),
            };
            let arguments = arguments
                .into_iter()
                .map(|(of, value)| Ok((name(NameId(of))?.to_owned(), Argument::from(value))))
                .collect::<PyResult<_>>()?;
            let of = of.map(|of| name(NameId(of))).transpose()?;
            self.entries.add(TrackId(track), of, time, shape, arguments).map_err(value_error)?;
        }
        flows
            .into_iter()
            .try_for_each(|(source, target)| self.entries.flow(EntryId(source), EntryId(target)).map_err(value_error))
    }
}

#[pymethods]
impl TimelineTrack {
    fn __repr__(&self) -> String {
        format!("<Track {:?}>", self.name)
    }
}

impl From<&Argument> for Scalar {
    fn from(value: &Argument) -> Scalar {
        match value {
            &Argument::Bool(value) => Scalar::Bool(value),
            &Argument::Int(value) => Scalar::Int(value),
            &Argument::Uint(value) => Scalar::Uint(value),
            &Argument::Float(value) => Scalar::Float(value),
            Argument::Text(value) => Scalar::Text(value.clone()),
        }
    }
}

impl From<Scalar> for Argument {
    fn from(value: Scalar) -> Argument {
        match value {
            Scalar::Bool(value) => Argument::Bool(value),
            Scalar::Int(value) => Argument::Int(value),
            Scalar::Uint(value) => Argument::Uint(value),
            Scalar::Float(value) => Argument::Float(value),
            Scalar::Text(value) => Argument::Text(value),
        }
    }
}

/// Adds an entry. First converts the arguments, because the str() of an object may use the timeline.
fn add(
    slf: &Bound<'_, Timeline>,
    track: &Bound<'_, PyAny>,
    name: Option<&str>,
    time: u64,
    shape: Shape,
    args: Option<&Bound<'_, PyDict>>,
) -> PyResult<u32> {
    let mut arguments = Vec::with_capacity(args.map_or(0, |args| args.len()));
    for (name, value) in args.into_iter().flatten() {
        arguments.push((name.extract()?, argument(&value)?));
    }
    let track = track_of(slf, track)?;
    let mut this = slf.borrow_mut();
    if let Some(run) = run() {
        this.fed = Some(Arc::clone(&run.stats));
    }
    let added = this.entries.add(track, name, time, shape, arguments);
    added.map(|entry| entry.0).map_err(value_error)
}

impl Timeline {
    /// Returns what is missing in the run whose events are shown, if anything is.
    fn partial(&self) -> Option<String> {
        missing_in_run(self.fed.as_deref(), "")
    }
}

/// Returns a track. `track` is the name of the track or the track itself.
fn track_of(slf: &Bound<'_, Timeline>, track: &Bound<'_, PyAny>) -> PyResult<TrackId> {
    if let Ok(name) = track.cast::<PyString>() {
        return slf.borrow_mut().entries.track(&name.to_string_lossy(), None).map_err(value_error);
    }
    let Ok(track) = track.cast::<TimelineTrack>() else {
        let kind = track.get_type().name()?;
        return Err(PyTypeError::new_err(format!("a track must be a Track or its name, not '{kind}'")));
    };
    let TimelineTrack { timeline, track, .. } = track.get();
    if timeline.is(slf) { Ok(*track) } else { Err(value_error(TimelineError::Track)) }
}

fn argument(value: &Bound<'_, PyAny>) -> PyResult<Argument> {
    if let Ok(value) = value.cast::<PyBool>() {
        return Ok(Argument::Bool(value.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        let signed = value.extract().map(Argument::Int);
        if let Ok(number) = signed.or_else(|_| value.extract().map(Argument::Uint)) {
            return Ok(number);
        }
    }
    match value.cast::<PyFloat>() {
        Ok(value) => Ok(Argument::Float(value.value())),
        Err(_) => Ok(Argument::Text(value.str()?.to_string_lossy().into_owned())),
    }
}

fn value_error(error: TimelineError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

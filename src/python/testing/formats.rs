//! Finds the formats of events: in this kernel, in a recording, or in the formats that are part of perf-prof. This file
//! does not use Python.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use perf_prof_events::event::Format;
use perf_prof_format::{
    spec::{Modifiers, ProbeKind, did_you_mean_aside, glob_matches, named_event, perf_event_names, similar_names},
    tracefs::{EventFormat, FormatError, StringError},
};
use perf_prof_recordings::ReadLimits;
use perf_prof_session::{recording::open, selectors};
use perf_prof_system::{
    mutex::Mutex,
    tracefs::{Tracefs, TracefsError},
};

use super::shipped::shipped;

/// Where to look for formats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatsFrom {
    /// Look in this kernel. If this kernel does not have the event, or if its formats cannot be read, look in the
    /// shipped formats.
    Anywhere,
    /// In this kernel only.
    Kernel,
    /// In the shipped formats only.
    Shipped,
    /// In a recording.
    Recording(PathBuf),
}

/// Why no format is returned.
#[derive(Debug, thiserror::Error)]
pub enum FormatsError {
    /// No event has this name.
    #[error("unknown event {name}: it is not in {place}{}", did_you_mean_aside(near))]
    Unknown {
        /// The name.
        name: String,
        /// Where perf-prof has searched for the name, for the message.
        place: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// The event is no tracepoint, so it has no format.
    #[error("{name} is no tracepoint, so it has no format")]
    NoTracepoint {
        /// The name.
        name: String,
    },
    /// The formats of this kernel cannot be read.
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
    /// The recording cannot be read.
    #[error("{0:#}")]
    Recording(anyhow::Error),
    /// The format of an event cannot be parsed.
    #[error("the format of {name}: {error}")]
    Format {
        /// The event's name.
        name: String,
        /// What is wrong with the format.
        error: FormatError,
    },
    /// The event cannot have the strings that `//str=` requests.
    #[error(transparent)]
    Strings(#[from] StringError),
}

/// The text between the name of a tracepoint and the fields that are read as strings.
pub const STRINGS: &str = "//str=";

impl FormatsFrom {
    /// Returns the format of an event by its name. The name may be a tracepoint, with or without strings
    /// (`//str=FIELD/`), a probe without arguments, or another event that perf has a name for.
    pub fn format(&self, name: &str) -> Result<Format, FormatsError> {
        if let Some(format) = probe(name) {
            return format.map(|format| Format::Tracepoint(Arc::new(format)));
        }
        if is_other_event(name) {
            return Ok(Format::other(name));
        }
        let (tracepoint, strings) = name.split_once(STRINGS).unwrap_or((name, ""));
        let found = match tracepoint.split_once(':') {
            Some((system, event)) => self.tracepoint(system, event)?,
            None => None,
        };
        if let (Some(format), false) = (&found, strings.is_empty()) {
            let fields: Vec<String> = strings.trim_end_matches('/').split('+').map(str::to_owned).collect();
            return Ok(Format::Tracepoint(Arc::new(format.with_strings(&fields)?)));
        }
        found.map(Format::Tracepoint).ok_or_else(|| self.unknown(name))
    }

    /// Returns the format of a tracepoint, or `None` if there is no such tracepoint.
    pub fn tracepoint(&self, system: &str, name: &str) -> Result<Option<Arc<EventFormat>>, FormatsError> {
        if !is_name(system) || !is_name(name) {
            return Ok(None);
        }
        let of_shipped = || match shipped().text(system, name) {
            Some(text) => parsed(system, name, text).map(Some),
            None => Ok(None),
        };
        let of_kernel = |tracefs: &Tracefs| match tracefs.format(system, name) {
            Ok(text) => parsed(system, name, &text).map(Some),
            Err(TracefsError::Call(_)) => Ok(None),
            Err(error) => Err(error.into()),
        };
        match self {
            FormatsFrom::Kernel => of_kernel(&Tracefs::find()?),
            FormatsFrom::Shipped => of_shipped(),
            // tracefs is not mounted here, because testing a script must not change the machine.
            FormatsFrom::Anywhere => match of_kernel(&Tracefs::at_usual_place()) {
                Ok(Some(format)) => Ok(Some(format)),
                Ok(None) | Err(FormatsError::Tracefs(_)) => of_shipped(),
                Err(error) => Err(error),
            },
            FormatsFrom::Recording(_) => {
                let of_name = |format: &Arc<EventFormat>| *format.system == *system && format.name == name;
                Ok(self.recorded()?.into_iter().find(of_name))
            }
        }
    }

    /// Returns the formats of the tracepoints whose system and name match the patterns, sorted by name.
    pub fn tracepoints(&self, system: &str, name: &str) -> Result<Vec<Arc<EventFormat>>, FormatsError> {
        let matches = |of_system: &str, of_name: &str| glob_matches(system, of_system) && glob_matches(name, of_name);
        let mut found: Vec<Arc<EventFormat>> = match self {
            FormatsFrom::Recording(_) => self.recorded()?,
            _ => {
                let names = self.all()?.into_iter().filter(|(system, name)| matches(system, name));
                // A probe without a format has been removed since its name was read.
                let formats = names.filter_map(|(system, name)| self.tracepoint(&system, &name).transpose());
                formats.collect::<Result<_, _>>()?
            }
        };
        let key = |format: &EventFormat| (format.system.to_string(), format.name.clone());
        found.retain(|format| matches(&format.system, &format.name));
        found.sort_by_cached_key(|format| key(format));
        found.dedup_by_key(|format| key(format));
        Ok(found)
    }

    /// Returns all tracepoints, each as (system, name).
    fn all(&self) -> Result<Vec<(String, String)>, FormatsError> {
        let shipped = || shipped().events().map(|(system, name)| (system.to_owned(), name.to_owned()));
        match self {
            FormatsFrom::Kernel => Ok(Tracefs::find()?.events()?),
            FormatsFrom::Shipped => Ok(shipped().collect()),
            FormatsFrom::Anywhere => {
                let of_kernel = Tracefs::at_usual_place().events().unwrap_or_default();
                Ok(of_kernel.into_iter().chain(shipped()).collect())
            }
            FormatsFrom::Recording(_) => {
                let name = |format: Arc<EventFormat>| (format.system.to_string(), format.name.clone());
                Ok(self.recorded()?.into_iter().map(name).collect())
            }
        }
    }

    /// Returns the formats in the recording; none if the formats do not come from a recording.
    fn recorded(&self) -> Result<Vec<Arc<EventFormat>>, FormatsError> {
        let FormatsFrom::Recording(path) = self else { return Ok(Vec::new()) };
        let recording = open::open_header(path, &ReadLimits::default()).map_err(FormatsError::Recording)?;
        Ok(recording.events.into_iter().filter_map(|event| event.format).collect())
    }

    /// Returns the error for a name that no event has.
    pub fn unknown(&self, name: &str) -> FormatsError {
        if is_other_event(name) {
            return FormatsError::NoTracepoint { name: name.to_owned() };
        }
        // The names are only for a hint in the message, so the list may be incomplete.
        let tracepoints = self.all().unwrap_or_default();
        let mut names: Vec<String> = tracepoints.iter().map(|(system, name)| format!("{system}:{name}")).collect();
        names.extend(selectors::BUILT_IN.iter().map(|source| source.name.to_owned()));
        names.extend(perf_event_names().map(|(name, _)| name));
        let near = similar_names(name, names);
        let place = match self {
            FormatsFrom::Anywhere => "this kernel and not in the formats that perf-prof brings".to_owned(),
            FormatsFrom::Kernel => "this kernel".to_owned(),
            FormatsFrom::Shipped => "the formats that perf-prof brings".to_owned(),
            FormatsFrom::Recording(path) => path.display().to_string(),
        };
        FormatsError::Unknown { name: name.to_owned(), place, near }
    }
}

/// Returns whether a text can be the name of a folder in tracefs, and so of a system or an event.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '\0'])
}

/// Returns whether `name` is an event other than a tracepoint. The name may contain modifiers: `cycles:u`.
fn is_other_event(name: &str) -> bool {
    let is_known = |name: &str| selectors::built_in(name).is_some() || named_event(name).is_some();
    let with_modifiers =
        || name.split_once(':').is_some_and(|(name, letters)| is_known(name) && Modifiers::parse(letters).is_some());
    is_known(name) || with_modifiers()
}

/// If `name` is a probe such as `uprobe:malloc`, returns the format of this probe without arguments.
fn probe(name: &str) -> Option<Result<EventFormat, FormatsError>> {
    let (kind, function) = name.split_once(':')?;
    let kinds = [ProbeKind::Kprobe, ProbeKind::Kretprobe, ProbeKind::Uprobe, ProbeKind::Uretprobe];
    let kind = kinds.into_iter().find(|known| known.name() == kind)?;
    let is_function = !function.is_empty() && !function.contains(['\n', '@', '/']);
    let format = |kind| {
        selectors::probe_format(kind, function).map_err(|error| FormatsError::Format { name: name.to_owned(), error })
    };
    is_function.then(|| format(kind))
}

/// The parsed formats, by system and name. If the text of a format has changed, it is parsed again: a probe can be
/// removed and defined anew.
static PARSED: Mutex<Option<ParsedFormats>> = Mutex::new(None);

/// Formats by system and name.
type ParsedFormats = HashMap<(String, String), Arc<EventFormat>>;

fn parsed(system: &str, name: &str, text: &str) -> Result<Arc<EventFormat>, FormatsError> {
    let mut parsed = PARSED.lock();
    let parsed = parsed.get_or_insert_default();
    let key = (system.to_owned(), name.to_owned());
    if let Some(format) = parsed.get(&key).filter(|format| format.text() == text) {
        return Ok(format.clone());
    }
    let format = EventFormat::parse(system, text);
    let format = format.map_err(|error| FormatsError::Format { name: format!("{system}:{name}"), error })?;
    let format = Arc::new(format);
    parsed.insert(key, format.clone());
    Ok(format)
}

//! Dynamic probes: from the selector to the request for the PMUs `kprobe` and `uprobe`.

mod arguments;
mod file;
mod format;
mod location;
mod static_arguments;
mod static_probe;

use std::{
    ffi::{CString, NulError},
    os::unix::ffi::OsStringExt,
    path::Path,
};

use perf_prof_capture::{Config, EventRequest, PerfEvent};
use perf_prof_format::{
    abi::PERF_SAMPLE_RAW,
    spec::{Probe, ProbeArgument, ProbeKind, ProbeLocation, Term, glob_matches},
    tracefs::{EventFormat, FormatError},
};
use perf_prof_symbols::symbol::elf::{self, FunctionKind};
use perf_prof_system::{
    CallError,
    file::SharedFile,
    probe_definition::{FireAt, ProbeDefinition, ProbedCode, ProbedPlace},
};

use self::arguments::{ArgumentPlace, ProbedFunction};
pub use self::{
    arguments::ArgumentError,
    file::FileError,
    format::format as probe_format,
    format::made_format,
    format::with_name,
    location::LocationError,
    static_arguments::{Place, StaticField},
    static_probe::{FoundProbe, StaticProbeError, static_probes},
};
use super::{Machine, SourceError, pmu};

/// Why a probe cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel does not support probes of this PMU.
    #[error("this kernel does not support {pmu} probes (they need {config}); {instead}")]
    NoPmu {
        /// The name of the PMU.
        pmu: &'static str,
        /// The kernel configuration option that adds the PMU.
        config: &'static str,
        /// What to use instead.
        instead: &'static str,
    },
    /// The PMU's files have unknown contents.
    #[error(transparent)]
    Pmu(#[from] SourceError),
    /// The file was not found, or is not a program or library.
    #[error(transparent)]
    File(#[from] FileError),
    /// No probe can be set at the location.
    #[error(transparent)]
    Place(#[from] LocationError),
    /// An argument cannot be used.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// The static probe was not found.
    #[error(transparent)]
    Static(#[from] StaticProbeError),
    /// The kernel refused the definition of the probe.
    #[error("cannot define the probe in tracefs: {0}{right}", right = right_needed(.0))]
    Definition(std::io::Error),
    /// The name of a function or file is not valid.
    #[error("the name contains a NUL byte")]
    Nul(#[from] NulError),
    /// The name of the event is not valid.
    #[error(transparent)]
    Format(#[from] FormatError),
}

fn right_needed(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => "; run as root: probes with arguments and static probes need it",
        _ => "",
    }
}

/// A probe, ready to be captured.
#[derive(Clone, Debug)]
pub struct ResolvedProbe {
    /// The probe. Its names have no wildcards.
    pub probe: Probe,
    /// The request to the kernel.
    pub request: EventRequest,
    /// The format of its samples.
    pub format: EventFormat,
    /// A note for `-v` that says which location was found.
    pub note: Option<String>,
    /// What is missing in the samples, as texts for a message.
    pub lacks: Vec<String>,
}

/// Resolves a probe. A program or library is looked up in the file system of `processes`, or in the file system of
/// perf-prof if `processes` is empty. A probe with arguments is defined in tracefs for a moment, because only the
/// kernel knows the fields of the arguments. Returns several probes for a static probe with wildcards in its names, or
/// with other types of arguments at other places.
pub fn probe(
    probe: &Probe,
    arguments: &[ProbeArgument],
    processes: &[u32],
    machine: &dyn Machine,
) -> Result<Vec<ResolvedProbe>, ProbeError> {
    let pmu = ProbePmu::of(probe.kind, machine)?;
    if probe.kind == ProbeKind::Usdt {
        return static_probe::resolve(probe, arguments, processes, &pmu);
    }
    let Probe { kind, location, file } = probe;
    let is_start = matches!(location, ProbeLocation::Function { offset: 0, .. } | ProbeLocation::Address(_));
    let place = if is_start { ArgumentPlace::Start } else { ArgumentPlace::Inside };
    let mut function = None;
    let (config1, offset, probed, note) = match (kind.is_user(), location) {
        (true, location) => {
            let path = file::find(file, processes)?;
            let opened = open(&path)?;
            let (address, offset) = location::address_and_offset(opened.file(), &path, *kind, location)?;
            function = (!arguments.is_empty()).then(|| ProbedFunction::read(opened.file(), &path, address));
            let note = format!("{}:{location} is at offset {offset:#x} of {}", kind.name(), path.display());
            (file_config(&opened)?, offset, Some(ProbedCode::File(opened)), Some(note))
        }
        (false, ProbeLocation::Function { name, offset }) => {
            (text_config(name.clone().into_bytes())?, *offset, Some(ProbedCode::Kernel(name.clone())), None)
        }
        (false, location) => {
            let address = if let ProbeLocation::Address(address) = location { *address } else { 0 };
            let probed = (!arguments.is_empty()).then(|| ProbedCode::Kernel(format!("{address:#x}")));
            (Config::Number(0), address, probed, None)
        }
    };
    let fire_at = if kind.is_return() { FireAt::Return } else { FireAt::Entry };
    let arguments = arguments::resolve(*kind, place, arguments, function.as_ref())?;
    let definition = probed.map(|probed| {
        // If the location is an address, the address is already in `probed`.
        let offset = if matches!(location, ProbeLocation::Address(_)) && !kind.is_user() { 0 } else { offset };
        ProbeDefinition { probed, fire_at, places: vec![ProbedPlace { offset, semaphore: None, arguments }] }
    });
    let format = match definition.as_ref().filter(|definition| definition.needs_tracefs()) {
        Some(definition) => format_of(probe, definition)?,
        None => format::format(*kind, &location.to_string())?,
    };
    let event = pmu.event(config1, offset);
    Ok(vec![ResolvedProbe::new(probe.clone(), event, definition, format, note)])
}

/// The PMU that probes are opened with.
struct ProbePmu {
    kind: u32,
    config: u64,
}

impl ProbePmu {
    fn of(kind: ProbeKind, machine: &dyn Machine) -> Result<ProbePmu, ProbeError> {
        let (name, config, instead) = match kind.is_user() {
            true => ("uprobe", "CONFIG_UPROBE_EVENTS", "use `cpu-clock` or `profile` to see what programs execute"),
            false => (
                "kprobe",
                "CONFIG_KPROBE_EVENTS",
                "use a nearby tracepoint instead (`perf-prof list` lists tracepoints)",
            ),
        };
        let Some(pmu) = machine.pmu(name).map_err(SourceError::from)? else {
            return Err(ProbeError::NoPmu { pmu: name, config, instead });
        };
        let terms: &[Term] =
            if kind.is_return() { &[Term { name: "retprobe".to_owned(), value: None }] } else { Default::default() };
        let [config, ..] = pmu::configs(&pmu, terms, &[])?;
        Ok(ProbePmu { kind: pmu.kind, config })
    }

    fn event(&self, config1: Config, config2: u64) -> PerfEvent {
        PerfEvent { kind: self.kind, config: self.config, config1, config2, ..PerfEvent::default() }
    }
}

impl ResolvedProbe {
    fn new(
        probe: Probe,
        event: PerfEvent,
        definition: Option<ProbeDefinition>,
        format: EventFormat,
        note: Option<String>,
    ) -> ResolvedProbe {
        let mut request = EventRequest::new(format!("{}:{}", format.system, format.name), event);
        request.samples.sample_type = PERF_SAMPLE_RAW;
        request.definition = definition;
        ResolvedProbe { probe, request, format, note, lacks: Vec::new() }
    }
}

/// Opens the file of a probe. The file's owner may replace it at any time. So it is opened only once, and the kernel
/// gets the file whose symbols are read.
fn open(path: &Path) -> Result<SharedFile, FileError> {
    let wrong = |error: CallError| FileError::Path { path: path.display().to_string(), error: error.source };
    SharedFile::open(path).map_err(wrong)
}

/// Returns the format that the kernel writes for a probe with this definition.
fn format_of(probe: &Probe, definition: &ProbeDefinition) -> Result<EventFormat, ProbeError> {
    let text = definition.define().and_then(|defined| defined.format()).map_err(ProbeError::Definition)?;
    Ok(format::defined_format(probe, &text)?)
}

/// Returns a selector for each function that matches the name in `probe`, which may contain wildcards. The file is
/// looked up as `processes` see it.
pub fn functions(probe: &Probe, processes: &[u32]) -> Result<Vec<String>, ProbeError> {
    let path = file::find(&probe.file, processes)?;
    let ProbeLocation::Function { name: pattern, .. } = &probe.location else { return Ok(vec![probe.to_string()]) };
    let functions = elf::functions(&path).map_err(LocationError::from)?;
    // Superseded functions and IFUNCs are left out, because a call of such a name calls another function.
    let named = functions.into_iter().filter(|function| function.kind == FunctionKind::Called);
    let named = named.filter(|function| glob_matches(pattern, function.name.split('@').next().unwrap_or_default()));
    let mut selectors: Vec<String> = named
        .map(|function| {
            let name = function.name.split('@').next().unwrap_or_default().to_owned();
            let location = ProbeLocation::Function { name, offset: 0 };
            Probe { kind: probe.kind, location, file: path.display().to_string() }.to_string()
        })
        .collect();
    selectors.dedup();
    Ok(selectors)
}

fn file_config(file: &SharedFile) -> Result<Config, NulError> {
    text_config(file.path().into_os_string().into_vec())
}

fn text_config(text: Vec<u8>) -> Result<Config, NulError> {
    Ok(Config::Text(CString::new(text)?.into()))
}

/// Returns the forms of probe selectors for this PMU, each with its description.
pub(super) fn names(pmu: &str) -> &'static [(&'static str, &'static str)] {
    match pmu {
        "kprobe" => &[
            ("kprobe:FUNCTION", "probe on a kernel function's entry"),
            ("kretprobe:FUNCTION", "probe on a kernel function's return"),
        ],
        "uprobe" => &[
            ("uprobe:FUNCTION@\"FILE\"", "probe on a user function's entry"),
            ("uretprobe:FUNCTION@\"FILE\"", "probe on a user function's return"),
            ("usdt:PROVIDER:NAME@\"FILE\"", "static probe of a program or library"),
        ],
        _ => &[],
    }
}

//! Dynamic probes: from the selector to the request for the PMUs `kprobe` and `uprobe`.

mod arguments;
mod file;
mod format;
mod location;

use std::{
    ffi::{CString, NulError},
    os::unix::ffi::OsStringExt,
};

use perf_prof_capture::{Config, EventRequest, PerfEvent};
use perf_prof_format::{
    abi::PERF_SAMPLE_RAW,
    spec::{Probe, ProbeArgument, ProbeLocation, Term, glob_matches},
    tracefs::{EventFormat, FormatError},
};
use perf_prof_symbols::symbol::elf::{self, FunctionKind};
use perf_prof_system::{
    file::SharedFile,
    probe_definition::{FireAt, ProbeDefinition, ProbedCode},
};

use self::arguments::{ArgumentPlace, ProbedFunction};
pub use self::{
    arguments::ArgumentError, file::FileError, format::format as probe_format, format::made_format, format::with_name,
    location::LocationError,
};
use super::{Machine, SourceError, pmu};

/// Why a probe cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel does not support such probes.
    #[error("this kernel does not support {pmu} probes (they need {config}); {instead}")]
    NoPmu {
        /// The name of the PMU.
        pmu: &'static str,
        /// The kernel configuration option that adds it.
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
    /// The kernel refused the definition of the probe with its arguments.
    #[error("cannot define the probe with its arguments in tracefs: {0}")]
    Definition(std::io::Error),
    /// The name of a function or file is not valid.
    #[error("the name contains a NUL byte")]
    Nul(#[from] NulError),
    /// The name of the event is not valid.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// A probe, ready to be captured.
#[derive(Clone, Debug)]
pub struct ResolvedProbe {
    /// The request to the kernel.
    pub request: EventRequest,
    /// The format of its samples.
    pub format: EventFormat,
    /// A note for `-v` that says which location was found.
    pub note: Option<String>,
}

/// Resolves a probe. A program or library is looked up in the file system of `processes`, or in the file system of
/// perf-prof if `processes` is empty. A probe with arguments is defined in tracefs for a moment, because only the
/// kernel knows the fields for the arguments.
pub fn probe(
    probe: &Probe,
    arguments: &[ProbeArgument],
    processes: &[u32],
    machine: &dyn Machine,
) -> Result<ResolvedProbe, ProbeError> {
    let Probe { kind, location, file } = probe;
    let (name, config) = match kind.is_user() {
        true => ("uprobe", "CONFIG_UPROBE_EVENTS"),
        false => ("kprobe", "CONFIG_KPROBE_EVENTS"),
    };
    let Some(pmu) = machine.pmu(name).map_err(SourceError::from)? else {
        let instead = match kind.is_user() {
            true => "use `cpu-clock` or `profile` to see what programs execute",
            false => "use a nearby tracepoint instead (`perf-prof list` lists tracepoints)",
        };
        return Err(ProbeError::NoPmu { pmu: name, config, instead });
    };
    let terms: &[Term] =
        if kind.is_return() { &[Term { name: "retprobe".to_owned(), value: None }] } else { Default::default() };
    let [config, ..] = pmu::configs(&pmu, terms, &[])?;
    let is_start = matches!(location, ProbeLocation::Function { offset: 0, .. } | ProbeLocation::Address(_));
    let place = if is_start { ArgumentPlace::Start } else { ArgumentPlace::Inside };
    let mut function = None;
    let (config1, config2, probed, note) = match (kind.is_user(), location) {
        (true, location) => {
            let path = file::find(file, processes)?;
            // The owner of the file may replace it at any time. So the file is opened only once: its symbols are read
            // from the same file that the kernel gets.
            let opened = SharedFile::open(&path)
                .map_err(|error| FileError::Path { path: path.display().to_string(), error: error.source })?;
            let (address, offset) = location::address_and_offset(opened.file(), &path, *kind, location)?;
            function = (!arguments.is_empty()).then(|| ProbedFunction::read(opened.file(), &path, address));
            let note = format!("{}:{location} is at offset {offset:#x} of {}", kind.name(), path.display());
            let config = text_config(opened.path().into_os_string().into_vec())?;
            (config, offset, Some(ProbedCode::File(opened, offset)), Some(note))
        }
        (false, ProbeLocation::Function { name, offset }) => {
            let probed = ProbedCode::Kernel(name.clone(), *offset);
            (text_config(name.clone().into_bytes())?, *offset, Some(probed), None)
        }
        (false, ProbeLocation::Address(address)) => {
            let probed = (!arguments.is_empty()).then(|| ProbedCode::Kernel(format!("{address:#x}"), 0));
            (Config::Number(0), *address, probed, None)
        }
    };
    let event = PerfEvent { kind: pmu.kind, config, config1, config2, ..PerfEvent::default() };
    let fire_at = if kind.is_return() { FireAt::Return } else { FireAt::Entry };
    let arguments = arguments::resolve(*kind, place, arguments, function.as_ref())?;
    let definition = probed.map(|probed| ProbeDefinition { probed, fire_at, arguments });
    let text = match &definition {
        Some(definition) if !definition.arguments.is_empty() => {
            let defined = definition.define().and_then(|defined| defined.format());
            Some(defined.map_err(ProbeError::Definition)?)
        }
        _ => None,
    };
    let format = format::format(*kind, &location.to_string(), text.as_deref())?;
    let mut request = EventRequest::new(format!("{}:{}", format.system, format.name), event);
    request.samples.sample_type = PERF_SAMPLE_RAW;
    request.definition = definition;
    Ok(ResolvedProbe { request, format, note })
}

/// Returns a selector for each function that matches the name in `probe`. The name may contain wildcards.
pub fn functions(probe: &Probe) -> Result<Vec<String>, ProbeError> {
    let path = file::find(&probe.file, &[])?;
    let ProbeLocation::Function { name: pattern, .. } = &probe.location else { return Ok(vec![probe.to_string()]) };
    let functions = elf::functions(&path).map_err(LocationError::from)?;
    // Superseded functions and IFUNCs are left out: a call by their name calls another function.
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
        ],
        _ => &[],
    }
}

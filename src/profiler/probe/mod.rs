//! Dynamic probes, from what was asked for to what is opened through the PMUs `kprobe` and `uprobe`. Knows nothing of Python.

mod file;
mod format;
mod place;

use std::{
    ffi::{CString, NulError},
    os::unix::ffi::OsStringExt,
};

pub use self::{file::FileError, format::text as format_text, place::PlaceError};
use super::{Machine, SourceError, pmu};
use crate::{
    abi::PERF_SAMPLE_RAW,
    capture::{Config, EventRequest, PerfEvent},
    spec::{Place, Probe, Term, glob_matches},
    symbol::elf::{self, FunctionKind},
    sys::definition::{Definition, Moment, Probed},
    tracefs::{EventFormat, FormatError},
};

/// Why a probe cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel does not have such probes.
    #[error("this kernel has no {pmu} PMU ({config}); {instead}")]
    NoPmu {
        /// Its name.
        pmu: &'static str,
        /// What a kernel with it is configured with.
        config: &'static str,
        /// The way out.
        instead: &'static str,
    },
    /// The PMU's files say something unknown.
    #[error(transparent)]
    Pmu(#[from] SourceError),
    /// The file is not known.
    #[error(transparent)]
    File(#[from] FileError),
    /// No probe can be at the place.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// No name of a function or file.
    #[error("a name that holds a NUL names nothing")]
    Nul(#[from] NulError),
    /// No name of an event.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// A probe, ready to be captured.
#[derive(Clone, Debug)]
pub struct ProbeEvent {
    /// What is asked of the kernel.
    pub request: EventRequest,
    /// What its samples hold.
    pub format: EventFormat,
    /// What `-v` shows: which place was found.
    pub note: Option<String>,
}

/// Resolves a probe. A program or library is looked for as `processes` see it; without any, as we do.
pub fn probe(probe: &Probe, processes: &[u32], machine: &dyn Machine) -> Result<ProbeEvent, ProbeError> {
    let Probe { kind, place, file } = probe;
    let (name, config) = match kind.is_user() {
        true => ("uprobe", "CONFIG_UPROBE_EVENTS"),
        false => ("kprobe", "CONFIG_KPROBE_EVENTS"),
    };
    let Some(pmu) = machine.pmu(name).map_err(SourceError::from)? else {
        let instead = match kind.is_user() {
            true => "`cpu-clock` and `profile` show what programs execute",
            false => "a tracepoint may be near: `perf-prof list` shows them",
        };
        return Err(ProbeError::NoPmu { pmu: name, config, instead });
    };
    let terms: &[Term] =
        if kind.is_return() { &[Term { name: "retprobe".to_owned(), value: None }] } else { Default::default() };
    let [config, ..] = pmu::configs(&pmu, terms, &[])?;
    let (config1, config2, probed, note) = match (kind.is_user(), place) {
        (true, place) => {
            let path = file::find(file, processes)?;
            let offset = place::offset(&path, *kind, place)?;
            let note = format!("{}:{place} is at offset {offset:#x} of {}", kind.name(), path.display());
            let probed = Probed::File(path.clone(), offset);
            (text(path.into_os_string().into_vec())?, offset, Some(probed), Some(note))
        }
        (false, Place::Function { name, offset }) => {
            let probed = Probed::Kernel(name.clone(), *offset);
            (text(name.clone().into_bytes())?, *offset, Some(probed), None)
        }
        (false, Place::Address(address)) => (Config::Number(0), *address, None, None),
    };
    let event = PerfEvent { kind: pmu.kind, config, config1, config2, ..PerfEvent::default() };
    let format = format::format(*kind, &place.to_string())?;
    let mut request = EventRequest::new(format!("{}:{}", format.system, format.name), event);
    request.samples.sample_type = PERF_SAMPLE_RAW;
    let moment = if kind.is_return() { Moment::Return } else { Moment::Entry };
    request.definition = probed.map(|probed| Definition { probed, moment });
    Ok(ProbeEvent { request, format, note })
}

/// The functions that a probe's name, with wildcards, stands for, each as the selector of a probe on it.
pub fn functions(probe: &Probe) -> Result<Vec<String>, ProbeError> {
    let path = file::find(&probe.file, &[])?;
    let Place::Function { name: pattern, .. } = &probe.place else { return Ok(vec![probe.to_string()]) };
    let functions = elf::functions(&path).map_err(PlaceError::from)?;
    // One that is not called when it seems to be cannot be selected.
    let named = functions.into_iter().filter(|function| function.kind == FunctionKind::Called);
    let named = named.filter(|function| glob_matches(pattern, function.name.split('@').next().unwrap_or_default()));
    let mut selectors: Vec<String> = named
        .map(|function| {
            let name = function.name.split('@').next().unwrap_or_default().to_owned();
            let place = Place::Function { name, offset: 0 };
            Probe { kind: probe.kind, place, file: path.display().to_string() }.to_string()
        })
        .collect();
    selectors.dedup();
    Ok(selectors)
}

fn text(text: Vec<u8>) -> Result<Config, NulError> {
    Ok(Config::Text(CString::new(text)?.into()))
}

/// How probes are written that this machine has, each with what it is.
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

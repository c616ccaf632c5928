//! Static probes (USDT): finds them in the notes of files, and turns their places into definitions for the kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use perf_prof_format::spec::{
    Probe, ProbeArgument, ProbeKind, ProbeLocation, did_you_mean_quoted, glob_matches, similar_names,
};
use perf_prof_symbols::symbol::elf::{Elf, ElfError, StaticProbe, static_probes as probes_of, variables};
use perf_prof_system::{
    file::SharedFile,
    output::counted,
    probe_definition::{FireAt, ProbeDefinition, ProbedCode, ProbedPlace},
};

use super::{
    LocationError, ProbeError, ProbePmu, ResolvedProbe, file, file_config, format_of,
    location::in_code,
    open,
    static_arguments::{Layout, Place, StaticField, layouts},
};

/// Why a static probe was not found.
#[derive(Debug, thiserror::Error)]
pub enum StaticProbeError {
    /// The file has no notes.
    #[error("{path} has no static probes (it has no section .note.stapsdt)")]
    None {
        /// The path of the file.
        path: String,
    },
    /// The file has static probes, but not this one.
    #[error(
        "{path} has no static probe `{name}` (`perf-prof list 'usdt:*@{path}'` lists those that it has){}",
        did_you_mean_quoted(near)
    )]
    Unknown {
        /// The path of the file.
        path: String,
        /// The provider and the name of the probe, as the user typed them.
        name: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// None of the files of the processes has this probe.
    #[error("no file that the processes have mapped has a static probe `{name}`{}", did_you_mean_quoted(near))]
    Unmapped {
        /// The provider and the name of the probe, as the user typed them.
        name: String,
        /// Similar names.
        near: Vec<String>,
    },
    /// A semaphore outside of the file.
    #[error("{path}: the semaphore at {address:#x} is not in the file, so the notes are damaged")]
    Semaphore {
        /// The path of the file.
        path: String,
        /// The address of the semaphore.
        address: u64,
    },
}

/// A static probe of a file.
#[derive(Clone, Debug)]
pub struct FoundProbe {
    /// The probe, with its provider, its name and the path of its file.
    pub probe: Probe,
    /// The places of the probe, in the order of the notes.
    pub places: Vec<Place>,
    file: SharedFile,
}

impl FoundProbe {
    /// Returns the probe's arguments. If their types differ between the places of the probe, the probe becomes several
    /// events of the kernel. In this case, returns the arguments of the first event.
    pub fn fields(&self) -> Vec<StaticField> {
        layouts(&self.places).first().map(Layout::fields).unwrap_or_default()
    }
}

/// Returns the static probes that match the names in `probe`, sorted by name. The names may contain wildcards. If
/// `probe` has no file, searches the files that `processes` have mapped.
pub fn static_probes(probe: &Probe, processes: &[u32]) -> Result<Vec<FoundProbe>, ProbeError> {
    let name = || probe.location.to_string();
    if !probe.file.is_empty() {
        let path = file::find(&probe.file, processes)?;
        let all = Notes::read(&path)?;
        let found = all.matching(probe)?;
        return match found.is_empty() {
            true if all.probes.is_empty() => Err(StaticProbeError::None { path: path.display().to_string() }.into()),
            true => {
                let near = similar(&probe.location, all.names());
                Err(StaticProbeError::Unknown { path: path.display().to_string(), name: name(), near }.into())
            }
            false => Ok(found),
        };
    }
    let (mut found, mut names) = (Vec::new(), Vec::new());
    for path in file::mapped(processes)? {
        // Processes map all kinds of files as code. Files that cannot be opened are skipped.
        let Ok(all) = Notes::read(&path) else { continue };
        found.extend(all.matching(probe)?);
        names.extend(all.names());
    }
    if found.is_empty() {
        return Err(StaticProbeError::Unmapped { name: name(), near: similar(&probe.location, names) }.into());
    }
    Ok(found)
}

/// Returns similar names, which the user may have meant. A single word was parsed as a provider.
fn similar(wanted: &ProbeLocation, names: Vec<String>) -> Vec<String> {
    match wanted {
        ProbeLocation::Static { provider, name } if name == "*" => similar_names(provider, names),
        wanted => similar_names(&wanted.to_string(), names),
    }
}

/// Resolves the static probes that match the names in `probe`. Fails if there is none.
pub(super) fn resolve(
    probe: &Probe,
    arguments: &[ProbeArgument],
    processes: &[u32],
    pmu: &ProbePmu,
) -> Result<Vec<ResolvedProbe>, ProbeError> {
    let mut resolved = Vec::new();
    for found in static_probes(probe, processes)? {
        let layouts = layouts(&found.places);
        for layout in &layouts {
            resolved.push(resolve_layout(&found, layout, arguments, pmu)?);
        }
    }
    Ok(resolved)
}

fn resolve_layout(
    found: &FoundProbe,
    layout: &Layout<'_>,
    arguments: &[ProbeArgument],
    pmu: &ProbePmu,
) -> Result<ResolvedProbe, ProbeError> {
    let place = |place: &&Place| {
        let arguments = layout.resolve(place, arguments)?;
        Ok(ProbedPlace { offset: place.offset, semaphore: place.semaphore, arguments })
    };
    let places = layout.places.iter().map(place).collect::<Result<Vec<_>, ProbeError>>()?;
    let event = pmu.event(file_config(&found.file)?, places.first().map_or(0, |place| place.offset));
    let probed = ProbedCode::File(found.file.clone());
    let definition = ProbeDefinition { probed, fire_at: FireAt::Entry, places };
    let format = format_of(&found.probe, &definition)?;
    let count = definition.places.len();
    let semaphore =
        if definition.places.iter().any(|place| place.semaphore.is_some()) { ", with a semaphore" } else { "" };
    let places = counted(count as u64, "place", "places");
    let note = format!("{} has {places}{semaphore}", found.probe);
    let lacks = layout.fields().into_iter().filter_map(|StaticField { name, type_name }| {
        let why = type_name.err()?;
        Some(format!("usdt:{} has no {name}: {why}", found.probe.location))
    });
    let lacks = lacks.collect();
    let resolved = ResolvedProbe::new(found.probe.clone(), event, Some(definition), format, Some(note));
    Ok(ResolvedProbe { lacks, ..resolved })
}

/// The static probes of a file.
struct Notes {
    path: PathBuf,
    file: SharedFile,
    elf: Elf,
    probes: Vec<StaticProbe>,
}

impl Notes {
    fn read(path: &Path) -> Result<Notes, ProbeError> {
        let file = open(path)?;
        let wrong = |error| LocationError::File { path: path.display().to_string(), error };
        let elf = file.file().try_clone().map_err(ElfError::from).and_then(Elf::of_file).map_err(wrong)?;
        let probes = probes_of(&elf).map_err(wrong)?;
        Ok(Notes { path: path.to_owned(), file, elf, probes })
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.probes.iter().map(|of| format!("{}:{}", of.provider, of.name)).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Returns the probes that match the names in `probe`.
    fn matching(&self, probe: &Probe) -> Result<Vec<FoundProbe>, ProbeError> {
        let ProbeLocation::Static { provider, name } = &probe.location else { return Ok(Vec::new()) };
        let is_wanted = |of: &&StaticProbe| glob_matches(provider, &of.provider) && glob_matches(name, &of.name);
        let wanted: Vec<&StaticProbe> = self.probes.iter().filter(is_wanted).collect();
        let arguments = wanted.iter().flat_map(|of| &of.arguments);
        let names = arguments.filter_map(|argument| argument.operand.as_ref()?.variable()).collect();
        let variables = variables(&self.elf, &self.path, &names);
        let mut found: BTreeMap<(&str, &str), Vec<Place>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for of in wanted {
            let place = self.place(of, &variables)?;
            // The kernel refuses a second place with the same definition, so such a place is left out.
            if seen.insert((&of.provider, &of.name, place.offset, place.semaphore, place.text())) {
                found.entry((&of.provider, &of.name)).or_default().push(place);
            }
        }
        let probe = |((provider, name), places): ((&str, &str), Vec<Place>)| {
            let location = ProbeLocation::Static { provider: provider.to_owned(), name: name.to_owned() };
            let probe = Probe { kind: ProbeKind::Usdt, location, file: self.path.display().to_string() };
            FoundProbe { probe, places, file: self.file.clone() }
        };
        Ok(found.into_iter().map(probe).collect())
    }

    fn place(&self, of: &StaticProbe, variables: &BTreeMap<String, u64>) -> Result<Place, ProbeError> {
        let offset = in_code(&self.elf, &self.path, of.address)?;
        let semaphore = |address| {
            let path = || self.path.display().to_string();
            self.elf.offset_of(address).ok_or_else(|| StaticProbeError::Semaphore { path: path(), address })
        };
        let semaphore = of.semaphore.map(semaphore).transpose()?;
        Ok(Place::new(of.address, offset, semaphore, &of.arguments, variables))
    }
}

//! The part of `perf-prof list` that lists probes: functions and static probes (USDT) of programs and libraries.

use anyhow::{Context, Result, bail};
use perf_prof_format::spec::{EventKind, Probe, ProbeKind, SpanEvents, parse_events};
use perf_prof_session::selectors::{self, FoundProbe, StaticField};
use serde::Serialize;

/// The arguments of `list`, and the probes that they match.
#[derive(Default)]
pub struct Patterns {
    /// The selectors of the functions that match. If the selector is for the source `function`, it comes with the name
    /// of the source.
    pub functions: Vec<(String, Option<String>)>,
    /// The static probes that match, each with its selector.
    pub probes: Vec<(String, FoundProbe)>,
    /// The patterns that do not select probes.
    pub others: Vec<String>,
}

/// An address of a static probe in its file, as `--json` prints it.
#[derive(Serialize)]
pub struct PlaceRow {
    /// The address, as `objdump` shows it.
    pub address: u64,
    /// The registers and memory that contain the arguments, in the notation of the file.
    pub arguments: String,
    /// True if the program may skip the probe while no tracer uses it.
    pub semaphore: bool,
}

impl Patterns {
    /// Finds the functions and static probes that match the patterns, in the files that the processes `processes` see.
    pub fn find(patterns: &[String], processes: &[u32]) -> Result<Patterns> {
        let mut found = Patterns::default();
        for pattern in patterns {
            let kind = parse_events(pattern).ok().and_then(|mut specs| specs.pop()).map(|spec| spec.kind);
            match kind {
                Some(EventKind::Probe(probe)) if probe.kind == ProbeKind::Usdt => {
                    let probes = selectors::static_probes(&probe, processes).with_context(|| pattern.clone())?;
                    found.probes.extend(probes.into_iter().map(|found| (found.probe.to_string(), found)));
                }
                Some(EventKind::Probe(probe)) if probe.kind.is_user() => {
                    let functions = functions(pattern, &probe, processes)?;
                    found.functions.extend(functions.into_iter().map(|function| (function, None)));
                }
                Some(EventKind::Span(span)) => match &span.events {
                    SpanEvents::Source { source, function: Some(probe) } => {
                        let functions = functions(pattern, probe, processes)?;
                        let places = functions.iter().filter_map(|function| function.split_once(':'));
                        let of_source = places.map(|(_, place)| (format!("{source}:{place}"), Some(source.clone())));
                        found.functions.extend(of_source);
                    }
                    _ => found.others.push(pattern.clone()),
                },
                _ => found.others.push(pattern.clone()),
            }
        }
        if !processes.is_empty() && found.functions.is_empty() && found.probes.is_empty() {
            bail!("-p needs a pattern of probes in files: usdt:PATTERN, uprobe:PATTERN@FILE, function:PATTERN@FILE");
        }
        Ok(found)
    }
}

/// Returns the selectors of the functions that match a probe. Fails if no function matches.
fn functions(pattern: &str, probe: &Probe, processes: &[u32]) -> Result<Vec<String>> {
    let found = selectors::functions(probe, processes).with_context(|| pattern.to_owned())?;
    if found.is_empty() {
        bail!("{pattern}: no function in the file has a name that matches");
    }
    Ok(found)
}

impl PlaceRow {
    /// Returns the addresses of a static probe in its file.
    pub fn all(found: &FoundProbe) -> Vec<PlaceRow> {
        let row = |place: &selectors::Place| PlaceRow {
            address: place.address,
            arguments: place.text(),
            semaphore: place.semaphore.is_some(),
        };
        found.places.iter().map(row).collect()
    }

    /// Returns the address and the arguments as one line of text.
    pub fn line(&self) -> String {
        let semaphore = if self.semaphore { ", with a semaphore" } else { "" };
        let arguments = if self.arguments.is_empty() { "no arguments" } else { &self.arguments };
        format!("at {:#x}{semaphore}: {arguments}", self.address)
    }
}

/// Returns the size in bytes and the sign of an argument; `None` if the kernel cannot read it.
pub fn number_of(field: &StaticField) -> Option<(usize, bool)> {
    let name = field.type_name.as_ref().ok()?;
    let bits: usize = name.get(1..)?.parse().ok()?;
    Some((bits / 8, name.starts_with('s')))
}

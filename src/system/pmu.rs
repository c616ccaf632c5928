//! PMUs as sysfs describes them: their numbers, the names of their events, and the terms that they accept. The module
//! `selectors` of the crate `session` interprets the terms.

use std::{
    fs,
    path::{Path, PathBuf},
};

use perf_prof_format::spec::CpuSet;

use super::{CallError, procfs};

const DEVICES: &str = "/sys/bus/event_source/devices";

/// A PMU, as its files in sysfs describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pmu {
    /// The name of the PMU.
    pub name: String,
    /// The number of the PMU, which is the `type` of the attr.
    pub kind: u32,
    /// The names of the terms, each with the bits of the attr that it sets, like `config:0-7`.
    pub format: Vec<(String, String)>,
    /// The names of the events, each with its terms, like `event=0x3c,umask=0x1`.
    pub events: Vec<(String, String)>,
    /// The CPUs on which events of the PMU must be opened; `None` for all CPUs.
    pub cpus: Option<CpuSet>,
    /// The highest precision that the PMU supports (`caps/max_precise`).
    pub max_precise: u8,
}

impl Pmu {
    /// Reads the PMU with this name. Returns `None` if there is no such PMU.
    pub fn read(name: &str) -> Result<Option<Pmu>, CallError> {
        let folder = Path::new(DEVICES).join(name);
        let kind = folder.join("type");
        if name.contains('/') || !kind.exists() {
            return Ok(None);
        }
        let kind = procfs::read(&kind)?;
        let wrong = |error| CallError::new(format!("parse the type of the PMU {name}"), std::io::Error::other(error));
        // An uncore PMU lists one CPU of each package in `cpumask`. A PMU that only some cores have lists these cores
        // in `cpus`.
        let cpus = ["cpumask", "cpus"].iter().find_map(|file| fs::read_to_string(folder.join(file)).ok());
        let max_precise = fs::read_to_string(folder.join("caps/max_precise")).ok();
        Ok(Some(Pmu {
            name: name.to_owned(),
            kind: kind.trim().parse().map_err(wrong)?,
            format: texts(&folder.join("format")),
            // The folder also contains files with the unit and the scale of an event, like `NAME.unit`.
            events: texts(&folder.join("events")).into_iter().filter(|(name, _)| !name.contains('.')).collect(),
            cpus: cpus.and_then(|list| list.trim().parse().ok()),
            max_precise: max_precise.and_then(|level| level.trim().parse().ok()).unwrap_or(0),
        }))
    }
}

/// Returns the names of all PMUs, sorted.
pub fn names() -> Vec<String> {
    names_in(Path::new(DEVICES))
}

/// Returns the names and texts of the files in a folder, sorted by name. Returns nothing if there is no such folder.
fn texts(folder: &Path) -> Vec<(String, String)> {
    let path = |name: &str| -> PathBuf { folder.join(name) };
    let texts = names_in(folder).into_iter().filter_map(|name| {
        let text = fs::read_to_string(path(&name)).ok()?;
        Some((name, text.trim().to_owned()))
    });
    texts.collect()
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

//! PMUs as sysfs describes them: their numbers, the events they name, the terms that they take. What the terms mean is the
//! `profiler` room's business.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{CallError, procfs};
use crate::spec::CpuSet;

const DEVICES: &str = "/sys/bus/event_source/devices";

/// A PMU's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pmu {
    /// Its name.
    pub name: String,
    /// Its number, the attr's `type`.
    pub kind: u32,
    /// Terms: name and the bits of the attr that it sets, as `config:0-7`.
    pub format: Vec<(String, String)>,
    /// Events: name and terms, as `event=0x3c,umask=0x1`.
    pub events: Vec<(String, String)>,
    /// The CPUs on which it is to be opened, where that is not all.
    pub cpus: Option<CpuSet>,
    /// How precise it can be (`caps/max_precise`).
    pub max_precise: u8,
}

impl Pmu {
    /// The PMU with this name, `None` where there is none.
    pub fn read(name: &str) -> Result<Option<Pmu>, CallError> {
        let folder = Path::new(DEVICES).join(name);
        let kind = folder.join("type");
        if name.contains('/') || !kind.exists() {
            return Ok(None);
        }
        let kind = procfs::read(&kind)?;
        let wrong = |error| CallError::new(format!("parse the type of the PMU {name}"), std::io::Error::other(error));
        // A PMU outside of the cores names one CPU of each package; one of some of the cores names those.
        let cpus = ["cpumask", "cpus"].iter().find_map(|file| fs::read_to_string(folder.join(file)).ok());
        let max_precise = fs::read_to_string(folder.join("caps/max_precise")).ok();
        Ok(Some(Pmu {
            name: name.to_owned(),
            kind: kind.trim().parse().map_err(wrong)?,
            format: texts(&folder.join("format")),
            // Beside an event's terms lie its unit and its scale.
            events: texts(&folder.join("events")).into_iter().filter(|(name, _)| !name.contains('.')).collect(),
            cpus: cpus.and_then(|list| list.trim().parse().ok()),
            max_precise: max_precise.and_then(|level| level.trim().parse().ok()).unwrap_or(0),
        }))
    }
}

/// The names of all PMUs, sorted.
pub fn names() -> Vec<String> {
    names_in(Path::new(DEVICES))
}

/// The files of a folder with their texts, sorted; none where there is no folder.
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

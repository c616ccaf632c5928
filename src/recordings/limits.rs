//! Limits for reading recordings: whose recordings may be read, and how much memory this may take. A recording can come
//! from anybody, so the user sets both limits, and nothing in the recording can change them.

use std::{fs::File, io, os::unix::fs::MetadataExt};

use perf_prof_system::{budget::Budget, memory, process};

use super::error::PerfDataError;

/// Limits for reading a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadLimits {
    /// Whose recordings are read.
    pub owner: Owner,
    /// The maximum memory, in bytes, for records that were read and not delivered yet. `None` stands for the share of
    /// this machine's memory that live events may use by default.
    pub memory: Option<usize>,
}

/// Whose recordings are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// Only recordings of the user and of root, as in perf (`open_file_read()` in `tools/perf/util/data.c`).
    #[default]
    UserOrRoot,
    /// Recordings of anybody.
    Anybody,
}

impl ReadLimits {
    /// Returns the limit for the recording `name`.
    pub(crate) fn limit(&self, name: &str) -> MemoryLimit {
        let bytes = self.memory.unwrap_or_else(memory::default_buffer);
        MemoryLimit { name: name.to_owned(), bytes: bytes as u64, budget: Budget::new(bytes) }
    }

    /// Fails if another user owns the file. The owners of pipes and terminals do not matter.
    pub fn check_owner(&self, file: &File, name: &str) -> Result<(), PerfDataError> {
        let found = file.metadata().map_err(|error: io::Error| PerfDataError::io(name, error))?;
        let is_trusted = || found.uid() == 0 || found.uid() == process::effective_user();
        if self.owner == Owner::Anybody || !found.is_file() || is_trusted() {
            return Ok(());
        }
        Err(PerfDataError::OtherOwner { name: name.to_owned(), uid: found.uid() })
    }
}

/// The maximum memory that reading a recording may take.
#[derive(Clone, Debug)]
pub(crate) struct MemoryLimit {
    name: String,
    bytes: u64,
    /// The budget for the memory. Tables and open spans use a part of this budget.
    budget: Budget,
}

/// The memory for the header and the feature sections that is always allowed. The formats and symbols of a kernel take
/// up to 30 MiB, and must be readable even if the user sets a small limit for records.
const DESCRIPTION: u64 = 64 << 20;

/// The memory for records that is always allowed. A replay loads some blocks before it releases any records, even if
/// the records are already in time order.
const RECORDS: u64 = 8 << 20;

impl MemoryLimit {
    /// Returns the limit for the header and the feature sections.
    pub fn of_description(self) -> MemoryLimit {
        MemoryLimit { bytes: self.bytes.max(DESCRIPTION), ..self }
    }

    /// Returns the limit for the records.
    pub fn of_records(self) -> MemoryLimit {
        MemoryLimit { bytes: self.bytes.max(RECORDS), ..self }
    }

    /// Fails if `used` bytes, together with the memory of tables and open spans, are more than the limit.
    pub fn check(&self, used: u64) -> Result<(), PerfDataError> {
        match used.saturating_add(self.budget.held() as u64) <= self.bytes {
            true => Ok(()),
            false => Err(PerfDataError::TooMuchMemory { name: self.name.clone(), limit: self.bytes >> 20 }),
        }
    }

    /// Returns the budget from which tables and open spans take their memory.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the name of the recording.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the limit in bytes.
    pub fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }
}

//! The definition of an aggregator, as the user wrote it.

use thiserror::Error;

use super::distribution::Buckets;

/// The largest number of keys of a table.
pub const MAX_KEYS: usize = 8;

/// The largest number that a user may give as the limit of a table.
pub const MAX_LIMIT: usize = 1 << 30;

/// What an aggregator adds up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The names of the fields and members whose values make a key.
    pub keys: Vec<String>,
    /// The name of the field or member whose value is added. `None` counts events.
    pub value: Option<String>,
    /// The filter: only events that pass it are added up.
    pub filter: Option<String>,
    /// The maximum number of different keys.
    pub limit: usize,
    /// What is kept for each key.
    pub measure: Measure,
}

/// What is kept for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The sum of the values.
    Sum,
    /// How the values are distributed among these ranges.
    Distribution(Buckets),
}

/// Why a definition is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DefinitionError {
    /// There are more keys than a table may have.
    #[error("there are {0} keys; at most {MAX_KEYS} are possible")]
    TooManyKeys(usize),
    /// The limit is not a useful number.
    #[error("limit={0}: give a number of keys from 1 to {MAX_LIMIT}")]
    Limit(usize),
}

impl Definition {
    /// Checks what does not depend on an event type: the number of keys and the limit.
    pub fn check(&self) -> Result<(), DefinitionError> {
        if self.keys.len() > MAX_KEYS {
            return Err(DefinitionError::TooManyKeys(self.keys.len()));
        }
        if self.limit == 0 || self.limit > MAX_LIMIT {
            return Err(DefinitionError::Limit(self.limit));
        }
        Ok(())
    }
}

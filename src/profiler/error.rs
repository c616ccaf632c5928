//! Why an event that is no tracepoint cannot be had: each message names the thing, the cause and the way out.

use crate::{spec::CpuSetError, sys::CallError};

/// Why an event that is no tracepoint cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No event is called so.
    #[error("unknown event {name}")]
    Unknown {
        /// As typed.
        name: String,
    },
    /// No PMU is called so, and its terms say that one is meant.
    #[error("there is no PMU {name}; this machine has {}", .pmus.join(", "))]
    NoPmu {
        /// As typed.
        name: String,
        /// Those there are.
        pmus: Vec<String>,
    },
    /// A term that the event does not take.
    #[error("{event}: unknown term `{term}`{}; it takes {}", did_you_mean(near), known.join(", "))]
    Term {
        /// The event or its PMU.
        event: String,
        /// As typed.
        term: String,
        /// Terms that it may have been meant to be.
        near: Vec<String>,
        /// Those it takes.
        known: Vec<String>,
    },
    /// A value that a term cannot have.
    #[error("{event}: `{value}` is not a value of {term}{why}")]
    Value {
        /// The event or its PMU.
        event: String,
        /// The term.
        term: String,
        /// As typed.
        value: String,
        /// Why not, with a colon in front; may be empty.
        why: String,
    },
    /// A member that samples do not have.
    #[error("sample={member}: samples have no such member{}; they have {known}", did_you_mean(near))]
    Member {
        /// As typed.
        member: String,
        /// Members that it may have been meant to be.
        near: Vec<String>,
        /// Those there are.
        known: String,
    },
    /// An option that the built-in source does not have.
    #[error("{source_name}: unknown option `{option}`; it has {known}")]
    Option {
        /// Which source.
        source_name: &'static str,
        /// As typed.
        option: String,
        /// Those it has.
        known: &'static str,
    },
    /// A value that an option cannot have.
    #[error("{source_name}: the option {option} needs {needs}, not `{value}`")]
    OptionValue {
        /// Which source.
        source_name: &'static str,
        /// Which option.
        option: &'static str,
        /// What it takes.
        needs: &'static str,
        /// As typed.
        value: String,
    },
    /// A list of CPUs that is none.
    #[error("{source_name}: -C: {error}")]
    Cpus {
        /// Which source.
        source_name: &'static str,
        /// What is wrong.
        error: CpuSetError,
    },
    /// Options that leave nothing.
    #[error("{source_name}: {what}")]
    Nothing {
        /// Which source.
        source_name: &'static str,
        /// Which options.
        what: &'static str,
    },
    /// `-F max` cannot be read.
    #[error(
        "the highest frequency (`max`) is not known: kernel.perf_event_max_sample_rate cannot be read; give a number"
    )]
    MaxSampleRate,
    /// A PMU's files could not be read.
    #[error(transparent)]
    Call(#[from] CallError),
}

fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!(" (did you mean {}?)", near.join(" or ")) }
}

//! Why events other than tracepoints cannot be used. Each message names the problem, the event, and the way out.

use perf_prof_format::spec::{CpuSetError, attribute_meant_by, did_you_mean_aside};
use perf_prof_system::CallError;

/// Why an event other than a tracepoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// No event has this name.
    #[error("unknown event {name}")]
    Unknown {
        /// The name as the user typed it.
        name: String,
    },
    /// No PMU has this name. The selector has terms, so the user meant a PMU.
    #[error("there is no PMU {name}; this machine has the PMUs {}", .pmus.join(", "))]
    NoPmu {
        /// The name as the user typed it.
        name: String,
        /// The names of this machine's PMUs.
        pmus: Vec<String>,
    },
    /// A system call is selected like a PMU.
    #[error("{name} is a system call, and its options belong to the source of system calls: write {instead}")]
    SystemCall {
        /// The name of the system call.
        name: String,
        /// The selector that may have been meant.
        instead: String,
    },
    /// The event does not accept this term.
    #[error(
        "{event}: unknown term `{term}`{}; it accepts {}{}", did_you_mean_aside(near), known.join(", "),
        attributes_come_after(event, term)
    )]
    Term {
        /// The name of the event or its PMU.
        event: String,
        /// The term as the user typed it.
        term: String,
        /// Similar terms that may have been meant.
        near: Vec<String>,
        /// The terms that the event accepts.
        known: Vec<String>,
    },
    /// The value is not valid for the term.
    #[error("{event}: `{value}` is not a valid value of {term}{why}")]
    Value {
        /// The name of the event or its PMU.
        event: String,
        /// The name of the term.
        term: String,
        /// The value as the user typed it.
        value: String,
        /// The reason, with a leading colon; may be empty.
        why: String,
    },
    /// Samples have no such member.
    #[error("sample={member}: samples have no such member{}; the members are {known}", did_you_mean_aside(near))]
    Member {
        /// The member as the user typed it.
        member: String,
        /// Similar members that may have been meant.
        near: Vec<String>,
        /// The members that exist.
        known: String,
    },
    /// The built-in source does not have this option.
    #[error(
        "{source_name}: unknown option `{option}`; the options are {known}{}",
        attributes_come_after(source_name, option)
    )]
    Option {
        /// The name of the source.
        source_name: String,
        /// The option as the user typed it.
        option: String,
        /// The options that the source has.
        known: &'static str,
    },
    /// The value is not valid for the option.
    #[error("{source_name}: the option {option} needs {needs}, not `{value}`")]
    OptionValue {
        /// The name of the source.
        source_name: String,
        /// The name of the option.
        option: &'static str,
        /// What the option accepts.
        needs: &'static str,
        /// The value as the user typed it.
        value: String,
    },
    /// The list of CPUs is not valid.
    #[error("{source_name}: -C: {error}")]
    Cpus {
        /// The name of the source.
        source_name: String,
        /// What is wrong with the list.
        error: CpuSetError,
    },
    /// The options exclude all events, or all frames of call chains.
    #[error("{source_name}: {what}")]
    Nothing {
        /// The name of the source.
        source_name: &'static str,
        /// The options, and what they exclude.
        what: &'static str,
    },
    /// `-F max` needs a file that cannot be read.
    #[error(
        "the highest frequency (`max`) is unknown: kernel.perf_event_max_sample_rate cannot be read; give a number"
    )]
    MaxSampleRate,
    /// The files of a PMU could not be read.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Says where attributes belong, if the name is an attribute. Empty otherwise.
fn attributes_come_after(event: &str, name: &str) -> String {
    let place = |attribute| format!("\nattributes come after another slash: {event}//{attribute}/");
    attribute_meant_by(name).map(place).unwrap_or_default()
}

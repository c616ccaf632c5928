//! The built-in sources: spans with computed fields. Each definition has a file.

mod alloc;
mod block_io;
mod definition;
mod field_values;
mod function;
mod hrtimer;
mod irq;
mod kvm_exit;
mod lock;
mod offcpu;
mod oncpu;
mod options;
mod process;
mod runqueue;
mod signal;
mod softirq;
mod syscall;
mod target;
mod task_state;
mod tcp;
mod unseen_begin;
mod workqueue;

use std::borrow::Cow;

use perf_prof_format::{
    spec::{EventKind, SpanEvents, SpanOption, SpanSpec},
    tracefs::ARGUMENTS,
};

use self::definition::{Field, Rule};
pub use self::{
    definition::{Dependent, Flag, LacksPath, ProgramBits, Scope, SourceDefinition},
    target::{Coverage, SourceTargetError, check_coverage, scope},
    unseen_begin::{BegunBefore, UnseenBegin},
};
use super::span::SpanError;

/// All sources, in the order of lists. [`perf_prof_format::spec::SPAN_SOURCES`] contains their names for the grammar of
/// selectors.
pub const SOURCES: &[&SourceDefinition] = &[
    &syscall::SYSCALL,
    &offcpu::OFFCPU,
    &runqueue::RUNQUEUE,
    &oncpu::ONCPU,
    &task_state::TASK_STATE,
    &process::PROCESS,
    &tcp::TCP,
    &block_io::BLOCK_IO,
    &function::FUNCTION,
    &irq::IRQ,
    &softirq::SOFTIRQ,
    &hrtimer::HRTIMER,
    &workqueue::WORKQUEUE,
    &lock::LOCK,
    &alloc::ALLOC,
    &signal::SIGNAL,
    &kvm_exit::KVM_EXIT,
];

/// The option of a source that adds the strings to which arguments of its events point.
pub const STRINGS: &str = "str";

/// Returns the fields of an event that point to strings, if the span has the option `str`.
pub fn strings_of(span: &SpanSpec, event: &EventKind) -> Vec<String> {
    let is_of_call = matches!(event, EventKind::Tracepoint { system, .. } if system == "raw_syscalls");
    if asks_for_strings(span) && is_of_call { vec![ARGUMENTS.to_owned()] } else { Vec::new() }
}

/// Returns whether the span has the option `str`.
pub(crate) fn asks_for_strings(span: &SpanSpec) -> bool {
    span.is_source() && span.options.iter().any(|option| option.name == STRINGS)
}

/// Returns whether the source of the span knows the option `str`.
pub fn has_strings(span: &SpanSpec) -> bool {
    source_of(span).ok().flatten().is_some_and(SourceDefinition::has_strings)
}

/// Adds the option `str` to a span whose source knows this option.
pub fn add_strings(span: &mut SpanSpec) {
    if has_strings(span) && !asks_for_strings(span) {
        span.options.push(SpanOption { name: STRINGS.to_owned(), values: Vec::new() });
    }
}

/// Returns the source with this name.
pub fn source(name: &str) -> Option<&'static SourceDefinition> {
    SOURCES.iter().find(|source| source.name == name).copied()
}

/// Returns the source of a span. Returns `None` if the user named the events of the span.
pub fn source_of(spec: &SpanSpec) -> Result<Option<&'static SourceDefinition>, SpanError> {
    match &spec.events {
        SpanEvents::Selected { .. } => Ok(None),
        SpanEvents::Source { source: name, .. } => {
            source(name).map(Some).ok_or_else(|| SpanError::Source(name.clone()))
        }
    }
}

/// The names that [`task_state`] returns.
const TASK_STATES: [&str; 10] =
    ["preempted", "sleeping", "disk", "stopped", "traced", "dead", "zombie", "parked", "idle", "unknown"];

/// Makes a list of texts for [`Field::one_of`].
fn texts(list: impl IntoIterator<Item = &'static str>) -> Vec<Cow<'static, str>> {
    list.into_iter().map(Cow::Borrowed).collect()
}

/// The bits of `prev_state` that contain the state of the task.
const STATE_BITS: u32 = 0xff;

/// Returns the name of a task's state. `prev_state` is the field of `sched:sched_switch`. Its bits are those of
/// `TASK_REPORT` in include/linux/sched.h. A task without any of these bits could have gone on running, so it was preempted.
fn task_state(prev_state: i64) -> &'static str {
    match prev_state & i64::from(STATE_BITS) {
        0 => "preempted",
        0x01 => "sleeping",
        0x02 => "disk",
        0x04 => "stopped",
        0x08 => "traced",
        0x10 => "dead",
        0x20 => "zombie",
        0x40 => "parked",
        0x80 => "idle",
        _ => "unknown",
    }
}

#[cfg(test)]
mod contradicted;
#[cfg(test)]
mod equal_requests;
#[cfg(test)]
mod losses;
#[cfg(test)]
mod made;
#[cfg(test)]
mod missed;
#[cfg(test)]
mod missed_flushes;
#[cfg(test)]
mod tests;

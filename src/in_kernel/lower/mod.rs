//! Makes expressions of the keys, sums and filters of an aggregator, or says why it cannot.

mod filter;
mod named;
mod read;
mod span;
mod unsuited;

use perf_prof_events::{
    aggregate::{Definition, Plan, PlanFilter},
    event::{EventType, Format},
};
use perf_prof_format::tracefs::{EventFormat, Filter};

pub use named::Names;
pub use span::{
    COMM, DURATION, ERROR, GENERATION, KEPT, LoweredInput, LoweredPairs, LoweredSpan, LoweredStep, LoweredTask, NOW,
    OPEN_KEY, OTHER_KEY, OwnEvents, StepAction, TaskUse, lower_pairs, lower_span,
};
pub use unsuited::Unsuited;

use crate::expression::{Number, Test, Text};

/// The maximum size of a table's key in the kernel, in bytes.
pub const MAX_KEY: usize = 64;

/// The maximum number of frames in a call chain: the kernel's default for `kernel.perf_event_max_stack`.
pub const MOST_FRAMES: u16 = 127;

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A number. It takes 8 bytes.
    Number(Number),
    /// Text, up to its first NUL.
    Text(Text),
    /// An array that is not text.
    Bytes {
        /// The place of the array.
        from: Text,
        /// The size of the array in bytes.
        size: usize,
    },
    /// A text of a number, such as the name of a system call. The key contains the number, which takes 8 bytes.
    Named {
        /// The number.
        number: Number,
        /// The texts of the numbers.
        names: Names,
    },
    /// A constant text. The key does not contain it.
    Constant(Box<[u8]>),
    /// The call chain. The key contains an id of the chain, which takes 8 bytes.
    Chain,
}

/// Which call chains BPF programs take, by following frame pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chains {
    /// Whether they contain frames of the kernel.
    pub kernel: bool,
    /// Whether they contain frames of processes.
    pub user: bool,
    /// The maximum number of frames.
    pub most: u16,
}

/// The expressions that the program of a table evaluates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// The parts of the key.
    pub key: Vec<Part>,
    /// The number that is added; `None` if events are counted.
    pub added: Option<Number>,
    /// The filter of the selector.
    pub selected: Option<Test>,
    /// The filter of the aggregator.
    pub filter: Option<Test>,
}

/// Which PID namespace perf-prof runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidNamespace {
    /// The initial PID namespace, whose ids BPF programs see.
    First,
    /// Another PID namespace, for example that of a container.
    Other,
}

impl Part {
    /// Returns how many bytes the part takes in the key.
    pub fn bytes(&self) -> usize {
        match self {
            Part::Number(_) | Part::Named { .. } | Part::Chain => 8,
            Part::Text(text) | Part::Bytes { from: text, .. } => text.bytes(),
            Part::Constant(_) => 0,
        }
    }
}

/// Returns the expressions for a table. `plan` is the definition compiled for the type of the event. `filter` is the filter
/// of the selector.
pub fn lower(
    (plan, definition): (&Plan, &Definition),
    event: &EventType,
    filter: Option<&Filter>,
    ids: PidNamespace,
) -> Result<Lowered, Unsuited> {
    let format = tracepoint(event)?;
    let reader = read::Reader { event, format, ids };
    let names = definition.keys.iter().map(String::as_str);
    let key = plan.keys().iter().zip(names).map(|(read, name)| reader.part(read, name)).collect::<Result<_, _>>()?;
    let value_name = definition.value.as_deref().unwrap_or_default();
    let added = plan.added().map(|read| reader.number(read, value_name)).transpose()?;
    let of_aggregator = match plan.filter() {
        None => None,
        Some(PlanFilter::OfEvent(filter)) => Some(filter),
        Some(PlanFilter::OfPairs(_)) => return Err(Unsuited::TwoEvents),
    };
    let test = |filter: Option<&Filter>| filter.map(|filter| filter::test(filter.node(), &mut { reader })).transpose();
    Ok(Lowered { key, added, selected: test(filter)?, filter: test(of_aggregator)? })
}

/// Returns the test that a selector's filter stands for.
pub fn lower_filter(filter: &Filter, event: &EventType, ids: PidNamespace) -> Result<Test, Unsuited> {
    filter::test(filter.node(), &mut read::Reader { event, format: tracepoint(event)?, ids })
}

fn tracepoint(event: &EventType) -> Result<&EventFormat, Unsuited> {
    match &event.format {
        Format::Tracepoint(format) => Ok(format),
        Format::Other(_) | Format::Span(_) => Err(Unsuited::NoTracepoint),
    }
}

#[cfg(test)]
mod tests;

//! Why a declaration is not worked out in the kernel.

use thiserror::Error;

/// Why a declaration is not worked out in the kernel. perf-prof then works it out itself, with the same result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unsuited {
    /// The event is no tracepoint.
    #[error("it is no tracepoint")]
    NoTracepoint,
    /// Programs do not have this value, or not in a form that they can use.
    #[error("the kernel's programs do not have `{0}`")]
    Member(String),
    /// One of the fields that all events have. Programs get a record whose first bytes are not filled in.
    #[error("BPF programs do not have the field `{0}`")]
    CommonField(String),
    /// The ids of tasks in the kernel differ from the ids that perf-prof sees.
    #[error("perf-prof is in a PID namespace, and BPF programs see other ids of tasks")]
    PidNamespace,
    /// The text or array is not at a fixed place, or has no fixed size.
    #[error("the length of `{0}` differs from record to record")]
    Length(String),
    /// The number is at a place from which programs cannot load it.
    #[error("programs cannot load `{0}` from its place in the record")]
    Place(String),
    /// The keys of the table would be too long.
    #[error("a key has {0} bytes, more than {max}", max = super::MAX_KEY)]
    LongKey(usize),
    /// The pattern cannot be code without loops.
    #[error("the pattern `{0}` is not a text with a `*` before or behind it")]
    Pattern(String),
    /// A key has the call chain twice.
    #[error("a key has `_stack` twice")]
    ChainTwice,
    /// The call chains are not followed by the kernel.
    #[error("perf-prof unwinds its call chains")]
    Unwound,
    /// The call chains would be too long.
    #[error("its call chains may have {0} frames, more than {max}", max = super::MOST_FRAMES)]
    DeepChain(u16),
    /// The spans are not pairs of a begin and an end that programs can find.
    #[error("{0}")]
    Spans(&'static str),
    /// The filter reads the begin and the end of a span.
    #[error("its filter compares fields of two events")]
    TwoEvents,
    /// The unit of the histogram is too large for divisions in 64 bits.
    #[error("the unit of the histogram is too large")]
    Unit(u64),
    /// The program would be too long.
    #[error("the program would have {0} instructions, more than {max}", max = crate::instruction::LONGEST)]
    Long(usize),
}

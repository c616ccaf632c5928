//! Why a declaration cannot be compiled for the kernel.

use thiserror::Error;

/// Why a declaration cannot be compiled for the kernel. perf-prof then adds up its values, with the same result.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unsuited {
    /// The event is not a tracepoint.
    #[error("it is no tracepoint")]
    NoTracepoint,
    /// Programs cannot read an argument of the probe.
    #[error("BPF programs cannot read the arguments of this probe")]
    Probe,
    /// Programs cannot read this value in a form that they can use.
    #[error("BPF programs cannot read `{0}`")]
    Member(String),
    /// A field that all tracepoints have. In the records that programs get, these fields are not filled in.
    #[error("BPF programs cannot read the field `{0}`")]
    CommonField(String),
    /// The ids of tasks in the kernel differ from the ids that perf-prof sees.
    #[error("perf-prof runs in a PID namespace, such as a container's, and BPF programs see other ids of tasks")]
    PidNamespace,
    /// The text or the array has no fixed place, or no fixed size.
    #[error("the length of `{0}` differs from record to record")]
    Length(String),
    /// Programs cannot load the number from its place.
    #[error("BPF programs cannot load `{0}` from its place in the record")]
    Place(String),
    /// The keys of the table are too long.
    #[error("a key has {0} bytes, more than {max}", max = super::MAX_KEY)]
    LongKey(usize),
    /// The pattern does not compile to code without loops.
    #[error("the pattern `{0}` is not of the form text*, *text or *text*")]
    Pattern(String),
    /// The call chain is in the key twice.
    #[error("a key has `_stack` twice")]
    ChainTwice,
    /// perf-prof unwinds the call chains, so the kernel does not have them.
    #[error("perf-prof unwinds its call chains")]
    Unwound,
    /// The call chains are too long.
    #[error("its call chains may have {0} frames, more than {max}", max = super::MOST_FRAMES)]
    DeepChain(u16),
    /// Programs cannot pair the begins and ends of the spans.
    #[error("{0}")]
    Spans(&'static str),
    /// The filter reads both the begin and the end of a span.
    #[error("its filter compares fields of two events")]
    TwoEvents,
    /// The filter reads a number that may be unknown.
    #[error("its filter compares a number that is not always known")]
    UnknownNumber,
    /// The unit of the histogram is too large for 64-bit divisions.
    #[error("the unit of the histogram is too large")]
    Unit(u64),
    /// The program is too long.
    #[error("the program would have {0} instructions, more than {max}", max = crate::instruction::LONGEST)]
    Long(usize),
}

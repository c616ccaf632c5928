//! What the end of a span says about its begin, if no begin was seen.

use crate::event::SpanView;

/// Whether the kernel has reported the begin of a span of which only the end was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnseenBegin {
    /// The kernel has reported it.
    Reported,
    /// The kernel has reported it, unless it refused the call. A refused call ends while no other call of the thread is open.
    ReportedUnlessRefused,
    /// Like `ReportedUnlessRefused`, but a call that the thread could make before was not refused.
    ReportedIfMade,
    /// The kernel has not reported it.
    NotReported,
}

/// Which ends without a begin show, in live runs too, that a span had begun before.
#[derive(Clone, Copy, Debug)]
pub struct BegunBefore {
    /// A function that returns whether the sample is the end of a span at all.
    pub is_end: fn(&SpanView<'_>) -> bool,
    /// The fields whose values the end alone shows. A filter over other fields leaves no such span out.
    pub known: &'static [&'static str],
    /// The event whose samples are counted if they belong to a span of which no begin was seen; empty if there is none.
    pub counted: &'static str,
}

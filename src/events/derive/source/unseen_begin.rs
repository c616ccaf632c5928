//! What the end of a span says about its begin, if no begin was seen.

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

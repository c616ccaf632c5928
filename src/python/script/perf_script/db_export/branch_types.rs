//! The kinds of branches in hardware traces, each with the number by which samples in a database refer to the kind.

/// The bits of `PERF_IP_FLAG_*` in `tools/perf/util/event.h`.
mod flag {
    pub(super) const BRANCH: u32 = 1;
    pub(super) const CALL: u32 = 1 << 1;
    pub(super) const RETURN: u32 = 1 << 2;
    pub(super) const CONDITIONAL: u32 = 1 << 3;
    pub(super) const SYSTEM_CALL: u32 = 1 << 4;
    pub(super) const ASYNC: u32 = 1 << 5;
    pub(super) const INTERRUPT: u32 = 1 << 6;
    pub(super) const ABORT: u32 = 1 << 7;
    pub(super) const TRACE_BEGIN: u32 = 1 << 8;
    pub(super) const TRACE_END: u32 = 1 << 9;
    pub(super) const VM_ENTRY: u32 = 1 << 11;
    pub(super) const VM_EXIT: u32 = 1 << 12;
}

use flag::*;

/// The plain kinds, which neither begin nor end a trace.
const KINDS: [(u32, &str); 16] = [
    (0, "no branch"),
    (BRANCH | CALL, "call"),
    (BRANCH | RETURN, "return"),
    (BRANCH | CONDITIONAL, "conditional jump"),
    (BRANCH, "unconditional jump"),
    (BRANCH | CALL | INTERRUPT, "software interrupt"),
    (BRANCH | RETURN | INTERRUPT, "return from interrupt"),
    (BRANCH | CALL | SYSTEM_CALL, "system call"),
    (BRANCH | RETURN | SYSTEM_CALL, "return from system call"),
    (BRANCH | ASYNC, "asynchronous branch"),
    (BRANCH | CALL | ASYNC | INTERRUPT, "hardware interrupt"),
    (BRANCH | ABORT, "transaction abort"),
    (BRANCH | TRACE_BEGIN, "trace begin"),
    (BRANCH | TRACE_END, "trace end"),
    (BRANCH | CALL | VM_ENTRY, "vm entry"),
    (BRANCH | CALL | VM_EXIT, "vm exit"),
];

/// Returns all kinds with their names: first the plain kinds, then the kinds that begin or end a trace. An
/// unconditional jump cannot begin or end a trace.
pub fn all() -> impl Iterator<Item = (u32, String)> {
    let plain = KINDS.iter().map(|&(kind, name)| (kind, name.to_owned()));
    let traced = KINDS.iter().filter(|(kind, _)| can_be_traced(*kind)).flat_map(|&(kind, name)| {
        [(kind | TRACE_BEGIN, format!("trace begin / {name}")), (kind | TRACE_END, format!("{name} / trace end"))]
    });
    plain.chain(traced)
}

fn can_be_traced(kind: u32) -> bool {
    kind != BRANCH && kind & (TRACE_BEGIN | TRACE_END) == 0
}

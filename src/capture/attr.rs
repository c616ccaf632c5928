//! Requests to `perf_event_attr`.

use super::{Clock, EventRequest, Frames, Mappings, Options, UserStack};
use crate::abi::*;

/// How events follow the tasks that they are attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    /// Not at all: to CPUs, cgroups or single threads.
    Nothing,
    /// To tasks created later.
    Children,
    /// To tasks created later, from the moment of exec on.
    ChildrenFromExec,
}

/// What all events of a capture sample. The fixed members come before the variable ones, so an event with a call chain
/// has its id and time at the same place as one without.
pub(super) const SAMPLE_TYPE: u64 =
    PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_RAW;

/// The smallest record of which there may be many, a task's short name: a header, two ids and eight bytes of text, each
/// in 8 bytes, and 32 of what is above. A sample has 64 at least.
pub(super) const SMALLEST_RECORD: usize = 56;

/// What an event samples.
pub(super) fn sample_type(event: &EventRequest) -> u64 {
    let callchain = if event.callchain.is_some() { PERF_SAMPLE_CALLCHAIN } else { 0 };
    let user_stack = user_stack(event).map_or(0, |_| PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER);
    SAMPLE_TYPE | callchain | user_stack
}

/// What an event copies of user space.
pub(super) fn user_stack(event: &EventRequest) -> Option<UserStack> {
    event.callchain.and_then(|callchain| callchain.user_stack)
}

/// The attr of a tracepoint.
pub(super) fn tracepoint(event: &EventRequest, options: &Options, follow: Follow, read_format: u64) -> perf_event_attr {
    let mut attr = common(options, follow, read_format);
    attr.type_ = PERF_TYPE_TRACEPOINT;
    attr.config = event.tracepoint.into();
    attr.sample_type = sample_type(event);
    attr.__bindgen_anon_1.sample_period = 1;
    if let Some(callchain) = event.callchain {
        attr.set_exclude_callchain_kernel((callchain.kernel == Frames::Excluded).into());
        // Frames that are unwound from a copy of the stack need no walk along frame pointers.
        let walked = callchain.user == Frames::Sampled && callchain.user_stack.is_none();
        attr.set_exclude_callchain_user((!walked).into());
        attr.sample_max_stack = callchain.max_stack.unwrap_or(0);
    }
    if let Some(UserStack { registers, bytes }) = user_stack(event) {
        attr.sample_regs_user = registers;
        attr.sample_stack_user = bytes;
    }
    attr
}

/// The attr of the event that owns a ring: it counts nothing, and brings the names, births and deaths of tasks.
pub(super) fn dummy(options: &Options, follow: Follow, read_format: u64) -> perf_event_attr {
    let mut attr = common(options, follow, read_format);
    attr.type_ = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_DUMMY.into();
    attr.sample_type = SAMPLE_TYPE & !PERF_SAMPLE_RAW;
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    if options.mappings == Mappings::Told {
        attr.set_mmap(1);
        attr.set_mmap2(1);
    }
    // It samples nothing at all, so it need not ask for more rights than a plain user has (perf_event_paranoid 2).
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr
}

fn common(options: &Options, follow: Follow, read_format: u64) -> perf_event_attr {
    let mut attr = perf_event_attr { read_format, ..Default::default() };
    attr.set_disabled(1);
    attr.set_inherit((follow != Follow::Nothing).into());
    attr.set_enable_on_exec((follow == Follow::ChildrenFromExec).into());
    attr.set_sample_id_all(1);
    attr.set_watermark(1);
    let watermark = options.ring_bytes as u64 * u64::from(options.watermark_percent.clamp(1, 100)) / 100;
    attr.__bindgen_anon_2.wakeup_watermark = watermark.clamp(1, u32::MAX.into()) as u32;
    if options.clock == Clock::Monotonic {
        attr.set_use_clockid(1);
        attr.clockid = libc::CLOCK_MONOTONIC;
    }
    attr
}

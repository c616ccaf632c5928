//! Requests to `perf_event_attr`.

use super::{
    Begin, Clock, Config, EventRequest, Excluded, Frames, Mapped, Mappings, Members, Options, PerfEvent, Sampling,
    SideBand, Telling,
};
use crate::{abi::*, record::SampleFormat};

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

/// What every sample of a capture of tracepoints holds. The fixed members come before the variable ones, so an event with
/// a call chain has its id and time at the same place as one without.
const SAMPLE_TYPE: u64 = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD;

/// Members that stand before the time of a sample, or behind it at the end of other records: when one event samples them,
/// all do, and the ring's owner too.
const COMMON: u64 = PERF_SAMPLE_IP | PERF_SAMPLE_STREAM_ID;

/// What every sample of these events holds, so that id and time lie at the same place in all of them, and in all records
/// that are no samples.
///
/// A tracepoint's samples hold nothing but that and their data. Any other event may sample what stands between the time
/// and the id (PERF_SAMPLE_ADDR); so as soon as there is one, all records begin or end with PERF_SAMPLE_IDENTIFIER, whose
/// place is fixed. In a recording they always do, and PERF_SAMPLE_ID would say it twice, so it
/// is there only when an event asks for it.
pub(super) fn common_members(events: &[EventRequest], members: Members) -> u64 {
    let asked = events.iter().fold(0, |all, event| all | event.samples.sample_type);
    if members == Members::Recorded {
        return SAMPLE_TYPE & !PERF_SAMPLE_ID
            | PERF_SAMPLE_IDENTIFIER
            | PERF_SAMPLE_IP
            | asked & (COMMON | PERF_SAMPLE_ID);
    }
    let of_tracepoints = SAMPLE_TYPE | PERF_SAMPLE_RAW | PERF_SAMPLE_CALLCHAIN;
    let identifier = if asked & !of_tracepoints == 0 { 0 } else { PERF_SAMPLE_IDENTIFIER };
    SAMPLE_TYPE | identifier | asked & COMMON
}

/// The smallest record of which there may be many, a task's short name: a header, two ids and eight bytes of text, each
/// in 8 bytes, and 32 of what is above. A sample has 64 at least.
pub(super) const SMALLEST_RECORD: usize = 56;

/// How an event's samples look, in a capture in which all samples hold `common`.
pub(super) fn samples(event: &EventRequest, common: u64, read_format: u64) -> SampleFormat {
    let callchain = if event.callchain.is_some() { PERF_SAMPLE_CALLCHAIN } else { 0 };
    let SampleFormat { sample_type, read_format: own, .. } = event.samples;
    let (period, untold) = match event.sampling {
        // The kernel takes who has samples tell their period for one who wants each occurrence, whichever period was asked
        // for (`perf_swevent_event()` in `kernel/events/core.c`). It would be the attr's in all of them anyway.
        Sampling::Period(period) if period > 1 && is_counted_singly(event) => (period, PERF_SAMPLE_PERIOD),
        Sampling::Period(period) => (period, 0),
        Sampling::Frequency(_) => (0, 0),
    };
    let sample_type = (sample_type | common | callchain) & !untold;
    SampleFormat { sample_type, read_format: own | read_format, period, ..event.samples }
}

/// Whether the kernel itself counts what happens, one by one: no clock, and nothing that hardware counts.
fn is_counted_singly(event: &EventRequest) -> bool {
    const CLOCKS: [u64; 2] = [PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK];
    match event.event.kind {
        PERF_TYPE_SOFTWARE => !CLOCKS.contains(&event.event.config),
        kind => kind == PERF_TYPE_BREAKPOINT,
    }
}

/// The attr of an event.
pub(super) fn event(
    event: &EventRequest,
    samples: &SampleFormat,
    options: &Options,
    follow: Follow,
) -> perf_event_attr {
    let mut attr = base(options, follow, samples.read_format);
    if options.begin == Begin::Later {
        attr.set_enable_on_exec(0);
    }
    if event.grouping.is_member() {
        start_with_leader(&mut attr);
    }
    // Older kernels refuse to have events inherited whose samples read counters (perf_event_alloc() in
    // kernel/events/core.c), and perf asks none for it.
    if event.grouping.is_read_by_leader() {
        attr.set_inherit(0);
    }
    select(&mut attr, event);
    attr.sample_type = samples.sample_type;
    attr.branch_sample_type = samples.branch_sample_type;
    attr.sample_regs_user = samples.regs_user;
    attr.sample_regs_intr = samples.regs_intr;
    attr.sample_stack_user = event.stack_user;
    match event.sampling {
        Sampling::Period(period) => attr.__bindgen_anon_1.sample_period = period,
        Sampling::Frequency(frequency) => {
            attr.set_freq(1);
            attr.__bindgen_anon_1.sample_freq = frequency;
        }
    }
    attr.set_precise_ip(event.precise.into());
    if let Some(callchain) = event.callchain {
        attr.set_exclude_callchain_kernel((callchain.kernel == Frames::Excluded).into());
        // Frames that are unwound from a copy of the stack need no walk along frame pointers.
        let walked = callchain.user == Frames::Sampled && event.stack_user == 0;
        attr.set_exclude_callchain_user((!walked).into());
        attr.sample_max_stack = callchain.max_stack.unwrap_or(0);
    }
    attr
}

/// The attr of an event that is only counted.
pub(super) fn counter(event: &EventRequest, follow: Follow) -> perf_event_attr {
    let read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    let mut attr = perf_event_attr { read_format, ..Default::default() };
    attr.set_inherit((follow != Follow::Nothing).into());
    // Before its exec, a command is us.
    attr.set_disabled((follow == Follow::ChildrenFromExec).into());
    attr.set_enable_on_exec((follow == Follow::ChildrenFromExec).into());
    select(&mut attr, event);
    attr
}

/// An event that is on counts nothing as long as the leader of its group is off (__perf_effective_state in
/// kernel/events/core.c), and its leader's state is what children inherit.
pub(super) fn start_with_leader(attr: &mut perf_event_attr) {
    attr.set_disabled(0);
    attr.set_enable_on_exec(0);
}

/// Which event it is, and where it counts.
fn select(attr: &mut perf_event_attr, event: &EventRequest) {
    let PerfEvent { kind, config, config1, config2, config3, breakpoint } = &event.event;
    (attr.type_, attr.config, attr.config3, attr.bp_type) = (*kind, *config, *config3, *breakpoint);
    // A breakpoint's address and length share the places of these.
    attr.__bindgen_anon_3.config1 = match config1 {
        Config::Number(number) => *number,
        // The request, which owns the text, outlives the attr's use.
        Config::Text(text) => {
            // The kernel would read the text in the memory of the task that inherits the event: see `define`.
            attr.set_inherit(0);
            text.as_ptr() as u64
        }
    };
    attr.__bindgen_anon_4.config2 = *config2;
    let Excluded { user, kernel, hv, host, guest, idle } = event.excluded;
    attr.set_exclude_user(user.into());
    attr.set_exclude_kernel(kernel.into());
    attr.set_exclude_hv(hv.into());
    attr.set_exclude_host(host.into());
    attr.set_exclude_guest(guest.into());
    attr.set_exclude_idle(idle.into());
}

/// The attr of the event that owns a ring: it counts nothing, and brings the names, births and deaths of tasks.
pub(super) fn dummy(options: &Options, follow: Follow, common: u64, read_format: u64) -> perf_event_attr {
    let mut attr = base(options, follow, read_format);
    attr.type_ = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_DUMMY.into();
    attr.sample_type = common;
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    let SideBand { switches, namespaces, cgroups } = options.side_band;
    attr.set_context_switch((switches == Telling::Told).into());
    attr.set_namespaces((namespaces == Telling::Told).into());
    attr.set_cgroup((cgroups == Telling::Told).into());
    if options.mappings != Mappings::Ignored {
        attr.set_mmap(1);
        attr.set_mmap2(1);
    }
    // Linux 5.1. Of the kernel's version all that is known is whether it took PERF_FORMAT_LOST, which came with 6.0.
    let is_recent = read_format & PERF_FORMAT_LOST != 0;
    attr.set_ksymbol(is_recent.into());
    // Which program the symbol is, for who reads recordings.
    attr.set_bpf_event((is_recent && options.members == Members::Recorded).into());
    attr.set_build_id(matches!(options.mappings, Mappings::Identified(_)).into());
    attr.set_mmap_data((options.mappings == Mappings::Identified(Mapped::All)).into());
    // It samples nothing at all, so it need not ask for more rights than a plain user has (perf_event_paranoid 2).
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    attr
}

fn base(options: &Options, follow: Follow, read_format: u64) -> perf_event_attr {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        capture::Callchain,
        record::{SampleLayout, TrailerLayout},
    };

    fn request(kind: u32, sample_type: u64) -> EventRequest {
        let mut request = EventRequest::new("e", PerfEvent { kind, ..PerfEvent::default() });
        request.samples.sample_type = sample_type;
        request
    }

    /// Whichever events are captured together, id and time lie at one place in the samples of all and at one distance from
    /// the end of their other records.
    #[test]
    fn ids_and_times_of_all_events_lie_at_the_same_place() {
        let tracepoint = || EventRequest::tracepoint("s:n", 1);
        let stack = Callchain { kernel: Frames::Sampled, user: Frames::Sampled, max_stack: None };
        let with_stack = EventRequest { callchain: Some(stack), ..tracepoint() };
        let clock = || request(PERF_TYPE_SOFTWARE, PERF_SAMPLE_IP);
        let faults = || request(PERF_TYPE_SOFTWARE, PERF_SAMPLE_IP | PERF_SAMPLE_ADDR);
        let all = || request(PERF_TYPE_HARDWARE, (1 << 25) - 1);
        let bare = || request(PERF_TYPE_SOFTWARE, PERF_SAMPLE_ADDR);
        let tenth = || counted(PERF_COUNT_SW_PAGE_FAULTS, Sampling::Period(10));
        for events in [
            vec![tracepoint(), with_stack],
            vec![tracepoint(), clock()],
            vec![clock(), faults(), tracepoint()],
            vec![bare(), tracepoint()],
            vec![all(), tracepoint(), faults()],
            vec![all()],
            vec![tenth(), tracepoint(), clock()],
        ] {
            for members in [Members::Lean, Members::Recorded] {
                let common = common_members(&events, members);
                let layouts: Vec<SampleLayout> =
                    events.iter().map(|event| SampleLayout::of(samples(event, common, 0))).collect();
                let record: Vec<u8> = (0..=255).collect();
                let place = |layout: &SampleLayout| (layout.id(&record), layout.time(&record));
                assert!(layouts.iter().all(|layout| place(layout) == place(&layouts[0])), "{events:?}");
                let trailer = |sample_type| TrailerLayout::new(sample_type);
                let own = |layout: &SampleLayout| trailer(layout.format.sample_type);
                assert!(layouts.iter().all(|layout| own(layout) == trailer(common)), "{events:?}");
            }
        }
    }

    fn counted(config: u64, sampling: Sampling) -> EventRequest {
        let event = PerfEvent { kind: PERF_TYPE_SOFTWARE, config, ..PerfEvent::default() };
        let mut request = EventRequest { sampling, ..EventRequest::new("e", event) };
        request.samples.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_ADDR;
        request
    }

    #[test]
    fn the_period_of_counted_events_is_left_out_where_the_kernel_would_sample_each() {
        let tells = |config: u64, sampling| {
            let event = counted(config, sampling);
            let format = samples(&event, common_members(std::slice::from_ref(&event), Members::Recorded), 0);
            (format.sample_type & PERF_SAMPLE_PERIOD != 0, format.period)
        };
        assert_eq!(tells(PERF_COUNT_SW_PAGE_FAULTS, Sampling::Period(10)), (false, 10));
        assert_eq!(tells(PERF_COUNT_SW_PAGE_FAULTS, Sampling::Period(1)), (true, 1));
        assert_eq!(tells(PERF_COUNT_SW_PAGE_FAULTS, Sampling::Frequency(10)), (true, 0));
        assert_eq!(tells(PERF_COUNT_SW_CPU_CLOCK, Sampling::Period(1_000_000)), (true, 1_000_000));
    }

    #[test]
    fn tracepoints_alone_have_no_identifier_and_each_sample_stays_small() {
        assert_eq!(common_members(&[EventRequest::tracepoint("s:n", 1)], Members::Lean), SAMPLE_TYPE);
    }
}

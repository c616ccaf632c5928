//! Builds a `perf_event_attr` from each request.

use perf_prof_format::{abi::*, record::SampleFormat};

use super::{
    Clock, CommonMembers, Config, EventRequest, EventStart, Excluded, Frames, MappingScope, Mappings, Options,
    PerfEvent, Samples, Sampling, SideBand, SideBandRecords, Writer,
};

/// Says whether other tasks inherit the events of a task, and when the events start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    /// Other tasks do not inherit the events. Used for CPUs, cgroups and single threads.
    Nothing,
    /// Tasks that are created later inherit the events.
    Children,
    /// The events start when the task calls exec. Tasks that are created later inherit the events.
    ChildrenFromExec,
}

/// The members of all samples of tracepoints. In a sample, members of fixed size come before members of variable size.
/// So id and time have the same offsets whether a sample contains a callchain or not.
const SAMPLE_TYPE: u64 = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD;

/// Members that change the offset of the time. In samples, these members come before the time. In the id members at the
/// end of other records, they come after the time. So if one event samples such a member, all events sample it, and so
/// does the dummy event that owns the ring.
const COMMON: u64 = PERF_SAMPLE_IP | PERF_SAMPLE_STREAM_ID;

/// Returns the members of all samples of `events`. With these members, id and time have the same offsets in all samples
/// and in all other records.
///
/// Samples of a tracepoint contain only these members, raw data and a callchain. Any other event may sample
/// PERF_SAMPLE_ADDR, a member that comes between the time and the id. If there is such an event, all records begin or
/// end with PERF_SAMPLE_IDENTIFIER, which has a fixed offset. Recordings always use PERF_SAMPLE_IDENTIFIER.
/// PERF_SAMPLE_ID would repeat the same id, so recordings contain it only if an event requests it.
pub(super) fn common_members(events: &[EventRequest], members: CommonMembers) -> u64 {
    let asked = events.iter().fold(0, |all, event| all | event.samples.sample_type);
    if members == CommonMembers::Recording {
        return SAMPLE_TYPE & !PERF_SAMPLE_ID
            | PERF_SAMPLE_IDENTIFIER
            | PERF_SAMPLE_IP
            | asked & (COMMON | PERF_SAMPLE_ID);
    }
    let of_tracepoints = SAMPLE_TYPE | PERF_SAMPLE_RAW | PERF_SAMPLE_CALLCHAIN;
    let identifier = if asked & !of_tracepoints == 0 { 0 } else { PERF_SAMPLE_IDENTIFIER };
    SAMPLE_TYPE | identifier | asked & COMMON
}

/// The size in bytes of a comm record, the smallest record that can be frequent: 8 bytes for the header, 8 for pid and
/// tid, 8 for the name, and 32 for the members of `SAMPLE_TYPE` at its end. A sample has at least 64 bytes.
pub(super) const SMALLEST_RECORD: usize = 56;

/// Returns the sample format of `event`. `common` contains the members of all samples of the capture.
pub(super) fn samples(event: &EventRequest, common: u64, read_format: u64) -> SampleFormat {
    let callchain = if event.callchain.is_some() { PERF_SAMPLE_CALLCHAIN } else { 0 };
    let SampleFormat { sample_type, read_format: own, .. } = event.samples;
    let (period, unrequested) = match event.sampling {
        // If an event samples PERF_SAMPLE_PERIOD, the kernel ignores the period in the attr and takes a sample of each
        // occurrence (`perf_swevent_event()` in `kernel/events/core.c`). So perf-prof does not request PERF_SAMPLE_PERIOD.
        // The member would equal the attr's period in all samples anyway.
        Sampling::Period(period) if period > 1 && is_counted_singly(event) => (period, PERF_SAMPLE_PERIOD),
        // If a BPF program writes the samples, the kernel stores the period 0 in them (`__bpf_perf_event_output()` in
        // kernel/trace/bpf_trace.c). So perf-prof does not request the period.
        Sampling::Period(period) if event.writer != Writer::Kernel => (period, PERF_SAMPLE_PERIOD),
        Sampling::Period(period) => (period, 0),
        // The kernel adapts the period, and perf-prof's programs do not read it (`sample_period` of `bpf_perf_event_data`).
        // So the period of each sample is taken as 1.
        Sampling::Frequency(_) if event.writer != Writer::Kernel => (1, PERF_SAMPLE_PERIOD),
        Sampling::Frequency(_) => (0, 0),
    };
    let sample_type = (sample_type | common | callchain) & !unrequested;
    SampleFormat { sample_type, read_format: own | read_format, period, ..event.samples }
}

/// Returns whether the kernel counts each occurrence of the event in software. Clocks and hardware events are counted
/// differently.
fn is_counted_singly(event: &EventRequest) -> bool {
    const CLOCKS: [u64; 2] = [PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK];
    match event.event.kind {
        PERF_TYPE_SOFTWARE => !CLOCKS.contains(&event.event.config),
        kind => kind == PERF_TYPE_BREAKPOINT,
    }
}

/// Returns the attr of a sampled event.
pub(super) fn event(
    event: &EventRequest,
    samples: &SampleFormat,
    options: &Options,
    follow: Follow,
) -> perf_event_attr {
    let mut attr = base(options, follow, samples.read_format);
    if options.begin == EventStart::Later {
        attr.set_enable_on_exec(0);
    }
    if event.grouping.is_member() {
        start_with_leader(&mut attr);
    }
    // Older kernels refuse an inherited event whose samples contain counts (perf_event_alloc() in
    // kernel/events/core.c). perf does not make such an event inherited either.
    if event.grouping.is_read_by_leader() {
        attr.set_inherit(0);
    }
    if let Samples::Kept { .. } = options.samples {
        // The kernel limits the watermark to the size of the ring. So a wakeup happens once per filled ring, and nobody
        // waits for it.
        attr.__bindgen_anon_2.wakeup_watermark = u32::MAX;
        attr.set_write_backward(1);
    }
    select(&mut attr, event);
    attr.sample_type = samples.sample_type;
    attr.branch_sample_type = samples.branch_sample_type;
    attr.sample_regs_user = samples.regs_user;
    attr.sample_regs_intr = samples.regs_intr;
    attr.sample_stack_user = event.stack_user;
    set_sampling(&mut attr, event.sampling);
    attr.set_precise_ip(event.precise.into());
    if let Some(callchain) = event.callchain {
        attr.set_exclude_callchain_kernel((callchain.kernel == Frames::Excluded).into());
        // If samples contain a copy of the user stack, user frames are unwound from this copy. The kernel then does not
        // have to follow frame pointers.
        let walked = callchain.user == Frames::Sampled && event.stack_user == 0;
        attr.set_exclude_callchain_user((!walked).into());
        attr.sample_max_stack = callchain.max_stack.unwrap_or(0);
    }
    attr
}

/// Returns the attr of the event to which a BPF program writes the samples of another event, which has the attr
/// `attr`.
pub(super) fn output(attr: perf_event_attr) -> perf_event_attr {
    let mut attr = perf_event_attr { type_: PERF_TYPE_SOFTWARE, config: PERF_COUNT_SW_BPF_OUTPUT, ..attr };
    attr.set_precise_ip(0);
    attr
}

impl EventRequest {
    /// Returns the attr of an event that has no records, only a program that runs when the event is sampled.
    pub fn occasion(&self) -> perf_event_attr {
        let mut attr = perf_event_attr::default();
        select(&mut attr, self);
        set_sampling(&mut attr, self.sampling);
        attr.set_precise_ip(self.precise.into());
        // Request a wakeup for each sample. Otherwise the CPU may collect many precise samples before the program runs, and
        // other functions run by then (`intel_pmu_hw_config()` in arch/x86/events/intel/core.c).
        attr.set_watermark(0);
        attr.__bindgen_anon_2.wakeup_events = 1;
        attr
    }
}

/// Returns the attr of an event that is only counted.
pub(super) fn counter(event: &EventRequest, follow: Follow) -> perf_event_attr {
    let read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    let mut attr = perf_event_attr { read_format, ..Default::default() };
    attr.set_inherit((follow != Follow::Nothing).into());
    // Until the command calls exec, its process is a copy of perf-prof, which must not be counted.
    attr.set_disabled((follow == Follow::ChildrenFromExec).into());
    attr.set_enable_on_exec((follow == Follow::ChildrenFromExec).into());
    select(&mut attr, event);
    attr
}

/// Returns an attr that identifies the event. It also contains the period or the frequency if the request has one. All
/// other settings are left at 0.
pub(super) fn plain(event: &EventRequest) -> perf_event_attr {
    let mut attr = perf_event_attr::default();
    select(&mut attr, event);
    if event.sampling != Sampling::Period(1) || event.event.kind == PERF_TYPE_TRACEPOINT {
        set_sampling(&mut attr, event.sampling);
    }
    attr
}

fn set_sampling(attr: &mut perf_event_attr, sampling: Sampling) {
    match sampling {
        Sampling::Period(period) => attr.__bindgen_anon_1.sample_period = period,
        Sampling::Frequency(frequency) => {
            attr.set_freq(1);
            attr.__bindgen_anon_1.sample_freq = frequency;
        }
    }
}

/// Makes a group member start together with its leader. The member is enabled from the beginning, but counts nothing
/// while its leader is off (__perf_effective_state in kernel/events/core.c). Children inherit the leader's state.
pub(super) fn start_with_leader(attr: &mut perf_event_attr) {
    attr.set_disabled(0);
    attr.set_enable_on_exec(0);
}

/// Sets the fields of `attr` that identify the event, and the modes in which the event counts.
fn select(attr: &mut perf_event_attr, event: &EventRequest) {
    let PerfEvent { kind, config, config1, config2, config3, breakpoint } = &event.event;
    (attr.type_, attr.config, attr.config3, attr.bp_type) = (*kind, *config, *config3, *breakpoint);
    // For a breakpoint, `config1` contains the address and `config2` the length.
    attr.__bindgen_anon_3.config1 = match config1 {
        Config::Number(number) => *number,
        // The request owns the text and lives longer than the attr is used.
        Config::Text(text) => {
            // A task that inherits the event would make the kernel read the text in the memory of the task: see
            // `define`.
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

/// Returns the attr of the dummy event that owns a ring. The dummy event counts nothing. The kernel writes comm, fork
/// and exit records for it.
pub(super) fn dummy(options: &Options, follow: Follow, common: u64, read_format: u64) -> perf_event_attr {
    let mut attr = base(options, follow, read_format);
    attr.type_ = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_DUMMY.into();
    attr.sample_type = common;
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    let SideBand { switches, namespaces, cgroups } = options.side_band;
    attr.set_context_switch((switches == SideBandRecords::Delivered).into());
    attr.set_namespaces((namespaces == SideBandRecords::Delivered).into());
    attr.set_cgroup((cgroups == SideBandRecords::Delivered).into());
    if options.mappings != Mappings::Ignored {
        attr.set_mmap(1);
        attr.set_mmap2(1);
    }
    // Linux supports `ksymbol` and `bpf_event` since 5.1. perf-prof only knows whether this kernel accepts
    // PERF_FORMAT_LOST, which Linux has since 6.0. So perf-prof requests both only since 6.0.
    let is_recent = read_format & PERF_FORMAT_LOST != 0;
    attr.set_ksymbol(is_recent.into());
    // `bpf_event` tells readers of a recording which BPF program a ksymbol belongs to.
    attr.set_bpf_event((is_recent && options.members == CommonMembers::Recording).into());
    attr.set_build_id(matches!(options.mappings, Mappings::Identified(_)).into());
    attr.set_mmap_data((options.mappings == Mappings::Identified(MappingScope::All)).into());
    // The dummy event never samples, so it can exclude the kernel. A plain user may then open it (perf_event_paranoid
    // 2).
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
    use perf_prof_format::record::{SampleLayout, TrailerLayout};
    use perf_prof_system::perf::attr_bytes;

    use super::*;
    use crate::Callchain;

    fn request(kind: u32, sample_type: u64) -> EventRequest {
        let mut request = EventRequest::new("e", PerfEvent { kind, ..PerfEvent::default() });
        request.samples.sample_type = sample_type;
        request
    }

    /// For any mix of events, id and time have the same offsets in the samples of all events. In all other records, id
    /// and time have the same distance from the end.
    #[test]
    fn ids_and_times_of_all_events_have_the_same_offsets() {
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
            for members in [CommonMembers::Lean, CommonMembers::Recording] {
                let common = common_members(&events, members);
                let layouts: Vec<SampleLayout> =
                    events.iter().map(|event| SampleLayout::from_format(samples(event, common, 0))).collect();
                let record: Vec<u8> = (0..=255).collect();
                let place = |layout: &SampleLayout| (layout.id(&record), layout.time(&record));
                assert!(layouts.iter().all(|layout| place(layout) == place(&layouts[0])), "{events:?}");
                let trailer = |sample_type| TrailerLayout::new(sample_type);
                let own = |layout: &SampleLayout| trailer(layout.format.sample_type);
                assert!(layouts.iter().all(|layout| own(layout) == trailer(common)), "{events:?}");
            }
        }
    }

    #[test]
    fn programs_run_at_each_precise_sample_and_not_later_for_many() {
        let attr = EventRequest { precise: 2, ..request(PERF_TYPE_HARDWARE, 0) }.occasion();
        assert_eq!((attr.precise_ip(), attr.watermark()), (2, 0));
        // `wakeup_events` comes after the flags.
        assert_eq!(attr_bytes(&attr)[48..52], 1u32.to_ne_bytes());
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
            let format = samples(&event, common_members(std::slice::from_ref(&event), CommonMembers::Recording), 0);
            (format.sample_type & PERF_SAMPLE_PERIOD != 0, format.period)
        };
        assert_eq!(tells(PERF_COUNT_SW_PAGE_FAULTS, Sampling::Period(10)), (false, 10));
        assert_eq!(tells(PERF_COUNT_SW_PAGE_FAULTS, Sampling::Period(1)), (true, 1));
        assert_eq!(tells(PERF_COUNT_SW_PAGE_FAULTS, Sampling::Frequency(10)), (true, 0));
        assert_eq!(tells(PERF_COUNT_SW_CPU_CLOCK, Sampling::Period(1_000_000)), (true, 1_000_000));
    }

    #[test]
    fn tracepoints_alone_have_no_identifier_and_each_sample_stays_small() {
        assert_eq!(common_members(&[EventRequest::tracepoint("s:n", 1)], CommonMembers::Lean), SAMPLE_TYPE);
    }
}

//! Removes the samples of perf-prof's own threads before they are delivered. With these samples, a script that prints
//! each system call would never end, because each printed line causes a system call.
//!
//! The kernel could drop some of these samples with a filter on `common_pid`. But the filter would have to name each
//! thread, and a script may start threads at any time. In a container, perf-prof does not know the ids that the filter
//! needs: the ids in the initial PID namespace. Besides, the kernel would apply the filter at each event, in the traced
//! programs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use perf_prof_format::{
    abi::{PERF_RECORD_SAMPLE, PERF_TYPE_TRACEPOINT},
    record::{EventIds, Records, SampleLayout, record_size, record_type},
};
use perf_prof_system::{own_threads, procfs};

use super::request::{EventRequest, OwnThreads, Owner};

/// The flags of a tracepoint in an interrupt: `TRACE_FLAG_HARDIRQ`, `TRACE_FLAG_SOFTIRQ` and `TRACE_FLAG_NMI` in
/// include/linux/trace_events.h.
const IN_INTERRUPT: u8 = 0x08 | 0x10 | 0x40;
/// The offset of `common_flags` in the data of each tracepoint.
const COMMON_FLAGS: usize = 2;
/// The interval in which the threads of this process are listed again.
const LIST_EVERY: Duration = Duration::from_millis(100);

/// Returns the filter that removes the samples of perf-prof's own threads. The filter adds their number to `removed`.
/// Returns `None` if no samples have to be removed.
pub(super) fn filter(
    events: &[EventRequest],
    layouts: &[SampleLayout],
    ids: &[(u64, usize)],
    which: OwnThreads,
    removed: &Arc<AtomicU64>,
) -> Option<OwnSamples> {
    if which == OwnThreads::Included {
        return None;
    }
    let known = events.iter().zip(layouts);
    let known = known.map(|(event, &layout)| Event { layout, owner: event.owner, start: Start::of(event) });
    OwnSamples::new(ids, known.collect(), which, Arc::clone(removed))
}

/// Finds and removes the samples of this process.
pub(super) struct OwnSamples {
    pid: u32,
    which: OwnThreads,
    /// The value of [`own_threads::changes`] at the last listing of the threads.
    changes: u64,
    /// The threads whose samples are removed, sorted. Empty if the samples of all threads of this process are removed
    /// and the process is in a PID namespace: the data of tracepoints then contains ids of another namespace.
    tids: Vec<u32>,
    listed: Option<Instant>,
    ids: EventIds,
    events: Vec<Event>,
    /// The layout of the members that all samples have. It gives the offset of the process id.
    layout: SampleLayout,
    /// True if a sample that another task causes may belong to this process.
    has_other_owners: bool,
    removed: Arc<AtomicU64>,
}

/// What the filter needs to know about an event.
#[derive(Clone, Copy)]
pub(super) struct Event {
    pub layout: SampleLayout,
    pub owner: Owner,
    pub start: Start,
}

/// What the raw data of an event starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The common fields of tracepoints. Probes have them too, whichever PMU they are opened with.
    CommonFields,
    /// Something else, or the samples have no raw data.
    Other,
}

impl Start {
    /// Returns what the raw data of this event starts with.
    pub fn of(event: &EventRequest) -> Start {
        let is_tracepoint = event.event.kind == PERF_TYPE_TRACEPOINT || event.definition.is_some();
        if is_tracepoint { Start::CommonFields } else { Start::Other }
    }
}

impl OwnSamples {
    /// Creates the filter. It adds the number of removed samples to `removed`.
    pub fn new(
        ids: &[(u64, usize)],
        events: Vec<Event>,
        which: OwnThreads,
        removed: Arc<AtomicU64>,
    ) -> Option<OwnSamples> {
        let layout = events.first()?.layout;
        let has_other_owners =
            procfs::is_in_first_pid_namespace() && events.iter().any(|event| matches!(event.owner, Owner::Field(_)));
        let (pid, ids) = (std::process::id(), EventIds::new(ids));
        let (tids, listed, changes) = (Vec::new(), None, 0);
        Some(OwnSamples { pid, which, changes, tids, listed, ids, events, layout, has_other_owners, removed })
    }

    /// Removes the samples of this process from `bytes`, which contains whole records.
    pub fn remove(&mut self, bytes: &mut Vec<u8>) {
        self.list_threads();
        let (mut from, mut to, mut removed) = (0, 0, 0);
        while let Some(record) = Records::new(&bytes[from..]).next() {
            let size = record_size(record);
            if record_type(record) == PERF_RECORD_SAMPLE && self.is_own(record) {
                removed += 1;
            } else {
                if from != to {
                    bytes.copy_within(from..from + size, to);
                }
                to += size;
            }
            from += size;
        }
        if removed != 0 {
            bytes.truncate(to);
            self.removed.fetch_add(removed, Relaxed);
        }
    }

    /// Lists the threads again if the list has changed or may have changed.
    fn list_threads(&mut self) {
        let changes = own_threads::changes();
        let have_changed = changes != self.changes;
        if self.which == OwnThreads::StartedLeftOut {
            if have_changed {
                self.tids = own_threads::list();
            }
        } else if self.has_other_owners && (have_changed || self.listed.is_none_or(|at| at.elapsed() > LIST_EVERY)) {
            self.listed = Some(Instant::now());
            // Only procfs lists the threads of a script. A thread that has ended is not in procfs any more, but it is
            // in `own_threads`.
            self.tids = own_threads::list();
            self.tids.extend(procfs::tasks(self.pid).unwrap_or_default());
            self.tids.sort_unstable();
        }
        self.changes = changes;
    }

    #[inline]
    fn is_own(&self, record: &[u8]) -> bool {
        let is_of_task = self.layout.pid_tid(record).is_some_and(|(pid, tid)| match self.which {
            OwnThreads::StartedLeftOut => self.tids.binary_search(&tid).is_ok(),
            OwnThreads::LeftOut | OwnThreads::Included => pid == self.pid,
        });
        (is_of_task || self.has_other_owners) && self.belongs_to_this_process(record, is_of_task)
    }

    fn belongs_to_this_process(&self, record: &[u8], is_of_task: bool) -> bool {
        let event = self.layout.id(record).and_then(|id| self.ids.event(id)).and_then(|event| self.events.get(event));
        let Some(event) = event else { return is_of_task };
        let data = || event.layout.raw(record).unwrap_or_default();
        match event.owner {
            // An interrupt runs in this process only by chance. The events of the interrupt belong to a device or to
            // another task. BPF programs make this test with `EventRegisters` of the crate `in_kernel`.
            Owner::Task if event.start == Start::CommonFields => {
                is_of_task && data().get(COMMON_FLAGS).is_none_or(|flags| flags & IN_INTERRUPT == 0)
            }
            Owner::Task => is_of_task,
            Owner::NoTask => false,
            Owner::Field(offset) => {
                let tid = data().get(offset..).and_then(|data| data.first_chunk()).map(|tid| u32::from_ne_bytes(*tid));
                tid.is_some_and(|tid| self.tids.binary_search(&tid).is_ok())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use perf_prof_format::abi::*;
    use perf_prof_system::probe_definition::{FireAt, ProbeDefinition, ProbedCode};

    use super::*;
    use crate::PerfEvent;

    /// Returns a sample of the event with this id: header, pid and tid, id, and the data of a tracepoint.
    fn sample(pid: u32, id: u64, flags: u8, field: u32) -> Vec<u8> {
        let data = [&[0, 0, flags, 0][..], &[0; 4], &field.to_ne_bytes()].concat();
        let body =
            [&pid.to_ne_bytes()[..], &pid.to_ne_bytes(), &id.to_ne_bytes(), &(data.len() as u32).to_ne_bytes(), &data]
                .concat();
        let header = [9u64 | ((8 + body.len()) as u64) << 48].map(u64::to_ne_bytes).concat();
        [header, body].concat()
    }

    fn own(owner: Owner, start: Start) -> OwnSamples {
        let layout = SampleLayout::new(PERF_SAMPLE_TID | PERF_SAMPLE_ID | PERF_SAMPLE_RAW, 0);
        OwnSamples::new(&[(7, 0)], vec![Event { layout, owner, start }], OwnThreads::LeftOut, Arc::default()).unwrap()
    }

    #[test]
    fn own_samples_are_removed_and_counted_and_others_stay_in_order() {
        let mut own = own(Owner::Task, Start::CommonFields);
        let (pid, other) = (own.pid, own.pid + 1);
        let kept = [sample(other, 7, 0, 1), sample(pid, 7, 0x08, 2), sample(other, 8, 0, 3)];
        let all = [sample(pid, 7, 0, 0), kept[0].clone(), sample(pid, 7, 1, 0), kept[1].clone(), kept[2].clone()];
        let mut bytes = all.concat();
        own.remove(&mut bytes);
        assert_eq!(bytes, kept.concat());
        assert_eq!(own.removed.load(Relaxed), 2);
    }

    /// A probe of the kernel may be reached in an interrupt. It is an event of the PMU `kprobe`, but has the common fields.
    #[test]
    fn probes_tell_interrupts_apart_and_clocks_do_not() {
        let clock = EventRequest::new("clock", PerfEvent { kind: PERF_TYPE_SOFTWARE, ..PerfEvent::default() });
        let definition =
            ProbeDefinition { probed: ProbedCode::Kernel("f".to_owned()), fire_at: FireAt::Entry, places: Vec::new() };
        let probe = EventRequest { definition: Some(definition), ..clock.clone() };
        for (request, is_kept) in [(probe, true), (clock, false)] {
            let mut own = own(Owner::Task, Start::of(&request));
            let mut bytes = sample(own.pid, 7, 0x10, 0);
            own.remove(&mut bytes);
            assert_eq!(!bytes.is_empty(), is_kept, "{request:?}");
        }
    }

    /// A switch from this process to another task is not removed, because it also says when the other task starts to
    /// run.
    #[test]
    fn a_switch_belongs_to_two_tasks_and_a_wake_up_to_the_task_that_is_woken() {
        let mut switch = own(Owner::NoTask, Start::CommonFields);
        let bytes = sample(switch.pid, 7, 0, 0);
        let mut left = bytes.clone();
        switch.remove(&mut left);
        assert_eq!(left, bytes);
        let mut wake_up = own(Owner::Field(8), Start::CommonFields);
        let (pid, other) = (wake_up.pid, wake_up.pid + 1_000_000);
        let mut bytes = [sample(other, 7, 0, pid), sample(pid, 7, 0, other)].concat();
        wake_up.remove(&mut bytes);
        // In a PID namespace, the id of the woken task cannot be compared with the ids of perf-prof's threads. So
        // nothing is removed.
        let first = procfs::is_in_first_pid_namespace();
        let kept = if first { vec![] } else { sample(other, 7, 0, pid) };
        assert_eq!(bytes, [kept, sample(pid, 7, 0, other)].concat());
    }

    #[test]
    fn the_wake_up_of_a_thread_that_has_ended_is_removed() {
        let thread = own_threads::spawn("own", own_threads::tid).unwrap();
        let tid = thread.join().unwrap();
        let mut wake_up = own(Owner::Field(8), Start::CommonFields);
        let woken = sample(wake_up.pid + 1_000_000, 7, 0, tid);
        let mut bytes = woken.clone();
        wake_up.remove(&mut bytes);
        let first = procfs::is_in_first_pid_namespace();
        assert_eq!(bytes, if first { vec![] } else { woken });
    }
}

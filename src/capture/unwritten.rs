//! Finds events that the kernel counted, and of which it neither wrote a sample nor reported a loss. Events in interrupts of
//! an idle CPU are such events on some virtual machines. The reader counts the samples that it finds in the rings. At the end
//! of the capture, these counts are compared with the kernel's own counts of the events.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use perf_prof_format::{
    abi::{PERF_RECORD_SAMPLE, PERF_TYPE_TRACEPOINT},
    record::{EventIds, Records, SampleLayout, record_type},
};

use super::request::{Counting, EventRequest, Samples, Sampling, Target, Writer};

/// The numbers of samples that were found in the rings, by event and ring. Several reader threads add to it.
#[derive(Clone, Debug)]
pub(super) struct SampleCounts {
    rings: usize,
    /// For each event, whether it is compared.
    compared: Arc<[bool]>,
    found: Arc<[AtomicU64]>,
}

impl SampleCounts {
    /// Returns whether the samples of an event are counted.
    pub fn are_compared(&self, event: usize) -> bool {
        self.compared.get(event).is_some_and(|&is_compared| is_compared)
    }

    /// Returns how many events the kernel counted of each event and in each ring without writing a sample. `counted` are
    /// the kernel's counts, less its losses: event, ring, number. Several of them may be of the same event and ring.
    pub fn unwritten(&self, counted: impl IntoIterator<Item = (usize, usize, u64)>) -> Vec<Unwritten> {
        let mut missing: Vec<u64> = vec![0; self.found.len()];
        for (event, ring, count) in counted {
            missing[event * self.rings + ring] += count;
        }
        let missing = missing.iter().zip(&*self.found).map(|(count, found)| count.saturating_sub(found.load(Relaxed)));
        let missing = missing.enumerate().filter(|&(_, count)| count != 0);
        missing.map(|(at, count)| Unwritten { event: at / self.rings, ring: at % self.rings, count }).collect()
    }
}

/// Events without a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unwritten {
    pub event: usize,
    pub ring: usize,
    pub count: u64,
}

/// Counts samples by event and ring.
#[derive(Clone, Debug)]
pub(super) struct SampleCounter {
    /// The layout of the members that all samples have. It gives the offset of the id.
    layout: SampleLayout,
    ids: Arc<EventIds>,
    counts: SampleCounts,
}

impl SampleCounter {
    /// Returns a counter for the samples of the events whose counts are compared; `None` if there are no such events.
    /// Only events of whole CPUs are compared: no event of a task happens while its CPU is idle.
    pub fn of(
        target: &Target,
        events: &[EventRequest],
        samples: Samples,
        layout: SampleLayout,
        ids: &[(u64, usize)],
        rings: usize,
    ) -> Option<SampleCounter> {
        let is_of_cpus = matches!(target, Target::SystemWide { .. } | Target::UntilExit(_));
        let compared: Arc<[bool]> = events.iter().map(is_compared).collect();
        if !is_of_cpus || samples != Samples::Delivered || !compared.contains(&true) {
            return None;
        }
        let ids: Vec<(u64, usize)> = ids.iter().copied().filter(|&(_, event)| compared[event]).collect();
        let found = std::iter::repeat_with(AtomicU64::default).take(events.len() * rings).collect();
        Some(SampleCounter {
            layout,
            ids: Arc::new(EventIds::new(&ids)),
            counts: SampleCounts { rings, compared, found },
        })
    }

    /// Returns the counts, which go on.
    pub fn counts(&self) -> SampleCounts {
        self.counts.clone()
    }

    /// Counts the samples in `bytes`, which contains whole records of `ring`.
    pub fn count(&self, ring: usize, bytes: &[u8]) {
        for record in Records::new(bytes).filter(|record| record_type(record) == PERF_RECORD_SAMPLE) {
            if let Some(event) = self.layout.id(record).and_then(|id| self.ids.event(id)) {
                // Only one thread reads a ring, so no atomic addition is needed.
                let found = &self.counts.found[event * self.counts.rings + ring];
                found.store(found.load(Relaxed) + 1, Relaxed);
            }
        }
    }
}

/// Returns whether each occurrence of an event is one sample, which the kernel writes.
fn is_compared(event: &EventRequest) -> bool {
    event.counting == Counting::Compared
        && event.event.kind == PERF_TYPE_TRACEPOINT
        && event.sampling == Sampling::Period(1)
        && event.writer == Writer::Kernel
}

#[cfg(test)]
mod tests {
    use perf_prof_format::abi::*;

    use super::*;

    fn event(counting: Counting) -> EventRequest {
        EventRequest { counting, ..EventRequest::tracepoint("s:n", 1) }
    }

    /// Returns a record with this id as the first member.
    fn record(kind: u32, id: u64) -> Vec<u8> {
        let mut bytes = [&kind.to_ne_bytes()[..], &[0; 4], &id.to_ne_bytes()].concat();
        bytes[6] = 16;
        bytes
    }

    fn counter(target: &Target, events: &[EventRequest], samples: Samples) -> Option<SampleCounter> {
        let layout = SampleLayout::new(PERF_SAMPLE_IDENTIFIER, 0);
        SampleCounter::of(target, events, samples, layout, &[(7, 0), (8, 0), (9, 1)], 2)
    }

    #[test]
    fn events_that_were_counted_and_are_in_no_ring_have_no_sample() {
        let events = [event(Counting::Compared), event(Counting::Ignored)];
        let counter = counter(&Target::SystemWide { cpus: None }, &events, Samples::Delivered).unwrap();
        let of_ring =
            |samples: &[u64]| samples.iter().flat_map(|&id| record(PERF_RECORD_SAMPLE, id)).collect::<Vec<u8>>();
        counter.count(0, &[of_ring(&[7, 7, 9]), record(PERF_RECORD_LOST, 7)].concat());
        counter.count(1, &of_ring(&[8, 8]));
        let counts = counter.counts();
        assert_eq!([0, 1, 2].map(|event| counts.are_compared(event)), [true, false, false]);
        let missing =
            |of_rings: [u64; 3]| counts.unwritten([(0, 0, of_rings[0]), (0, 1, of_rings[1]), (0, 1, of_rings[2])]);
        assert_eq!(missing([2, 1, 1]), []);
        assert_eq!(missing([1, 0, 0]), [], "samples of another program's event have this id");
        let unwritten = |ring, count| Unwritten { event: 0, ring, count };
        assert_eq!(missing([5, 2, 1]), [unwritten(0, 3), unwritten(1, 1)]);
    }

    #[test]
    fn only_events_of_whole_cpus_with_a_sample_each_are_compared() {
        let all = Target::SystemWide { cpus: None };
        let is_counted = |target: &Target, event, samples| {
            let events = [event, self::event(Counting::Ignored)];
            counter(target, &events, samples).is_some()
        };
        let each = || event(Counting::Compared);
        assert!(is_counted(&all, each(), Samples::Delivered));
        assert!(is_counted(&Target::UntilExit(Target::Processes(vec![1]).into()), each(), Samples::Delivered));
        assert!(!is_counted(&Target::Processes(vec![1]), each(), Samples::Delivered));
        assert!(!is_counted(&all, each(), Samples::Kept { ring_bytes: 4096 }));
        for event in [
            EventRequest { sampling: Sampling::Period(2), ..each() },
            EventRequest { writer: Writer::Program, ..each() },
            event(Counting::Ignored),
        ] {
            assert!(!is_counted(&all, event, Samples::Delivered));
        }
    }
}

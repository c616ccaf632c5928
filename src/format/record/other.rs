//! Records other than samples that a program may receive: the types that it requests, the sample id that the kernel
//! appends to its records, and the records about throttling and context switches.
//!
//! Layouts are those of `enum perf_event_type` in `include/uapi/linux/perf_event.h`.

use super::{layout::TrailerLayout, parse};
use crate::abi::{
    PERF_RECORD_MISC_SWITCH_OUT, PERF_RECORD_MISC_SWITCH_OUT_PREEMPT, PERF_RECORD_SWITCH, PERF_RECORD_SWITCH_CPU_WIDE,
    PERF_RECORD_THROTTLE, PERF_RECORD_UNTHROTTLE,
};

/// The types of records other than samples that a program requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherRecords {
    /// The bit of a type is set if the set contains this type.
    types: u128,
}

impl OtherRecords {
    /// The set without any type.
    pub const NONE: OtherRecords = OtherRecords { types: 0 };

    /// Returns the set of these types, such as `PERF_RECORD_SWITCH`. Types from 128 on do not exist, and are ignored.
    pub fn of(types: &[u32]) -> OtherRecords {
        OtherRecords { types: types.iter().filter_map(|&kind| bit(kind)).fold(0, |set, bit| set | bit) }
    }

    /// Returns the union of both sets.
    pub fn and(self, other: OtherRecords) -> OtherRecords {
        OtherRecords { types: self.types | other.types }
    }

    /// Returns whether the set contains no type.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.types == 0
    }

    /// Returns whether the set contains this type.
    #[inline]
    pub fn contains(self, kind: u32) -> bool {
        bit(kind).is_some_and(|bit| self.types & bit != 0)
    }
}

#[inline]
fn bit(kind: u32) -> Option<u128> {
    1u128.checked_shl(kind)
}

/// The sample id at the end of a record that the kernel wrote (`sample_id_all`). A member is `None` if the event's attr
/// does not request it, or if the record is too short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    /// The process id and the thread id of the task in which the record was written. Each is `u32::MAX` if there was no
    /// task.
    pub pid_tid: Option<(u32, u32)>,
    /// The time at which the record was written, in nanoseconds of the attr's clock.
    pub time: Option<u64>,
    /// The id of the event for which the kernel wrote the record.
    pub id: Option<u64>,
    /// The stream id of the event that `id` identifies.
    pub stream_id: Option<u64>,
    /// The CPU on which the record was written.
    pub cpu: Option<u32>,
}

/// The kernel starts or ends the throttling of an event that took too many samples in one timer tick
/// (PERF_RECORD_THROTTLE, PERF_RECORD_UNTHROTTLE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// True at the start of throttling, false at its end.
    pub begins: bool,
    /// The time at which throttling started or ended, in nanoseconds of the attr's clock.
    pub time: u64,
    /// The id of the event. For an event that a child task inherited, it is the id of the event that was opened.
    pub id: u64,
    /// The id of the throttled event itself. It differs from `id` for inherited events.
    pub stream_id: u64,
    /// The sample id of the record.
    pub sample_id: SampleId,
}

impl Throttle {
    /// Parses a record. `trailer` is the layout of its sample id.
    pub fn parse(record: &[u8], trailer: Option<&TrailerLayout>) -> Option<Throttle> {
        let begins = match parse::record_type(record) {
            PERF_RECORD_THROTTLE => true,
            PERF_RECORD_UNTHROTTLE => false,
            _ => return None,
        };
        let word = |at| parse::u64_at(record, at);
        let sample_id = sample_id(record, trailer);
        Some(Throttle { begins, time: word(8)?, id: word(16)?, stream_id: word(24)?, sample_id })
    }
}

/// A task starts or stops running on a CPU (PERF_RECORD_SWITCH, PERF_RECORD_SWITCH_CPU_WIDE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The direction of the switch.
    pub direction: SwitchDirection,
    /// The process id and the thread id of the other task: the next task if a task stops, the previous task if a task
    /// starts. `None` in PERF_RECORD_SWITCH, the record for events of a single task.
    pub other_task: Option<(u32, u32)>,
    /// The sample id of the record. It contains the task that starts or stops.
    pub sample_id: SampleId,
}

/// The direction of a context switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchDirection {
    /// The task starts to run.
    In,
    /// The task stops, because it waits (PERF_RECORD_MISC_SWITCH_OUT).
    Out,
    /// The task stops, although it could run on (PERF_RECORD_MISC_SWITCH_OUT_PREEMPT).
    OutPreempted,
}

impl Switch {
    /// Parses a record. `trailer` is the layout of its sample id.
    pub fn parse(record: &[u8], trailer: Option<&TrailerLayout>) -> Option<Switch> {
        let other_task = match parse::record_type(record) {
            PERF_RECORD_SWITCH => None,
            PERF_RECORD_SWITCH_CPU_WIDE => Some((parse::u32_at(record, 8)?, parse::u32_at(record, 12)?)),
            _ => return None,
        };
        let misc = parse::misc(record)?;
        let direction = match (misc & PERF_RECORD_MISC_SWITCH_OUT != 0, misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT != 0)
        {
            (false, _) => SwitchDirection::In,
            (true, false) => SwitchDirection::Out,
            (true, true) => SwitchDirection::OutPreempted,
        };
        Some(Switch { direction, other_task, sample_id: sample_id(record, trailer) })
    }
}

fn sample_id(record: &[u8], trailer: Option<&TrailerLayout>) -> SampleId {
    trailer.map(|trailer| trailer.sample_id(record)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::*;

    const SAMPLE_TYPE: u64 =
        PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_CPU;

    /// Returns a record with this body, and with the sample id pid 3, tid 4, time 70, id 60, stream id 61, CPU 2.
    fn record(kind: u32, misc: u16, body: &[u64]) -> Vec<u8> {
        let words = [body, &[3 | 4 << 32, 70, 60, 61, 2]].concat();
        let size = (8 + 8 * words.len()) as u16;
        let header = [&kind.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes()].concat();
        [header, words.iter().flat_map(|word| word.to_le_bytes()).collect()].concat()
    }

    const SAMPLE_ID: SampleId =
        SampleId { pid_tid: Some((3, 4)), time: Some(70), id: Some(60), stream_id: Some(61), cpu: Some(2) };

    #[test]
    fn throttle_and_unthrottle() {
        let trailer = TrailerLayout::new(SAMPLE_TYPE);
        for (kind, begins) in [(PERF_RECORD_THROTTLE, true), (PERF_RECORD_UNTHROTTLE, false)] {
            let bytes = record(kind, 0, &[69, 60, 61]);
            let parsed = Throttle { begins, time: 69, id: 60, stream_id: 61, sample_id: SAMPLE_ID };
            assert_eq!(Throttle::parse(&bytes, Some(&trailer)), Some(parsed));
            let without = Throttle { sample_id: SampleId::default(), ..parsed };
            assert_eq!(Throttle::parse(&bytes, None), Some(without));
            assert_eq!(Throttle::parse(&bytes[..31], Some(&trailer)), None);
        }
        assert_eq!(Throttle::parse(&record(PERF_RECORD_SWITCH, 0, &[69, 60, 61]), Some(&trailer)), None);
    }

    #[test]
    fn switches_of_a_task_and_of_a_cpu() {
        let trailer = TrailerLayout::new(SAMPLE_TYPE);
        let direction = |misc| {
            let parsed = Switch::parse(&record(PERF_RECORD_SWITCH, misc, &[]), Some(&trailer)).unwrap();
            assert_eq!((parsed.other_task, parsed.sample_id), (None, SAMPLE_ID));
            parsed.direction
        };
        assert_eq!(direction(0), SwitchDirection::In);
        assert_eq!(direction(PERF_RECORD_MISC_SWITCH_OUT), SwitchDirection::Out);
        let preempted = PERF_RECORD_MISC_SWITCH_OUT | PERF_RECORD_MISC_SWITCH_OUT_PREEMPT;
        assert_eq!(direction(preempted), SwitchDirection::OutPreempted);
        let bytes = record(PERF_RECORD_SWITCH_CPU_WIDE, PERF_RECORD_MISC_SWITCH_OUT, &[7 | 8 << 32]);
        let parsed = Switch { direction: SwitchDirection::Out, other_task: Some((7, 8)), sample_id: SAMPLE_ID };
        assert_eq!(Switch::parse(&bytes, Some(&trailer)), Some(parsed));
        assert_eq!(Switch::parse(&bytes[..12], Some(&trailer)), None);
    }

    #[test]
    fn a_set_contains_the_types_that_it_was_made_of() {
        let set = OtherRecords::of(&[PERF_RECORD_SWITCH, perf_data::PERF_RECORD_STAT_ROUND, 128, u32::MAX]);
        let contained: Vec<u32> = (0..300).chain([u32::MAX]).filter(|&kind| set.contains(kind)).collect();
        assert_eq!(contained, [PERF_RECORD_SWITCH, perf_data::PERF_RECORD_STAT_ROUND]);
        assert!(OtherRecords::NONE.is_empty() && !set.is_empty());
    }
}

//! Tests of flushes in `block-io`. Some ends of flushes are not delivered, although no loss was reported, or several queues
//! of a device flush at the same time.

use std::collections::{BTreeMap, HashMap};

use perf_prof_format::tracefs::NoKernel;
use proptest::prelude::*;

use super::{
    block_io::BLOCK_IO,
    made::{MadeEvent, MadeRun, MadeSample},
};
use crate::event::Context;

const START: &str = "block:block_io_start";
const INSERT: &str = "block:block_rq_insert";
const ISSUE: &str = "block:block_rq_issue";
const REQUEUE: &str = "block:block_rq_requeue";
const COMPLETE: &str = "block:block_rq_complete";
const FIELDS: &[&str] = &["unsigned int dev", "u64 sector", "unsigned int nr_sector", "int error", "char rwbs[8]"];
const MS: u64 = 1_000_000;

/// An event of a flush: its name, the CPU, the time in ms, and `rwbs`.
type Event = (&'static str, u32, u64, &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queues {
    One,
    Unknown,
}

fn wait(cpu: u32, ms: u64) -> Event {
    (START, cpu, ms, "FWS")
}

fn issue(cpu: u32, ms: u64) -> Event {
    (ISSUE, cpu, ms, "FF")
}

/// Returns the events at the end of a flush: its own end, and the ends of the `waits` waits for it.
fn end(ms: u64, waits: usize) -> Vec<Event> {
    [&[(COMPLETE, 0, ms, "FF")][..], &vec![(COMPLETE, 0, ms, "WS"); waits]].concat()
}

fn start(queues: Queues) -> MadeRun {
    let events = [START, INSERT, ISSUE, REQUEUE, COMPLETE];
    let events = events.map(|name| MadeEvent { name, fields: FIELDS, print: "\"\"" });
    let numbers = match queues {
        Queues::One => HashMap::from([(1, 1)]),
        Queues::Unknown => HashMap::new(),
    };
    let context = Context::new(Box::new(NoKernel), 0).with_recorded_queues(numbers);
    let run = MadeRun::start_in(context, &BLOCK_IO, "block-io", &events);
    (7..9).for_each(|task| run.belongs(task, task));
    run
}

/// Passes the events to the source. Task 7 waits for flushes, and task 8 issues the flushes of the block layer.
fn deliver(run: &mut MadeRun, events: &[Event]) {
    for &(event, cpu, ms, rwbs) in events {
        let mut bytes = [0; 8];
        bytes[..rwbs.len()].copy_from_slice(rwbs.as_bytes());
        let sector = if (event, rwbs) == (COMPLETE, "FF") { i64::MAX } else { 0 };
        let fields = [("dev", 1), ("sector", sector), ("nr_sector", 0), ("rwbs", i64::from_le_bytes(bytes))];
        let tid = if rwbs == "FF" { 8 } else { 7 };
        run.spans(&[MadeSample { event, tid, cpu, time: ms * MS, fields: &fields }]);
    }
}

/// Returns when the spans of a task began and ended, in ms.
fn spans(run: &MadeRun, task: i32) -> Vec<(u64, u64)> {
    let own = run.delivered.iter().filter(|span| span.task.0 == task);
    own.map(|span| (span.begin / MS, span.end / MS)).collect()
}

#[test]
fn a_second_flush_of_a_queue_shows_that_the_first_one_is_over() {
    for (queues, cpu) in [(Queues::One, 1), (Queues::One, 0), (Queues::Unknown, 0)] {
        let mut run = start(queues);
        let events = [vec![issue(0, 1), issue(cpu, 10)], end(12, 0), vec![issue(1, 20)], end(23, 0)].concat();
        deliver(&mut run, &events);
        assert_eq!(spans(&run, 8), [(10, 12), (20, 23)], "{queues:?} {cpu}");
        run.finish();
        assert_eq!((run.unended(), run.ambiguous(), run.gaps()), (1, 0, vec![(8, 1)]));
        // The first flush lasted at most until the second one was issued.
        assert_eq!(run.missing(), 9 * MS);
    }
}

#[test]
fn of_flushes_of_several_queues_at_the_same_time_nobody_knows_which_has_ended() {
    let mut run = start(Queues::Unknown);
    let both = [vec![wait(0, 1), issue(0, 1), wait(1, 2), issue(1, 2)], end(6, 1), end(9, 1)].concat();
    deliver(&mut run, &[&both[..], &[wait(0, 10), issue(0, 11)], &end(13, 1)].concat());
    assert_eq!((spans(&run, 8), spans(&run, 7)), (vec![(11, 13)], vec![(10, 13)]));
    run.finish();
    assert_eq!((run.unended(), run.ambiguous(), run.gaps()), (0, 4, vec![(7, 2), (8, 2)]));
    // Nobody knows which flush ended when, but the sum of their durations is known.
    assert_eq!(run.missing(), 2 * (5 + 7) * MS);
}

#[test]
fn of_flushes_of_several_queues_nobody_knows_which_one_the_device_has_refused() {
    // The device may refuse a flush on the CPU of its issue or on another CPU.
    for refused in [0, 1, 2] {
        let mut run = start(Queues::Unknown);
        deliver(&mut run, &[&[issue(0, 1), issue(1, 2), (REQUEUE, refused, 3, "FF")][..], &end(5, 0)].concat());
        deliver(&mut run, &[&[issue(refused, 6)][..], &end(7, 0)].concat());
        run.finish();
        assert_eq!((spans(&run, 8), run.gaps(), run.ambiguous()), (vec![(6, 7)], vec![(8, 2)], 2), "{refused}");
    }
    // If only one flush is open, it must be the refused one.
    let mut run = start(Queues::Unknown);
    let refused = [vec![issue(0, 1), (REQUEUE, 2, 3, "FF"), issue(0, 4)], end(6, 0)].concat();
    deliver(&mut run, &refused);
    run.finish();
    assert_eq!((spans(&run, 8), run.gaps()), (vec![(4, 6)], vec![]));
}

#[test]
fn a_wait_does_not_end_with_a_flush_that_began_before_it() {
    let mut run = start(Queues::One);
    deliver(&mut run, &[&[wait(0, 1), issue(0, 2)][..], &end(4, 1), &[wait(0, 5), issue(0, 6)]].concat());
    // The end of the flush that was issued at 6 ms is not delivered.
    deliver(&mut run, &[&[wait(0, 10), issue(0, 11)][..], &end(13, 1), &[wait(0, 14), issue(0, 15)]].concat());
    deliver(&mut run, &end(18, 1));
    assert_eq!((spans(&run, 8), spans(&run, 7)), (vec![(2, 4), (11, 13), (15, 18)], vec![(1, 4), (14, 18)]));
    run.finish();
    // One of the two waits ended at 13 ms, and the other wait ended before 18 ms.
    assert_eq!((run.unended(), run.ambiguous(), run.gaps()), (1, 2, vec![(7, 2), (8, 1)]));
    assert!(run.missing() >= (5 + 1 + 3) * MS, "{}", run.missing());
}

#[test]
fn a_wait_from_before_a_loss_ends_no_later_one() {
    let mut run = start(Queues::One);
    deliver(&mut run, &[wait(0, 1), issue(0, 2), wait(0, 3)]);
    run.lost();
    let after =
        [vec![wait(0, 5)], end(6, 1), vec![issue(0, 7)], end(9, 2), vec![wait(0, 10), issue(0, 11)], end(13, 1)];
    deliver(&mut run, &after.concat());
    assert_eq!((spans(&run, 8), spans(&run, 7)), (vec![(7, 9), (11, 13)], vec![(10, 13)]));
}

/// A queue of a device, as in block/blk-flush.c. It has one flush at a time, for all waits that began before the flush was
/// made.
#[derive(Default)]
struct Queue {
    /// The current flush: when it was issued, and the begins of the waits that it will end.
    flush: Option<(Option<u64>, Vec<u64>)>,
    /// The begins of the waits for the next flush.
    pending: Vec<u64>,
}

/// The events that happen, those that are delivered, and the true spans.
#[derive(Default)]
struct Model {
    queues: Vec<Queue>,
    events: Vec<Event>,
    flushes: BTreeMap<u64, u64>,
    waits: BTreeMap<u64, u64>,
}

impl Model {
    fn make(&mut self, queue: usize) {
        let queue = &mut self.queues[queue];
        if queue.flush.is_none() && !queue.pending.is_empty() {
            queue.flush = Some((None, std::mem::take(&mut queue.pending)));
        }
    }

    fn wait(&mut self, queue: usize, ms: u64) {
        self.events.push(wait(queue as u32, ms));
        self.queues[queue].pending.push(ms);
        self.make(queue);
    }

    fn issue(&mut self, queue: usize, cpu: u32, ms: u64) {
        if let Some((at @ None, _)) = &mut self.queues[queue].flush {
            *at = Some(ms);
            self.events.push(issue(cpu, ms));
        }
    }

    fn end(&mut self, queue: usize, is_delivered: bool, ms: u64) {
        let Some((Some(at), waits)) = self.queues[queue].flush.take_if(|flush| flush.0.is_some()) else { return };
        self.flushes.insert(at, ms);
        if is_delivered {
            self.events.extend(end(ms, waits.len()));
        }
        self.waits.extend(waits.into_iter().map(|begin| (begin, ms)));
        self.make(queue);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_flush_and_no_wait_is_too_long_whichever_ends_are_missing(
        steps in prop::collection::vec((0..4u8, 0..3usize, 0..3u32, 0..4u8), 1..60),
        queues in prop_oneof![Just(Queues::One), Just(Queues::Unknown)],
        hides in any::<bool>(),
    ) {
        let mut model = Model::default();
        model.queues.resize_with(3, Queue::default);
        let mut hidden = 0;
        for (at, &(step, queue, cpu, one_of)) in (1..).zip(&steps) {
            let queue = if queues == Queues::One { 0 } else { queue };
            let is_hidden = hides && one_of == 0;
            match step {
                0 | 1 => model.wait(queue, 10 * at),
                2 => model.issue(queue, cpu, 10 * at),
                _ => {
                    let before = model.flushes.len();
                    model.end(queue, !is_hidden, 10 * at);
                    hidden += usize::from(is_hidden && model.flushes.len() != before);
                }
            }
            if queues == Queues::Unknown {
                // Each CPU has a queue, and issues a flush as soon as the flush is made.
                model.issue(queue, queue as u32, 10 * at + 1);
            }
        }
        let mut run = start(queues);
        deliver(&mut run, &model.events);
        let (flushes, waits) = (spans(&run, 8), spans(&run, 7));
        run.finish();
        for (begin, end) in &flushes {
            prop_assert_eq!(model.flushes.get(begin), Some(end), "{:?}", model.events);
        }
        let is_marked = !run.gaps().is_empty();
        for (begin, end) in &waits {
            // Waits that are still open are not in the model's list.
            let truth = model.waits.get(begin);
            prop_assert!(truth.is_none_or(|truth| end <= truth), "{begin} {end} {:?}", model.events);
            prop_assert!(is_marked || truth == Some(end), "{begin} {end} {:?}", model.events);
        }
        if queues == Queues::One && hidden == 0 {
            let all = [flushes.len(), waits.len()];
            prop_assert_eq!((all, is_marked), ([model.flushes.len(), model.waits.len()], false));
        }
        // No later flush shows that the last flush of a queue is over.
        prop_assert!(is_marked || flushes.len() + 3 >= model.flushes.len(), "{:?}", model.events);
    }
}

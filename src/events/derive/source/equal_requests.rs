//! Tests of requests in `block-io` that are open for the same first sector at the same time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    block_io::BLOCK_IO,
    made::{MadeEvent, MadeRun, MadeSample},
};

const START: &str = "block:block_io_start";
const MERGE: &str = "block:block_rq_merge";
const INSERT: &str = "block:block_rq_insert";
const ISSUE: &str = "block:block_rq_issue";
const REQUEUE: &str = "block:block_rq_requeue";
const COMPLETE: &str = "block:block_rq_complete";
const FRONT_MERGE: &str = "block:block_bio_frontmerge";
const EVENTS: [&str; 7] = [START, FRONT_MERGE, MERGE, INSERT, ISSUE, REQUEUE, COMPLETE];
const FIELDS: &[&str] =
    &["unsigned int dev", "u64 sector", "unsigned int nr_sector", "int error", "char rwbs[8]", "char comm[8]"];
const US: u64 = 1_000;

/// An event of a request for sector 64: its name, the time in us, the number of sectors, and `rwbs`.
type Event = (&'static str, u64, i64, &'static str);

fn start(events: &[&'static str]) -> MadeRun {
    start_selected("block-io", events)
}

fn start_selected(selector: &str, events: &[&'static str]) -> MadeRun {
    let events: Vec<_> = events.iter().map(|&name| MadeEvent { name, fields: FIELDS, print: "\"\"" }).collect();
    let run = MadeRun::start(&BLOCK_IO, selector, &events);
    run.belongs(7, 7);
    run
}

fn deliver(run: &mut MadeRun, events: &[Event]) {
    for &(event, us, nr_sector, rwbs) in events {
        let mut bytes = [0; 8];
        bytes[..rwbs.len()].copy_from_slice(rwbs.as_bytes());
        let rwbs = i64::from_le_bytes(bytes);
        let fields = [("dev", 1), ("sector", 64), ("nr_sector", nr_sector), ("rwbs", rwbs)];
        run.spans(&[MadeSample { event, tid: 7, cpu: 0, time: us * US, fields: &fields }]);
    }
}

/// Returns when the spans began and ended, in us.
fn spans(run: &MadeRun) -> Vec<(u64, u64)> {
    run.delivered.iter().map(|span| (span.begin / US, span.end / US)).collect()
}

/// Runs the source on these events. Returns the spans, and the number of spans that cannot be told apart.
fn made(events: &[Event]) -> (Vec<(u64, u64)>, u64) {
    let mut run = start(&EVENTS);
    deliver(&mut run, events);
    run.finish();
    let gaps = run.gaps().iter().map(|gap| gap.1).sum::<u64>();
    assert_eq!(gaps, run.ambiguous() + run.unended(), "{events:?}");
    (spans(&run), run.ambiguous())
}

#[test]
fn of_equal_requests_at_the_same_time_nobody_knows_which_one_has_ended() {
    let mut run = start(&EVENTS);
    let both = [(START, 1, 8, "R"), (ISSUE, 2, 8, "R"), (START, 3, 8, "R"), (ISSUE, 4, 8, "R")];
    let ends = [(COMPLETE, 7, 8, "R"), (COMPLETE, 9, 8, "R")];
    let next = [(START, 10, 8, "R"), (ISSUE, 11, 8, "R"), (COMPLETE, 15, 8, "R")];
    deliver(&mut run, &[&both[..], &ends, &next].concat());
    run.finish();
    assert_eq!((spans(&run), run.ambiguous(), run.unended()), (vec![(10, 15)], 2, 0));
    assert_eq!((run.gaps(), run.missing()), (vec![(7, 2)], (6 + 6) * US));
    assert_eq!(run.counts(), [3, 1, 2, 0]);
}

#[test]
fn requests_for_a_sector_are_told_apart_by_what_the_events_say() {
    let one =
        |at: [u64; 3], nr, rwbs| [(START, at[0], nr, rwbs), (ISSUE, at[1], nr, rwbs), (COMPLETE, at[2], nr, rwbs)];
    // By their numbers of sectors, and by their operations and flags.
    for (nr, rwbs) in [(16, "R"), (8, "WS"), (8, "RA")] {
        let mut events = [one([1, 2, 9], 8, "R"), one([3, 4, 7], nr, rwbs)].concat();
        events.sort_by_key(|event| event.1);
        assert_eq!(made(&events), (vec![(3, 7), (1, 9)], 0), "{nr} {rwbs}");
    }
    // Only one of them was issued.
    let mut events = [one([1, 2, 5], 8, "R"), one([3, 6, 9], 8, "R")].concat();
    events.sort_by_key(|event| event.1);
    assert_eq!(made(&events), (vec![(1, 5), (3, 9)], 0));
    // The device gave one back.
    let given_back = [(START, 1, 8, "R"), (ISSUE, 2, 8, "R"), (REQUEUE, 3, 8, "R"), (START, 4, 8, "WS")];
    let issued = [(ISSUE, 5, 8, "WS"), (ISSUE, 6, 8, "R"), (COMPLETE, 7, 8, "R"), (COMPLETE, 9, 8, "WS")];
    assert_eq!(made(&[given_back, issued].concat()), (vec![(1, 7), (4, 9)], 0));
}

#[test]
fn a_request_that_the_device_gives_back_is_one_span() {
    let events = [(START, 1, 8, "R"), (ISSUE, 2, 8, "R"), (REQUEUE, 3, 8, "R"), (INSERT, 4, 8, "R")];
    let events = [&events[..], &[(ISSUE, 5, 8, "R"), (COMPLETE, 9, 8, "R")]].concat();
    assert_eq!(made(&events), (vec![(1, 9)], 0));
    assert_eq!(made(&events[1..]), (vec![(2, 9)], 0));
}

#[test]
fn a_request_does_not_take_the_end_of_one_for_its_sector_from_before_the_run() {
    let [begin, issue, end] = [(START, 1, 8, "R"), (ISSUE, 2, 8, "R"), (COMPLETE, 9, 8, "R")];
    let rows = [
        [begin, issue, (COMPLETE, 5, 16, "R"), end],
        [begin, issue, (COMPLETE, 5, 8, "WS"), end],
        // It was not issued yet.
        [begin, (COMPLETE, 2, 8, "R"), (ISSUE, 3, 8, "R"), end],
    ];
    for events in rows {
        let mut run = start(&EVENTS);
        deliver(&mut run, &events);
        run.finish();
        assert_eq!((spans(&run), run.counts()), (vec![(1, 9)], [1, 1, 0, 1]), "{events:?}");
    }
}

/// An end that fits none of the open requests is from before the run, or of a part of a request.
#[test]
fn of_several_open_requests_none_is_dropped_for_an_end_that_fits_none() {
    let open = |second| [(START, 1, 8, "R"), (ISSUE, 2, 8, "R"), (START, 3, second, "R"), (ISSUE, 4, second, "R")];
    let ends = |second| [(COMPLETE, 5, 8, "WS"), (COMPLETE, 7, second, "R"), (COMPLETE, 9, 8, "R")];
    let mut run = start(&EVENTS);
    deliver(&mut run, &[&open(16)[..], &ends(16)].concat());
    run.finish();
    assert_eq!((spans(&run), run.counts()), (vec![(3, 7), (1, 9)], [2, 2, 0, 1]));
    // Equal requests are both open until their own ends.
    let mut run = start_selected("block-io/open/", &EVENTS);
    deliver(&mut run, &[&open(8)[..], &ends(8)[..1]].concat());
    run.finish();
    assert_eq!((spans(&run), run.ambiguous()), (vec![(1, 0), (3, 0)], 0));
}

#[test]
fn of_equal_requests_that_are_open_at_the_end_as_many_are_shown_as_there_are() {
    let all = [1, 3, 5].map(|us| [(START, us, 8, "R"), (ISSUE, us + 1, 8, "R")]).concat();
    let ends = [(COMPLETE, 7, 8, "R"), (COMPLETE, 9, 8, "R")];
    for (ended, open) in [(0, vec![1, 3, 5]), (1, vec![3, 5]), (2, vec![5])] {
        let mut run = start_selected("block-io/open/", &EVENTS);
        deliver(&mut run, &[&all, &ends[..ended]].concat());
        run.finish();
        let expected: Vec<_> = open.into_iter().map(|begin| (begin, 0)).collect();
        assert_eq!((spans(&run), run.ambiguous()), (expected, ended as u64));
    }
}

/// Before Linux 6.5, a request begins when it is inserted into a queue or issued.
#[test]
fn requests_without_a_start_are_told_apart_too() {
    for first in [INSERT, ISSUE] {
        let begins = [(first, 1, 8, "R"), (first, 2, 8, "R")];
        let issues = [(ISSUE, 3, 8, "R"), (ISSUE, 4, 8, "R")];
        let ends = [(COMPLETE, 7, 8, "R"), (COMPLETE, 9, 8, "R")];
        let issues = if first == INSERT { &issues[..] } else { &[] };
        let mut run = start(&EVENTS[1..]);
        deliver(&mut run, &[&begins[..], issues, &ends].concat());
        assert_eq!((spans(&run), run.ambiguous(), run.missing()), (vec![], 2, (6 + 7) * US), "{first}");
        assert_eq!(run.counts(), [2, 0, 2, 0]);
    }
}

/// The ends of the last requests are hidden. Writes to the device last much longer than reads.
#[test]
fn a_read_whose_end_is_hidden_shortly_before_the_end_of_the_run_is_missing() {
    let request = |at, us, rwbs| [(START, at, 8, rwbs), (ISSUE, at + 1, 8, rwbs), (COMPLETE, at + us, 8, rwbs)];
    let before: Vec<Event> = (0..40).flat_map(|at| request(1 + at * 1_000, 300, "R")).collect();
    let slow = request(50_000, 30_000, "WS");
    for (age, expected) in [(9_000, 0), (58_000, 1)] {
        let hidden = &request(100_000, 0, "R")[..2];
        let last = request(99_000 + age, 1_000, "WS");
        let mut run = start(&EVENTS);
        deliver(&mut run, &[&before[..], &slow, hidden, &last].concat());
        run.finish();
        assert_eq!((run.delivered.len(), run.unended(), run.gaps().len()), (42, expected, expected as usize), "{age}");
    }
}

/// While the run goes on, nobody knows whether a request is only slow. So it is told to be missing after half a minute, and
/// not any more if it ends.
#[test]
fn a_request_whose_end_is_hidden_is_told_while_the_run_goes_on() {
    const SECOND: u64 = 1_000_000_000;
    let request = |at, us, rwbs| [(START, at, 8, rwbs), (ISSUE, at + 1, 8, rwbs), (COMPLETE, at + us, 8, rwbs)];
    let mut run = start(&EVENTS);
    deliver(&mut run, &[&request(1, 300, "R")[..], &request(1_000, 0, "R")[..2]].concat());
    assert_eq!((run.overdue(29 * SECOND), run.overdue(31 * SECOND)), (vec![], vec![(7, 1)]));
    assert_eq!((run.overdue(60 * SECOND), run.gaps()), (vec![(7, 1)], vec![]));
    deliver(&mut run, &[(COMPLETE, 61_000_000, 8, "R")]);
    assert_eq!((run.overdue(62 * SECOND), run.delivered.len()), (vec![], 2));
    // One request took a minute, so the next one may take several.
    deliver(&mut run, &request(70_000_000, 0, "R")[..2]);
    assert_eq!((run.overdue(500 * SECOND), run.overdue(700 * SECOND)), (vec![], vec![(7, 1)]));
    run.finish();
    assert_eq!((run.overdue(0), run.gaps()), (vec![], vec![]));
}

/// A request in the model.
#[derive(Clone, Copy)]
struct Request {
    begin: u64,
    sectors: i64,
    rwbs: &'static str,
    is_issued: bool,
}

/// A device with requests for one sector: the events that it delivers, and the true spans.
#[derive(Default)]
struct Model {
    open: Vec<Request>,
    events: Vec<Event>,
    truth: BTreeMap<u64, u64>,
}

impl Model {
    fn start(&mut self, sectors: i64, rwbs: &'static str, us: u64) {
        self.open.push(Request { begin: us, sectors, rwbs, is_issued: false });
        self.events.push((START, us, sectors, rwbs));
    }

    /// Issues the request, or lets the device give it back.
    fn issue_or_requeue(&mut self, at: usize, us: u64) {
        let Some(request) = self.open.get_mut(at) else { return };
        request.is_issued ^= true;
        let event = if request.is_issued { ISSUE } else { REQUEUE };
        self.events.push((event, us, request.sectors, request.rwbs));
    }

    /// Merges a request that is not issued. If `sectors` is not 0, a request for the next sectors is merged into it: it
    /// grows, and this request has no event. If `sectors` is 0, it is merged into the request for the sectors before it,
    /// and ends with a `MERGE` event.
    fn merge(&mut self, at: usize, us: u64, sectors: i64) {
        match self.open.get_mut(at) {
            Some(request) if !request.is_issued && sectors != 0 => request.sectors += sectors,
            Some(&mut Request { is_issued: false, sectors, rwbs, .. }) => {
                self.open.remove(at);
                self.events.push((MERGE, us, sectors, rwbs));
            }
            _ => {}
        }
    }

    fn end(&mut self, at: usize, us: u64, is_delivered: bool) {
        if self.open.get(at).is_some_and(|request| request.is_issued) {
            let request = self.open.remove(at);
            self.truth.insert(request.begin, us);
            self.events.extend(is_delivered.then_some((COMPLETE, us, request.sectors, request.rwbs)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn no_span_has_the_end_of_another_request_for_its_sector(
        steps in prop::collection::vec((0..7u8, 0..4usize, 0..3usize, 0..4u8), 1..60),
        merges in any::<bool>(),
        hides in any::<bool>(),
    ) {
        let mut model = Model::default();
        let kinds = [(8, "R"), (16, "R"), (8, "WS")];
        for (us, &(step, at, kind, one_of)) in (1..).zip(&steps) {
            let (sectors, rwbs) = kinds[kind];
            match step {
                0 | 1 => model.start(sectors, rwbs, us),
                2 | 3 => model.issue_or_requeue(at, us),
                4 if merges => model.merge(at, us, 8 * kind as i64),
                4 => {}
                _ => model.end(at, us, !(hides && one_of == 0)),
            }
        }
        for us in (100..).step_by(10).take(model.open.len()) {
            if !model.open[0].is_issued {
                model.issue_or_requeue(0, us);
            }
            model.end(0, us + 1, true);
        }
        let mut run = start(&EVENTS);
        deliver(&mut run, &model.events);
        run.finish();
        let spans = spans(&run);
        for (begin, end) in &spans {
            prop_assert_eq!(model.truth.get(begin), Some(end), "{:?}", model.events);
        }
        if !hides {
            let dropped = run.gaps().iter().map(|gap| gap.1).sum::<u64>();
            prop_assert_eq!(spans.len() as u64 + dropped, model.truth.len() as u64, "{:?}", model.events);
            let total = |of: &mut dyn Iterator<Item = (u64, u64)>| of.map(|(begin, end)| (end - begin) * US).sum::<u64>();
            let known = total(&mut spans.iter().copied()) + run.missing();
            let truth = total(&mut model.truth.iter().map(|(&begin, &end)| (begin, end)));
            prop_assert!(merges || known == truth, "{known} {truth} {:?}", model.events);
        }
    }
}

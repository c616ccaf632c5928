//! Checks what a pump delivers to the program from batches of hand-made records.

use std::fmt::Write;

use expect_test::{Expect, expect};
use perf_prof_events::event::Flow;
use perf_prof_format::{abi::*, record::Chunk, tracefs::NoKernel};

use super::*;

const SAMPLE_TYPE: u64 =
    PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | PERF_SAMPLE_RAW;

/// A program that stores each call as a line of text.
#[derive(Default)]
struct CallLog(String);

impl Deliver for CallLog {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let time = SampleLayout::new(SAMPLE_TYPE, 0).time(record).unwrap();
        writeln!(self.0, "sample of event {event} at {time}").unwrap();
        Flow::Continue(())
    }
    fn lost(&mut self, start: u64, end: u64) -> Flow {
        writeln!(self.0, "lost between {start} and {end}").unwrap();
        Flow::Continue(())
    }
    fn other_record(&mut self, record: &[u8], time: u64) -> Flow {
        writeln!(self.0, "record of type {} at {time}", record_type(record)).unwrap();
        Flow::Continue(())
    }
}

fn record(kind: u32, words: &[u64]) -> Vec<u8> {
    let size = (8 + 8 * words.len()) as u16;
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(size.to_ne_bytes());
    words.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
    bytes
}

fn sample(id: u64, time: u64) -> Vec<u8> {
    record(PERF_RECORD_SAMPLE, &[0, time, id, 0, 1, 0])
}

fn lost(count: u64) -> Vec<u8> {
    record(PERF_RECORD_LOST, &[0, count, 0, 0, 0, 0])
}

/// Makes a pump for `rings` rings. All samples have the layout of [`SAMPLE_TYPE`].
fn make_pump(
    ids: EventIds,
    context: Arc<Context>,
    stats: &Arc<Stats>,
    window: LossWindow,
    rings: usize,
    limit: Option<u64>,
) -> Pump {
    Pump::new(PumpSettings {
        ids,
        layout: SampleLayout::new(SAMPLE_TYPE, 0),
        trailer: TrailerLayout::new(SAMPLE_TYPE),
        context,
        stats: stats.clone(),
        window,
        rings,
        limit,
    })
}

fn check(window: LossWindow, limit: Option<u64>, kernel: Option<&[u64]>, chunks: &[(u32, &[Vec<u8>])], expect: Expect) {
    let context = Arc::new(Context::new(Box::new(NoKernel), 0));
    let stats = Arc::new(Stats::new(2, 2));
    let ids = EventIds::new(&[(50, 0), (51, 1)]);
    let mut pump = make_pump(ids, context, &stats, window, 2, limit);
    let mut program = CallLog::default();
    let mut flow = ControlFlow::Continue(());
    for (ring, records) in chunks {
        let batch = Batch::Ring(Chunk::new(*ring, records.concat(), None));
        flow = pump.deliver(&batch, &mut program, |_| ControlFlow::Continue(()));
        if flow.is_break() {
            break;
        }
    }
    if flow.is_continue() {
        let _ = pump.report_remaining(&mut program, kernel, 1000);
    }
    writeln!(program.0, "{flow:?}, delivered {}, lost {}", stats.total_delivered(), stats.total_lost()).unwrap();
    expect.assert_eq(&program.0);
}

/// Only PERF_RECORD_THROTTLE is counted as throttling; PERF_RECORD_UNTHROTTLE is not. Neither record is counted as a
/// loss.
#[test]
fn records_of_throttling_are_counted() {
    let stats = Arc::new(Stats::new(1, 1));
    let context = Arc::new(Context::new(Box::new(NoKernel), 0));
    let ids = EventIds::new(&[(50, 0)]);
    let mut pump = make_pump(ids, context, &stats, LossWindow::Times, 1, None);
    let of = |kind| record(kind, &[5, 50, 50, 0, 0, 0, 0]);
    let records = [PERF_RECORD_THROTTLE, PERF_RECORD_UNTHROTTLE, PERF_RECORD_THROTTLE].map(of);
    let batch = Batch::Ring(Chunk::new(0, records.concat(), None));
    assert!(pump.deliver(&batch, &mut CallLog::default(), |_| ControlFlow::Continue(())).is_continue());
    assert_eq!((stats.total_throttled(), stats.total_lost()), (2, 0));
}

#[test]
fn other_records_are_delivered_if_they_are_requested() {
    let stats = Arc::new(Stats::new(1, 1));
    let others = [OtherRecords::NONE, OtherRecords::of(&[PERF_RECORD_SWITCH, PERF_RECORD_THROTTLE])];
    let lines = others.map(|others| {
        let context = Arc::new(Context::new(Box::new(NoKernel), 0));
        let ids = EventIds::new(&[(50, 0)]);
        let mut pump = make_pump(ids, context, &stats, LossWindow::Times, 1, None).with_other_records(others);
        let of = |kind, time| record(kind, &[5, 50, 50, 0, time, 50, 0]);
        let [throttle, end] = [of(PERF_RECORD_THROTTLE, 8), of(PERF_RECORD_UNTHROTTLE, 9)];
        let records = [sample(50, 7), throttle, end, sample(50, 10), of(PERF_RECORD_SWITCH, 12)];
        let batch = Batch::Ring(Chunk::new(0, records.concat(), None));
        let mut program = CallLog::default();
        assert!(pump.deliver(&batch, &mut program, |_| ControlFlow::Continue(())).is_continue());
        program.0
    });
    let samples = "sample of event 0 at 7\nsample of event 0 at 10\n";
    assert_eq!(lines[0], samples);
    expect![[r#"
        sample of event 0 at 7
        record of type 5 at 8
        sample of event 0 at 10
        record of type 14 at 12
    "#]]
    .assert_eq(&lines[1]);
}

#[test]
fn exec_and_exit_drop_the_data_of_a_process() {
    let context = Arc::new(Context::new(Box::new(NoKernel), 0));
    let (ids, stats) = (EventIds::new(&[(50, 0)]), Arc::new(Stats::new(1, 1)));
    let mut pump = make_pump(ids, context.clone(), &stats, LossWindow::Zero, 1, None);
    let own = std::process::id();
    let task = u64::from(own) | u64::from(own) << 32;
    let known = || context.with_symbols(|symbols| symbols.processes().len());
    let mut exec = record(PERF_RECORD_COMM, &[task, u64::from_ne_bytes(*b"program\0"), 0, 0, 0, 0]);
    exec[4..6].copy_from_slice(&PERF_RECORD_MISC_COMM_EXEC.to_ne_bytes());
    let exit = record(PERF_RECORD_EXIT, &[task, task, 0, 0, 0, 0, 0]);
    for ended in [exec, exit] {
        assert!(context.with_symbols(|symbols| symbols.processes().read(own)));
        assert_eq!(known(), 1);
        let batch = Batch::Ring(Chunk::new(0, ended, None));
        let _ = pump.deliver(&batch, &mut CallLog::default(), |_| ControlFlow::Continue(()));
        assert_eq!(known(), 0);
    }
}

#[test]
fn a_loss_is_reported_before_the_next_sample_of_its_ring() {
    let chunks: [(u32, &[Vec<u8>]); 3] =
        [(0, &[sample(50, 10), lost(3)]), (1, &[sample(51, 12)]), (0, &[sample(50, 20), sample(99, 21)])];
    check(
        LossWindow::Times,
        None,
        None,
        &chunks,
        expect![[r#"
            sample of event 0 at 10
            sample of event 1 at 12
            lost between 10 and 20
            sample of event 0 at 20
            Continue(()), delivered 3, lost 3
        "#]],
    );
}

#[test]
fn a_loss_at_the_end_is_reported() {
    let chunks: [(u32, &[Vec<u8>]); 1] = [(0, &[sample(50, 10), lost(3)])];
    check(
        LossWindow::Times,
        None,
        Some(&[3, 7]),
        &chunks,
        expect![[r#"
            sample of event 0 at 10
            lost between 10 and 1000
            lost between 0 and 1000
            Continue(()), delivered 1, lost 10
        "#]],
    );
}

/// The number of handled records includes delivered samples with the id of another program's event, if delivery stops
/// in the middle of a batch.
#[test]
fn delivered_foreign_samples_count_when_a_batch_is_cut_off() {
    let context = Arc::new(Context::new(Box::new(NoKernel), 0));
    let records = [sample(50, 10), sample(99, 11), lost(1), sample(99, 12), sample(50, 13), sample(50, 14)];
    let batch = Batch::Ring(Chunk::new(0, records.concat(), None));
    for (stray, limit, reached) in [(Some(0), 3, 4), (None, 2, 5), (Some(0), 1, 1)] {
        let ids = EventIds::new(&[(50, 0)]).with_foreign_event(stray);
        let stats = Arc::new(Stats::new(1, 1));
        let mut pump = make_pump(ids, context.clone(), &stats, LossWindow::Times, 1, Some(limit));
        let left = pump.samples_left();
        let flow = pump.deliver(&batch, &mut CallLog::default(), |_| ControlFlow::Continue(()));
        assert_eq!((flow, pump.records_handled(&batch, left)), (ControlFlow::Break(BreakReason::Limit), reached));
    }
}

#[test]
fn without_order_losses_have_no_times_and_the_limit_ends_delivery() {
    let chunks: [(u32, &[Vec<u8>]); 1] = [(0, &[sample(50, 10), lost(1), sample(50, 11), sample(50, 12)])];
    check(
        LossWindow::Zero,
        Some(2),
        None,
        &chunks,
        expect![[r#"
            sample of event 0 at 10
            lost between 0 and 0
            sample of event 0 at 11
            Break(Limit), delivered 2, lost 1
        "#]],
    );
}

/// A program that stores the ring of each loss.
struct RingLog(Arc<Stats>, Vec<Option<usize>>);

impl Deliver for RingLog {
    fn sample(&mut self, _: usize, _: &[u8]) -> Flow {
        assert_eq!(self.0.reported_ring(), None);
        Flow::Continue(())
    }
    fn lost(&mut self, _: u64, _: u64) -> Flow {
        self.1.push(self.0.reported_ring());
        Flow::Continue(())
    }
}

#[test]
fn the_ring_of_a_loss_is_known_while_the_loss_is_reported() {
    let context = Arc::new(Context::new(Box::new(NoKernel), 0));
    let (ids, stats) = (EventIds::new(&[(50, 0)]), Arc::new(Stats::new(1, 2)));
    let mut pump = make_pump(ids, context, &stats, LossWindow::Times, 2, None);
    let mut program = RingLog(stats.clone(), Vec::new());
    for ring in [1, 0] {
        let records = [sample(50, 1), lost(3), sample(50, 9)].concat();
        let batch = Batch::Ring(Chunk::new(ring, records, None));
        assert!(pump.deliver(&batch, &mut program, |_| ControlFlow::Continue(())).is_continue());
    }
    assert!(pump.report_remaining(&mut program, Some(&[3, 5]), 20).is_continue());
    assert_eq!((program.1, stats.reported_ring()), (vec![Some(1), Some(0), Some(1)], None));
}

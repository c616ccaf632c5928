//! Checks the counts of rounds from hand-made records.

use perf_prof_recordings::{Attr, AttrIds};
use proptest::prelude::*;

use super::*;

/// Returns the layouts of two events with the ids 10 and 11, and 20 and 21, and of an event without ids.
fn layouts() -> Arc<Layouts> {
    let ids = [vec![10, 11], vec![20, 21], Vec::new()];
    Arc::new(Layouts::new(&ids.map(|ids| AttrIds { attr: Attr::default(), ids })))
}

fn record(kind: u32, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let size = 8 + body.len() as u16;
    [&kind.to_ne_bytes()[..], &[0; 2], &size.to_ne_bytes(), &body].concat()
}

fn longs(kind: u32, words: &[u64]) -> Vec<u8> {
    record(kind, &[&words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>()])
}

fn config(mode: u64) -> Vec<u8> {
    longs(PERF_RECORD_STAT_CONFIG, &[3, 0, mode, 1, 100, 2, 1])
}

fn cpus(list: &[u16]) -> Vec<u8> {
    let list: Vec<u8> = list.iter().flat_map(|cpu| cpu.to_ne_bytes()).collect();
    record(PERF_RECORD_CPU_MAP, &[&[0; 2], &(list.len() as u16 / 2).to_ne_bytes(), &list])
}

fn threads(tids: &[u64]) -> Vec<u8> {
    let entries: Vec<u8> = tids.iter().flat_map(|tid| [&tid.to_ne_bytes()[..], &[0; 16]].concat()).collect();
    record(PERF_RECORD_THREAD_MAP, &[&(tids.len() as u64).to_ne_bytes(), &entries])
}

fn stat(id: u64, cpu: i32, thread: u32, [val, ena, run]: [u64; 3]) -> Vec<u8> {
    let place = [cpu.to_ne_bytes(), thread.to_ne_bytes()].concat();
    let counts = [val, ena, run].map(u64::to_ne_bytes).concat();
    record(PERF_RECORD_STAT, &[&id.to_ne_bytes(), &place, &counts])
}

fn round(time: u64) -> Vec<u8> {
    longs(PERF_RECORD_STAT_ROUND, &[0, time])
}

/// Event, CPU, thread, val, ena and run of a count.
type Row = (usize, i32, i32, u64, u64, u64);

/// Adds the records. Returns the result of `counts` after each round.
fn rounds(records: &[Vec<u8>], counts: impl Fn(&StatCounts) -> Vec<RoundCount>) -> Vec<Vec<Row>> {
    let mut all = StatCounts::new(layouts());
    let mut rounds = Vec::new();
    for record in records {
        if all.add(record).unwrap().is_some() {
            let line = |row: RoundCount| (row.event, row.cpu, row.thread, row.count.val, row.count.ena, row.count.run);
            rounds.push(counts(&all).into_iter().map(line).collect());
        }
    }
    rounds
}

#[test]
fn sums_are_passed_on_as_differences_and_shown_as_totals() {
    let records = [
        cpus(&[0, 1]),
        config(1),
        stat(10, 0, 0, [5, 100, 100]),
        stat(11, 1, 0, [7, 100, 100]),
        round(100),
        stat(10, 0, 0, [15, 200, 200]),
        stat(11, 1, 0, [8, 200, 100]),
        stat(20, 0, 0, [3, 10, 10]),
        round(200),
    ];
    let for_scripts = rounds(&records, StatCounts::for_scripts);
    // In the second round, the first event was counted for 100 of 200 ns.
    let second = vec![(0, -1, -1, 22, 200, 100), (1, -1, -1, 3, 10, 10), (2, -1, -1, 0, 0, 0)];
    assert_eq!(for_scripts, [vec![(0, -1, -1, 12, 200, 200), (1, -1, -1, 0, 0, 0), (2, -1, -1, 0, 0, 0)], second]);
    let separate = rounds(&records, |counts| counts.separate().collect());
    assert_eq!(separate[1][..3], [(0, 0, -1, 15, 200, 200), (0, 1, -1, 8, 200, 100), (1, 0, -1, 3, 10, 10)]);
    assert_eq!(separate[1].len(), 6);
}

#[test]
fn separate_counts_are_scaled_differences() {
    let records = [
        threads(&[71, 72]),
        config(5),
        stat(10, -1, 0, [6, 300, 100]),
        stat(11, -1, 1, [4, 100, 0]),
        round(1),
        stat(10, -1, 0, [7, 400, 200]),
        stat(11, -1, 1, [3, 100, 100]),
        round(2),
    ];
    let both = [rounds(&records, StatCounts::for_scripts), rounds(&records, |counts| counts.separate().collect())];
    assert_eq!(both[0], both[1]);
    assert_eq!(both[0][0][..2], [(0, -1, 71, 18, 300, 100), (0, -1, 72, 0, 100, 0)]);
    assert_eq!(both[0][1][..2], [(0, -1, 71, 1, 100, 100), (0, -1, 72, u64::MAX, 0, 100)]);
}

#[test]
fn an_event_may_have_other_cpus_than_the_recording() {
    let own = record(
        PERF_RECORD_EVENT_UPDATE,
        &[&3u64.to_ne_bytes(), &20u64.to_ne_bytes(), &[0; 2], &1u16.to_ne_bytes(), &1u16.to_ne_bytes()],
    );
    let records = [own, cpus(&[0, 1]), config(0), stat(20, 1, 0, [9, 1, 1]), round(5)];
    let found = rounds(&records, StatCounts::for_scripts);
    assert_eq!(found[0][2..4], [(1, 1, -1, 9, 1, 1), (2, 0, -1, 0, 0, 0)]);
}

#[test]
fn counts_that_belong_to_nothing_are_errors() {
    let mut counts = StatCounts::new(layouts());
    counts.add(&cpus(&[0, 3])).unwrap();
    assert_eq!(counts.add(&stat(12, 0, 0, [1; 3])), Err(StatError::UnknownEvent(12)));
    assert_eq!(counts.add(&stat(10, 2, 0, [1; 3])), Err(StatError::UnknownCpu(2)));
    assert_eq!(counts.add(&stat(10, 3, 1, [1; 3])), Err(StatError::UnknownThread(1)));
    assert_eq!(counts.add(&stat(10, 3, u32::MAX, [1; 3])), Err(StatError::UnknownThread(u32::MAX)));
    assert_eq!(counts.add(&stat(10, 3, 0, [1; 3])), Ok(None));
    let range = record(PERF_RECORD_CPU_MAP, &[&2u16.to_ne_bytes(), &[1, 0, 0, 0], &u16::MAX.to_ne_bytes()]);
    counts.add(&range).unwrap();
    counts.add(&threads(&[1; 100])).unwrap();
    assert_eq!(counts.add(&round(1)), Err(StatError::TooMany));
}

proptest! {
    #[test]
    fn damaged_records_never_panic(
        records in prop::collection::vec((73u32..79, prop::collection::vec(any::<u8>(), 0..80), 0usize..90), 0..60),
        mode in 0u64..7,
    ) {
        let mut counts = StatCounts::new(layouts());
        let whole = [threads(&[7, 8]), cpus(&[0, 1]), config(mode), stat(10, 1, 1, [5, 4, 3])];
        for damaged in records {
            for record in &whole {
                let _ = counts.add(record);
                let _ = counts.add(&record[..damaged.2.min(record.len())]);
            }
            let _ = counts.add(&record(damaged.0, &[&damaged.1]));
            if counts.add(&round(1)).is_ok() {
                let rows = counts.separate().count();
                prop_assert!(rows <= MAX_COUNTS && counts.for_scripts().len() <= rows.max(3));
            }
        }
    }
}

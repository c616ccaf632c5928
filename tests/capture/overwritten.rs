//! Rings that the kernel overwrites: a copy contains the last records, and no other samples are delivered.

use std::time::{Duration, Instant};

use perf_prof_capture::{Capture, CopiedRing, Options, Samples, Target, Written};
use perf_prof_format::record::{Records, Source, Wait, record_type};

use crate::harness::{
    capture::{getppid_of, options},
    machine::{Need, needs},
    task::{getppid, gettid, pin},
};

const RING: usize = 64 << 10;

fn capture() -> Capture {
    let options = Options { samples: Samples::Kept { ring_bytes: RING }, ..options() };
    let target = Target::SystemWide { cpus: None };
    Capture::open(&target, &[getppid_of(gettid())], &options).unwrap()
}

fn oldest_first(copied: &CopiedRing) -> impl Iterator<Item = &[u8]> {
    copied.starts().into_iter().rev().filter_map(|start| copied.record(start))
}

/// Returns the times of the samples in all rings, in the order of each ring.
fn times(capture: &Capture, copies: &[CopiedRing]) -> Vec<Vec<u64>> {
    let layout = capture.layout(0);
    let time = |record: &[u8]| {
        assert_eq!(record_type(record), 9, "only samples are in these rings");
        layout.time(record).unwrap()
    };
    copies.iter().map(|copied| oldest_first(copied).map(time).collect()).collect()
}

fn ends(copies: &[CopiedRing]) -> Vec<Written> {
    copies.iter().map(|copied| copied.until).collect()
}

#[test]
fn copies_have_every_event_once_and_in_order() {
    needs([Need::Tracefs]);
    let mut capture = capture();
    capture.enable().unwrap();
    let (mut since, mut all) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        getppid(100);
        let copies = capture.copy_overwritten(&since);
        assert!(copies.iter().all(|copied| copied.overwritten == 0), "{since:?}");
        since = ends(&copies);
        all.extend(times(&capture, &copies).concat());
    }
    assert_eq!(all.len(), 5000);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 5000, "an event came twice");
}

#[test]
fn a_full_ring_keeps_the_newest_events() {
    needs([Need::Tracefs]);
    pin(0);
    let mut capture = capture();
    capture.enable().unwrap();
    getppid(50_000);
    let copies = capture.copy_overwritten(&[]);
    let times = times(&capture, &copies);
    let kept = &times[0];
    assert!(kept.is_sorted());
    let copied = &copies[0];
    let bytes: usize = oldest_first(copied).map(<[u8]>::len).sum();
    // Only a record that was cut is missing.
    assert!((RING - 200..=RING).contains(&bytes), "{bytes} of {RING}");
    assert_eq!(copied.until.0, 50_000 * (bytes / kept.len()) as u64);
}

#[test]
fn samples_wake_nobody() {
    needs([Need::Tracefs]);
    let mut capture = capture();
    capture.enable().unwrap();
    capture.flush();
    while !matches!(capture.wait(Some(Instant::now() + Duration::from_secs(10))), Wait::Flushed) {}
    getppid(100_000);
    // Other tasks of the machine may cause side-band records at any time.
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        if let Wait::Batch(batch) = capture.wait(Some(end)) {
            batch.for_each_run(usize::MAX, |records| {
                assert!(Records::new(records).all(|record| record_type(record) != 9), "a sample was delivered");
            });
        }
    }
}

#[test]
fn a_larger_ring_takes_the_place_of_the_old_one_while_events_go_on() {
    needs([Need::Tracefs]);
    let mut capture = capture();
    capture.enable().unwrap();
    getppid(10_000);
    for ring in 0..capture.ring_count() {
        capture.resize_overwritten(ring, 4 * RING).unwrap();
    }
    assert!(capture.overwritten_sizes().iter().all(|&size| size == 4 * RING));
    getppid(1000);
    let samples: usize = times(&capture, &capture.copy_overwritten(&[])).iter().map(Vec::len).sum();
    assert_eq!(samples, 1000);
}

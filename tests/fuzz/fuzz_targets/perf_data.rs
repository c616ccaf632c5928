//! Reads and replays the input as a recording, in file format or in pipe format.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use perf_prof_format::record::{Batch, OtherRecords, Record, Source, Switch, Throttle, Wait};
use perf_prof_recordings::{AuxtraceError, Recording, Selection};
use perf_prof_session::recording::stat_counts::StatCounts;

fuzz_target!(|input: &[u8]| {
    let Ok(recording) = Recording::of_file(Arc::new(input.to_vec()), "x") else { return };
    let layouts = recording.layouts().clone();
    let mut counts = StatCounts::new(layouts.clone());
    let others = OtherRecords::of(&(0..128).collect::<Vec<u32>>());
    let Ok(mut replay) = recording.replay(Selection { others, ..Selection::default() }) else { return };
    while let Wait::Batch(Batch::Sorted(sorted)) = replay.wait(None) {
        let mut before = 0;
        for (at, (_, record)) in sorted.records.iter().zip(sorted.in_order()) {
            assert!(before <= at.time);
            before = at.time;
            let _ = (Record::parse(record), layouts.cpu(record), AuxtraceError::parse(record));
            let trailer = layouts.trailer_of(record);
            let _ = (Throttle::parse(record, trailer), Switch::parse(record, trailer));
            if let Ok(Some(_)) = counts.add(record) {
                let _ = (counts.separate().count(), counts.for_scripts());
            }
            if let Some(attr) = layouts.attr_of(record) {
                let _ = (layouts.sample(attr).raw(record), layouts.sample(attr).reading(record));
            }
        }
    }
    let _ = (replay.take_failure(), replay.take_warnings(), replay.losses());
});

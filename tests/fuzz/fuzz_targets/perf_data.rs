//! Reads and replays the input as a recording, in file format or in pipe format.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use perf_prof_core::{
    perfdata::{Recording, Selection},
    record::{Batch, Record, Source, Wait},
};

fuzz_target!(|input: &[u8]| {
    let Ok(recording) = Recording::of_file(Arc::new(input.to_vec()), "x") else { return };
    let layouts = recording.layouts().clone();
    let Ok(mut replay) = recording.replay(Selection::default()) else { return };
    while let Wait::Batch(Batch::Sorted(sorted)) = replay.wait(None) {
        let mut before = 0;
        for (at, (_, record)) in sorted.records.iter().zip(sorted.in_order()) {
            assert!(before <= at.time);
            before = at.time;
            let _ = (Record::parse(record), layouts.cpu(record));
            if let Some(attr) = layouts.attr_of(record) {
                let _ = (layouts.sample(attr).raw(record), layouts.sample(attr).reading(record));
            }
        }
    }
    let _ = (replay.take_failure(), replay.take_warnings(), replay.losses());
});

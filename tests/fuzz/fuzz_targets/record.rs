//! Eight bytes of sample type, eight of read format, then a ring's records.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_prof::record::{Record, Records, SampleLayout, TrailerLayout};

fuzz_target!(|input: &[u8]| {
    let Some((sample_type, rest)) = input.split_first_chunk() else { return };
    let Some((read_format, records)) = rest.split_first_chunk() else { return };
    let (sample_type, read_format) = (u64::from_ne_bytes(*sample_type), u64::from_ne_bytes(*read_format));
    let layout = SampleLayout::new(sample_type, read_format);
    let trailer = TrailerLayout::new(sample_type);
    for record in Records::new(records) {
        let _ = Record::parse(record);
        let _ = (layout.pid_tid(record), layout.time(record), layout.id(record), layout.cpu(record));
        let _ = (layout.period(record), layout.callchain(record), layout.raw(record), trailer.time(record));
    }
});

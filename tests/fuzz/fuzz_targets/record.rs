//! Reads the input as the format of samples, followed by the records of a ring. The format has five numbers of eight
//! bytes: sample type, read format, branch sample type, mask of user registers and mask of interrupt registers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_prof_format::record::{
    Record, Records, SampleFormat, SampleLayout, SampleMember, Switch, Throttle, TrailerLayout,
};

fuzz_target!(|input: &[u8]| {
    let Some((words, records)) = input.split_first_chunk::<40>() else { return };
    let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| words[8 * at + byte]));
    let format = SampleFormat {
        sample_type: word(0),
        read_format: word(1),
        branch_sample_type: word(2),
        regs_user: word(3),
        regs_intr: word(4),
        period: 1,
    };
    let layout = SampleLayout::from_format(format);
    let trailer = TrailerLayout::new(format.sample_type);
    for record in Records::new(records) {
        let _ = Record::parse(record);
        let _ = (Throttle::parse(record, Some(&trailer)), Switch::parse(record, Some(&trailer)));
        let _ = (layout.pid_tid(record), layout.time(record), layout.id(record), layout.cpu(record));
        let _ = (layout.period(record), layout.callchain(record), layout.raw(record), trailer.time(record));
        for member in SampleMember::of_sample_type(!0) {
            let _ = layout.value(member, record);
        }
        let _ = (layout.reading(record), layout.stack_user(record));
        for registers in [layout.regs_user(record), layout.regs_intr(record)].into_iter().flatten() {
            let _ = registers.iter().count();
        }
    }
});

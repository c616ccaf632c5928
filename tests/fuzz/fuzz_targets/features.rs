//! Reads the input as the content of a feature section. The first byte is the number of the feature, the second one
//! the byte order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perf_prof_format::tracefs::printk_formats;
use perf_prof_recordings::{ByteOrder, Features};
use perf_prof_symbols::symbol::Kallsyms;

fuzz_target!(|input: &[u8]| {
    let [feature, order, content @ ..] = input else { return };
    let order = if order & 1 == 0 { ByteOrder::Native } else { ByteOrder::Foreign };
    let mut features = Features::default();
    if features.add(u32::from(*feature), content, order).is_err() {
        return;
    }
    if let Some(tracing) = features.tracing_data {
        tracing.by_id();
        printk_formats::parse(&tracing.printk_formats);
        let _ = Kallsyms::parse(&String::from_utf8_lossy(&tracing.kallsyms));
    }
});

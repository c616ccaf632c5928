//! The events of the shipped formats, and random records of them.

use std::sync::{Arc, LazyLock};

use perf_prof_events::event::{EventType, Format};
use perf_prof_format::{
    abi::{
        PERF_SAMPLE_CPU, PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_PERIOD, PERF_SAMPLE_RAW, PERF_SAMPLE_TID, PERF_SAMPLE_TIME,
    },
    record::SampleLayout,
    tracefs::{EventFormat, Field, FormatCollection},
};

static SHIPPED: LazyLock<FormatCollection> = LazyLock::new(|| {
    FormatCollection::from_zstd(include_bytes!("../../../python/testing/linux-6.18-x86_64.zst")).unwrap()
});

/// Returns the format of a random shipped event.
pub fn any(chosen: &mut Chosen) -> Arc<EventFormat> {
    let (system, name) = SHIPPED.events().nth(chosen.below(SHIPPED.events().count())).unwrap();
    SHIPPED.format(system, name).unwrap().unwrap()
}

/// Returns the shipped format of an event.
pub fn shipped(name: &str) -> Arc<EventFormat> {
    let (system, name) = name.split_once(':').unwrap();
    SHIPPED.format(system, name).unwrap().unwrap()
}

/// Returns the event type with the members that a live run captures.
pub fn event(format: &Arc<EventFormat>) -> EventType {
    let members = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD;
    EventType {
        alias: None,
        format: Format::Tracepoint(Arc::clone(format)),
        layout: SampleLayout::new(members | PERF_SAMPLE_RAW, 0),
        max_stack: None,
    }
}

/// The task and the CPU in which an event happens.
#[derive(Clone, Copy, Debug)]
pub struct Running {
    pub process: u32,
    pub thread: u32,
    pub cpu: u32,
}

/// Returns the record of an event.
pub fn record(data: &[u8], running: Running, time: u64) -> Vec<u8> {
    let ids = u64::from(running.process) | u64::from(running.thread) << 32;
    let mut body: Vec<u8> =
        [1, ids, time, running.cpu.into(), 1].iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
    body.extend((data.len() as u32).to_ne_bytes());
    body.extend(data);
    let header = 9u64 | ((8 + body.len()) as u64) << 48;
    [&header.to_ne_bytes()[..], &body].concat()
}

/// Chooses numbers at random, starting with a seed.
pub struct Chosen(pub u64);

impl Chosen {
    /// Returns the next random number (SplitMix64).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a random number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// Returns a random element.
    pub fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Texts of fields. After a NUL, anything may follow.
const TEXTS: [&[u8]; 6] =
    [b"\0\0", b"bash\0", b"bash\0\x80\x01", b"kworker/0:1\0", b"a\0", b"abababababababababababababababababab"];

/// Returns the data of a random record. Fields have few different values, so that keys occur again.
pub fn data(format: &EventFormat, thread: u32, chosen: &mut Chosen) -> Vec<u8> {
    let end = format.fields().iter().map(|field| field.offset + field.size).max().unwrap_or(8);
    let mut data = vec![0; end.next_multiple_of(8) + 4];
    format.fields().iter().for_each(|field| fill(field, &mut data, chosen));
    for field in format.common_fields() {
        let value = match &*field.name {
            "common_pid" => thread,
            "common_type" => format.id,
            _ => 0,
        };
        data[field.offset..field.offset + field.size].copy_from_slice(&value.to_ne_bytes()[..field.size]);
    }
    data
}

fn fill(field: &Field, data: &mut [u8], chosen: &mut Chosen) {
    let place = &mut data[field.offset..field.offset + field.size];
    if field.is_fixed_text() {
        let text = chosen.one(&TEXTS).iter().chain(std::iter::repeat(&b'z'));
        place.iter_mut().zip(text).for_each(|(byte, letter)| *byte = *letter);
        return;
    }
    let number = match chosen.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << (8 * field.size.clamp(1, 8) - 1),
        3 => chosen.below(4) as u64,
        4 => chosen.number() >> chosen.below(64),
        _ => 1000 + chosen.below(3) as u64,
    };
    place.iter_mut().zip(number.to_le_bytes().into_iter().cycle()).for_each(|(byte, of)| *byte = of);
}

//! Tests with bytes that perf 6.1 wrote, in little endian, and with arbitrary bytes.

use proptest::prelude::*;

use super::*;

/// Returns a record of this type with the words of the body, as `perf script -D` prints them.
fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let size = 8 + body.len() as u16;
    [&kind.to_ne_bytes()[..], &misc.to_ne_bytes(), &size.to_ne_bytes(), body].concat()
}

fn longs(kind: u32, words: &[u64]) -> Vec<u8> {
    record(kind, 0, &words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>())
}

#[cfg(target_endian = "little")]
#[test]
fn records_that_perf_wrote() {
    // The bytes come from `perf stat record -- true`.
    let map = [
        0x49, 0, 0, 0, 0, 0, 0x28, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xd4, 0x54, 0, 0, 0, 0, 0, 0, b'a', 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(ThreadMap::parse(&map), Some(ThreadMap { threads: vec![(21716, b"a".to_vec())] }));
    let any = [0x4a, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 1, 0, 0xff, 0xff, 0, 0];
    assert_eq!(CpuMap::parse(&any), Some(CpuMap { cpus: vec![-1] }));
    let stat = [
        0x4c, 0, 0, 0, 0, 0, 0x30, 0, 0x79, 0x1a, 0xb0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xb6, 0xf4,
        9, 0, 0, 0, 0, 0, 0xb7, 0xf4, 9, 0, 0, 0, 0, 0, 0xb8, 0xf4, 9, 0, 0, 0, 0, 0,
    ];
    let parsed = Stat { id: 11_541_113, cpu: -1, thread: 0, val: 652_470, ena: 652_471, run: 652_472 };
    assert_eq!(Stat::parse(&stat), Some(parsed));
    let config = longs(PERF_RECORD_STAT_CONFIG, &[3, 0, 1, 1, 0, 2, 1]);
    assert_eq!(StatConfig::parse(&config), Some(StatConfig::default()));
    for cut in 0..48 {
        let cut = [ThreadMap::parse(&map[..cut.min(39)]).is_none(), Stat::parse(&stat[..cut]).is_none()];
        assert_eq!(cut, [true; 2]);
    }
}

#[test]
fn settings_and_rounds() {
    let config = |words: &[u64]| StatConfig::parse(&longs(PERF_RECORD_STAT_CONFIG, words));
    let per_thread = StatConfig { aggregation: Aggregation::Other(5), interval: 100, scale: Scaling::Off };
    assert_eq!(config(&[4, 0, 5, 1, 100, 2, 0, 77, 1]), Some(per_thread));
    assert_eq!(config(&[4, 0, 5, 1, 100]), None);
    let round = |words: &[u64]| StatRound::parse(&longs(PERF_RECORD_STAT_ROUND, words));
    assert_eq!(round(&[0, 9]), Some(StatRound { kind: RoundKind::Interval, time: 9 }));
    assert_eq!(round(&[1, 9]), Some(StatRound { kind: RoundKind::Final, time: 9 }));
    assert_eq!(round(&[1]), None);
}

#[test]
fn cpus_are_a_list_a_mask_or_a_range() {
    let map = |parts: &[&[u8]]| CpuMap::parse(&record(PERF_RECORD_CPU_MAP, 0, &parts.concat())).map(|map| map.cpus);
    let half = |number: u16| number.to_ne_bytes();
    assert_eq!(map(&[&half(0), &half(2), &half(0), &half(7)]), Some(vec![0, 7]));
    let [one, two, four, eight] = [1u16, 2, 4, 8].map(half);
    assert_eq!(map(&[&one, &two, &four, &5u32.to_ne_bytes(), &2u32.to_ne_bytes()]), Some(vec![0, 2, 33]));
    let wide = [&one, &two, &eight, &[0; 4][..], &(1u64 << 40).to_ne_bytes(), &3u64.to_ne_bytes()];
    assert_eq!(map(&wide), Some(vec![40, 64, 65]));
    assert_eq!(map(&[&two, &[1, 0], &half(3), &half(5)]), Some(vec![-1, 3, 4, 5]));
    assert_eq!(map(&[&two, &[0, 0], &half(5), &half(3)]), Some(Vec::new()));
    assert_eq!((map(&[&half(3), &half(0)]), map(&[&half(0), &half(2), &half(0)])), (None, None));
    // Words of a mask have no other size than 4 or 8 bytes. The number of a CPU must not overflow.
    for size in [0, 2, u16::MAX] {
        assert_eq!(map(&[&one, &half(9000), &half(size), &[0xff; 36_000]]), None);
    }
    let own = [&3u64.to_ne_bytes()[..], &60u64.to_ne_bytes(), &half(0), &half(1), &half(4)].concat();
    let parsed = EventCpus::parse(&record(PERF_RECORD_EVENT_UPDATE, 0, &own));
    assert_eq!(parsed, Some(EventCpus { id: 60, cpus: CpuMap { cpus: vec![4] } }));
    let name = [&2u64.to_ne_bytes()[..], &60u64.to_ne_bytes(), b"cycles\0\0"].concat();
    assert_eq!(EventCpus::parse(&record(PERF_RECORD_EVENT_UPDATE, 0, &name)), None);
}

#[test]
fn errors_of_aux_decoding_in_all_formats() {
    let bytes = |format: u32, rest: &[&[u8]]| {
        let head = [1, 5, 1, 1234, 1235, format].map(u32::to_ne_bytes).concat();
        record(PERF_RECORD_AUXTRACE_ERROR, 2, &[&head, &rest.concat()[..]].concat())
    };
    let mut text = [0; 64];
    text[..10].copy_from_slice(b"Lost trace");
    let (ip, time) = (0x40_1000u64.to_ne_bytes(), 77_777u64.to_ne_bytes());
    let newest = AuxtraceError {
        kind: 1,
        code: 5,
        cpu: 1,
        pid: 1234,
        tid: 1235,
        ip: 0x40_1000,
        time: 77_777,
        message: b"Lost trace".to_vec(),
        cpumode: 2,
        machine_pid: 99,
        vcpu: 3,
    };
    let guest = [99u32, 3].map(u32::to_ne_bytes).concat();
    assert_eq!(AuxtraceError::parse(&bytes(2, &[&ip, &time, &text, &guest])), Some(newest.clone()));
    let of_host = AuxtraceError { machine_pid: 0, vcpu: -1, ..newest };
    assert_eq!(AuxtraceError::parse(&bytes(1, &[&ip, &time, &text])), Some(of_host.clone()));
    assert_eq!(AuxtraceError::parse(&bytes(0, &[&ip, &text])), Some(AuxtraceError { time: 0, ..of_host }));
    assert_eq!(AuxtraceError::parse(&bytes(2, &[&ip, &time, &text])), None);
}

proptest! {
    #[test]
    fn bytes_of_any_content_never_panic(
        kind in prop_oneof![72u32..79, any::<u32>()],
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        swapped: bool,
    ) {
        if let Some(head) = bytes.first_chunk_mut::<4>() {
            *head = kind.to_ne_bytes();
        }
        if swapped {
            let layouts = crate::Layouts::new(&[crate::AttrIds::default()]);
            super::super::swap::record(&mut bytes, ByteOrder::Foreign, &layouts);
        }
        let _ = (StatConfig::parse(&bytes), Stat::parse(&bytes), StatRound::parse(&bytes), ThreadMap::parse(&bytes));
        let _ = (CpuMap::parse(&bytes), EventCpus::parse(&bytes), AuxtraceError::parse(&bytes));
        let _ = (perf_prof_format::record::Throttle::parse(&bytes, None), perf_prof_format::record::Switch::parse(&bytes, None));
    }
}

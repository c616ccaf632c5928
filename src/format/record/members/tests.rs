//! Tests with samples that are written member by member, in the order of `perf_output_sample()`.

use proptest::prelude::*;

use super::*;
use crate::record::SampleFormat;

/// Returns a sample with any subset of the members, each with distinct values. The test states the kernel's order of
/// the members itself, independently of the code under test.
fn sample(format: &SampleFormat, regs_abi: u64, stack: &[u8], group: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let has = |bits: u64| format.sample_type & bits != 0;
    let mut put = |words: &[u64]| words.iter().for_each(|word| out.extend(word.to_ne_bytes()));
    let fixed = [
        (PERF_SAMPLE_IDENTIFIER, 1),
        (PERF_SAMPLE_IP, 2),
        (PERF_SAMPLE_TID, u64::from_ne_bytes([30, 0, 0, 0, 31, 0, 0, 0])),
        (PERF_SAMPLE_TIME, 4),
        (PERF_SAMPLE_ADDR, 5),
        (PERF_SAMPLE_ID, 6),
        (PERF_SAMPLE_STREAM_ID, 7),
        (PERF_SAMPLE_CPU, u64::from_ne_bytes([8, 0, 0, 0, 0xff, 0xff, 0xff, 0xff])),
        (PERF_SAMPLE_PERIOD, 9),
    ];
    fixed.into_iter().filter(|&(bit, _)| has(bit)).for_each(|(_, value)| put(&[value]));
    if has(PERF_SAMPLE_READ) {
        let reads = |bit: u64| format.read_format & bit != 0;
        let times = [(PERF_FORMAT_TOTAL_TIME_ENABLED, 11), (PERF_FORMAT_TOTAL_TIME_RUNNING, 12)];
        let own = |value: u64| [(PERF_FORMAT_ID, value + 1), (PERF_FORMAT_LOST, value + 2)];
        if reads(PERF_FORMAT_GROUP) {
            put(&[group]);
            times.into_iter().filter(|&(bit, _)| reads(bit)).for_each(|(_, word)| put(&[word]));
            for value in (0..group).map(|member| 100 * member) {
                put(&[value]);
                own(value).into_iter().filter(|&(bit, _)| reads(bit)).for_each(|(_, word)| put(&[word]));
            }
        } else {
            put(&[10]);
            times.into_iter().filter(|&(bit, _)| reads(bit)).for_each(|(_, word)| put(&[word]));
            own(10).into_iter().filter(|&(bit, _)| reads(bit)).for_each(|(_, word)| put(&[word]));
        }
    }
    if has(PERF_SAMPLE_CALLCHAIN) {
        put(&[2, 20, 21]);
    }
    if has(PERF_SAMPLE_RAW) {
        out.extend(12u32.to_ne_bytes());
        out.extend([7; 12]);
    }
    let mut put = |words: &[u64]| words.iter().for_each(|word| out.extend(word.to_ne_bytes()));
    if has(PERF_SAMPLE_BRANCH_STACK) {
        put(&[2]);
        if format.branch_sample_type & PERF_SAMPLE_BRANCH_HW_INDEX != 0 {
            put(&[40]);
        }
        put(&[41, 42, 43, 44, 45, 46]);
        if format.branch_sample_type & PERF_SAMPLE_BRANCH_COUNTERS != 0 {
            put(&[47, 48]);
        }
    }
    if has(PERF_SAMPLE_REGS_USER) {
        put(&[regs_abi]);
        (0..64).filter(|bit| regs_abi != 0 && format.regs_user >> bit & 1 != 0).for_each(|bit| put(&[1000 + bit]));
    }
    if has(PERF_SAMPLE_STACK_USER) {
        put(&[stack.len() as u64]);
        if !stack.is_empty() {
            out.extend(stack);
            out.extend((stack.len() as u64 / 2).to_ne_bytes());
        }
    }
    let mut put = |words: &[u64]| words.iter().for_each(|word| out.extend(word.to_ne_bytes()));
    let single = [(WEIGHT, 50), (PERF_SAMPLE_DATA_SRC, 51), (PERF_SAMPLE_TRANSACTION, 52)];
    single.into_iter().filter(|&(bits, _)| has(bits)).for_each(|(_, value)| put(&[value]));
    if has(PERF_SAMPLE_REGS_INTR) {
        put(&[regs_abi]);
        (0..64).filter(|bit| regs_abi != 0 && format.regs_intr >> bit & 1 != 0).for_each(|bit| put(&[2000 + bit]));
    }
    let single = [
        (PERF_SAMPLE_PHYS_ADDR, 60),
        (PERF_SAMPLE_CGROUP, 61),
        (PERF_SAMPLE_DATA_PAGE_SIZE, 62),
        (PERF_SAMPLE_CODE_PAGE_SIZE, 63),
    ];
    single.into_iter().filter(|&(bits, _)| has(bits)).for_each(|(_, value)| put(&[value]));
    if has(PERF_SAMPLE_AUX) {
        put(&[8, 70]);
    }
    let mut record = PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
    record.extend([0, 0]);
    record.extend((8 + out.len() as u16).to_ne_bytes());
    record.extend(out);
    record
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Checks that the layout reads what `sample` wrote.
fn check(format: SampleFormat, regs_abi: u64, stack: &[u8], group: u64) {
    let record = sample(&format, regs_abi, stack, group);
    let layout = SampleLayout::from_format(format);
    let aux = bytes(&[8, 70]);
    let user_stack = [&bytes(&[stack.len() as u64]), stack].concat();
    let int = |value| Some(Value::Uint(value));
    for member in ALL.map(|row| row.0) {
        let expected = match member {
            Identifier => int(1),
            Ip => int(2),
            Pid => Some(Value::Int(30)),
            Tid => Some(Value::Int(31)),
            Time => int(4),
            Addr => int(5),
            Id => int(6),
            StreamId => int(7),
            Cpu => int(8),
            Period => int(9),
            Raw => Some(Value::Bytes(&[7; 12])),
            StackUser => Some(Value::Bytes(&user_stack)),
            Weight => int(50),
            DataSrc => int(51),
            Transaction => int(52),
            PhysAddr => int(60),
            Cgroup => int(61),
            DataPageSize => int(62),
            CodePageSize => int(63),
            Aux => Some(Value::Bytes(&aux)),
            Callchain | Read | BranchStack | RegsUser | RegsIntr => None,
        };
        let expected = match member {
            Period if format.sample_type & PERF_SAMPLE_PERIOD == 0 => int(format.period),
            _ => expected.filter(|_| format.sample_type & member.bits() != 0),
        };
        assert_eq!(layout.value(member, &record), expected, "{member:?} of {format:x?}");
    }
    let has = |bits: u64| format.sample_type & bits != 0;
    let chain = bytes(&[20, 21]);
    assert_eq!(layout.callchain(&record), has(PERF_SAMPLE_CALLCHAIN).then_some(&chain[..]));
    assert_eq!(layout.stack_user(&record), has(PERF_SAMPLE_STACK_USER).then_some(&stack[..stack.len() / 2]));
    for (bit, mask, base, registers) in [
        (PERF_SAMPLE_REGS_USER, format.regs_user, 1000, layout.regs_user(&record)),
        (PERF_SAMPLE_REGS_INTR, format.regs_intr, 2000, layout.regs_intr(&record)),
    ] {
        assert_eq!(registers.is_some(), has(bit));
        let Some(registers) = registers else { continue };
        assert_eq!(registers.abi, RegsAbi::from(regs_abi));
        let expected =
            (0..64).filter(|bit| regs_abi != 0 && mask >> bit & 1 != 0).map(|bit| (bit, base + u64::from(bit)));
        assert!(registers.iter().eq(expected));
    }
    let reading = layout.reading(&record);
    assert_eq!(reading.is_some(), has(PERF_SAMPLE_READ));
    let Some(reading) = reading else { return };
    let reads = |bit: u64, word: u64| (format.read_format & bit != 0).then_some(word);
    let counter =
        |value: u64| Counter { value, id: reads(PERF_FORMAT_ID, value + 1), lost: reads(PERF_FORMAT_LOST, value + 2) };
    let counters = match reads(PERF_FORMAT_GROUP, group) {
        Some(group) => Counters::Group((0..group).map(|member| counter(100 * member)).collect()),
        None => Counters::One(counter(10)),
    };
    let time_enabled = reads(PERF_FORMAT_TOTAL_TIME_ENABLED, 11);
    let time_running = reads(PERF_FORMAT_TOTAL_TIME_RUNNING, 12);
    assert_eq!(reading, Reading { time_enabled, time_running, counters });
}

fn any_format() -> impl Strategy<Value = SampleFormat> {
    let all = (1u64 << 25) - 1;
    let formats = (any::<u64>(), 0u64..32, prop::bool::ANY, prop::bool::ANY, any::<u64>(), any::<u64>());
    formats.prop_map(move |(bits, read_format, hw_index, counters, regs_user, regs_intr)| SampleFormat {
        sample_type: bits & all,
        read_format,
        branch_sample_type: (PERF_SAMPLE_BRANCH_HW_INDEX * u64::from(hw_index))
            | (PERF_SAMPLE_BRANCH_COUNTERS * u64::from(counters)),
        regs_user,
        regs_intr,
        period: 4000,
    })
}

#[test]
fn all_members_at_once() {
    let format = SampleFormat {
        sample_type: (1 << 25) - 1,
        read_format: 31,
        branch_sample_type: PERF_SAMPLE_BRANCH_HW_INDEX | PERF_SAMPLE_BRANCH_COUNTERS,
        regs_user: ALL_REGISTERS,
        regs_intr: 1 << 3,
        period: 4000,
    };
    check(format, 2, &[5; 64], 3);
    check(SampleFormat { read_format: 0, branch_sample_type: 0, ..format }, 0, &[], 0);
}

/// `perf record -c N` stores the period once in the attr and not in each sample.
#[test]
fn samples_without_a_period_have_the_attrs_period() {
    let format = SampleFormat { sample_type: PERF_SAMPLE_TID, period: 10, ..SampleFormat::default() };
    let layout = SampleLayout::from_format(format);
    let record = sample(&format, 0, &[], 0);
    assert_eq!((layout.period(&record), layout.value(Period, &record)), (Some(10), Some(Value::Uint(10))));
    assert_eq!(layout.members().collect::<Vec<_>>(), [Pid, Tid, Period]);
}

#[test]
fn member_table_is_in_the_order_of_the_enum() {
    assert!(ALL.iter().enumerate().all(|(at, row)| row.0 as usize == at));
    assert_eq!(SampleMember::named("phys_addr"), Some(PhysAddr));
    let all = SampleMember::of_sample_type(!0).map(SampleMember::name).collect::<Vec<_>>().join(" ");
    assert_eq!(
        all,
        "identifier ip pid tid time addr id stream_id cpu period callchain raw read branch_stack regs_user stack_user \
         weight data_src transaction regs_intr phys_addr aux cgroup data_page_size code_page_size"
    );
}

proptest! {
    #[test]
    fn any_members_are_found_where_the_kernel_writes_them(
        format in any_format(), regs_abi in 0u64..3, stack in prop::sample::select(vec![0usize, 8, 64]), group in 0u64..4,
    ) {
        check(format, regs_abi, &vec![5; stack], group);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        format in any_format(), cut in 0usize..400, bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let layout = SampleLayout::from_format(format);
        let whole = sample(&format, 2, &[5; 16], 3);
        for record in [&bytes[..], &whole[..cut.min(whole.len())]] {
            for member in ALL.map(|row| row.0) {
                let _ = layout.value(member, record);
            }
            let _ = (layout.callchain(record), layout.raw(record), layout.stack_user(record), layout.reading(record));
            let _ = layout.regs_user(record).map(|registers| registers.iter().count());
            let _ = layout.regs_intr(record).map(|registers| registers.iter().count());
        }
    }
}

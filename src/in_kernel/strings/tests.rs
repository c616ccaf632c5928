//! Tests of the programs that write records with strings.

use std::sync::Arc;

use perf_prof_format::{
    tracefs::{ARGUMENTS, string_of_argument},
    value::Value,
};
use proptest::prelude::*;

use super::*;
use crate::{
    instruction::interpreter::Machine,
    lower::PidNamespace,
    select::tests::registers,
    table::tests::records::{event, shipped},
};

/// Returns the format of an event, with the strings of these fields.
fn with_strings(name: &str, fields: &[&str]) -> Arc<EventFormat> {
    let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
    Arc::new(shipped(name).with_strings(&fields).unwrap())
}

/// Runs the program for a call with these arguments. Returns the records that it writes.
fn written(
    format: &Arc<EventFormat>,
    filter: Option<&str>,
    arguments: &[u64],
    strings: &[(u64, &[u8])],
) -> Vec<Vec<u8>> {
    let filter = filter.map(|text| Filter::parse(text, format).unwrap());
    let code =
        string_code(&event(format), format, (filter.as_ref(), &Selection::EVERYTHING), KernelTypes::default()).unwrap();
    let mut machine = Machine::new((8, 8));
    machine.ids = (70, 71);
    machine.strings = strings.iter().map(|(address, text)| (*address, text.to_vec())).collect();
    // The kernel's pointer, the number of the call, and its arguments.
    let words = [0xffff_8880_1234_5678, 316].into_iter().chain(arguments.iter().copied());
    let record: Vec<u8> = words.flat_map(|word: u64| word.to_ne_bytes()).collect();
    assert_eq!(machine.run(&code, &record), 1);
    machine.written
}

fn value<'a>(format: &EventFormat, record: &'a [u8], field: &str) -> Option<Value<'a>> {
    format.field(field).unwrap().value(record)
}

#[test]
fn a_record_has_the_fields_of_the_tracepoint_and_the_strings() {
    let format = with_strings("syscalls:sys_enter_renameat2", &["oldname", "newname"]);
    let strings: [(u64, &[u8]); 2] = [(0x7000, b"/old"), (0x8000, b"")];
    let records = written(&format, None, &[3, 0x7000, 4, 0x8000, 5], &strings);
    let [record] = records.as_slice() else { panic!("{records:?}") };
    let number = |field| match value(&format, record, field) {
        Some(Value::Int(number)) => number,
        Some(Value::Uint(number)) => number as i64,
        other => panic!("{other:?}"),
    };
    let fields = ["common_type", "common_flags", "common_pid", "__syscall_nr", "olddfd", "oldname", "newdfd", "flags"];
    assert_eq!(fields.map(number), [format.id.into(), 0, 71, 316, 3, 0x7000, 4, 5]);
    assert_eq!(value(&format, record, "oldname_str"), Some(Value::Str(b"/old")));
    assert_eq!(value(&format, record, "newname_str"), Some(Value::Str(b"")));
}

#[test]
fn the_flags_of_a_record_say_in_which_interrupt_it_was_written() {
    let format = with_strings("syscalls:sys_enter_openat", &["filename"]);
    let types = KernelTypes { registers: registers(0x1b20, 4 * 0xa8), ..KernelTypes::default() };
    let code = string_code(&event(&format), &format, (None, &Selection::EVERYTHING), types).unwrap();
    let flags = |context: u64| {
        let mut machine = Machine::new((8, 8));
        let words = [0xffff_8881_2340_1b20 + 0xa8 * context, 257, 3, 0, 0, 0];
        machine.run(&code, &words.map(u64::to_ne_bytes).concat());
        let common_flags = format.common_fields().iter().find(|field| field.name == "common_flags").unwrap();
        machine.written[0][common_flags.offset]
    };
    assert_eq!([0, 1, 2, 3].map(flags), [0, 0x10, 0x08, 0x40]);
}

#[test]
fn a_string_that_cannot_be_read_is_absent_and_does_not_move_the_next_one() {
    let format = with_strings("syscalls:sys_enter_renameat2", &["oldname", "newname"]);
    let records = written(&format, None, &[3, 0x7000, 4, 0x8000, 5], &[(0x8000, b"/new")]);
    assert_eq!(value(&format, &records[0], "oldname_str"), None);
    assert_eq!(value(&format, &records[0], "newname_str"), Some(Value::Str(b"/new")));
}

#[test]
fn events_that_do_not_pass_the_filter_are_not_written() {
    let format = with_strings("syscalls:sys_enter_openat", &["filename"]);
    let count = |flags| written(&format, Some("flags & 64"), &[3, 0x7000, flags, 0], &[(0x7000, b"/a")]).len();
    assert_eq!([count(64), count(65), count(1)], [1, 1, 0]);
}

proptest! {
    #[test]
    fn a_long_string_is_cut_off_and_marked(length in 0usize..600) {
        let format = with_strings("syscalls:sys_enter_openat", &["filename"]);
        let text = vec![b'x'; length];
        let records = written(&format, None, &[3, 0x7000, 0, 0], &[(0x7000, &text)]);
        let is_cut = length >= LONGEST_STRING;
        let expected = if is_cut { [&text[..LONGEST_STRING - 4], b"..."].concat() } else { text.clone() };
        prop_assert_eq!(value(&format, &records[0], "filename_str"), Some(Value::Str(&expected)));
        prop_assert_eq!(value(&format, &records[0], "filename_cut"), Some(Value::Bool(is_cut)));
    }
}

#[test]
fn what_programs_cannot_compare_is_refused() {
    let format = with_strings("syscalls:sys_enter_openat", &["filename"]);
    let filter = Filter::parse("filename_str ~ \"/etc/*\"", &format).unwrap();
    let refused =
        string_program(&event(&format), Some(&filter), &Selection::EVERYTHING, KernelTypes::default()).unwrap_err();
    assert_eq!(refused, Unsuited::Length("filename_str".to_owned()));
    let selection =
        Selection { tasks: Some(crate::select::TaskIds::Processes), ids: PidNamespace::Other, ..Selection::EVERYTHING };
    assert_eq!(
        string_program(&event(&format), None, &selection, KernelTypes::default()).unwrap_err(),
        Unsuited::PidNamespace
    );
}

/// Runs the program of the begin of a call, and then the program of its end. Returns the strings that each program reads.
/// `strings` contains the strings that can be read at the begin, and those that can be read at the end.
fn call(number: u64, arguments: [u64; 6], strings: [&[(u64, &[u8])]; 2]) -> [Vec<Option<Vec<u8>>>; 2] {
    let mut machine = Machine::new((8, 8));
    machine.open = crate::instruction::interpreter::Hash::new((8, UNREAD_BYTES));
    machine.ids = (70, 71);
    // renameat2(): the second and the fourth argument are strings.
    machine.arguments.insert(316, 0b1010);
    let begin = [&[0, number][..], &arguments].concat();
    let events = [("raw_syscalls:sys_enter", begin), ("raw_syscalls:sys_exit", vec![0, number, 0])];
    let read = events.into_iter().zip(strings).map(|((name, words), strings)| {
        let format = with_strings(name, &[ARGUMENTS]);
        let code =
            string_code(&event(&format), &format, (None, &Selection::EVERYTHING), KernelTypes::default()).unwrap();
        machine.strings = strings.iter().map(|(address, text)| (*address, text.to_vec())).collect();
        let record: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
        assert_eq!(machine.run(&code, &record), 1);
        let record = machine.written.pop().unwrap();
        let text = |at| match value(&format, &record, string_of_argument(at)) {
            Some(Value::Str(text)) => Some(text.to_vec()),
            _ => None,
        };
        (0..6).map(text).collect()
    });
    let read: Vec<_> = read.collect();
    assert_eq!(machine.open.len(), 0);
    read.try_into().unwrap()
}

#[test]
fn of_any_call_the_arguments_that_are_strings_are_read() {
    let strings: &[(u64, &[u8])] = &[(0x7000, b"/old"), (0x8000, b"/new"), (3, b"no string")];
    let [begin, end] = call(316, [3, 0x7000, 3, 0x8000, 0x7000, 0], [strings, strings]);
    let texts =
        |begin: &[Option<Vec<u8>>]| begin.iter().map(|text| text.as_deref().map(<[u8]>::to_vec)).collect::<Vec<_>>();
    assert_eq!(texts(&begin), [None, Some(b"/old".to_vec()), None, Some(b"/new".to_vec()), None, None]);
    assert_eq!(end, vec![None; 6]);
    // Other calls have no strings, whatever their arguments are.
    assert_eq!(call(1, [0x7000; 6], [strings, strings]), [vec![None; 6], vec![None; 6]]);
    assert_eq!(call(u64::MAX, [0x7000; 6], [strings, strings]), [vec![None; 6], vec![None; 6]]);
}

/// When the call begins, the page of the string may not be in memory.
#[test]
fn a_string_that_cannot_be_read_when_the_call_begins_is_read_when_it_ends() {
    let (old, new) = ((0x7000, b"/old".as_slice()), (0x8000, b"/new".as_slice()));
    let [begin, end] = call(316, [3, 0x7000, 4, 0x8000, 0, 0], [&[new], &[old, new]]);
    assert_eq!((begin[1].as_deref(), begin[3].as_deref()), (None, Some(b"/new".as_slice())));
    assert_eq!((end[1].as_deref(), end[3].as_deref()), (Some(b"/old".as_slice()), None));
}

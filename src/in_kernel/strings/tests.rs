//! Tests of the programs that write records with strings.

use std::sync::Arc;

use perf_prof_format::value::Value;
use proptest::prelude::*;

use super::*;
use crate::{
    instruction::interpreter::Machine,
    lower::PidNamespace,
    table::tests::records::{event, shipped},
};

/// The format of an event with the strings of these fields.
fn with_strings(name: &str, fields: &[&str]) -> Arc<EventFormat> {
    let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
    Arc::new(shipped(name).with_strings(&fields).unwrap())
}

/// Runs the program for a call with these arguments and returns the records that it writes.
fn written(
    format: &Arc<EventFormat>,
    filter: Option<&str>,
    arguments: &[u64],
    strings: &[(u64, &[u8])],
) -> Vec<Vec<u8>> {
    let filter = filter.map(|text| Filter::parse(text, format).unwrap());
    let code = string_code(&event(format), format, filter.as_ref(), &Selection::EVERYTHING).unwrap();
    let mut machine = Machine::new((8, 8));
    machine.ids = (70, 71);
    machine.strings = strings.iter().map(|(address, text)| (*address, text.to_vec())).collect();
    // The kernel's pointer, the number of the call, its arguments.
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
    let refused = string_program(&event(&format), Some(&filter), &Selection::EVERYTHING).unwrap_err();
    assert_eq!(refused, Unsuited::Length("filename_str".to_owned()));
    let selection =
        Selection { tasks: Some(crate::select::TaskIds::Processes), ids: PidNamespace::Other, ..Selection::EVERYTHING };
    assert_eq!(string_program(&event(&format), None, &selection).unwrap_err(), Unsuited::PidNamespace);
}

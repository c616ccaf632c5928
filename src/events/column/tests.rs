//! Tests of columns. The records are generated from the formats of all tracepoints of a kernel.

use std::{collections::HashMap, sync::Arc};

use arrow_array::{
    Array, ArrayRef, RecordBatch, StringArray,
    cast::AsArray,
    types::{
        Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type, UInt16Type,
        UInt32Type, UInt64Type,
    },
};
use arrow_schema::DataType;
use perf_prof_format::{
    abi::{
        PERF_CONTEXT_USER, PERF_RECORD_SAMPLE, PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_CPU, PERF_SAMPLE_RAW,
        PERF_SAMPLE_TID, PERF_SAMPLE_TIME,
    },
    record::SampleLayout,
    tracefs::{EventFormat, FormatCollection, NoKernel},
    value::Value,
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use super::*;
use crate::event::{Context, EventType, Format};

const FORMATS: &[u8] = include_bytes!("../../python/testing/linux-6.18-x86_64.zst");

const MEMBERS: u64 = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;

fn event(format: EventFormat, members: u64) -> EventType {
    let layout = SampleLayout::new(MEMBERS | members, 0);
    EventType { alias: None, format: Format::Tracepoint(Arc::new(format)), layout, max_stack: None }
}

fn record(chain: Option<&[u64]>, raw: &[u8]) -> Vec<u8> {
    let mut record = PERF_RECORD_SAMPLE.to_ne_bytes().to_vec();
    record.extend([0; 4]);
    record.extend([5i32, 6].map(i32::to_ne_bytes).concat());
    record.extend(1000u64.to_ne_bytes());
    record.extend(3u64.to_ne_bytes());
    if let Some(chain) = chain {
        record.extend((chain.len() as u64).to_ne_bytes());
        chain.iter().for_each(|address| record.extend(address.to_ne_bytes()));
    }
    record.extend((raw.len() as u32).to_ne_bytes());
    record.extend(raw);
    record
}

fn batch(columns: Option<&[&str]>, types: &[EventType], rows: &[(usize, Vec<u8>)]) -> RecordBatch {
    let names: Option<Vec<String>> = columns.map(|names| names.iter().map(|&name| name.to_owned()).collect());
    let plan = Plan::new(names.as_deref(), types, &[]).unwrap();
    let mut columns = Columns::new(plan, BatchLimit { rows: rows.len(), bytes: usize::MAX });
    let rows: Vec<Row<'_>> = rows.iter().map(|(event, record)| Row { event: *event, record }).collect();
    columns.append(&rows, &Context::new(Box::new(NoKernel), 1_000_000)).unwrap();
    columns.take().unwrap()
}

/// A value of an Arrow array, whatever type the array has.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown {
    Null,
    Number(i128),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Shown>),
}

fn shown(array: &ArrayRef, row: usize) -> Shown {
    if array.is_null(row) {
        return Shown::Null;
    }
    let number = |number: i128| Shown::Number(number);
    match array.data_type() {
        DataType::Boolean => number(array.as_boolean().value(row).into()),
        DataType::Int8 => number(array.as_primitive::<Int8Type>().value(row).into()),
        DataType::UInt8 => number(array.as_primitive::<UInt8Type>().value(row).into()),
        DataType::Int16 => number(array.as_primitive::<Int16Type>().value(row).into()),
        DataType::UInt16 => number(array.as_primitive::<UInt16Type>().value(row).into()),
        DataType::Int32 => number(array.as_primitive::<Int32Type>().value(row).into()),
        DataType::UInt32 => number(array.as_primitive::<UInt32Type>().value(row).into()),
        DataType::Int64 => number(array.as_primitive::<Int64Type>().value(row).into()),
        DataType::UInt64 => number(array.as_primitive::<UInt64Type>().value(row).into()),
        DataType::Decimal128(..) => number(array.as_primitive::<Decimal128Type>().value(row)),
        DataType::Timestamp(..) => number(array.as_primitive::<TimestampNanosecondType>().value(row).into()),
        DataType::Binary => Shown::Bytes(array.as_binary::<i32>().value(row).to_vec()),
        DataType::List(_) => {
            let list = array.as_list::<i32>().value(row);
            Shown::List((0..list.len()).map(|at| shown(&list, at)).collect())
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_dictionary::<Int32Type>();
            let values: &StringArray = dictionary.values().as_string();
            Shown::Text(values.value(dictionary.keys().value(row) as usize).to_owned())
        }
        other => panic!("{other} is no type of a column"),
    }
}

fn column(batch: &RecordBatch, name: &str) -> Vec<Shown> {
    let array = batch.column_by_name(name).unwrap();
    (0..array.len()).map(|row| shown(array, row)).collect()
}

/// Returns the value of a field as event objects show it. Event objects do not use the code under test.
fn expected(event: &EventType, name: &str, raw: &[u8]) -> Shown {
    let field = event.format.tracepoint().unwrap().field(name).unwrap();
    let one = |value| match value {
        Value::Bool(on) => Shown::Number(on.into()),
        Value::Int(number) => Shown::Number(number.into()),
        Value::Uint(number) => Shown::Number(number.into()),
        Value::Str(text) => Shown::Text(String::from_utf8_lossy(text).into_owned()),
        Value::Bytes(bytes) | Value::Words(bytes) => Shown::Bytes(bytes.to_vec()),
    };
    match field.array(raw) {
        Some(array) => Shown::List(array.map(one).collect()),
        None => field.value(raw).map_or(Shown::Null, one),
    }
}

#[test]
fn columns_of_all_tracepoints_have_the_values_of_their_fields() {
    let formats = FormatCollection::from_zstd(FORMATS).unwrap();
    let mut events = 0;
    let mut runner = TestRunner::deterministic();
    for (system, name) in formats.events() {
        let types = [0, PERF_SAMPLE_CALLCHAIN].map(|members| {
            let text = formats.text(system, name).unwrap();
            event(EventFormat::parse(system, text).unwrap(), members)
        });
        let format = types[0].format.tracepoint().unwrap();
        let fields: Vec<String> =
            format.common_fields().iter().chain(format.fields()).map(|field| field.name.clone()).collect();
        let size = format.fields().iter().map(|field| field.offset + field.size).max().unwrap_or(8);
        // The first record has all fields. The second record can end at any byte. The third record ends before its
        // first field does.
        let bytes = |sizes| prop::collection::vec(any::<u8>(), sizes);
        let raws = (bytes(size..size + 24), bytes(0..size + 24), bytes(0..9));
        let raws = raws.new_tree(&mut runner).unwrap().current();
        let mut raws = [raws.0, raws.1, raws.2];
        // Dynamic arrays (`__data_loc`) get a valid place in the data.
        for field in format.fields().iter().filter(|field| field.type_text.contains("__data_loc")) {
            if let Some(place) = raws[0].get_mut(field.offset..field.offset + 4) {
                place.copy_from_slice(&(9u32 << 16 | 3).to_ne_bytes());
            }
        }
        let rows: Vec<(usize, Vec<u8>)> = raws
            .iter()
            .enumerate()
            .map(|(row, raw)| (row % 2, record((row % 2 == 1).then_some(&[1, 2]), raw)))
            .collect();
        let names: Vec<&str> = fields.iter().map(String::as_str).collect();
        let batch = batch(Some(&names), &types, &rows);
        for field in &names {
            let expected: Vec<Shown> = raws.iter().map(|raw| expected(&types[0], field, raw)).collect();
            assert_eq!(column(&batch, field), expected, "{system}:{name}: {field}, {raws:?}");
        }
        events += 1;
    }
    assert!(events > 2_000, "{events}");
}

/// Returns the value as a column of type `ty` holds it. The type was chosen to fit the values of several events.
fn fitted(value: Shown, ty: &DataType) -> Shown {
    let number = |value: &Shown| match value {
        Shown::Number(number) => number.to_string(),
        other => panic!("{other:?} is no number"),
    };
    match (ty, value) {
        (DataType::Dictionary(..), Shown::Number(number)) => text(&number.to_string()),
        (DataType::Dictionary(..), Shown::List(list)) => text(&list.iter().map(number).collect::<Vec<_>>().join(" ")),
        (DataType::Dictionary(..), Shown::Bytes(bytes)) => {
            text(&bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
        (_, value) => value,
    }
}

#[test]
fn columns_of_all_tracepoints_of_a_system_fit_all_of_them() {
    let formats = FormatCollection::from_zstd(FORMATS).unwrap();
    let mut runner = TestRunner::deterministic();
    let mut systems: HashMap<&str, Vec<EventType>> = HashMap::new();
    for (system, name) in formats.events() {
        let format = EventFormat::parse(system, formats.text(system, name).unwrap()).unwrap();
        systems.entry(system).or_default().push(event(format, 0));
    }
    let mut kinds = HashMap::new();
    for (system, types) in systems {
        let raw = |event: &EventType| {
            let fields = event.format.tracepoint().unwrap().fields();
            let size = fields.iter().map(|field| field.offset + field.size).max().unwrap_or(8);
            prop::collection::vec(any::<u8>(), size).new_tree(&mut runner).unwrap().current()
        };
        let raws: Vec<Vec<u8>> = types.iter().map(raw).collect();
        let rows: Vec<(usize, Vec<u8>)> = raws.iter().map(|raw| record(None, raw)).enumerate().collect();
        let batch = batch(None, &types, &rows);
        for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()).skip(6) {
            *kinds.entry(field.data_type().to_string()).or_insert(0) += 1;
            for (row, event) in types.iter().enumerate() {
                let has_it = event.format.tracepoint().unwrap().field(field.name()).is_some();
                let expected = if has_it { expected(event, field.name(), &raws[row]) } else { Shown::Null };
                let expected = fitted(expected, field.data_type());
                assert_eq!(shown(array, row), expected, "{system}: {} of {}", field.name(), event.real_name());
            }
        }
    }
    assert!(kinds.len() >= 10, "{kinds:?}");
}

const SIGNED: &str = "name: signed
ID: 7
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:char comm[16];	offset:8;	size:16;	signed:0;
	field:long size;	offset:24;	size:8;	signed:1;
	field:short code;	offset:32;	size:2;	signed:1;
	field:bool is_on;	offset:34;	size:1;	signed:0;
	field:int what;	offset:36;	size:4;	signed:1;

print fmt: \"\"
";
const UNSIGNED: &str = "name: unsigned
ID: 8
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:unsigned long size;	offset:8;	size:8;	signed:0;
	field:u8 code;	offset:16;	size:1;	signed:0;
	field:char what[4];	offset:20;	size:4;	signed:0;

print fmt: \"\"
";

fn two_types() -> [EventType; 2] {
    [SIGNED, UNSIGNED].map(|text| event(EventFormat::parse("s", text).unwrap(), 0))
}

fn signed(comm: &[u8], size: i64, code: i16, what: i32) -> (usize, Vec<u8>) {
    let mut raw = vec![7, 0, 0, 0, 1, 0, 0, 0];
    raw.extend(comm);
    raw.resize(24, 0);
    raw.extend(size.to_ne_bytes());
    raw.extend(code.to_ne_bytes());
    raw.extend([1, 0]);
    raw.extend(what.to_ne_bytes());
    (0, record(None, &raw))
}

fn unsigned(size: u64, code: u8, what: &[u8; 4]) -> (usize, Vec<u8>) {
    let mut raw = vec![8, 0, 0, 0, 1, 0, 0, 0];
    raw.extend(size.to_ne_bytes());
    raw.extend([code, 0, 0, 0]);
    raw.extend(what);
    (1, record(None, &raw))
}

fn texts(batch: &RecordBatch, name: &str) -> Vec<Shown> {
    column(batch, name)
}

fn text(text: &str) -> Shown {
    Shown::Text(text.to_owned())
}

#[test]
fn columns_of_two_event_types_have_a_type_that_fits_both() {
    let rows = [signed(b"make", -5, -2, 17), unsigned(u64::MAX, 255, b"ab\0\0"), signed(b"cc1", 1, 3, -1)];
    let batch = batch(None, &two_types(), &rows);
    let names: Vec<&str> = batch.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    let first = ["_event", "_time", "_cpu", "_pid", "_tid", "_comm"];
    assert_eq!(names, [&first[..], &["comm", "size", "code", "is_on", "what"]].concat());
    let numbers = |numbers: &[i128]| numbers.iter().map(|&number| Shown::Number(number)).collect::<Vec<_>>();
    assert_eq!(texts(&batch, "_event"), ["s:signed", "s:unsigned", "s:signed"].map(text));
    assert_eq!(column(&batch, "_time"), numbers(&[1000; 3]));
    assert_eq!(column(&batch, "_tid"), numbers(&[6; 3]));
    assert_eq!(column(&batch, "_cpu"), numbers(&[3; 3]));
    assert_eq!(column(&batch, "size"), numbers(&[-5, u64::MAX.into(), 1]));
    assert_eq!(column(&batch, "code"), numbers(&[-2, 255, 3]));
    assert_eq!(column(&batch, "is_on"), [Shown::Number(1), Shown::Null, Shown::Number(1)]);
    assert_eq!(texts(&batch, "what"), ["17", "ab", "-1"].map(text));
    assert_eq!(column(&batch, "comm"), [text("make"), Shown::Null, text("cc1")]);
    let types: Vec<&DataType> = ["_time", "_cpu", "_pid", "size", "code", "is_on"]
        .map(|name| batch.schema_ref().field_with_name(name).unwrap().data_type())
        .into();
    let expected = [
        DataType::Int64,
        DataType::UInt32,
        DataType::Int32,
        DataType::Decimal128(20, 0),
        DataType::Int16,
        DataType::Boolean,
    ];
    assert_eq!(types, expected.iter().collect::<Vec<_>>());
}

#[test]
fn bytes_that_are_no_utf8_are_in_a_column_of_their_own() {
    let rows = [signed(b"a\xff", 0, 0, 0), signed(b"a\xfe", 0, 0, 0), signed(b"b", 0, 0, 0)];
    let batch = batch(Some(&["comm", "comm_raw", "_realtime"]), &two_types(), &rows);
    assert_eq!(texts(&batch, "comm"), ["a\u{fffd}", "a\u{fffd}", "b"].map(text));
    assert_eq!(batch.column(0).as_dictionary::<Int32Type>().values().len(), 2);
    let bytes: Vec<Shown> = [&b"a\xff"[..], b"a\xfe", b"b"].map(|bytes| Shown::Bytes(bytes.to_vec())).into();
    assert_eq!(column(&batch, "comm_raw"), bytes);
    assert_eq!(column(&batch, "_realtime"), vec![Shown::Number(1_001_000); 3]);
}

#[test]
fn call_chains_are_addresses_and_folded_text() {
    let types = [
        event(EventFormat::parse("s", SIGNED).unwrap(), PERF_SAMPLE_CALLCHAIN),
        event(EventFormat::parse("s", UNSIGNED).unwrap(), 0),
    ];
    let raw = [0; 40];
    let rows = [
        (0, record(Some(&[PERF_CONTEXT_USER, 0x1000, 0x2000]), &raw)),
        (1, record(None, &raw)),
        (0, record(Some(&[]), &raw)),
    ];
    let batch = batch(Some(&["_callchain", "_stack"]), &types, &rows);
    let list = |addresses: &[i128]| Shown::List(addresses.iter().map(|&address| Shown::Number(address)).collect());
    assert_eq!(column(&batch, "_callchain"), [list(&[0x1000, 0x2000]), Shown::Null, list(&[])]);
    assert_eq!(column(&batch, "_stack"), [text("[unknown];[unknown]"), Shown::Null, text("")]);
}

#[test]
fn batches_after_the_first_have_only_their_own_rows() {
    let types = two_types();
    let names = ["comm", "size", "_comm"].map(str::to_owned);
    let mut columns =
        Columns::new(Plan::new(Some(&names), &types, &[]).unwrap(), BatchLimit { rows: 2, bytes: usize::MAX });
    let context = Context::new(Box::new(NoKernel), 0);
    for (comm, size) in [(b"one", 1), (b"two", 2)] {
        let (event, record) = signed(comm, size, 0, 0);
        columns.append(&[Row { event, record: &record }], &context).unwrap();
        assert_eq!(columns.len(), 1);
        let batch = columns.take().unwrap();
        assert!(columns.is_empty());
        assert_eq!(texts(&batch, "comm"), [text(std::str::from_utf8(comm).unwrap())]);
        assert_eq!(column(&batch, "size"), [Shown::Number(size.into())]);
    }
    assert_eq!(columns.take().unwrap().num_rows(), 0);
}

#[test]
fn names_that_no_event_has_are_errors() {
    let error = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        Plan::new(Some(&names), &two_types(), &[]).unwrap_err().to_string()
    };
    assert_eq!(error(&["is_onn"]), "no event has a field or member `is_onn`; did you mean `is_on`?");
    assert_eq!(error(&["size", "size"]), "the column `size` is named twice");
    assert_eq!(error(&["_stack"]), "no event has call chains for `_stack`: record with -g, or write EVENT//stack/");
    assert_eq!(error(&["size_raw"]), "no event has a field or member `size_raw`");
}

#[test]
fn integers_that_a_record_lacks_are_null() {
    let types = two_types();
    let names = ["_time", "_tid", "code", "common_pid", "size"].map(str::to_owned);
    // The complete records are more than the buffer holds at a time. The other rows are a record of each type, cut off
    // at every possible length.
    let whole: Vec<(usize, Vec<u8>)> = (0..700).map(|at| signed(b"make", 1 << (at % 63), at, -1)).collect();
    let cut = |(event, record): (usize, Vec<u8>)| (8..=record.len()).map(move |end| (event, record[..end].to_vec()));
    let rows: Vec<(usize, Vec<u8>)> =
        [whole, cut(signed(b"make", -5, -2, 17)).collect(), cut(unsigned(u64::MAX, 255, b"ab\0\0")).collect()].concat();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let batch = batch(Some(&names), &types, &rows);
    // The header is followed by the ids, the time, the CPU and the raw data, which begins after its size.
    const RAW: usize = 8 + 3 * 8 + 4;
    let int = |record: &[u8], at: usize, size: usize, signed: bool| {
        let bytes = record.get(at..at + size)?;
        let is_negative = signed && bytes[size - 1] >= 0x80;
        let mut wide = [if is_negative { 0xff } else { 0 }; 16];
        wide[..size].copy_from_slice(bytes);
        Some(i128::from_le_bytes(wide))
    };
    for (name, places) in [
        ("_time", [(16, 8, true); 2]),
        ("_tid", [(12, 4, true); 2]),
        ("code", [(RAW + 32, 2, true), (RAW + 16, 1, false)]),
        ("common_pid", [(RAW + 4, 4, true); 2]),
        ("size", [(RAW + 24, 8, true), (RAW + 8, 8, false)]),
    ] {
        let expected: Vec<Shown> = rows
            .iter()
            .map(|(event, record)| {
                let (at, size, signed) = places[*event];
                int(record, at, size, signed).map_or(Shown::Null, Shown::Number)
            })
            .collect();
        assert_eq!(column(&batch, name), expected, "{name}");
    }
}

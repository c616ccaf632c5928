//! Tests of which declarations can be compiled, and why others cannot.

use std::sync::Arc;

use expect_test::{Expect, expect};
use perf_prof_events::aggregate::Measure;
use perf_prof_format::{
    abi::{PERF_SAMPLE_CPU, PERF_SAMPLE_RAW, PERF_SAMPLE_TID, PERF_SAMPLE_TIME},
    record::SampleLayout,
};

use super::*;

const FORMAT: &str = "name: e\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:char comm[6];\toffset:8;\tsize:6;\tsigned:0;\n\
    \tfield:int prio;\toffset:16;\tsize:4;\tsigned:1;\n\tfield:u32 odd;\toffset:22;\tsize:4;\tsigned:0;\n\
    \tfield:__data_loc char[] name;\toffset:28;\tsize:4;\tsigned:0;\n\tfield:bool on;\toffset:32;\tsize:1;\tsigned:0;\n\
    \tfield:u64 args[2];\toffset:40;\tsize:16;\tsigned:0;\n\tfield:int fd;\toffset:56;\tsize:8;\tsigned:0;\n\n\
    print fmt: \"\"\n";

fn event() -> EventType {
    let members = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;
    let format = Format::Tracepoint(Arc::new(EventFormat::parse("s", FORMAT).unwrap()));
    EventType { alias: None, format, layout: SampleLayout::new(members, 0), max_stack: None }
}

fn lowered(keys: &[&str], filter: Option<&str>, event: &EventType, ids: PidNamespace) -> Result<Lowered, Unsuited> {
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    let filter = filter.map(str::to_owned);
    let definition = Definition { keys, value: None, filter, limit: 10, measure: Measure::Sum };
    lower((&Plan::new(&definition, event).unwrap(), &definition), event, None, ids)
}

#[test]
fn keys_are_read_from_the_record_and_from_the_task() {
    let keys = ["comm", "prio", "on", "args", "fd", "_tid", "_pid", "_cpu", "_comm", "_event", "common_pid"];
    let lowered = [0, 4, 8]
        .map(|at| lowered(&keys[at..keys.len().min(at + 4)], None, &event(), PidNamespace::First).unwrap().key);
    let lines: Vec<String> = lowered.iter().flatten().map(|part| format!("{part:?}\n")).collect();
    expect![[r#"
        Text(Field { offset: 8, size: 6 })
        Number(Field { offset: 16, ty: IntType { width: 4, signed: true } })
        Number(Bool { offset: 32 })
        Bytes { from: Field { offset: 40, size: 16 }, size: 16 }
        Number(Field { offset: 56, ty: IntType { width: 8, signed: false } })
        Number(Thread)
        Number(Process)
        Number(Cpu)
        Text(Comm)
        Constant([115, 58, 101])
        Number(Thread)
    "#]]
    .assert_eq(&lines.concat());
}

fn refused(keys: &[&str], filter: Option<&str>, expected: Expect) {
    expected.assert_eq(&lowered(keys, filter, &event(), PidNamespace::First).unwrap_err().to_string());
}

#[test]
fn what_cannot_be_in_the_kernel_is_told_with_its_name() {
    refused(&["_time"], None, expect!["BPF programs cannot read `_time`"]);
    refused(&["_realtime"], None, expect!["BPF programs cannot read `_realtime`"]);
    refused(&["name"], None, expect!["the length of `name` differs from record to record"]);
    refused(&["odd"], None, expect!["BPF programs cannot load `odd` from its place in the record"]);
    refused(&["common_flags"], None, expect!["BPF programs cannot read the field `common_flags`"]);
    refused(&[], Some("name == 'a'"), expect!["the length of `name` differs from record to record"]);
    refused(&[], Some("comm ~ 'a?b'"), expect!["the pattern `a?b` is not of the form text*, *text or *text*"]);
    refused(&[], Some("common_flags == 1"), expect!["BPF programs cannot read the field `common_flags`"]);
    let inside = |keys: &[&str]| lowered(keys, None, &event(), PidNamespace::Other).map(|lowered| lowered.key.len());
    assert_eq!(inside(&["_tid"]), Err(Unsuited::PidNamespace));
    assert_eq!(inside(&["common_pid", "_cpu"]), Ok(2));
    let cycles = EventType { format: Format::other("cycles"), ..event() };
    assert_eq!(lowered(&["_cpu"], None, &cycles, PidNamespace::First), Err(Unsuited::NoTracepoint));
}

#[test]
fn records_with_call_chains_have_the_same_fields() {
    let with_chains = |members| {
        let event = EventType { layout: SampleLayout::new(members, 0), ..event() };
        lowered(&["prio", "fd", "_tid", "_cpu"], Some("prio < -1 && cpu == 3"), &event, PidNamespace::First)
    };
    let chains = perf_prof_format::abi::PERF_SAMPLE_CALLCHAIN;
    let members = PERF_SAMPLE_TID | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;
    assert_eq!(with_chains(members), with_chains(members | chains));
    assert!(with_chains(members).is_ok());
}

//! The arguments of handlers of `perf script` scripts, on recordings that are made byte by byte: types, damaged data,
//! text of any bytes, exceptions.

use std::process::{Command, Output};

use expect_test::{Expect, expect};
use perf_prof_format::abi::*;

use crate::{
    harness::{
        machine::{Need, needs},
        made::{Made, MadeAttr, u32s, u64s},
        recording::{Folder, ours},
        run::{perf_prof, printed, said, stdout, with_patience},
    },
    replay::made::NATIVE,
};

use super::definitions::{Formats, samples_with};

/// The first arguments of a handler.
const FIRST: &str = "name, context, cpu, secs, nsecs, pid, comm, callchain";

/// Returns the records of a task with a comm, a mapping, and two samples of the tracepoint `sys:e`. The tracepoint has
/// the fields `text`, `number` and `list`.
fn records() -> Vec<u8> {
    [NATIVE.comm(10), NATIVE.mmap2(11), NATIVE.sample(50, 30), NATIVE.sample(50, 1_000_000_040)].concat()
}

fn run_on(file: &[u8], script: &str, options: &[&str]) -> Output {
    needs([Need::Python]);
    let folder = Folder::new();
    let data = folder.write("made.data", file);
    let script = folder.write("s.py", script.as_bytes());
    let mut command = perf_prof(&["script", "-q"]);
    command.args(options).arg("-i").arg(data).arg("-s").arg(script);
    with_patience(&mut command, 100).output().unwrap()
}

fn run(script: &str) -> Output {
    run_on(&NATIVE.file(&records()), script, &[])
}

#[track_caller]
fn prints(script: &str, expected: Expect) {
    expected.assert_eq(&stdout(&run(script)));
}

#[test]
fn as_many_parameters_as_values_get_the_values_by_position() {
    let script = format!("def sys__e({FIRST}, a, b, c): print(name, cpu, secs, nsecs, pid, comm, callchain, a, b, c)");
    prints(
        &script,
        expect![[r#"
        sys__e 1 0 30 8 name [{'ip': 4194320, 'dso': '/bin/x'}] bytearray(b'abcd') 4294967291 bytearray(b'\x0b\x00\x00\x00\x0c\x00\x00\x00')
        sys__e 1 1 40 8 name [{'ip': 4194320, 'dso': '/bin/x'}] bytearray(b'abcd') 4294967291 bytearray(b'\x0b\x00\x00\x00\x0c\x00\x00\x00')
    "#]],
    );
}

#[test]
fn other_parameters_get_the_values_by_their_names() {
    let first = |definition: &str| {
        let output = stdout(&run(definition));
        output.lines().next().unwrap().to_owned()
    };
    let by_name = format!("def sys__e({FIRST}, number): print(comm, number)");
    assert_eq!(first(&by_name), "name 4294967291");
    let sample = format!("def sys__e({FIRST}, a, b, c, d): print(d['ev_name'], d['sample']['time'], d['callchain'])");
    assert_eq!(first(&sample), "sys:e 30 [{'ip': 4194320, 'dso': '/bin/x'}]");
    let old = "def sys__e(name, context, cpu, secs, nsecs, pid, comm, number, text): print(comm, number, text)";
    assert_eq!(first(old), "name 4294967291 bytearray(b'abcd')");
    assert_eq!(first("def sys__e(*args): print(len(args), args[9])"), "11 4294967291");
    let rest = format!("def sys__e({FIRST}, text, **others): print(text, sorted(others))");
    assert_eq!(first(&rest), "bytearray(b'abcd') ['list', 'number']");
    let method = format!("class A:\n  def e(self, {FIRST}, a, b, c=0): print(a, b)\nsys__e = A().e");
    assert_eq!(first(&method), "bytearray(b'abcd') 4294967291");
    let default = format!("def sys__e({FIRST}, limit=3, number=0): print(limit, number)");
    assert_eq!(first(&default), "3 4294967291");
}

#[test]
fn tracepoints_without_a_handler_are_passed_as_dicts() {
    prints(
        "def trace_unhandled(name, context, fields, sample):\n  print(name, fields)\n  print(list(sample), sample['comm'])",
        expect![[r#"
            sys__e {'common_cpu': 1, 'common_s': 0, 'common_ns': 30, 'common_pid': 8, 'common_comm': 'name', 'common_callchain': [{'ip': 4194320, 'dso': '/bin/x'}], 'text': bytearray(b'abcd'), 'number': 4294967291, 'list': bytearray(b'\x0b\x00\x00\x00\x0c\x00\x00\x00')}
            ['ev_name', 'attr', 'sample', 'raw_buf', 'comm', 'callchain', 'brstack', 'brstacksym'] name
            sys__e {'common_cpu': 1, 'common_s': 1, 'common_ns': 40, 'common_pid': 8, 'common_comm': 'name', 'common_callchain': [{'ip': 4194320, 'dso': '/bin/x'}], 'text': bytearray(b'abcd'), 'number': 4294967291, 'list': bytearray(b'\x0b\x00\x00\x00\x0c\x00\x00\x00')}
            ['ev_name', 'attr', 'sample', 'raw_buf', 'comm', 'callchain', 'brstack', 'brstacksym'] name
        "#]],
    );
    let old =
        "def trace_unhandled(name, context, cpu, secs, nsecs, pid, comm): print(name, cpu, secs, nsecs, pid, comm)";
    assert_eq!(stdout(&run(old)), "sys__e 1 0 30 8 name\nsys__e 1 1 40 8 name\n");
}

#[test]
fn samples_of_other_events_are_passed_to_process_event() {
    let made = Made::new(MadeAttr::new(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME));
    let made = made.mapping(0x1000, 0x1000, [5, 2], "/nowhere/x");
    let made = made.sample(PERF_RECORD_MISC_USER, &[u64s(&[0x1010]), u32s(&[7, 9]), u64s(&[50])]);
    let script = "def process_event(d):\n  s = d['sample']\n  print(list(d), len(d['attr']), d['dso'])\n  \
                  print(list(s), s['cpu'], s['tid'], d['comm'])";
    expect![[r#"
        ['ev_name', 'attr', 'sample', 'raw_buf', 'comm', 'dso', 'dso_bid', 'dso_map_start', 'dso_map_end', 'map_pgoff', 'callchain', 'brstack', 'brstacksym'] 144 /nowhere/x
        ['id', 'stream_id', 'pid', 'tid', 'cpu', 'ip', 'time', 'period', 'phys_addr', 'addr', 'values', 'weight', 'ins_lat', 'transaction', 'datasrc', 'datasrc_decode', 'cpumode'] 4294967295 9 :9
    "#]]
    .assert_eq(&stdout(&run_on(&made.file(), script, &[])));
}

#[test]
fn ids_and_the_costs_of_an_access_are_in_the_dict_of_a_sample() {
    let members = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID;
    for (member, cost) in [(0, "0 0"), (PERF_SAMPLE_WEIGHT, "21474836557 0"), (PERF_SAMPLE_WEIGHT_STRUCT, "77 5")] {
        // The weight, and the latency of the instruction.
        let word = if member == 0 { Vec::new() } else { u64s(&[77 | 5 << 32]) };
        let made = Made::new(MadeAttr::new(members | member));
        let numbers = [u64s(&[0x1010]), u32s(&[7, 9]), u64s(&[50, 11, 12]), word];
        let made = made.sample(PERF_RECORD_MISC_USER, &numbers);
        let script = "def process_event(d):\n  s = d['sample']\n  \
                      print(s['id'], s['stream_id'], s['weight'], s['ins_lat'])";
        assert_eq!(stdout(&run_on(&made.file(), script, &[])), format!("11 12 {cost}\n"));
    }
}

/// perf cuts off `uregs`, so this test does not run perf.
#[test]
fn branches_registers_and_weights_are_in_the_dict_of_a_sample() {
    let members = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD;
    let sample_type = members | PERF_SAMPLE_BRANCH_STACK | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_WEIGHT;
    // The registers AX, SP and IP, as x86 numbers them.
    let made = Made::new(MadeAttr { regs_user: 1 | 1 << 7 | 1 << 8, ..MadeAttr::new(sample_type) });
    let made = made.mapping(0x1000, 0x1000, [5, 2], "/nowhere/x").text(perf_data::HEADER_ARCH, "x86_64");
    // The bits of `struct perf_branch_entry`: mispred, predicted, in_tx, abort, and 16 bits of cycles.
    let branches = u64s(&[2, 0x1010, 0x1020, 0b10 | 5 << 4, 0x1030, 0x9040, 0b1101]);
    let numbers = [u64s(&[0x1010]), u32s(&[7, 9]), u64s(&[50, 3])].concat();
    let made = made.sample(PERF_RECORD_MISC_USER, &[numbers, branches, u64s(&[2, 0xa, 0xb, 0x1010]), u64s(&[77])]);
    let script = "def process_event(d):\n  for key in ('brstack', 'brstacksym'):\n    for one in d[key]: print(one)\n  \
                  print(['iregs' in d, d['uregs']], d['sample']['weight'], d['sample']['period'])";
    expect![[r#"
        {'from': 4112, 'to': 4128, 'mispred': False, 'predicted': True, 'in_tx': False, 'abort': False, 'cycles': 5, 'from_dsoname': '/nowhere/x', 'to_dsoname': '/nowhere/x'}
        {'from': 4144, 'to': 36928, 'mispred': True, 'predicted': False, 'in_tx': True, 'abort': True, 'cycles': 0, 'from_dsoname': '/nowhere/x', 'to_dsoname': '[unknown]'}
        {'from': '[unknown]', 'to': '[unknown]', 'pred': 'P', 'in_tx': '-', 'abort': '-'}
        {'from': '[unknown]', 'to': '[unknown]', 'pred': 'M', 'in_tx': 'X', 'abort': 'A'}
        [False, '   AX:0xa    SP:0xb    IP:0x1010 '] 77 3
    "#]]
    .assert_eq(&stdout(&run_on(&made.file(), script, &[])));
}

/// The offset of a relative location counts from the end of its field.
#[test]
fn relative_locations_are_those_of_perf() {
    needs([Need::Tracefs, Need::Perf, Need::Python]);
    let format = "name: rel
ID: 4711
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:__rel_loc char[] first;\toffset:8;\tsize:4;\tsigned:0;
\tfield:__rel_loc char[] second;\toffset:12;\tsize:4;\tsigned:0;
\tfield:__rel_loc u16[] numbers;\toffset:16;\tsize:4;\tsigned:0;

print fmt: \"%s\", __get_rel_str(first)
";
    let formats = Formats::from([("made".to_owned(), vec![format.to_owned()])]);
    // The data starts after the three fields: 6 bytes, 2 bytes, 4 bytes.
    let fields =
        [u32s(&[6 << 16 | 8, 2 << 16 | 10, 4 << 16 | 8]), b"first\0".to_vec(), b"2\0".to_vec(), vec![1, 0, 2, 0]];
    let folder = Folder::new();
    let data = folder.write("made.data", &samples_with(&formats, &fields.concat()));
    let script =
        "def trace_unhandled(name, context, fields):\n  print([fields[key] for key in ('first', 'second', 'numbers')])";
    let script = folder.write("s.py", script.as_bytes());
    let perf = Command::new("perf").args(["script", "-s"]).arg(&script).arg("-i").arg(&data).output().unwrap();
    let ours = ours(&["script", "-q", "-s", script.to_str().unwrap()], &data);
    assert_eq!(ours, ["['first', '2', bytearray(b'\\x01\\x00\\x02\\x00')]"]);
    assert_eq!(printed(&perf), ours);
}

fn replaced(mut bytes: Vec<u8>, old: &[u8], new: &[u8]) -> Vec<u8> {
    let places: Vec<usize> = (0..bytes.len() - old.len()).filter(|&at| bytes[at..].starts_with(old)).collect();
    places.iter().for_each(|&at| bytes[at..at + new.len()].copy_from_slice(new));
    bytes
}

#[test]
fn text_that_is_not_utf_8_is_text_with_escapes_or_a_bytearray() {
    let script = format!("def sys__e({FIRST}, a, b, c): print(ascii(comm), ascii(a))");
    let printed = |text: &[u8]| {
        let records = replaced(replaced(records(), b"name", b"n\xffm\x80"), b"abcd", text);
        stdout(&run_on(&NATIVE.file(&records), &script, &[])).lines().next().unwrap().to_owned()
    };
    assert_eq!(printed(b"a\xe9\n\0"), r"'n\udcffm\udc80' 'a\udce9\n'");
    assert_eq!(printed(b"a\0\x01\0"), r"'n\udcffm\udc80' 'a'");
    assert_eq!(printed(b"a\x80b\0"), r"'n\udcffm\udc80' bytearray(b'a\x80b\x00')");
}

#[test]
fn an_exception_is_shown_once_and_trace_end_runs() {
    let script = format!("def sys__e({FIRST}, a, b, c): print('called'); 1 / 0\ndef trace_end(): print('end')");
    let output = run(&script);
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stdout)), (Some(1), "called\ncalled\nend\n"));
    let said = said(&output);
    assert_eq!(said.matches("Traceback").count(), 1, "{said}");
    assert!(said.contains("s.py:1: 2 times in total"), "{said}");
}

#[test]
fn exceptions_of_functions_that_cannot_be_called_are_told_apart() {
    let script = format!(
        "def sys__e({FIRST}, a, b, c):\n  globals()['sys__e'] = wrong if nsecs == 30 else print\n\
         def wrong(a): pass\ndef trace_end(): print('end')"
    );
    let output = run(&script);
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stdout)), (Some(1), "end\n"));
    assert!(said(&output).contains("sys__e() has 1 parameters, and its event has 11 values"), "{}", said(&output));
}

#[test]
fn sys_exit_in_a_handler_ends_the_run_with_its_status() {
    let script = format!("import sys\ndef sys__e({FIRST}, a, b, c): sys.exit(3)\ndef trace_end(): print('end')");
    assert_eq!(run(&script).status.code(), Some(3));
}

#[test]
fn functions_can_be_defined_at_any_time() {
    let script = format!(
        "def trace_unhandled(name, context, fields):\n  def later({FIRST}, a, b, c): print('later', b)\n  \
         globals()[name] = later\n  globals()['trace_end'] = lambda: print('end')\n  print('unhandled')"
    );
    prints(
        &script,
        expect![[r#"
            unhandled
            later 4294967291
            end
        "#]],
    );
}

/// `PyDict_GetItemWithError` calls `__eq__` of keys with the same hash.
#[test]
fn a_name_that_raises_an_exception_when_it_is_compared_is_no_handler() {
    let script = "class Key:\n  def __hash__(self): return hash('sys__e')\n  def __eq__(self, other): raise KeyError\n\
                  globals()[Key()] = print\ndef trace_unhandled(name, context, fields): print(name)";
    prints(
        script,
        expect![[r#"
            sys__e
            sys__e
        "#]],
    );
}

#[test]
fn the_context_is_about_the_sample_of_the_running_handler() {
    let script = format!(
        "import threading\nfrom perf_trace_context import *\nkept = []\ndef sys__e({FIRST}, a, b, c):\n  \
         kept.append(context)\n  results = []\n  \
         thread = threading.Thread(target=lambda: results.append(common_flags(context)))\n  \
         thread.start(); thread.join()\n  print(common_pc(context), common_lock_depth(context), results, \
         perf_sample_srccode(context), perf_sample_insn(context), perf_script_context is context)\n\
         def trace_end():\n  try: common_pc(kept[0])\n  except ValueError as error: print(error)\n  \
         print(perf_sample_srcline(kept[0]))"
    );
    expect![[r#"
        1 0 [2] (None, 0, None) None True
        the context can be used only while the handler of its sample runs
        (None, 0)
    "#]]
    .assert_eq(&stdout(&run_on(&with_common_fields(), &script, &[])));
}

/// Returns a recording with one sample of a tracepoint with all common fields.
fn with_common_fields() -> Vec<u8> {
    let field = |text: &str, offset: u32| format!("\tfield:{text};\toffset:{offset};\tsize:1;\tsigned:0;\n");
    let fields = field("unsigned char common_preempt_count", 2) + &field("unsigned char common_flags", 3);
    let format = "name: e\nID: 374\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n"
        .to_owned()
        + &fields
        + "\n\tfield:char text[4];\toffset:8;\tsize:4;\tsigned:0;\n\tfield:int number;\toffset:12;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc u32[] list;\toffset:16;\tsize:4;\tsigned:0;\n\nprint fmt: \"%d\", REC->number\n";
    let tracing = NATIVE.tracing_data_of(b"sys\0", 1, &[u64s(&[format.len() as u64]), format.into()].concat());
    NATIVE.pipe_with(&tracing, &NATIVE.sample(50, 30))
}

/// perf-prof drops old frames while it holds the lock of the symbols.
#[test]
fn objects_in_call_chains_can_ask_for_symbols_when_they_are_freed() {
    let script = format!(
        "import perf_prof\nfreed = 0\nclass Asks:\n  def __del__(self):\n    global freed\n    \
         perf_prof.usym(7, 0x400010)\n    freed += 1\n\
         def sys__e({FIRST}, a, b, c):\n  if secs == 0: callchain[0]['own'] = Asks()\n\
         def trace_end(): print(freed)"
    );
    // There are more addresses than fit into the memory for results.
    const FRAMES: u64 = 126;
    let mapping = replaced(NATIVE.mmap2(11), b"/bin/x", b"[code]");
    let mapping = replaced(mapping, &u64s(&[0x1000]), &u64s(&[1 << 32]));
    let chain = |at: u64| {
        let addresses: Vec<u64> = (0..FRAMES).map(|frame| 0x40_0000 + at * FRAMES + frame).collect();
        let chain = [u64s(&[FRAMES + 1, PERF_CONTEXT_USER]), u64s(&addresses)].concat();
        let raw = [&[0x76, 1, 0, 0][..], &u32s(&[8]), b"abcd", &u32s(&[5, 20])].concat();
        let members = [NATIVE.trailer(30 + at * 1_000_000_000, 50), chain, u32s(&[raw.len() as u32]), raw];
        NATIVE.record(PERF_RECORD_SAMPLE, 2, &members)
    };
    let records: Vec<Vec<u8>> = [NATIVE.comm(10), mapping].into_iter().chain((0..700).map(chain)).collect();
    assert_eq!(stdout(&run_on(&NATIVE.file(&records.concat()), &script, &[])), "1\n");
}

/// The raw data ends before a field.
#[test]
fn a_sample_that_is_too_short_raises_an_exception() {
    let format = "name: e\nID: 374\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:int far;\toffset:4000;\tsize:4;\tsigned:1;\n\nprint fmt: \"%d\", REC->far\n";
    let tracing = NATIVE.tracing_data_of(b"sys\0", 1, &[u64s(&[format.len() as u64]), format.into()].concat());
    let file = NATIVE.pipe_with(&tracing, &[NATIVE.sample(50, 30), NATIVE.sample(50, 40)].concat());
    let output = run_on(&file, &format!("def sys__e({FIRST}, far): print(far)\ndef trace_end(): print('end')"), &[]);
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stdout)), (Some(1), "end\n"));
    let said = said(&output);
    assert_eq!(said.matches("ValueError: the sample's data ends before its field far").count(), 1, "{said}");
    assert!(said.contains("ValueError in the call of sys__e(): 2 times in total"), "{said}");
}

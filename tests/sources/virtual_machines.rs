//! The source `kvm-exit`, on a recording with the formats of Linux 6.18, because test machines may lack virtual
//! machines.

use std::collections::HashMap;

use expect_test::expect;
use perf_prof_format::{
    abi::{perf_data::*, *},
    tracefs::{EventFormat, FieldInput, FormatCollection},
};

use crate::{
    harness::{
        made::{Made, MadeAttr, u32s, u64s},
        recording::{Folder, python},
        run::{perf_prof, printed, stdout},
    },
    replay::made::NATIVE,
};

/// The formats that perf-prof ships, which include the formats of hosts with Intel and AMD processors.
const FORMATS: &[u8] = include_bytes!("../../src/python/testing/linux-6.18-x86_64.zst");
const NAMES: [&str; 2] = ["kvm_exit", "kvm_entry"];
const EXIT: usize = 0;
const ENTRY: usize = 1;

/// The values of `isa` for the processors of Intel and of AMD: `KVM_ISA_VMX` and `KVM_ISA_SVM` in arch/x86/kvm/trace.h.
const VMX: i128 = 1;
const SVM: i128 = 2;

/// A sample: the event, the thread of the virtual CPU, the CPU, the time in us, and the fields that are not 0.
type KvmSample<'a> = (usize, u32, u32, u64, &'a [(&'a str, i128)]);

/// Writes a recording with these samples. Returns its path.
fn recording(folder: &Folder, samples: &[KvmSample<'_>]) -> String {
    let formats = FormatCollection::from_zstd(FORMATS).unwrap();
    let texts = NAMES.map(|name| formats.text("kvm", name).unwrap());
    let parsed = texts.map(|text| EventFormat::parse("kvm", text).unwrap());
    let members = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_RAW;
    let attr = |format: &EventFormat| MadeAttr {
        kind: PERF_TYPE_TRACEPOINT,
        config: format.id.into(),
        ..MadeAttr::new(members)
    };
    let sized: Vec<u8> =
        texts.iter().flat_map(|text| [u64s(&[text.len() as u64]), text.as_bytes().to_vec()].concat()).collect();
    let mut tracing = NATIVE.tracing_data_of(b"kvm\0", 2, &sized);
    tracing.resize(tracing.len().next_multiple_of(8), 0);
    // The size in this record's header does not include the data after the record.
    let head = [u32s(&[PERF_RECORD_HEADER_TRACING_DATA]), [0u16, 12].map(u16::to_ne_bytes).concat()].concat();
    let mut made = Made::new(attr(&parsed[EXIT]));
    made.attrs.push(attr(&parsed[ENTRY]));
    made.records = [head, u32s(&[tracing.len() as u32]), tracing].concat();
    for &(event, tid, cpu, us, fields) in samples {
        let own = [("common_type", i128::from(parsed[event].id)), ("common_pid", tid.into())];
        let fields = own.iter().chain(fields).map(|&(name, value)| (name.to_owned(), FieldInput::Int(value)));
        let mut raw = parsed[event].encode(&fields.collect::<HashMap<_, _>>()).unwrap();
        raw.resize((raw.len() + 4).next_multiple_of(8) - 4, 0);
        let ids = [u64s(&[50 + event as u64]), u32s(&[7, tid]), u64s(&[us * 1000]), u32s(&[cpu, 0])].concat();
        made = made.sample(PERF_RECORD_MISC_KERNEL, &[ids, u32s(&[raw.len() as u32]), raw]);
    }
    folder.write("kvm.data", &made.pipe()).to_str().unwrap().to_owned()
}

/// Two virtual CPUs of one machine, and virtual CPU 0 of another machine. The first one moves to another CPU while the
/// host works. The last exit has no entry.
const SAMPLES: &[KvmSample<'static>] = &[
    (ENTRY, 11, 0, 5, &[("rip", 0x10)]),
    (EXIT, 11, 0, 10, &[("exit_reason", 30), ("isa", VMX), ("guest_rip", 0x1000), ("info1", 0x3f8_0001)]),
    (EXIT, 12, 1, 11, &[("exit_reason", 12), ("isa", VMX), ("guest_rip", 0x2000), ("vcpu_id", 1)]),
    (EXIT, 21, 2, 12, &[("exit_reason", 0x400), ("isa", SVM), ("guest_rip", 0x3000)]),
    (ENTRY, 11, 3, 20, &[("rip", 0x1002)]),
    (ENTRY, 21, 2, 27, &[("rip", 0x3000), ("immediate_exit", 1)]),
    (EXIT, 11, 3, 30, &[("exit_reason", 30), ("isa", VMX), ("guest_rip", 0x1002)]),
    (ENTRY, 11, 3, 34, &[]),
    (ENTRY, 12, 1, 5011, &[("vcpu_id", 1)]),
    (EXIT, 12, 1, 5020, &[("exit_reason", 0x8000_0021), ("isa", VMX), ("vcpu_id", 1)]),
];

#[test]
fn exits_have_the_reasons_of_the_kernel() {
    let folder = Folder::new();
    let data = recording(&folder, SAMPLES);
    let script = "
import perf_prof

def kvm_exit(e):
    print(e.reason, e.vcpu, hex(e.rip), e.duration, e._tid, e.begin._cpu, e._cpu, hex(e.begin.info1))

def __exit__():
    counts = perf_prof.stats()['events']['kvm-exit']
    print(*(counts[name] for name in ('opened', 'ended', 'open', 'dropped', 'without_begin')))
";
    let script = folder.write("s.py", script.as_bytes());
    let run = |event| stdout(&python(&["-e", event, "--input", &data, script.to_str().unwrap()]));
    expect![[r#"
        IO_INSTRUCTION 0 0x1000 10000 11 0 3 0x3f80001
        npf 0 0x3000 15000 21 2 2 0x0
        IO_INSTRUCTION 0 0x1002 4000 11 3 3 0x0
        HLT 1 0x2000 5000000 12 1 1 0x0
        5 4 1 0 1
    "#]]
    .assert_eq(&run("kvm-exit"));
    expect![[r#"
        npf 0 0x3000 15000 21 2 2 0x0
        HLT 1 0x2000 5000000 12 1 1 0x0
        5 4 1 0 1
    "#]]
    .assert_eq(&run("kvm-exit/reason=HLT|npf, min=15us/"));
}

#[test]
fn exits_are_added_up_by_their_reasons() {
    let folder = Folder::new();
    let data = recording(&folder, SAMPLES);
    let lines = |args: &[&str]| printed(&perf_prof(&[args, &["--input", &data]].concat()).output().unwrap()).join("\n");
    expect![[r#"
        total: 4 spans in 0.005000 s
        reason          count  total ms  average ms  max ms  share  per second
        HLT                 1     5.000       5.000   5.000  99.4%       200.0
        npf                 1     0.015       0.015   0.015   0.3%       200.0
        IO_INSTRUCTION      2     0.014       0.007   0.010   0.3%       400.0
    "#]]
    .assert_eq(&lines(&["top", "kvm-exit", "--by", "reason"]));
    expect!["   0.000000 <...>/12 kvm-exit: 5.000 ms reason=HLT vcpu=1 rip=0x2000"].assert_eq(&lines(&[
        "trace",
        "-e",
        "kvm-exit/vcpu=1/",
    ]));
}

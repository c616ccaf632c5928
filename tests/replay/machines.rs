//! Recordings of other machines: their registers, kernel modules and mappings.

use perf_prof_format::abi::{perf_data::*, *};

use crate::harness::{
    made::{Made, MadeAttr, u32s, u64s},
    recording::{Folder, ours, python},
    run::{said, stdout},
};

const TID_TIME: u64 = PERF_SAMPLE_TID | PERF_SAMPLE_TIME;

/// Returns the members IP, TID and TIME of a sample of process 7.
fn at(ip: u64, time: u64) -> Vec<u8> {
    [u64s(&[ip]), u32s(&[7, 7]), u64s(&[time])].concat()
}

/// Runs a script on a recording. Returns the lines of its output, and stderr.
fn run(made: &Made, script: &str) -> (Vec<String>, String) {
    let folder = Folder::new();
    let (data, script) = (made.write(&folder), folder.write("s.py", script.as_bytes()));
    let output = python(&["--input", &data, script.to_str().unwrap()]);
    (stdout(&output).lines().map(str::to_owned).collect(), said(&output))
}

const REGISTERS: &str = "def __sample__(e):\n    print(','.join(e.regs_user), e.regs_user.get('sp'))\n    \
                         print(*(hex(f['addr']) for f in e._callchain))\n";

/// Returns the values of a task's registers on 64-bit Arm. A register that is not in `values` contains its own number.
fn arm64(values: &[(usize, u64)]) -> [u64; 33] {
    let mut all: [u64; 33] = std::array::from_fn(|number| number as u64);
    values.iter().for_each(|&(number, value)| all[number] = value);
    all
}

const STACK: u64 = 0x7f00_0000;

/// Returns a recording of `machine` with one sample. The sample contains the user registers of 64-bit Arm, and two
/// words of the stack.
fn with_registers(machine: &str, abi: u64, registers: [u64; 33]) -> Made {
    with_chain(machine, abi, registers, &[])
}

/// Like [`with_registers`], with a recorded call chain.
fn with_chain(machine: &str, abi: u64, registers: [u64; 33], chain: &[u64]) -> Made {
    let members = PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    let attr = MadeAttr { regs_user: (1 << 33) - 1, ..MadeAttr::new(PERF_SAMPLE_IP | TID_TIME | members) };
    let chain = [u64s(&[chain.len() as u64]), u64s(chain)].concat();
    let stack = u64s(&[16, 0, 0x40_0200, 16]);
    Made::new(attr)
        .text(HEADER_ARCH, machine)
        .mapping(0x40_0000, 0x1000, [5, 2], "/no/such/program")
        .sample(PERF_RECORD_MISC_USER, &[at(0x40_0100, 5), chain, u64s(&[abi]), u64s(&registers), stack])
}

const FP: usize = 29;

#[test]
fn registers_and_stacks_are_those_of_the_recorded_machine() {
    let registers = arm64(&[(FP, STACK), (31, STACK), (32, 0x40_0100)]);
    let (lines, said) = run(&with_registers("aarch64", 2, registers), REGISTERS);
    let names: Vec<String> = (0..30).map(|number| format!("x{number}")).collect();
    assert_eq!(lines[0], format!("abi,{},lr,sp,pc {STACK}", names.join(",")));
    // The frame pointer leads to the caller. x8 contains no address.
    assert_eq!(lines[1], "0x400100 0x400200", "{said}");
    // On another architecture, registers have numbers and stacks are not unwound.
    let (lines, said) = run(&with_registers("s390x", 2, registers), REGISTERS);
    let names: Vec<String> = (0..33).map(|number| format!("reg{number}")).collect();
    assert_eq!(lines, [format!("abi,{} None", names.join(",")), String::new()]);
    let line = "user stacks were not unwound (count: 1): perf-prof cannot unwind the stacks of this architecture";
    assert_eq!(said.matches(line).count(), 1, "{said}");
}

#[test]
fn registers_of_32_bit_tasks_have_their_names_and_their_stacks_are_not_unwound() {
    let (lines, said) = run(&with_registers("aarch64", 1, arm64(&[])), REGISTERS);
    assert!(lines[0].starts_with("abi,r0,r1,") && lines[0].contains(",r10,fp,ip,sp,lr,pc,x16,"), "{lines:?}");
    assert_eq!(lines[1], "");
    let line = "user stacks were not unwound (count: 1): perf-prof cannot unwind the stacks of 32-bit tasks";
    assert_eq!(said.matches(line).count(), 1, "{said}");
    let script = "def __sample__(e): e.print(callchain=False)\n";
    let (lines, _) = run(&with_registers("aarch64", 1, arm64(&[])), script);
    assert!(lines[0].contains(" r10=0xa fp=0xb ip=0xc sp=0xd lr=0xe pc=0xf x16=0x10 "), "{lines:?}");
}

/// Returns `ip (dso)` of each sample.
fn places(made: &Made) -> Vec<String> {
    let folder = Folder::new();
    let lines = ours(&["script", "-q", "-G", "-F", "ip,dso"], made.write(&folder).as_ref());
    lines.iter().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn samples_in_modules_have_the_names_that_perf_shows() {
    const BASE: u64 = 0xffff_ffff_8100_0000;
    const MODULE: u64 = 0xffff_ffff_c000_0000;
    let kernel = PERF_RECORD_MISC_KERNEL;
    let mut made = Made::new(MadeAttr::new(PERF_SAMPLE_IP | TID_TIME))
        .build_ids(&[(kernel, "[kernel.kallsyms]"), (kernel, "/lib/modules/6.1/kernel/fs/ext4.ko.xz")])
        .kernel_mapping(BASE, 0x10_0000, "[kernel.kallsyms]_text")
        .kernel_mapping(MODULE, 0x1000, "/lib/modules/6.1/kernel/arch/x86/kvm/kvm-intel.ko")
        .kernel_mapping(MODULE + 0x1000, 0x1000, "/lib/modules/6.1/kernel/fs/ext4.ko.xz");
    let addresses = [BASE, MODULE + 8, MODULE + 0x1008, MODULE + 0x2000, 0x1234];
    for (time, &ip) in (1..).zip(&addresses) {
        made = made.sample(kernel, &[at(ip, time)]);
    }
    let names = ["[kernel.kallsyms]", "[kvm_intel]", "/lib/modules/6.1/kernel/fs/ext4.ko.xz", "[unknown]", "[unknown]"];
    let expected: Vec<String> = addresses.iter().zip(names).map(|(ip, name)| format!("{ip:x} ({name})")).collect();
    assert_eq!(places(&made), expected);
    let folder = Folder::new();
    let report = ours(&["report", "-q", "--sort", "dso"], made.write(&folder).as_ref());
    for name in ["[ext4]", "[kvm_intel]", "[kernel.kallsyms]"] {
        assert!(report.iter().any(|line| line.trim_end().ends_with(name)), "{name}: {report:?}");
    }
    // The kernel's own file, if the recording lists it.
    let vmlinux = made.clone();
    let vmlinux = Made { features: Vec::new(), ..vmlinux }.build_ids(&[(kernel, "/usr/lib/debug/boot/vmlinux-6.1")]);
    assert_eq!(places(&vmlinux)[0], format!("{BASE:x} (/usr/lib/debug/boot/vmlinux-6.1)"));
    let report = ours(&["report", "-q", "--sort", "dso"], vmlinux.write(&folder).as_ref());
    assert!(report.iter().any(|line| line.trim_end().ends_with("[kernel.vmlinux]")), "{report:?}");
}

#[test]
fn kernel_addresses_without_any_mapping_of_the_kernel_are_unknown() {
    let made = Made::new(MadeAttr::new(PERF_SAMPLE_IP | TID_TIME));
    let made = made.sample(PERF_RECORD_MISC_KERNEL, &[at(0xffff_ffff_8100_0000, 1)]);
    assert_eq!(places(&made), ["ffffffff81000000 ([unknown])"]);
}

#[test]
fn mappings_without_protection_and_flags_contain_code() {
    let made = Made::new(MadeAttr::new(PERF_SAMPLE_IP | TID_TIME))
        .mapping(0x1000, 0x1000, [0x4000, 0], "jit_app_cache:1-2")
        .mapping(0x2000, 0x1000, [3, 2], "/data")
        .mapping(0x3000, 0x1000, [0, 0], "/program")
        .sample(PERF_RECORD_MISC_USER, &[at(0x1010, 1)])
        .sample(PERF_RECORD_MISC_USER, &[at(0x2010, 2)])
        .sample(PERF_RECORD_MISC_USER, &[at(0x3010, 3)]);
    assert_eq!(places(&made), ["1010 (jit_app_cache:1-2)", "2010 ([unknown])", "3010 (/program)"]);
}

/// For callers that perf unwinds itself, it shows the address in the call. For recorded callers, it shows the return
/// address.
#[test]
fn recorded_frames_keep_their_addresses_if_the_event_also_copies_the_stack() {
    let shown = |chain: &[u64]| {
        let registers = arm64(&[(FP, STACK), (31, STACK), (32, 0x40_0100)]);
        let folder = Folder::new();
        let made = with_chain("aarch64", 2, registers, chain);
        let lines = ours(&["script", "-q", "-F", "ip,dso"], made.write(&folder).as_ref());
        let frames = lines.iter().filter_map(|line| line.trim().strip_suffix(" (/no/such/program)").map(str::to_owned));
        frames.collect::<Vec<_>>()
    };
    assert_eq!(shown(&[PERF_CONTEXT_USER, 0x40_0100, 0x40_0300, 0x40_0400]), ["400100", "400300", "400400"]);
    assert_eq!(shown(&[]), ["400100", "4001ff"]);
}

/// A script that counts samples. It can run in several processes.
const COUNT: &str = "n = 0\ndef __sample__(e):\n    global n\n    n += 1\ndef __partial__(): return n\n\
                     def __merge__(parts):\n    global n\n    n = sum(parts)\ndef __exit__(): print(n)\n";

#[test]
fn samples_of_virtual_machines_are_counted_and_shown_only_if_asked_for() {
    let mut made = Made::new(MadeAttr::new(PERF_SAMPLE_IP | TID_TIME));
    for time in 1..=30 {
        let guest = [PERF_RECORD_MISC_GUEST_KERNEL, PERF_RECORD_MISC_GUEST_USER][time as usize % 2];
        let misc = if time % 3 == 0 { PERF_RECORD_MISC_USER } else { guest };
        made = made.sample(misc, &[at(0x1000, time)]);
    }
    let folder = Folder::new();
    let (data, script) = (made.write(&folder), folder.write("count.py", COUNT.as_bytes()));
    let said_line = "20 samples of virtual machines were left out; --guest includes them";
    let check = |args: &[&str], samples: &str, line: usize| {
        let output = python(&[args, &["--input", &data, script.to_str().unwrap()]].concat());
        assert_eq!(stdout(&output).trim(), samples, "{args:?}");
        assert_eq!(said(&output).matches(said_line).count(), line, "{args:?}: {}", said(&output));
    };
    check(&[], "10", 1);
    check(&["--jobs", "2"], "10", 1);
    check(&["-q"], "10", 0);
    check(&["--guest"], "30", 0);
    assert_eq!(ours(&["script", "-F", "time"], data.as_ref()).len(), 10);
    assert_eq!(ours(&["script", "-F", "time", "--guest"], data.as_ref()).len(), 30);
}

#[test]
fn branches_are_objects_whatever_is_recorded_beside_them() {
    const SCRIPT: &str = "\
import json, pickle
def __sample__(e):
    for b in pickle.loads(pickle.dumps(e.branch_stack)):
        print(b['from'], b.to, b.mispred, b.predicted, b['in_tx'], b.abort, b.cycles, hasattr(b, 'x'))
    print(json.dumps(e.to_dict()['branch_stack'][1:]))
";
    let entries = u64s(&[0x1000, 0x2000, 0b1001 | 77 << 4, 0x3000, 0x4000, 0b10]);
    let expected = [
        "4096 8192 True False False True 77 False",
        "12288 16384 False True False False 0 False",
        r#"[{"from": 12288, "to": 16384, "mispred": false, "predicted": true, "in_tx": false, "abort": false, "cycles": 0}]"#,
    ];
    for (branch_sample_type, before) in [(PERF_SAMPLE_BRANCH_ANY, &[2][..]), (PERF_SAMPLE_BRANCH_HW_INDEX, &[2, 9])] {
        let attr =
            MadeAttr { branch_sample_type, ..MadeAttr::new(PERF_SAMPLE_IP | TID_TIME | PERF_SAMPLE_BRANCH_STACK) };
        let made = Made::new(attr).sample(PERF_RECORD_MISC_USER, &[at(0x1000, 1), u64s(before), entries.clone()]);
        assert_eq!(run(&made, SCRIPT).0, expected);
    }
}

//! `events`, `event`, and the shipped formats.

use std::{fs, path::Path};

use expect_test::expect;
use perf_prof_format::tracefs::FormatCollection;

use super::{prints, program};
use crate::{
    harness::machine::{Need, needs},
    print_fmt,
};

/// The file with the shipped formats.
const SHIPPED: &str = "src/python/testing/linux-6.18-x86_64.zst";

#[test]
fn the_catalogue_has_the_formats_of_this_kernel() {
    let code = r#"
folder = "/sys/kernel/tracing/events/sched"
event = perf_prof.event("sched:sched_switch")
with open(f"{folder}/sched_switch/format") as text:
    text = text.read()
print(event, event.system, event.name, event.id == int(open(f"{folder}/sched_switch/id").read()))
print(event.print_format == text.partition("print fmt: ")[2].rstrip("\n"))
for field in event.fields[:2]:
    print(field, field.name, field.type, field.python_type.__name__, field.size, field.signed, field.offset)
print([field.name for field in event.common_fields])
print([event.name for event in perf_prof.events("sched:sched_wak*")], [str(e) for e in perf_prof.events("sched_waking")])
import os
on_disk = {name for name in os.listdir(folder) if os.path.isdir(f"{folder}/{name}")}
print({event.name for event in perf_prof.events("sched:*")} == on_disk, perf_prof.events("nothing:*"))
for wrong in ["sched:sched_swich", "page-faults", "sched:*", ""]:
    try:
        print("NO ERROR", perf_prof.event(wrong))
    except perf_prof.SelectorError as error:
        print(isinstance(error, ValueError), error)
"#;
    prints(
        code,
        expect![[r#"
        <EventFormat sched:sched_switch> sched sched_switch True
        True
        <FieldFormat prev_comm: char[16]> prev_comm char[16] str 16 False 8
        <FieldFormat prev_pid: pid_t> prev_pid pid_t int 4 True 24
        ['common_type', 'common_flags', 'common_preempt_count', 'common_pid']
        ['sched_wake_idle_without_ipi', 'sched_wakeup', 'sched_wakeup_new', 'sched_waking'] ['<EventFormat sched:sched_waking>']
        True []
        True unknown event sched:sched_swich: it is not in this kernel (did you mean sched:sched_switch?)
        True page-faults is no tracepoint, so it has no format
        True unknown event sched:*: it is not in this kernel
        True unknown event : it is not in this kernel
        --- status 0
    "#]],
    );
}

#[test]
fn formats_come_from_a_recording() {
    needs([Need::Tracefs]);
    let code = r#"
import subprocess
with perf_prof.record("sched:sched_process_exec", output="perf.data") as recording:
    subprocess.run(["true"], check=True)
print([event.name for event in perf_prof.events("*:*", formats="perf.data")])
print(perf_prof.event("sched:sched_process_exec", formats="perf.data").id == perf_prof.event("sched:sched_process_exec").id)
print(make_event("sched:sched_process_exec", formats="perf.data", filename="/bin/x").filename)
for name, path in [("sched:sched_switch", "perf.data"), ("sched:sched_process_exec", "t.py"), ("a:b", "none")]:
    try:
        print("NO ERROR", make_event(name, formats=path))
    except perf_prof.Error as error:
        print(type(error).__name__, error)
"#;
    let run = program(code).file("t.py", "no recording");
    crate::harness::script::check(
        run,
        expect![[r#"
            ['sched_process_exec']
            True
            /bin/x
            SelectorError unknown event sched:sched_switch: it is not in perf.data
            RecordingError t.py is not a perf.data file: it does not start with PERFILE2
            RecordingNotFoundError [Errno 2] No such file or directory: 'none'
            --- status 0
        "#]],
    );
}

/// The stub of `perf_prof.testing` contains the same names, parameters, defaults and texts as the live module.
#[test]
fn everything_in_the_module_has_a_text() {
    let code = r#"
import inspect
from perf_prof import testing
for name in testing.__all__:
    print(name, inspect.getdoc(getattr(testing, name)).split(".")[0])
"#;
    crate::harness::script::check(
        program(code),
        expect![[r#"
            Lost Lost events for run_script(), which calls the script's __lost__ before the next event of the same CPU
            ScriptResult The output of a script, its exit status, and its module, which is None if its import failed
            make_event Makes an event: a PerfEvent with these values of its fields, in a record like those of the kernel
            run_script Runs a script on these events, as `perf-prof python` runs it on a recording, and returns what it printed
            --- status 0
        "#]],
    );
}

/// With `UPDATE_FORMATS`, writes the file of the shipped formats from the running kernel.
#[test]
fn shipped_formats_are_those_of_a_kernel() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(SHIPPED);
    if std::env::var_os("UPDATE_FORMATS").is_some() {
        let mut formats = print_fmt::live().unwrap();
        // Probes and other dynamic events exist only on this machine.
        formats.retain(|(system, text)| {
            !["kprobes", "uprobes", "synthetic", "user_events"].contains(&system.as_str())
                && !text.contains("field:unsigned long __probe_")
        });
        formats.sort();
        let text = FormatCollection::text_of(formats.iter().map(|(system, text)| (system.as_str(), text.as_str())));
        fs::write(&path, zstd::bulk::compress(text.as_bytes(), 22).unwrap()).unwrap();
    }
    let bytes = fs::read(&path).unwrap();
    assert!(bytes.len() < 150_000, "{} bytes", bytes.len());
    let formats = FormatCollection::from_zstd(&bytes).unwrap();
    assert!(formats.events().count() > 2000);
    for (system, name) in formats.events() {
        let format = formats.format(system, name).unwrap().unwrap();
        assert_eq!((&*format.system, format.name.as_str()), (system, name));
    }
    for (system, name) in [("sched", "sched_switch"), ("raw_syscalls", "sys_enter"), ("signal", "signal_generate")] {
        assert!(formats.text(system, name).is_some(), "{system}:{name}");
    }
}

#[test]
fn every_tracepoint_of_this_kernel_is_shipped() {
    needs([Need::Tracefs, Need::Kernel]);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    if !release.starts_with("6.18.") {
        crate::harness::machine::skip(Need::Kernel, format!("Linux {}", release.trim()));
    }
    let code = r#"
shipped = {(event.system, event.name): event for event in perf_prof.events(formats="shipped")}
dynamic = {"kprobes", "uprobes", "synthetic", "user_events", "kprobe", "uprobe"}
missing, different = [], []
for event in perf_prof.events():
    if event.system in dynamic or any(field.name.startswith("__probe_") for field in event.fields):
        continue
    other = shipped.get((event.system, event.name))
    if other is None:
        missing.append(str(event))
    elif [(f.name, f.type, f.offset, f.size) for f in other.fields] != [(f.name, f.type, f.offset, f.size) for f in event.fields]:
        different.append(str(event))
print(missing, different, len(shipped) > 2000)
"#;
    prints(
        code,
        expect![[r#"
            [] [] True
            --- status 0
        "#]],
    );
}

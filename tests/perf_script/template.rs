//! Templates of scripts for `perf script`. Python can import them for every tracepoint, and they print the same as
//! perf's templates.

use std::{fs, path::Path, process::Command, sync::Arc};

use perf_prof_events::{
    event::{EventType, Format},
    template::{FieldSigns, perf_script_template},
};
use perf_prof_format::{record::SampleLayout, tracefs::EventFormat};
use perf_prof_recordings::ReadLimits;
use perf_prof_tools::commands::script_template::{ScriptFile, write};

use crate::{
    harness::{
        machine::{Need, needs, skip},
        recording::{Folder, perf, record},
        run::{said, stdout},
        script::Run,
    },
    print_fmt,
};

/// A script that imports a template and calls its handlers. The value of each field is its name. The file `fields`
/// contains the names of the fields.
const CALL_ALL: &str = r#"
import contextlib, io, os, sys, types

def __init__():
    sys.path.insert(0, os.environ["MODULES"])
    os.environ["PERF_EXEC_PATH"] = "/nowhere"
    sys.modules["perf_trace_context"] = types.ModuleType("perf_trace_context")
    import template
    count = 0
    for line in open("fields", newline="\n"):
        handler, *fields = line.rstrip("\n").split("\t")
        # Values with names are shown with their names. 0 has none.
        function = getattr(template, handler)
        names = function.__code__.co_names
        helped = "flag_str" in names or "symbol_str" in names
        values = [0] * len(fields) if helped else ["<%s>" % field for field in fields]
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            function(handler, None, 1, 2, 3, 4, "comm", [], *values, {"sample": {"b": 1, "a": "x"}})
        first, sample, *rest = printed.getvalue().split("\n")
        start = "%-20s     1 00002.000000003        4 comm                 " % handler
        shown = first.removeprefix(start).split(", ")
        assert first.startswith(start) and sample == "Sample: {a=x, b=1}" and rest == ["", ""], printed.getvalue()
        assert [item.split("=")[0] for item in shown] == (fields or [""]), (handler, shown, fields)
        assert helped or shown == (["%s=<%s>" % (field, field) for field in fields] or [""]), (handler, shown)
        count += 1
    print(count, "handlers")
    raise SystemExit(0)

def __sample__(event):
    pass
"#;

fn events(formats: &[(String, String)]) -> Vec<EventType> {
    let parsed = formats.iter().filter_map(|(system, text)| EventFormat::parse(system, text).ok());
    let layout = SampleLayout::from_format(Default::default());
    let event =
        |format| EventType { alias: None, format: Format::Tracepoint(Arc::new(format)), layout, max_stack: None };
    parsed.map(event).collect()
}

#[track_caller]
fn check(formats: &[(String, String)]) {
    let events = events(formats);
    let fields = |event: &EventType| {
        let names = event.format.tracepoint().unwrap().fields().iter().map(|field| field.name.clone());
        [vec![event.handler_name()], names.collect()].concat().join("\t") + "\n"
    };
    let fields: String = events.iter().map(fields).collect();
    let run = Run::script(CALL_ALL)
        .file("template.py", perf_script_template(&events, FieldSigns::AsPerf))
        .file("fields", fields)
        .env("MODULES", Path::new(env!("CARGO_MANIFEST_DIR")).join("python/perf_script"))
        .call_event()
        .workload("exit 0");
    let outcome = run.run();
    assert_eq!((outcome.status, outcome.complaints().as_str()), (0, ""), "{}", outcome.stdout);
    assert_eq!(outcome.stdout, format!("{} handlers\n", events.len()));
}

#[test]
fn templates_of_all_tracepoints_of_this_kernel_can_be_imported() {
    needs([Need::Tracefs, Need::Python]);
    match print_fmt::live() {
        Ok(formats) => {
            assert!(formats.len() > 100, "{}", formats.len());
            check(&formats);
        }
        Err(why) => skip(Need::Tracefs, why),
    }
}

#[test]
fn templates_of_made_up_formats_can_be_imported() {
    needs([Need::Tracefs, Need::Python]);
    let fields = [
        "from",
        "print",
        "sys",
        "len",
        "self",
        "a.b$",
        "import",
        "lambda",
        "\u{b2}",
        "__debug__",
        "x",
        "x",
        "x_",
        "sorted",
        "(*x\"],exit#)",
        "(*y\rimport os)",
        "(*\\)",
        "(*'%s{0})",
        "(*\"\"\")",
        "event_name",
        "print_fields",
        "flag_str",
    ];
    let line = |name: &&str| format!("\tfield:int {name};\toffset:8;\tsize:4;\tsigned:1;\n");
    let lines: String = fields.iter().map(line).collect();
    let format = |name: &str, lines: &str| format!("name: {name}\nID: 1\nformat:\n{lines}\nprint fmt: \"x\"\n");
    let all = [format("n\":\r#", &lines), format("no_fields", "")];
    check(&all.map(|text| ("s\"\r".to_owned(), text)));
}

#[test]
fn templates_of_all_tracepoints_of_another_kernel_can_be_imported() {
    needs([Need::Tracefs, Need::Python]);
    check(&print_fmt::recorded());
}

/// Returns what a script prints when perf runs it on the recording in a folder.
#[track_caller]
fn output(folder: &Folder, script: &Path) -> String {
    let mut perf = Command::new("perf");
    stdout(&perf.args(["script", "-i"]).arg(folder.path("perf.data")).arg("-s").arg(script).output().unwrap())
}

/// Records a command that creates directories and child processes. Compares the output of perf-prof's template with the
/// output of perf's template, which perf writes to `perf-script.py`.
#[track_caller]
fn same_output(events: &[&str], wanted: &[&str]) {
    needs([Need::Perf]);
    let folder = Folder::new();
    let recording = folder.path("perf.data");
    let made = folder.path("made").to_str().unwrap().to_owned();
    let script = format!("mkdir {made}; sleep 0.01; kill -0 $$; (exit 0); rmdir {made}");
    let command = ["--", "sh", "-c", &script];
    record(&recording, &[events, &command].concat());
    let ours = folder.path("ours.py");
    write(&recording, &ReadLimits::default(), &ScriptFile::Named(ours.clone()), FieldSigns::AsPerf).unwrap();
    let generated =
        Command::new("perf").args(["script", "-g", "python"]).current_dir(folder.path("")).output().unwrap();
    if said(&generated).contains("invalid language") {
        skip(Need::Perf, "this perf runs no Python scripts");
    }
    let theirs = folder.path("perf-script.py");
    let expected = output(&folder, &theirs);
    for part in wanted {
        assert!(expected.contains(part), "{part} in {expected}");
    }
    assert_eq!(output(&folder, &ours), expected);
    // Both templates contain the same handlers in the same order.
    let handlers = |text: &str| -> Vec<String> {
        let names = text.lines().filter_map(|line| line.strip_prefix("def ")?.split('(').next());
        names.filter(|name| name.contains("__")).map(str::to_owned).collect()
    };
    assert_eq!(handlers(&fs::read_to_string(&ours).unwrap()), handlers(&fs::read_to_string(&theirs).unwrap()));
}

#[test]
fn the_output_is_that_of_perfs_own_template() {
    let events = ["-e", "sched:*,raw_syscalls:*,signal:*,task:*,syscalls:sys_enter_mkdir,syscalls:sys_exit_mkdir"];
    same_output(&events, &["sched__sched_process_exec", "args=bytearray(", "pathname=", "Sample: {", "prev_state="]);
}

#[test]
fn frames_of_call_chains_are_printed_as_by_perfs_own_template() {
    same_output(
        &["-g", "-e", "sched:sched_process_fork,sched:sched_process_exit"],
        &["\t[ffffffff", "kernel_clone+0x"],
    );
}

#[test]
fn samples_of_events_other_than_tracepoints_are_printed() {
    needs([Need::Perf]);
    let folder = Folder::new();
    let recording = folder.path("perf.data");
    record(&recording, &["-g", "-e", "page-faults,sched:sched_process_exit", "-c", "1", "--", "sh", "-c", "(exit 0)"]);
    let ours = folder.path("ours.py");
    write(&recording, &ReadLimits::default(), &ScriptFile::Named(ours.clone()), FieldSigns::True).unwrap();
    assert!(fs::read_to_string(&ours).unwrap().starts_with("#!/usr/bin/env -S perf-prof script --signed -s\n"));
    let generated =
        Command::new("perf").args(["script", "-g", "python"]).current_dir(folder.path("")).output().unwrap();
    if said(&generated).contains("invalid language") {
        skip(Need::Perf, "this perf runs no Python scripts");
    }
    let printed = output(&folder, &ours);
    let of = |event: &str| printed.lines().filter(|line| line.starts_with(event)).count();
    let samples =
        |event: &str| perf(&["script", "-F", "event"], &recording).iter().filter(|line| line.contains(event)).count();
    let faults = samples("page-faults");
    assert!(faults > 5, "{faults}");
    assert_eq!((of("page-faults "), of("sched__sched_process_exit ")), (faults, samples("sched_process_exit")));
    assert_eq!(of("Sample: {"), faults + of("sched__sched_process_exit "));
    assert!(printed.contains(" symbol=") && printed.contains("\n\t["), "{printed}");
}

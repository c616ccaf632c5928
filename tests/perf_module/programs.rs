//! How programs with `import perf` are run, and which module `import perf` finds.

use std::path::Path;

use super::{printed, run};
use crate::harness::{
    machine::{Need, needs},
    recording::{Folder, record},
    run::{perf_prof, said, stdout},
};

#[test]
fn a_program_runs_as_python_runs_it() {
    needs([Need::Python]);
    let folder = Folder::new();
    folder.write("beside.py", b"NAME = 'beside'\n");
    let script = "
import sys
import perf
import beside
print(__name__, sys.argv[1:], beside.NAME, perf.__name__, perf.RECORD_SAMPLE)
sys.exit(3 if sys.argv[2:] else 0)
";
    assert_eq!(printed(&folder, script, &[Path::new("-a")]), "__main__ ['-a'] beside perf_prof.perf 9\n");
    let output = run(&folder, script, &[Path::new("-a"), Path::new("--top")]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let output = run(&folder, "import perf\nperf.data('/nowhere')\n", &[]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("program.py\", line 2") && text.contains("FileNotFoundError"), "{text}");
}

#[test]
fn options_for_events_are_refused_for_a_program() {
    needs([Need::Python]);
    let folder = Folder::new();
    let script = folder.write("program.py", b"import perf\nprint('ran')\n");
    let options = ["-i x.data", "-e sched:*", "-C 0", "-p 1", "-t 1", "--cgroups x", "--buffer 8M", "--signed"];
    for option in options.map(|option| option.split(' ').collect::<Vec<_>>()) {
        let output = perf_prof(&["script"]).args(&option).arg("-s").arg(&script).output().unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(
            text.contains(option[0]) && text.contains("the script imports perf, so it opens its events itself"),
            "{text}"
        );
    }
}

#[test]
fn a_script_of_both_generations_fails() {
    needs([Need::Python]);
    let folder = Folder::new();
    let handler = "def sched__sched_switch(event_name, context, common_cpu, common_secs): pass\n";
    let output = run(&folder, &format!("print('ran')\nimport perf\n{handler}"), &[]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("has the handler sched__sched_switch(") && text.contains("docs/perf-module.md"), "{text}");
    assert!(!text.contains("ran"), "{text}");
    let output = run(&folder, "print('ran')\nimport perf\ndef process_event(param_dict): print('called')\n", &[]);
    let text = said(&output);
    assert_eq!((output.status.code(), text.contains("ran")), (Some(2), false), "{text}");
    assert!(text.contains("has the function process_event(), which it does not use itself"), "{text}");
    // A script for `perf-prof python`, and other ways to import the module.
    let handlers =
        "print('ran')\nimport importlib\nperf = importlib.import_module('perf')\ndef __sample__(event): pass\n";
    let output = run(&folder, handlers, &[]);
    let text = said(&output);
    assert_eq!((output.status.code(), text.contains("ran")), (Some(2), false), "{text}");
    assert!(text.contains("has the function __sample__(), which it does not use itself"), "{text}");
}

#[test]
fn modules_of_the_older_interface_name_the_way_out() {
    needs([Need::Python]);
    let (folder, exec_path) = (Folder::new(), Folder::new());
    exec_path.write("Util.py", b"def nsecs(secs, rest): return 7\n");
    let path = exec_path.path("");
    for import in ["from Util import *", "importlib.import_module('Core')", "import Core", "__import__('EventClass')"] {
        let folder_of_perf =
            format!("sys.path.append({:?})\n", path.join("scripts/python/Perf-Trace-Util/lib/Perf/Trace"));
        let output = run(&folder, &format!("import importlib, sys\nimport perf\n{folder_of_perf}{import}\n"), &[]);
        let text = said(&output);
        assert!(!output.status.success() && text.contains("docs/perf-module.md"), "{import}: {text}");
    }
    // Modules of the same names that belong to the user are imported.
    folder.write("Util.py", b"def nsecs(secs, rest): return 7\n");
    assert_eq!(printed(&folder, "import perf\nfrom Util import *\nprint(nsecs(1, 2))\n", &[]), "7\n");
    let script =
        format!("import sys\nimport perf\nsys.path.append({path:?})\nfrom Util import nsecs\nprint(nsecs(1, 2))\n");
    assert_eq!(printed(&Folder::new(), &script, &[]), "7\n");
}

/// A program that counts the tasks of a recording.
const COUNT: &str = "
import sys
from collections import Counter
import perf

counts = Counter()
def count(event):
    counts[str(event.evsel), session.find_thread(event.sample_pid, event.sample_tid).comm()] += 1
print('before')
session = perf.session(perf.data(sys.argv[1]), sample=count)
session.process_events()
print(list(counts.items()), session.e_machine > 0, session.is_64_bit)
";

#[test]
fn a_session_is_divided_between_processes() {
    needs([Need::Perf, Need::Tracefs, Need::Python]);
    let folder = Folder::new();
    let data = folder.path("perf.data");
    let shell = "for i in 1 2 3 4 5 6; do /bin/true; done";
    record(&data, &["-e", "sched:sched_process_exec,sched:sched_process_exit", "--", "sh", "-c", shell]);
    let with_jobs = |text: &str| {
        let script = folder.write("program.py", text.as_bytes());
        perf_prof(&["script", "--jobs", "3"]).arg(&script).arg(&data).output().unwrap()
    };
    let one = printed(&folder, COUNT, &[&data]);
    assert!(one.contains("'true'), 6)") && one.ends_with("True True\n"), "{one}");
    let output = with_jobs(COUNT);
    assert_eq!(stdout(&output), one, "{}", said(&output));
    let merged = COUNT
        .replace("counts = Counter()\n", "counts = {}\nlast = []\n")
        .replace("] += 1", "] = 1\n    last.append(1)");
    let output = with_jobs(&merged);
    let text = said(&output);
    assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b"before\n"[..]), "{text}");
    assert!(text.contains("Line 9 changes counts and does not only add a number to it"), "{text}");
    let functions =
        "def __partial__():\n    return len(last)\ndef __merge__(parts):\n    print(len(parts), sum(parts))\n";
    let output = with_jobs(&merged.replace("print('before')\n", functions).replace("print(list", "(list"));
    let total =
        printed(&folder, &COUNT.replace("print(list(counts.items())", "print((sum(counts.values()))"), &[&data]);
    let total = total.lines().last().and_then(|line| line.split([' ', ',', '(']).find(|word| !word.is_empty()));
    assert_eq!(stdout(&output), format!("3 {}\n", total.unwrap()), "{}", said(&output));
    let raises = COUNT.replace("    counts[", "    raise KeyError('mine')\n    counts[");
    let output = with_jobs(&raises);
    assert!(output.status.code() == Some(1) && said(&output).contains("KeyError: 'mine'"), "{}", said(&output));
    let output = with_jobs(&COUNT.replace("sample=count", "sample=count, stat=print"));
    assert!(said(&output).contains("the session has stat= or lost=; leave --jobs out"), "{}", said(&output));
}

#[test]
fn a_module_beside_the_script_is_preferred() {
    needs([Need::Python]);
    let folder = Folder::new();
    folder.write("perf.py", b"OWN = 'own'\n");
    assert_eq!(printed(&folder, "import perf\nprint(perf.OWN)\n", &[]), "own\n");
}

/// perf's module of most distributions has no sessions.
#[test]
fn an_installed_module_of_perf_does_not_replace_the_package_s() {
    needs([Need::Python]);
    let (folder, installed) = (Folder::new(), Folder::new());
    installed.write("perf.py", b"");
    // The folder `perf` beside a script, as in the kernel's `tools/`, is no module either.
    std::fs::create_dir(folder.path("perf")).unwrap();
    let script =
        folder.write("program.py", b"import perf\nimport perf_live\nprint(perf.__name__, perf_live.perf is perf)\n");
    let output = perf_prof(&["script"]).arg(&script).env("PYTHONPATH", installed.path("")).output().unwrap();
    assert_eq!(stdout(&output), "perf_prof.perf True\n", "{}", said(&output));
}

#[test]
fn handlers_can_use_the_module() {
    needs([Need::Perf, Need::Tracefs, Need::Python]);
    let folder = Folder::new();
    let data = folder.path("perf.data");
    record(&data, &["-e", "sched:sched_process_exec", "--", "true"]);
    let script = "import perf\ndef __sample__(event):\n    print(perf.syscall_name(0, elf_machine=62), event._comm)\n";
    let script = folder.write("handlers.py", script.as_bytes());
    let output = perf_prof(&["python", "-q", "--input"]).arg(&data).arg(script).output().unwrap();
    assert_eq!(stdout(&output), "read true\n");
}

#[test]
fn functions_of_the_module_know_this_machine() {
    needs([Need::Tracefs, Need::Python]);
    let folder = Folder::new();
    folder.write("config", b"[colors]\n\ttop = red, default # x\n[ui]\nshow-headers\n");
    let script = "
import os, sys
import perf
os.environ['PERF_CONFIG'] = sys.argv[1]
print(perf.config_get('colors.top'), perf.config_get('ui.show-headers'), perf.config_get('ui.other'))
print(perf.syscall_name(1, elf_machine=183), perf.syscall_name(99999), perf.syscall_id('read', 62))
print(perf.syscall_name(0, 183), perf.syscall_name(0, 0) == perf.syscall_name(0), perf.arch_strerrno(-2), perf.arch_strerrno(95, 183),
    perf.arch_strerrno(35, 0), perf.arch_strerrno(35, 8), perf.arch_strerrno(512))
print(len(perf.cpu_map()) == os.cpu_count(), list(perf.cpu_map('0-2,5')), list(perf.thread_map()), list(perf.thread_map(tid=7)))
print(os.getpid() in perf.thread_map(os.getpid()), 'software' in map(str, perf.pmus()))
print(perf.tracepoint('sched', 'sched_switch') > 0, perf.tracepoint('sched', 'no'))
print(perf.evsel(type=perf.TYPE_SOFTWARE, config=perf.COUNT_SW_TASK_CLOCK), perf.evsel(), perf.evsel(type=perf.TYPE_RAW, config=0x1c0))
names = {str(pmu): [event['name'] for event in pmu.events()] for pmu in perf.pmus()}
print(perf.metrics(), 'cpu-clock' in names['software'], 'sched:sched_switch' in names['tracepoint'])
for call in (lambda: perf.parse_metrics('IPC'), lambda: perf.syscall_id('nothing')):
    try:
        call()
    except (NotImplementedError, ValueError) as error:
        print(type(error).__name__, error)
";
    let config = folder.path("config");
    let printed = printed(&folder, script, &[&config]);
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(
        lines[..7],
        [
            "red, default true None",
            "io_destroy None 0",
            "io_setup True ENOENT EOPNOTSUPP EDEADLK None None",
            "True [0, 1, 2, 5] [-1] [7]",
            "True True",
            "True -1",
            "evsel(task-clock) evsel(cycles) evsel(raw 0x1c0)",
        ],
        "{printed}"
    );
    assert_eq!(lines[7], "[] True True", "{printed}");
    let refused = "NotImplementedError perf.parse_metrics(): perf-prof has no tables of the events";
    assert!(lines[8].starts_with(refused), "{printed}");
    assert_eq!(lines[9], "ValueError Failed to find syscall nothing");
}

#[test]
fn other_objects_than_maps_are_refused() {
    needs([Need::Tracefs, Need::Python]);
    let script = "
import perf
maps = perf.cpu_map(), perf.thread_map()
for of in ({'cpus': 3}, {'threads': 0}, {'threads': maps[0]}):
    try:
        perf.parse_events('task-clock', **of)
    except TypeError as error:
        print(error)
try:
    perf.evlist(*reversed(maps))
except TypeError as error:
    print(error)
";
    let no_map = "threads must be a perf.thread_map, not";
    let expected = format!(
        "cpus must be a perf.cpu_map, not int\n{no_map} int\n{no_map} cpu_map\ncpus must be a perf.cpu_map, not thread_map\n"
    );
    assert_eq!(printed(&Folder::new(), script, &[]), expected);
}

#[test]
fn help_shows_the_classes_for_live_events_too() {
    needs([Need::Python]);
    let text = printed(&Folder::new(), "import perf\nhelp(perf)\n", &[]);
    for name in ["session", "sample_event", "evlist", "evsel", "cpu_map", "counts_values", "comm_event", "stat_event"] {
        assert!(text.contains(&format!("    class {name}(")), "{name}: {text}");
    }
    assert!(text.contains("\n    parse_events(") && text.contains("\n    tracepoint("), "{text}");
}

#[test]
fn perf_prof_python_says_how_a_program_is_run() {
    needs([Need::EmbeddedPython]);
    let folder = Folder::new();
    let script = folder.write("program.py", b"import perf\n");
    let output = perf_prof(&["python"]).arg(&script).output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(&format!("`perf-prof script {}`", script.display())), "{text}");
}

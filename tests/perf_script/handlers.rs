//! How handlers of `perf script` scripts are called: by position, by name, when they are defined late, and when they
//! fail.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use crate::harness::{
    awake::Awake,
    machine::{Need, needs},
    recording::{Folder, record},
    run::{perf_prof, said, stdout},
};

/// The first parameters of a handler.
const FIRST: &str =
    "event_name, context, common_cpu, common_secs, common_nsecs, common_pid, common_comm, common_callchain";

/// A recording of a shell that executes the program `true` three times.
struct Recorded {
    folder: Folder,
    data: PathBuf,
}

impl Recorded {
    fn new() -> Recorded {
        let command = ["sh", "-c", "/bin/true; /bin/true; /bin/true; exit 0"];
        Recorded::of("sched:sched_process_exec,sched:sched_process_exit", &command)
    }

    /// Records the events of a command.
    fn of(events: &str, command: &[&str]) -> Recorded {
        let folder = Folder::new();
        let data = folder.path("perf.data");
        let mut record = perf_prof(&["record", "-q", "-e", events, "-o"]);
        let output = record.arg(&data).arg("--").args(command).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        Recorded { folder, data }
    }

    /// Runs a script on the recording. In the script, `FIRST` is replaced by the first parameters.
    fn run(&self, script: &str) -> Output {
        self.run_with(&[], script)
    }

    fn run_with(&self, options: &[&str], script: &str) -> Output {
        let script = self.folder.write("s.py", script.replace("FIRST", FIRST).as_bytes());
        perf_prof(&["script", "-i"]).arg(&self.data).args(options).arg("-s").arg(script).output().unwrap()
    }

    fn printed(&self, script: &str) -> String {
        self.printed_with(&[], script)
    }

    /// Runs a script that must succeed, and returns what it prints.
    fn printed_with(&self, options: &[&str], script: &str) -> String {
        stdout(&self.run_with(options, script))
    }
}

/// Returns what a script has printed, even if it failed.
fn printed_by(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn fields_are_passed_by_position_and_by_name() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new();
    let body = "print(str(filename).rsplit('/')[-1], pid > 0, old_pid > 0)";
    let all = "def sched__sched_process_exec(FIRST, filename, pid, old_pid):\n    ";
    let by_position = recorded.printed(&format!("{all}{body}"));
    assert_eq!(by_position.lines().filter(|line| *line == "true True True").count(), 3, "{by_position}");
    for parameters in [
        "FIRST, a_name, pid, old_pid, perf_sample_dict",
        "FIRST, pid, filename, *, old_pid",
        "FIRST, pid, unknown=1, other=2, filename='', old_pid=0",
        "FIRST, **fields",
        "**fields",
        "*, common_comm, filename, pid, old_pid",
        "*values",
    ] {
        let unpack = match parameters {
            "FIRST, a_name, pid, old_pid, perf_sample_dict" => "filename = a_name",
            "*values" => "filename, pid, old_pid = values[8:]",
            "FIRST, **fields" | "**fields" => {
                "filename, pid, old_pid = fields['filename'], fields['pid'], fields['old_pid']"
            }
            _ => "pass",
        };
        let script = format!("def sched__sched_process_exec({parameters}):\n    {unpack}\n    {body}");
        assert_eq!(recorded.printed(&script), by_position, "{parameters}");
    }
    let older = FIRST.strip_suffix(", common_callchain").unwrap();
    let script = format!("def sched__sched_process_exec({older}, old_pid, pid):\n    print(pid > 0, old_pid > 0)");
    assert!(recorded.printed(&script).lines().all(|line| line == "True True"));
}

#[test]
fn methods_and_functions_that_are_defined_late_are_called() {
    needs([Need::Tracefs, Need::Python]);
    let printed = Recorded::new().printed(
        "class Counter:
    def __init__(self):
        self.count = 0
    def handle(self, FIRST, filename, pid, old_pid):
        self.count += 1
        global sched__sched_process_exit
        sched__sched_process_exit = late

counter = Counter()
sched__sched_process_exec = counter.handle
exits = 0

def late(*values):
    global exits
    exits += 1

def trace_end():
    print(counter.count >= 3, exits >= 3)
",
    );
    assert_eq!(printed, "True True\n");
}

#[test]
fn parameters_that_name_no_field_are_refused_before_the_start() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new();
    let start = "def trace_begin():\n    print('begin')\n";
    for (parameters, expected) in [
        ("FIRST, pid, prio", "no field has the name of prio; the fields are filename, pid, old_pid"),
        ("event_name, context", "sched__sched_process_exec() has 2 parameters, and its event has 11 values"),
    ] {
        let output = recorded.run(&format!("{start}def sched__sched_process_exec({parameters}): pass"));
        assert_eq!((output.status.code(), printed_by(&output).as_str()), (Some(1), ""), "{}", said(&output));
        assert!(said(&output).contains(expected), "{}", said(&output));
    }
    let output = recorded.run(&format!("{start}def sched__sched_switch(FIRST): pass"));
    assert_eq!((output.status.code(), printed_by(&output).as_str()), (Some(1), ""));
    assert!(said(&output).contains("its functions: sched__sched_switch; events of this run: sched:sched_process_exec"));
    for (wrong, expected) in [
        ("sched__sched_process_exec = 5", "sched__sched_process_exec has to be a function, but it is int"),
        ("trace_end = 'x'", "trace_end has to be a function, but it is str"),
        ("def trace_unhandled(a): pass", "trace_unhandled() has 1 parameters"),
    ] {
        let output = recorded.run(&format!("{start}{wrong}\ndef sched__sched_process_exit(*all): pass"));
        assert_eq!((output.status.code(), printed_by(&output).as_str()), (Some(1), ""), "{}", said(&output));
        assert!(said(&output).contains(expected), "{}", said(&output));
    }
}

#[test]
fn an_exception_is_reported_and_the_end_is_reached() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new();
    let end = "def trace_end():\n    print('end')\n";
    let output = recorded.run(&format!("{end}def trace_unhandled(name, context, fields):\n    1 / 0\n"));
    assert_eq!((output.status.code(), printed_by(&output).as_str()), (Some(1), "end\n"));
    assert!(said(&output).contains("ZeroDivisionError: division by zero"), "{}", said(&output));
    let script = format!("{end}import sys\ndef trace_unhandled(name, context, fields):\n    sys.exit(3)\n");
    let output = recorded.run(&script);
    assert_eq!((output.status.code(), printed_by(&output).as_str()), (Some(3), "end\n"), "{}", said(&output));
    let output = recorded.run_with(&["--on-error", "stop"], &format!("{end}def trace_unhandled(*all):\n    nothing\n"));
    assert_eq!((output.status.code(), printed_by(&output).as_str()), (Some(1), "end\n"));
    assert_eq!(said(&output).matches("NameError").count(), 1, "{}", said(&output));
    let output = recorded.run("def trace_begin():\n    open('/nonexistent')\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("trace_begin() failed"), "{}", said(&output));
}

#[test]
fn a_handler_that_computes_its_signature_may_fail() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new();
    let script = "class Handler:
    @property
    def __signature__(self): raise RuntimeError('no signature')
    def __call__(self, *all): print('called')
";
    let output = recorded.run(&format!("{script}sched__sched_process_exec = Handler()\n"));
    assert_eq!((output.status.code(), printed_by(&output).as_str()), (Some(1), ""), "{}", said(&output));
    let expected = "the parameters of sched__sched_process_exec() are not known: RuntimeError: no signature";
    assert!(said(&output).contains(expected), "{}", said(&output));
    let late = "def trace_begin():\n    global trace_unhandled\n    trace_unhandled = Handler()\n";
    let other = "def sched__sched_process_exec(*all): pass\n";
    let output = recorded.run(&format!("{script}{late}{other}"));
    assert_eq!((output.status.code(), printed_by(&output).as_str()), (Some(1), ""), "{}", said(&output));
    assert!(said(&output).contains("RuntimeError: no signature"), "{}", said(&output));
}

/// No signal arrived, so the script itself raised this exception.
#[test]
fn a_keyboard_interrupt_of_the_script_ends_the_run_as_in_python() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new();
    let raising = "def trace_unhandled(*all):\n    print('called')\n    raise KeyboardInterrupt('enough')\n";
    let output = recorded.run(&format!("{raising}def trace_end():\n    print('end')\n"));
    assert_eq!((output.status.code(), printed_by(&output).as_str()), (Some(130), "called\nend\n"));
    assert!(said(&output).ends_with("KeyboardInterrupt: enough\n"), "{}", said(&output));
    let output = recorded.run("def trace_unhandled(*all): pass\ndef trace_end():\n    raise KeyboardInterrupt\n");
    assert_eq!(output.status.code(), Some(130));
    assert!(said(&output).ends_with("KeyboardInterrupt\n"), "{}", said(&output));
}

#[test]
fn a_recording_that_is_cut_off_gives_the_events_before_its_end() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new();
    let whole = fs::read(&recorded.data).unwrap();
    let script =
        "n = 0\ndef trace_unhandled(*all):\n    global n\n    n += 1\ndef trace_end():\n    print('end', n >= 0)\n";
    // In recordings of perf, the formats come after the records.
    let script_with_handler = "def sched__sched_process_exec(*all): pass";
    if Command::new("perf").arg("--version").output().is_ok() {
        record(&recorded.data, &["-e", "sched:sched_process_exec", "--", "sh", "-c", "/bin/true; exit 0"]);
        let mut bytes = fs::read(&recorded.data).unwrap();
        // The offset and the size of the records are in `struct perf_file_header` (`tools/perf/util/header.h`).
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        bytes.truncate(word(40) + word(48));
        fs::write(&recorded.data, &bytes).unwrap();
        let output = recorded.run(script_with_handler);
        assert_eq!((output.status.code(), printed_by(&output).as_str()), (Some(1), ""));
        for part in
            ["is cut off", "names and fields of tracepoints are not known", "has no function for any event of this run"]
        {
            assert!(said(&output).contains(part), "{part}: {}", said(&output));
        }
        // A script without a handler for a certain event runs. A message states why the result is empty.
        let output = recorded.run("def trace_unhandled(*all): print('called')\ndef trace_end(): print('end')");
        assert_eq!((output.status.code(), printed_by(&output).as_str()), (Some(0), "end\n"), "{}", said(&output));
        assert!(said(&output).contains("names and fields of tracepoints are not known"), "{}", said(&output));
    }
    for cut in [whole.len() / 2, whole.len() - 100, whole.len() - 1] {
        fs::write(&recorded.data, &whole[..cut]).unwrap();
        let output = recorded.run(script);
        let status = output.status.code();
        assert!(status == Some(0) && printed_by(&output) == "end True\n" || status == Some(1), "{}", said(&output));
        assert!(!said(&output).contains("panicked"), "{}", said(&output));
    }
}

#[test]
fn names_of_tasks_may_be_any_bytes() {
    needs([Need::Tracefs, Need::Python]);
    let rename = "import ctypes, os\nctypes.CDLL(None).prctl(15, b'\\xff\\xfe\\x1b[1m')\nos.kill(os.getpid(), 0)";
    let script = "def trace_unhandled(name, context, fields, sample):
    comm = fields['common_comm']
    print(comm.encode(errors='surrogateescape'), sample['comm'] == comm)
";
    let printed = Recorded::of("syscalls:sys_enter_kill", &["python3", "-c", rename]).printed(script);
    assert!(printed.contains(r"b'\xff\xfe\x1b[1m' True"), "{printed}");
}

#[test]
fn negative_numbers_are_as_in_perf_or_true() {
    needs([Need::Tracefs, Need::Python]);
    // The code of the signal is a signed 4-byte number.
    let kill = "import os, signal, threading\n\
                signal.signal(10, lambda *_: None)\nsignal.pthread_kill(threading.get_ident(), 10)";
    let recorded = Recorded::of("signal:signal_generate", &["python3", "-c", kill]);
    let script = "def trace_unhandled(name, context, fields):\n    if fields['sig'] == 10: print(fields['code'])\n";
    // SI_TKILL, `include/uapi/asm-generic/siginfo.h`.
    assert_eq!(recorded.printed(script), "4294967290\n");
    assert_eq!(recorded.printed_with(&["--signed"], script), "-6\n");
}

/// A script that counts tracepoints. It can run in several processes.
const COUNT: &str = "count = 0
def trace_unhandled(name, context, fields):
    global count
    count += 1
def __partial__():
    return count
def __merge__(parts):
    global count
    count = sum(parts)
def trace_end():
    print(count)
";

#[test]
fn several_processes_give_the_result_of_one() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new();
    let one = recorded.printed(COUNT);
    assert!(one.trim().parse::<u32>().unwrap() >= 7, "{one}");
    let output = recorded.run_with(&["--jobs", "2"], COUNT);
    assert_eq!((output.status.code(), printed_by(&output)), (Some(0), one), "{}", said(&output));
    // If one of the two functions for --jobs is missing, nothing is printed.
    let script = format!("{}def trace_begin():\n    print('begin')\n", COUNT.replace("__merge__", "merge"));
    let output = recorded.run_with(&["--jobs", "2"], &script);
    assert_eq!((output.status.code(), printed_by(&output).as_str()), (Some(1), ""), "{}", said(&output));
    assert!(said(&output).contains("defines only one of __partial__() and __merge__()"), "{}", said(&output));
}

#[test]
fn scripts_that_only_count_need_no_functions_for_several_processes() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new();
    let script = "from Core import *
from collections import Counter
tree, flat, plain, number = autodict(), Counter(), {}, 5
def trace_begin():
    print('begin')
def count(comm, name):
    try:
        tree[comm][name] += 1
    except TypeError:
        tree[comm][name] = 1
def trace_unhandled(name, context, fields):
    global number
    number += 2
    count(fields['common_comm'], name)
    flat[name] += 1
    if name not in plain:
        plain[name] = 0
    plain[name] += fields['common_pid']
def trace_end():
    print([(comm, list(of.items())) for comm, of in tree.items()], list(flat.items()), plain, number)
";
    let one = recorded.printed(script);
    for jobs in ["2", "3"] {
        let output = recorded.run_with(&["--jobs", jobs], script);
        assert_eq!((output.status.code(), printed_by(&output)), (Some(0), one.clone()), "{}", said(&output));
    }
}

#[test]
fn scripts_with_other_results_than_counts_name_them_for_several_processes() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new();
    let count = "counts = {}\nlast = {}\nclass Sum:\n  n = 0\nsums = Sum()\ndef trace_begin(): print('begin')\n\
                 def trace_unhandled(name, context, fields):\n  counts[name] = counts.get(name, 0) + 1\n";
    for (line, why) in [
        ("last[name] = fields['common_ns']", "Line 9 changes last and does not only add a number to it"),
        ("print(counts)", "Line 9 uses counts for more than adding a number"),
        ("sums.n += 1", "Line 9 changes sums and does not only add a number to it"),
        ("setattr(sums, 'n', 1)", "Line 9 uses setattr(), which may change any variable"),
        ("of = vars", "Line 9 uses vars(), which may change any variable"),
        ("last.update(fields)", "Line 9 may change last with .update()"),
    ] {
        let output = recorded.run_with(&["--jobs", "2"], &format!("{count}  {line}\n"));
        let text = said(&output);
        assert_eq!((output.status.code(), printed_by(&output).as_str()), (Some(1), ""), "{text}");
        assert!(text.contains(why) && text.contains("or leave --jobs out"), "{line}: {text}");
    }
    // What the text of the script does not show is found at the end of a part.
    let output = recorded.run_with(&["--jobs", "2"], &format!("{count}  of = last\n  of[name] = 1\n"));
    let text = said(&output);
    assert!(!output.status.success() && text.contains("last changes, and the script does not only add"), "{text}");
}

#[test]
fn spans_of_a_live_command_reach_the_handlers() {
    needs([Need::Tracefs, Need::Python]);
    let _awake = Awake::new();
    let folder = Folder::new();
    let script = "tasks = []
def trace_unhandled(name, context, fields, sample): tasks.append(fields['common_comm'])
# The command may have been off its CPU before its exec.
def trace_end(): print(set(tasks) - {'perf-prof'})
";
    let script = folder.write("s.py", script.as_bytes());
    let output =
        perf_prof(&["script", "-e", "offcpu", "-s"]).arg(script).args(["--", "sleep", "0.1"]).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "{'sleep'}\n"), "{}", said(&output));
}

#[test]
fn selected_samples_reach_the_handlers() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new();
    let count = |options: &[&str]| recorded.printed_with(options, COUNT).trim().parse::<u32>().unwrap();
    let (all, of_true) = (count(&[]), count(&["--comms", "true"]));
    assert!(of_true >= 3 && of_true < all, "{of_true} {all}");
    assert_eq!(count(&["--comms", "true,sh,perf-prof"]), all);
    assert_eq!(count(&["--time", "0%-100%"]), all);
}

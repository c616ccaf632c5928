//! Records with the real perf and with `perf-prof record`, in all kinds of recordings. `perf-prof script` must print
//! the same text as `perf script`, and other programs must be able to read the recordings of `perf-prof record`.

use std::{collections::HashMap, fs::File, io::BufReader, path::Path, process::Command};

use linux_perf_data::{PerfFileReader, PerfFileRecord};

use super::{
    report,
    text::{Compared, Names, compare, compare_texts},
};
use crate::harness::{
    machine::{Need, needs},
    older_perf,
    recording::{ours, perf, record, record_here, record_pipe, record_pipe_here},
    run::{perf_prof, printed},
    wait::Killed,
};

/// The program that records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorder {
    Perf,
    Here,
}

/// The format of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    File,
    Packed,
    Directory,
    Pipe,
}

impl Recorder {
    fn record(self, path: &Path, args: &[&str]) {
        match self {
            Recorder::Perf => record(path, args),
            Recorder::Here => record_here(path, args),
        }
    }

    /// Writes the recording in the format of a pipe into a file.
    fn pipe(self, path: &Path, args: &[&str]) {
        match self {
            Recorder::Perf => record_pipe(path, args),
            Recorder::Here => record_pipe_here(path, args),
        }
    }
}

/// A kind of recording: its name, its format, the arguments for it, and how its texts may differ.
struct Kind {
    name: &'static str,
    form: Form,
    args: &'static [&'static str],
    command: &'static [&'static str],
    names: Names,
}

/// The commands only wait, and all tasks are recorded meanwhile. On an idle machine, these commands are the only tasks.
const SLEEP: &[&str] = &["-a", "--", "sh", "-c", "for i in 1 2 3 4 5 6; do sleep 0.05; done"];
const SWITCH: &str = "sched:sched_switch";
/// A command that works for a while.
const LS: &[&str] = &["--", "ls", "-lR", "/usr/share/doc"];

#[track_caller]
fn check(recorder: Recorder, kind: &Kind) {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    let args = [kind.args, kind.command].concat();
    let compared = match kind.form {
        Form::Pipe => {
            recorder.pipe(&path, &args);
            let compared = compare(&path, &[], kind.names);
            // The same recording is read again, from stdin.
            let mut ours = perf_prof(older_perf::script_words());
            let ours = printed(&ours.args(["-i", "-"]).stdin(File::open(&path).unwrap()).output().unwrap());
            compare_texts(perf(&["script"], &path), ours, kind.names);
            compared
        }
        Form::File | Form::Packed | Form::Directory => {
            recorder.record(&path, &args);
            let options: &[&str] = if kind.form == Form::Directory { &["--ns"] } else { &[] };
            compare(&path, options, kind.names)
        }
    };
    show(recorder, kind.name, &compared);
    if recorder == Recorder::Here {
        // If all tasks are recorded, some may have ended (see `is_of_ended`), and perf cuts off the comms of tasks that are
        // named shorter later. So comms are not compared.
        let all_tasks = kind.command == SLEEP || kind.args.contains(&"-a");
        let keys = if all_tasks { "dso" } else { "comm,dso" };
        is_read_by_others(&path, kind.form, keys);
    }
}

fn show(recorder: Recorder, name: &str, compared: &Compared) {
    let recorder = if recorder == Recorder::Perf { "perf" } else { "perf-prof" };
    println!("{recorder:>9} record {name:<18} {compared}");
}

/// Checks that other commands of perf, and a reader other than perf, can read the recording.
#[track_caller]
fn is_read_by_others(path: &Path, form: Form, keys: &str) {
    // perf shows the events of a group side by side, unless `--no-group` is given.
    report::compare(path, &["--no-group", "--no-children", "--sort", keys], &["--sort", keys]);
    let names: Vec<String> = perf(&["evlist"], path).into_iter().filter(|line| !line.starts_with('#')).collect();
    if form == Form::Pipe {
        // perf 6.1 cannot name the tracepoints of a pipe in `perf evlist`, and its `perf buildid-list` cannot read a
        // pipe with tracepoints. This affects pipes of perf and of perf-prof.
        assert!(names.iter().any(|name| name == "unknown tracepoint"), "{names:?}");
        return;
    }
    assert_eq!(ours(&["evlist"], path), names);
    let build_ids = perf(&["buildid-list"], path);
    assert!(build_ids.iter().any(|line| line.ends_with(" [kernel.kallsyms]")), "{build_ids:?}");
    if form == Form::File {
        let (samples, others) = by_linux_perf_data(path);
        let counted = perf(&["script", "-F", "event"], path).iter().filter(|line| !line.is_empty()).count();
        assert!(others > 10, "{others}");
        // perf shows a group's sample as one sample of each of its events.
        assert!(samples > 0 && samples <= counted, "{samples} {counted}");
    }
}

/// Returns the number of samples and of other records that another reader (linux-perf-data) finds.
fn by_linux_perf_data(path: &Path) -> (usize, usize) {
    let file = BufReader::new(File::open(path).unwrap());
    let PerfFileReader { mut perf_file, mut record_iter } = PerfFileReader::parse_file(file).unwrap();
    let mut kinds: HashMap<String, usize> = HashMap::new();
    while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
        let kind = match record {
            PerfFileRecord::EventRecord { record, .. } => format!("{:?}", record.record_type),
            PerfFileRecord::UserRecord(_) => "of perf's".to_owned(),
        };
        *kinds.entry(kind).or_default() += 1;
    }
    let samples = kinds.remove("SAMPLE").unwrap_or(0);
    (samples, kinds.values().sum())
}

impl Kind {
    /// A file with the events of all tasks.
    const fn of_all_tasks(name: &'static str, args: &'static [&'static str]) -> Kind {
        Kind { name, form: Form::File, args, command: SLEEP, names: Names::None }
    }

    /// A file with the events of a command that works.
    const fn of_command(name: &'static str, args: &'static [&'static str]) -> Kind {
        Kind { command: LS, names: Names::Differ, ..Kind::of_all_tasks(name, args) }
    }

    const fn in_form(self, form: Form) -> Kind {
        Kind { form, ..self }
    }
}

/// Starts a shell that starts processes until it is killed.
fn busy() -> Killed {
    Killed(Command::new("sh").args(["-c", "while :; do /bin/true; done"]).spawn().unwrap())
}

#[track_caller]
fn process(recorder: Recorder) {
    needs([Need::Perf]);
    let busy = busy();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    // Closing a tracepoint takes the kernel long, so only some system calls are recorded.
    let events = "syscalls:sys_enter_exec*,syscalls:sys_enter_exit*,syscalls:sys_enter_wait*,syscalls:sys_enter_mm*,\
                  syscalls:sys_enter_open*,syscalls:sys_enter_close";
    recorder.record(&path, &["-e", events, "-p", &busy.0.id().to_string(), "--", "sleep", "0.5"]);
    drop(busy);
    show(recorder, "-p", &compare(&path, &[], Names::None));
    if recorder == Recorder::Here {
        is_read_by_others(&path, Form::File, "dso");
    }
}

/// Makes a test of each kind for each recorder.
macro_rules! recorded_by_both {
    ($($test:ident: $kind:expr;)*) => {
        mod by_perf {
            use super::*;
            $(#[test] fn $test() { check(Recorder::Perf, &$kind); })*
            #[test]
            fn a_process() {
                process(Recorder::Perf);
            }
        }
        mod by_perf_prof {
            use super::*;
            $(#[test] fn $test() { check(Recorder::Here, &$kind); })*
            #[test]
            fn a_process() {
                process(Recorder::Here);
            }
        }
    };
}

recorded_by_both! {
    one_event: Kind::of_all_tasks("one event", &["-e", "sched:sched_wakeup"]);
    several_events: Kind::of_all_tasks(
        "several events",
        &["-e", "sched:sched_switch,sched:sched_wakeup,sched:sched_process_exit,irq:*"],
    );
    call_chains: Kind::of_command(
        "-g",
        &["-g", "-e", "sched:sched_wakeup,sched:sched_switch", "-e", "cpu-clock,page-faults"],
    );
    copies_of_stacks: Kind {
        names: Names::Unwound,
        ..Kind::of_command("--call-graph dwarf", &["--call-graph", "dwarf", "-e", "cpu-clock"])
    };
    compressed: Kind::of_all_tasks("-z", &["-z", "-e", SWITCH]).in_form(Form::Packed);
    a_directory: Kind::of_all_tasks("--threads", &["--threads", "-e", SWITCH]).in_form(Form::Directory);
    a_compressed_directory:
        Kind::of_all_tasks("--threads -z", &["--threads", "-z", "-e", SWITCH]).in_form(Form::Directory);
    a_pipe: Kind::of_all_tasks("pipe", &["-e", "sched:sched_switch,sched:sched_wakeup"]).in_form(Form::Pipe);
    a_compressed_pipe: Kind::of_all_tasks("pipe -z", &["-z", "-e", SWITCH]).in_form(Form::Pipe);
    switches_as_side_band: Kind::of_command(
        "--switch-events",
        &["--switch-events", "-e", "cpu-clock", "-e", "sched:sched_wakeup"],
    );
    a_group_that_the_leader_samples:
        Kind::of_command("{...}:S", &["-e", "{cpu-clock,context-switches,page-faults}:S", "-a"]);
    registers: Kind::of_command("--intr-regs", &["--intr-regs", "-e", "cpu-clock"]);
}

//! Measures scripts of `perf script`: perf-prof and perf run the same script on the same recording.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use perf_prof_format::tracefs::EventFormat;
use pyo3::{
    Py, PyAny, Python,
    types::{PyAnyMethods, PyModule},
};
use tempfile::TempDir;

use super::{
    cpu::{self, Usage},
    floor, jobs, python,
    recording::{self, Recording},
    table::{Table, median},
};

/// The number of round trips of `perf bench sched pipe` in the recording for named arguments. Each has up to two
/// wake-ups and two switches.
const ROUND_TRIPS: u64 = 500_000;

/// The number of round trips in all other recordings, in which an event costs perf several times as much.
const FEWER_ROUND_TRIPS: u64 = 100_000;

const FLOOR: &str = "floor, named arguments";
const JOBS: [&str; 2] = ["perf-prof script -s, one process", "perf-prof script -s --jobs 2"];

/// The events that the handlers below take.
const EVENTS: [&str; 2] = ["sched_switch", "sched_wakeup"];
const SCHED: [&str; 4] = ["-e", "sched:sched_switch", "-e", "sched:sched_wakeup"];

/// The first eight parameters of each handler.
const FIRST: &str =
    "event_name, context, common_cpu, common_secs, common_nsecs, common_pid, common_comm, common_callchain";

const COUNT: &str = "    global n\n    n += 1\n";

/// How a row's time is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    /// The time per event, without start-up. The script prints the number of events.
    Event,
    /// The time from the start to the end of the process.
    Whole,
}

/// A script that is measured.
struct Measured<'a> {
    name: &'a str,
    measure: Measure,
    script: PathBuf,
    recording: &'a Recording,
    /// A recording of few events, from which the time of start-up is measured.
    short: &'a Recording,
}

pub fn rows(table: &mut Table) {
    const PER_EVENT: [&str; 7] = [
        "named arguments",
        "named arguments, all read",
        "perf_sample_dict",
        "perf_sample_dict, all read",
        "trace_unhandled",
        "trace_unhandled, all read",
        "call chains",
    ];
    const WHOLE: [(&str, &[&str]); 2] = [
        ("stackcollapse.py", &["-g", "-c", "1", "-e", "context-switches"]),
        ("syscall-counts.py", &["-e", recording::EVENT]),
    ];
    if let Some(why) = why_not() {
        let names = PER_EVENT.into_iter().chain(WHOLE.map(|(name, _)| name));
        table.row(FLOOR, &[], "ns", why);
        names.for_each(|name| own_and_perf(name).iter().for_each(|name| table.row(name, &[], "ns", why)));
        JOBS.into_iter().for_each(|name| table.row(name, &[], "s", why));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let handlers = Handlers::of_this_kernel();
    let [named, named_read, dict, dict_read, unhandled, unhandled_read, chains] = PER_EVENT;
    {
        let long = record(&SCHED, table.effort.count(ROUND_TRIPS));
        let short = record(&SCHED, 1);
        let script = handlers.script(&dir, "named.py", "", COUNT);
        let floors = floor(table, &fs::read_to_string(&script).unwrap(), &handlers);
        let measured = Measured { name: named, measure: Measure::Event, script, recording: &long, short: &short };
        beside_perf(table, &measured, Some(&floors));
        let script = handlers.script_reading_all(&dir, "named_read.py");
        beside_perf(table, &Measured { name: named_read, script, ..measured }, None);
        two_processes(table, &dir, &handlers, &long);
    }
    {
        let long = record(&SCHED, table.effort.count(FEWER_ROUND_TRIPS));
        let short = record(&SCHED, 1);
        let script = handlers.script(&dir, "dict.py", ", perf_sample_dict", COUNT);
        let measured = Measured { name: dict, measure: Measure::Event, script, recording: &long, short: &short };
        beside_perf(table, &measured, None);
        let body = format!("{COUNT}    len(perf_sample_dict)\n");
        let script = handlers.script(&dir, "dict_read.py", ", perf_sample_dict", &body);
        beside_perf(table, &Measured { name: dict_read, script, ..measured }, None);
        for (name, body) in [(unhandled, ""), (unhandled_read, "    len(event_fields_dict)\n")] {
            let script = dir.path().join("unhandled.py");
            let handler = format!("def trace_unhandled(event_name, context, event_fields_dict):\n{COUNT}{body}");
            fs::write(&script, whole_script(&handler)).unwrap();
            beside_perf(table, &Measured { name, script, ..measured }, None);
        }
    }
    {
        let with_chains = [&["-g"], &SCHED[..]].concat();
        let long = record(&with_chains, table.effort.count(FEWER_ROUND_TRIPS));
        let short = record(&with_chains, 1);
        let body = format!("{COUNT}    len(common_callchain)\n");
        let script = handlers.script(&dir, "chains.py", "", &body);
        let measured = Measured { name: chains, measure: Measure::Event, script, recording: &long, short: &short };
        beside_perf(table, &measured, None);
    }
    for (name, options) in WHOLE {
        let long = record(options, table.effort.count(FEWER_ROUND_TRIPS));
        let script = perf_scripts().join(name);
        let measured = Measured { name, measure: Measure::Whole, script, recording: &long, short: &long };
        beside_perf(table, &measured, None);
    }
}

/// Returns the reason why nothing can be compared on this machine, if there is one.
fn why_not() -> Option<&'static str> {
    let with_python = || {
        let said = Command::new("perf").args(["version", "--build-options"]).output();
        said.is_ok_and(|said| {
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            said.lines().any(|line| line.contains("libpython") && line.contains("on"))
        })
    };
    let installed = python::has("perf") && with_python() && perf_scripts().is_dir();
    recording::why_not_recordable().or((!installed).then_some("skipped: no perf with Python is installed"))
}

/// Returns the folder of perf's own scripts in Python.
fn perf_scripts() -> PathBuf {
    let said = Command::new("perf").arg("--exec-path").output().unwrap();
    Path::new(String::from_utf8_lossy(&said.stdout).trim()).join("scripts/python")
}

/// Records `perf bench sched pipe` on one CPU, where nearly every message is a wakeup and a switch.
fn record(options: &[&str], round_trips: u64) -> Recording {
    let mut workload = Command::new("taskset");
    workload.args(["-c", "1", "perf", "bench", "sched", "pipe", "-l", &round_trips.max(1).to_string()]);
    Recording::of_command(options, &workload)
}

/// The fields of the handlers on this kernel. perf passes exactly these fields as arguments.
struct Handlers {
    fields: [Vec<String>; 2],
}

impl Handlers {
    fn of_this_kernel() -> Handlers {
        let fields = EVENTS.map(|name| {
            let text = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
                .into_iter()
                .find_map(|place| fs::read_to_string(format!("{place}/events/sched/{name}/format")).ok());
            let format = EventFormat::parse("sched", &text.unwrap()).unwrap();
            format.fields().iter().map(|field| field.name.to_string()).collect()
        });
        Handlers { fields }
    }

    /// Writes a script whose handlers read all their arguments. perf-prof does not make arguments that are not read.
    fn script_reading_all(&self, dir: &TempDir, file: &str) -> PathBuf {
        let path = dir.path().join(file);
        let handler = |(name, fields): (&str, &Vec<String>)| {
            let all = format!("{FIRST}, {}", fields.join(", "));
            format!("def sched__{name}({all}):\n{COUNT}    ({all})\n\n\n")
        };
        let handlers: String = EVENTS.into_iter().zip(&self.fields).map(handler).collect();
        fs::write(&path, whole_script(&handlers)).unwrap();
        path
    }

    /// Writes a script with a handler for each event. `body` is the body of all handlers, and `last` are their
    /// parameters after the fields.
    fn script(&self, dir: &TempDir, file: &str, last: &str, body: &str) -> PathBuf {
        let path = dir.path().join(file);
        let handler = |(name, fields): (&str, &Vec<String>)| {
            format!("def sched__{name}({FIRST}, {}{last}):\n{body}\n\n", fields.join(", "))
        };
        let handlers: String = EVENTS.into_iter().zip(&self.fields).map(handler).collect();
        fs::write(&path, whole_script(&handlers)).unwrap();
        path
    }
}

/// Returns a script with these handlers that prints how many events it got.
fn whole_script(handlers: &str) -> String {
    format!("n = 0\n\n{handlers}\ndef trace_end():\n    print(n)\n")
}

/// Calls the script's handlers with ready arguments, which is the floor: no delivery of events can be faster. Returns
/// the cost of a call in each run, half of the calls to each handler.
fn floor(table: &mut Table, script: &str, handlers: &Handlers) -> Vec<f64> {
    let mut bare = Vec::new();
    for (name, fields) in EVENTS.into_iter().zip(&handlers.fields) {
        let values: Vec<&str> =
            fields.iter().map(|field| if field.ends_with("comm") { "'worker'" } else { "4321" }).collect();
        let values = values.join(", ");
        let arguments =
            format!("\narguments = ['sched__{name}', object(), 1, 18013, 120890000, 4321, 'worker', [], {values}]\n");
        bare.push(Python::attach(|py| {
            let source = std::ffi::CString::new(format!("{script}{arguments}")).unwrap();
            let module = PyModule::from_code(py, &source, c"floor.py", c"floor").unwrap();
            let arguments = module.getattr("arguments").unwrap().extract::<Vec<Py<PyAny>>>().unwrap();
            (module.getattr(format!("sched__{name}").as_str()).unwrap().unbind(), arguments)
        }));
    }
    let calls = table.effort.count(4 * ROUND_TRIPS);
    let cost = |_| {
        let each: Vec<f64> = bare.iter().map(|(function, all)| floor::calls_of(function, all, calls / 2)).collect();
        each.iter().sum::<f64>() / each.len() as f64
    };
    let cost: Vec<f64> = (0..runs(table)).map(cost).collect();
    let note = "the handlers of the next row, called in a bare loop (vectorcall) with arguments that exist already";
    table.row(FLOOR, &cost, "ns", note);
    cost
}

fn runs(table: &Table) -> usize {
    table.effort.runs().min(3)
}

/// Returns the names of the rows for perf-prof and for perf.
fn own_and_perf(name: &str) -> [String; 2] {
    [format!("perf-prof script -s, {name}"), format!("perf script -s, {name}")]
}

/// Runs `perf-prof script` or `perf script`. Returns its usage and what the script printed.
fn run(program: &str, script: &Path, recording: &Path) -> (Usage, String) {
    let out = recording.with_extension("out");
    let mut command = Command::new(program);
    command.arg("script").arg("-s").arg(script).arg("-i").arg(recording).stdin(Stdio::null());
    let used = cpu::run(command.stdout(fs::File::create(&out).unwrap()).stderr(Stdio::null()));
    (used, fs::read_to_string(&out).unwrap())
}

/// Adds a row for perf-prof and one for perf. The two measurements alternate.
fn beside_perf(table: &mut Table, of: &Measured, floor: Option<&[f64]>) {
    let programs = [env!("CARGO_BIN_EXE_perf-prof"), "perf"];
    let mut cost = [Vec::new(), Vec::new()];
    let (mut wall, mut starts, mut events) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()], 0);
    for _ in 0..runs(table) {
        let mut printed = Vec::new();
        for (row, program) in programs.into_iter().enumerate() {
            let (used, text) = run(program, &of.script, &of.recording.path);
            assert!(!text.trim().is_empty(), "{program} printed nothing");
            wall[row].push(used.wall_ns as f64);
            if of.measure == Measure::Whole {
                cost[row].push(used.cpu_ns as f64 / 1e6);
                continue;
            }
            let (start, few) = run(program, &of.script, &of.short.path);
            let number = |text: &str| text.trim().parse::<u64>().unwrap();
            events = number(&text) - number(&few);
            cost[row].push(used.cpu_ns.saturating_sub(start.cpu_ns) as f64 / events as f64);
            starts[row].push(start.cpu_ns as f64 / 1e6);
            printed.push(text);
        }
        assert!(printed.windows(2).all(|both| both[0] == both[1]), "the numbers of events differ: {printed:?}");
    }
    let [own, theirs] = own_and_perf(of.name);
    let faster: Vec<f64> = wall[1].iter().zip(&wall[0]).map(|(perf, own)| perf / own).collect();
    let wall = format!("{:.2} times the wall time, with start-up", median(&faster));
    let (unit, notes) = match of.measure {
        Measure::Event => {
            let start = |row: usize| format!("start-up, {:.0} ms", median(&starts[row]));
            let ours = format!("CPU time without {}; {events} events", start(0));
            ("ns", [ours, format!("CPU time without {}; {wall}", start(1))])
        }
        Measure::Whole => ("ms", ["CPU time of the whole process".to_owned(), format!("the same; {wall}")]),
    };
    match floor {
        Some(floor) => table.compared(&own, &cost[0], (FLOOR, floor), unit, &notes[0]),
        None => table.row(&own, &cost[0], unit, &notes[0]),
    }
    table.compared(&theirs, &cost[1], (&own, &cost[0]), unit, &notes[1]);
}

/// Compares two processes with one. The handlers compute for a microsecond per event.
fn two_processes(table: &mut Table, dir: &TempDir, handlers: &Handlers, recording: &Recording) {
    let (body, ns) = jobs::busy();
    let script = handlers.script(dir, "busy.py", "", &body);
    let parts = "\ndef __partial__():\n    return n\n\ndef __merge__(partials):\n    global n\n    n = sum(partials)\n";
    fs::write(&script, fs::read_to_string(&script).unwrap() + parts).unwrap();
    let note = format!("wall time, including start and end; {ns:.0} ns of CPU time in the handler");
    jobs::pair(table, JOBS, &note, |row| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
        let options: &[&str] = if row == 0 { &[] } else { &["--jobs", "2"] };
        command.args(["script", "-q"]).args(options).arg("-s").arg(&script).arg("-i").arg(&recording.path);
        command
    });
}

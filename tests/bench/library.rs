//! Measures `import perf_prof`: iterating over events compared with handlers that perf-prof calls, and the cost of the
//! installed package. Iteration is measured in the executable, whose scripts can use the package too. So only the
//! delivery of events differs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    cpu::{self, Usage},
    live,
    recording::{self, Recording},
    replay,
    table::{Table, median},
};

const EVENTS: u64 = 2_000_000;

const CALLS: u64 = 1_000_000;

/// Iterates over the recording that its argument names.
const REPLAY: &str = "\
import sys, perf_prof
def __init__():
    n = 0
    with perf_prof.replay(sys.argv[1]) as events:
        for event in events:
            n += 1
    assert n >= int(sys.argv[2]), n
def __sample__(event): pass
";

/// Iterates over live events until stdin is closed.
const LIVE: &str = "\
import sys, threading, perf_prof
def __init__():
    n = 0
    with perf_prof.trace(sys.argv[1]) as events:
        print('ready', file=sys.stderr, flush=True)
        threading.Thread(target=lambda: (sys.stdin.read(), events.stop())).start()
        for event in events:
            n += 1
    print(n, events.lost)
def __sample__(event): pass
";

pub fn rows(table: &mut Table) {
    iteration(table);
    package(table);
}

fn iteration(table: &mut Table) {
    if let Some(why) = recording::why_not_recordable() {
        ["library, replay", "library, live"].into_iter().for_each(|name| table.row(name, &[], "ns", why));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let nothing = Recording::of(0, &[]);
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (iterates, traces) = (write("replay.py", REPLAY), write("live.py", LIVE));
    let handler = write("handler.py", replay::HANDLER);

    let events = table.effort.count(EVENTS);
    let recorded = Recording::of(events, &[]);
    let replayed = |path: &Path, events: u64| {
        let mut command = replay::replaying(&iterates, &nothing.path);
        cpu::run(command.arg(path).arg(events.to_string()))
    };
    let (mut called, mut iterated) = (Vec::new(), Vec::new());
    for _ in 0..table.effort.runs() {
        let less = |whole: Usage, start: Usage| whole.cpu_ns.saturating_sub(start.cpu_ns) as f64 / events as f64;
        called.push(less(replay::replay(&handler, &recorded.path), replay::replay(&handler, &nothing.path)));
        iterated.push(less(replayed(&recorded.path, events), replayed(&nothing.path, 0)));
    }
    let note = "`for event in perf_prof.replay(path): n += 1`: CPU time of the whole process, without start-up";
    table.compared("library, replay", &iterated, ("replay h1 of this file", &called), "ns", note);

    let calls = table.effort.count(CALLS);
    let (mut called, mut iterated, mut lost) = (Vec::new(), Vec::new(), 0);
    let counting = write("counting.py", &live::counting(""));
    for _ in 0..table.effort.runs() {
        let each = |run: &dyn Fn(u64) -> (u64, u64, u64)| {
            let ((start, ..), (whole, seen, lost)) = (run(0), run(calls));
            (whole.saturating_sub(start) as f64 / seen as f64, lost)
        };
        called.push(each(&|calls| live::run(&counting, calls)).0);
        let (ns, missed) = each(&|calls| traced(&traces, &nothing.path, calls));
        iterated.push(ns);
        lost += missed;
    }
    let note = format!("`for event in perf_prof.trace(...): n += 1`: the same; {lost} lost");
    table.compared("library, live", &iterated, ("live h1 of these calls", &called), "ns", &note);
}

/// Traces a generator that makes this many calls. Returns the CPU time of the process in ns, and the numbers of
/// delivered and lost samples.
fn traced(script: &Path, nothing: &Path, calls: u64) -> (u64, u64, u64) {
    live::run_tracer(calls, |filter| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
        command.args(["python", "-q", "--input"]).arg(nothing).arg(script).arg(filter).stdin(Stdio::piped());
        command
    })
}

/// Returns the Python of an environment in which the package is installed: the environment of PERF_PROF_TESTS_PROGRAM,
/// or the environment that continuous integration makes.
fn installed() -> Option<PathBuf> {
    let named = std::env::var_os("PERF_PROF_TESTS_PROGRAM").map(PathBuf::from);
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/package/bin/perf-prof");
    let python = named.unwrap_or(made).with_file_name("python");
    python.exists().then_some(python)
}

fn package(table: &mut Table) {
    let Some(python) = installed() else {
        for (name, unit) in [("import perf_prof", "ms"), ("files of the package", "MiB")] {
            table.row(
                name,
                &[],
                unit,
                "skipped: the package is not installed (PERF_PROF_TESTS_PROGRAM names its command)",
            );
        }
        return;
    };
    let import = |code: &str| cpu::run(Command::new(&python).args(["-I", "-c", code]));
    import("import perf_prof");
    let (mut wall, mut used) = (Vec::new(), Vec::new());
    for _ in 0..table.effort.runs() {
        let (nothing, imported) = (import("pass"), import("import perf_prof"));
        let more = |imported: u64, nothing: u64| (imported as f64 - nothing as f64) / 1e6;
        wall.push(more(imported.wall_ns, nothing.wall_ns));
        used.push(more(imported.cpu_ns, nothing.cpu_ns));
    }
    let note = format!("wall time above that of `python -c pass`; {:.1} ms of CPU time", median(&used));
    table.row("import perf_prof", &wall, "ms", &note);
    let code = "import importlib.metadata, zlib\n\
                files = importlib.metadata.distribution('perf-prof').files\n\
                sizes = [(len(data), len(zlib.compress(data))) for file in files if file.suffix != '.pyc'\n\
                \x20        for data in [file.locate().read_bytes()]]\n\
                print(*map(sum, zip(*sizes)))";
    let output = Command::new(&python).args(["-I", "-c", code]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let sizes: Vec<f64> = text.split_whitespace().map(|size| size.parse().unwrap()).collect();
    let mib = f64::from(1 << 20);
    let note = format!("compressed as in a wheel; installed they have {:.1} MiB", sizes[0] / mib);
    table.row("files of the package", &[sizes[1] / mib], "MiB", &note);
}

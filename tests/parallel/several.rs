//! Tests `perf-prof python` with several recordings: one after the other, with `--jobs`, and with `--executor`.

use std::{fs, path::Path, process::Output};

use crate::harness::{
    machine::{Need, needs},
    recording::record,
    run::{perf_prof, said, stdout},
};

/// A script that counts events by recording, CPU and name. It prints a line in each part, and all counts at the end.
const COUNT: &str = "\
import collections, os, perf_prof
counts = collections.Counter()
hosts = set()
def __sample__(event):
    recording = perf_prof.recording()
    assert recording['start'] <= event._realtime <= recording['end']
    counts[os.path.basename(recording['path']), event._cpu, event._event] += 1
    hosts.add((recording['hostname'], recording['kernel']))
def __partial__(): return counts, hosts
def __merge__(partials):
    for part, names in partials:
        counts.update(part)
        hosts.update(names)
def __exit__():
    stats = perf_prof.stats()
    print(sorted(counts.items()), stats['delivered'] == counts.total(), stats['lost'], perf_prof.recording())
    print(hosts == {(os.uname().nodename, os.uname().release)})
";

/// The functions for `--executor`.
const EXECUTORS: &str = "\
import concurrent.futures, multiprocessing, os, signal
def processes():
    return concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context('fork'))
def killed(path):
    os.kill(os.getpid(), signal.SIGKILL)
class Kills(concurrent.futures.Executor):
    # Kills the worker that has the recording b.data.
    def submit(self, function, part):
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context('fork')) as pool:
            future = pool.submit(killed if part.recording == 'b.data' else function, part)
            concurrent.futures.wait([future])
            return future
class Submits:
    # As little as an executor can have.
    def __init__(self):
        self.threads = concurrent.futures.ThreadPoolExecutor(2)
    def submit(self, function, part):
        return self.threads.submit(function, part)
def number():
    return 1
";

/// Makes the scripts and the recordings `a.data`, `b.data` (with another event) and `c.data`. Tasks surely have switches:
/// an idle CPU may make the event of a wakeup, which then belongs to no task that is recorded. The recordings contain the
/// time of day. Otherwise, each would have a warning about a guess.
fn recordings(folder: &Path) {
    needs([Need::Tracefs, Need::Perf]);
    let work = ["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 0.03; done"];
    let options = ["-k", "CLOCK_MONOTONIC", "-m", "1024", "-e"];
    for (name, events) in [
        ("a.data", &["sched:sched_switch,sched:sched_wakeup", "-a"][..]),
        ("b.data", &["sched:sched_process_exit,sched:sched_process_fork"]),
        ("c.data", &["sched:sched_switch"]),
    ] {
        record(&folder.join(name), &[&options, events, &work].concat());
    }
    fs::write(folder.join("count.py"), COUNT).unwrap();
    fs::write(folder.join("engines.py"), EXECUTORS).unwrap();
}

fn replayed(folder: &Path, options: &[&str]) -> Output {
    perf_prof(&["python", "-q"]).args(options).current_dir(folder).output().unwrap()
}

#[test]
fn several_recordings_have_the_same_result_one_after_the_other_and_in_processes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recordings(folder);
    let inputs = ["--input", "[ab].data", "--input", "c.data", "count.py"];
    let serial = stdout(&replayed(folder, &inputs));
    for name in ["a.data", "b.data", "c.data"] {
        assert!(serial.contains(&format!("('{name}', ")), "{serial}");
    }
    let lines: Vec<&str> = serial.lines().collect();
    assert!(lines[0].ends_with(" True 0 None") && lines[1] == "True", "{serial}");
    let engines = [
        &["--jobs", "2"][..],
        &["--jobs", "7"],
        &["--executor", "engines:processes", "--jobs", "2"],
        &["--executor", "engines:Submits"],
    ];
    for engine in engines {
        assert_eq!(stdout(&replayed(folder, &[engine, &inputs].concat())), serial, "{engine:?}");
    }
}

/// Root may run perf-prof in a folder with other users' files. Only `engines.py` may be imported from it.
#[test]
fn of_the_current_folder_only_the_module_of_the_executor_is_imported() {
    let (folder, current) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (folder, current) = (folder.path(), current.path());
    recordings(folder);
    let planted = "open('planted', 'w').close()\n";
    for name in ["json.py", "concurrent.py", "decimal.py"] {
        fs::write(current.join(name), planted).unwrap();
    }
    let engines = format!("import decimal, json, sys\njson.dumps(1)\n{EXECUTORS}");
    fs::write(current.join("engines.py"), engines).unwrap();
    fs::create_dir(current.join("package")).unwrap();
    fs::write(current.join("package/__init__.py"), "").unwrap();
    fs::write(current.join("package/engines.py"), EXECUTORS).unwrap();
    let script = format!("{COUNT}    import sys\n    assert os.getcwd() not in sys.path and '' not in sys.path\n");
    fs::write(folder.join("count.py"), script).unwrap();
    let [a, c, script] = ["a.data", "c.data", "count.py"].map(|name| folder.join(name).display().to_string());
    let inputs = ["--input", &a, "--input", &c, &script];
    let expected = stdout(&replayed(current, &inputs));
    for executor in ["engines:Submits", "package.engines:processes", "concurrent.futures:ThreadPoolExecutor"] {
        let output = replayed(current, &[&["--executor", executor], &inputs[..]].concat());
        assert_eq!(stdout(&output), expected, "{executor}");
        assert!(!current.join("planted").exists(), "{executor}");
    }
}

#[test]
fn a_recording_that_cannot_be_read_is_named_and_the_others_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recordings(folder);
    let good = stdout(&replayed(folder, &["--input", "a.data", "--input", "c.data", "count.py"]));
    fs::write(folder.join("b.data"), "no recording").unwrap();
    let inputs = ["--input", "?.data", "--input", "missing.data", "count.py"];
    for engine in [&[][..], &["--jobs", "2"], &["--executor", "engines:processes"]] {
        let output = replayed(folder, &[engine, &inputs].concat());
        assert_eq!((String::from_utf8_lossy(&output.stdout), output.status.code()), (good.as_str().into(), Some(1)));
        let messages = said(&output);
        assert!(messages.contains("b.data is not a perf.data file"), "{messages}");
        assert!(messages.contains("missing.data"), "{messages}");
        assert_eq!(messages.lines().count(), 2, "{messages}");
    }
}

#[test]
fn the_text_with_which_a_merge_ends_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recordings(folder);
    let ends = COUNT.replace("def __exit__():\n", "def __exit__():\n    raise SystemExit('too few hosts')\n");
    fs::write(folder.join("count.py"), ends).unwrap();
    for engine in [["--jobs", "2"], ["--executor", "engines:Submits"]] {
        let output = replayed(folder, &[&engine[..], &["--input", "?.data", "count.py"]].concat());
        assert_eq!((said(&output).as_str(), output.status.code()), ("too few hosts\n", Some(1)));
    }
}

#[test]
fn a_worker_that_is_killed_is_reported_with_its_recording() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recordings(folder);
    let good = stdout(&replayed(folder, &["--input", "a.data", "--input", "c.data", "count.py"]));
    let inputs = ["--input", "?.data", "count.py", "--jobs", "2"];
    let output = replayed(folder, &[&["--executor", "engines:Kills"], &inputs[..]].concat());
    assert_eq!((String::from_utf8_lossy(&output.stdout), output.status.code()), (good.as_str().into(), Some(1)));
    assert!(
        said(&output)
            .starts_with("perf-prof: b.data: the process that replayed the recording failed: BrokenProcessPool")
    );

    // The process that replays a part of b.data is killed within the part, after it has printed something.
    let kills = COUNT.replace(
        "    recording = perf_prof.recording()\n",
        "    recording = perf_prof.recording()\n    if recording['path'] == 'b.data' and counts:\n        print('half')\n        \
         os.kill(os.getpid(), 9)\n",
    );
    fs::write(folder.join("count.py"), kills).unwrap();
    let output = replayed(folder, &inputs);
    assert_eq!((String::from_utf8_lossy(&output.stdout), output.status.code()), (good.as_str().into(), Some(1)));
    assert_eq!(said(&output), "perf-prof: b.data: the process that replayed the recording was killed by signal 9\n");
}

#[test]
fn states_end_with_their_recording() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recordings(folder);
    let script = "\
import perf_prof
parts = perf_prof.Parts()
seen = perf_prof.States(parts)
def __sample__(event):
    path = perf_prof.recording()['path']
    assert seen.setdefault('path', path) == path, (seen, path)
def __exit__(): print('end')
";
    fs::write(folder.join("states.py"), script).unwrap();
    assert_eq!(stdout(&replayed(folder, &["--input", "?.data", "states.py"])), "end\n");
}

/// Another user may have put a file with a pattern as its name beside the recordings.
#[test]
fn a_file_that_is_named_like_a_pattern_hides_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recordings(folder);
    let names = "import perf_prof\ndef __sample__(event):\n    seen.add(perf_prof.recording()['path'])\nseen = set()\n\
                 def __exit__(): print(sorted(seen))\n";
    fs::write(folder.join("names.py"), names).unwrap();
    fs::rename(folder.join("c.data"), folder.join("[ab].data")).unwrap();
    let both = stdout(&replayed(folder, &["--input", "[ab].data", "names.py"]));
    assert_eq!(both, "['[ab].data', 'a.data', 'b.data']\n");
    fs::remove_file(folder.join("a.data")).unwrap();
    fs::remove_file(folder.join("b.data")).unwrap();
    assert_eq!(stdout(&replayed(folder, &["--input", "[ab].data", "names.py"])), "['[ab].data']\n");
}

#[test]
fn the_limit_of_events_is_for_all_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recordings(folder);
    let of_a = stdout(&replayed(folder, &["--input", "a.data", "-e", "sched:*", "count.py"]));
    assert!(of_a.contains("a.data"), "{of_a}");
    fs::write(
        folder.join("n.py"),
        "n = 0\ndef __sample__(event):\n    global n\n    n += 1\ndef __exit__(): print(n)\n",
    )
    .unwrap();
    let all = stdout(&replayed(folder, &["--input", "?.data", "n.py"])).trim().parse::<u64>().unwrap();
    let limit = (all - 1).to_string();
    assert_eq!(stdout(&replayed(folder, &["--input", "?.data", "-N", &limit, "n.py"])).trim(), limit);
}

#[test]
fn wrong_inputs_and_executors_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recordings(folder);
    let refused = [
        (&["--input", "x*.data"][..], "--input 'x*.data' matches no file"),
        (&["--input", "a.data", "--input", "-"], "--input - cannot be combined"),
        (&["--input", "?.data", "--jobs", "2", "--split", "cpu"], "--split cpu cannot be combined with several"),
        (&["--input", "a.data", "--executor", "engines"], "write MODULE:FUNCTION"),
        (&["--input", "a.data", "--executor", "engines:nothing"], "has no attribute 'nothing'"),
        (&["--input", "a.data", "--executor", "engines:number"], "returned 'int', which has no submit()"),
        (&["--input", "a.data", "--executor", "no_module:f"], "No module named 'no_module'"),
    ];
    for (options, expected) in refused {
        let output = replayed(folder, &[options, &["count.py"]].concat());
        assert!(said(&output).contains(expected), "{options:?}: {}", said(&output));
        assert!(matches!(output.status.code(), Some(1 | 2)), "{options:?}");
    }
}

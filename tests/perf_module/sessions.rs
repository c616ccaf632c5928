//! `perf.session`: what its functions receive from a recording, compared with perf and with other interfaces.

use std::{fs, path::PathBuf};

use super::{printed, run};
use crate::harness::{
    machine::{Need, needs},
    recording::{Folder, perf, record},
    run::{perf_prof, said, stdout},
};

/// A recording of a shell and of its children, made by perf-prof.
struct Recorded {
    folder: Folder,
    data: PathBuf,
}

impl Recorded {
    #[track_caller]
    fn new(events: &[&str]) -> Recorded {
        let folder = Folder::new();
        let data = folder.path("shell.data");
        let mut command = perf_prof(&["record", "-q", "-o"]);
        command.arg(&data).args(events).args(["--", "sh", "-c", "/bin/true; ls -R /usr/share/zoneinfo; exit 0"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        Recorded { folder, data }
    }

    /// Returns what a program prints that gets the recording as its argument.
    #[track_caller]
    fn printed(&self, script: &str) -> String {
        printed(&self.folder, script, &[&self.data])
    }

    /// Returns what a script prints that another command of perf-prof runs on the recording.
    #[track_caller]
    fn printed_by(&self, args: &[&str], script: &str) -> String {
        let script = self.folder.write("handlers.py", script.as_bytes());
        let output = perf_prof(args).arg(&self.data).arg(script).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        stdout(&output)
    }
}

const SESSION: &str = "
import sys
import perf

session = perf.session(perf.data(sys.argv[1]), sample=sample)
session.process_events()
";

fn program(sample: &str) -> String {
    format!("{sample}\n{SESSION}")
}

#[test]
fn members_are_those_that_perf_script_prints() {
    needs([Need::Perf, Need::Tracefs, Need::Python]);
    let folder = Folder::new();
    let data = folder.path("perf.data");
    let shell = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; ls -R /usr/share/zoneinfo >/dev/null";
    record(
        &data,
        &["--sample-cpu", "-e", "sched:sched_process_exec,cpu-clock:u", "-c", "100000", "--", "sh", "-c", shell],
    );
    let sample = "
def sample(s):
    name = str(s.evsel)
    assert name.startswith('evsel(') and name.endswith(')') and s.type == perf.RECORD_SAMPLE
    place = s.symbol or '[unknown]'
    print(s.sample_pid, s.sample_tid, '[%03d]' % s.sample_cpu, '%d.%09d:' % divmod(s.sample_time, 10**9),
          s.sample_period, name[6:-1] + ':', '%x' % s.sample_ip, place, '(%s)' % (s.dso or '[unknown]'))
";
    let ours: Vec<String> = printed(&folder, &program(sample), &[&data]).lines().map(str::to_owned).collect();
    let fields = "pid,tid,cpu,time,period,event,ip,sym,dso";
    let theirs = perf(&["script", "--ns", "-G", "-F", fields], &data);
    // perf lacks the names of some functions of the procedure linkage table, and perf-prof lacks the names of different
    // ones.
    let name = |word: &str| if word.ends_with("@plt") { "[unknown]".to_owned() } else { word.to_owned() };
    let words = |line: &str| {
        let line = line.replace('/', " / ");
        line.split_whitespace().map(name).collect::<Vec<_>>().join(" ")
    };
    assert!(ours.len() > 20, "{ours:?}");
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(words(&ours.replacen(' ', "/", 1)), words(theirs));
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn fields_are_those_that_perf_prof_python_has() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new(&["-e", "sched:sched_switch,sched:sched_process_exec"]);
    let print = "print(event._event, event._tid, event._cpu, event._time, event.to_dict())";
    let by_handlers =
        recorded.printed_by(&["python", "-q", "--input"], &format!("def __sample__(event):\n    {print}\n"));
    let by_session = recorded.printed(&program(&format!("def sample(event):\n    {print}\n")));
    let only_events = |text: &str| text.lines().filter(|line| line.starts_with("sched:")).map(str::to_owned).collect();
    let (by_handlers, by_session): (Vec<String>, Vec<String>) = (only_events(&by_handlers), only_events(&by_session));
    assert!(by_session.len() > 3);
    assert_eq!(by_session, by_handlers);
    let sample = "
def sample(s):
    name = str(s.evsel)[6:-1]
    if name == 'sched:sched_switch':
        assert (s.next_pid, s.prev_comm, s.prev_state) == (s['next_pid'], s['prev_comm'], s['prev_state'])
        assert len(s.raw_buf) > 50 and s.common_pid == s.prev_pid and s.evsel.type == perf.TYPE_TRACEPOINT
        assert s.evsel.config == perf.tracepoint('sched', 'sched_switch') and s.sample_id in s.evsel.ids
        assert not hasattr(s, 'nothing') and s.callchain is None and s.brstack is None and s.sample_addr == 0
        print(name, s.sample_tid == s.prev_pid or s.sample_tid == -1)
";
    let printed = recorded.printed(&program(sample));
    assert!(!printed.is_empty() && printed.lines().all(|line| line == "sched:sched_switch True"), "{printed}");
}

#[test]
fn call_chains_are_those_of_the_older_interface() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new(&["-e", "sched:sched_process_exec,page-faults", "--call-graph", "fp"]);
    let old = "
def trace_unhandled(event_name, context, fields):
    print([(f['ip'], f.get('sym', {}).get('name', '[unknown]'), f.get('dso', '[unknown]')) for f in fields['common_callchain']])

def process_event(of):
    print([(f['ip'], f.get('sym', {}).get('name', '[unknown]'), f.get('dso', '[unknown]')) for f in of['callchain']])
    print(of.get('dso'), of.get('dso_map_start'), of.get('symbol'))
";
    let new = "
def sample(s):
    print([(node.ip, node.symbol, node.dso) for node in s.callchain])
    assert s.callchain[-1].ip == list(s.callchain)[-1].ip and s.callchain[-len(s.callchain)].ip == s.callchain[0].ip
    for outside in len(s.callchain), -len(s.callchain) - 1:
        try:
            s.callchain[outside]
        except IndexError:
            continue
        raise AssertionError(outside)
    if s.evsel.type != perf.TYPE_TRACEPOINT:
        print(s.dso, s.map_start, s.symbol)
        assert s.symbol is None or s.sym_start < s.sym_end
        assert s.dso is None or s.map_start <= s.sample_ip < s.map_end
";
    let old = recorded.printed_by(&["script", "-i"], old);
    let new = recorded.printed(&program(new));
    assert!(new.lines().count() > 50);
    assert_eq!(new, old);
}

#[test]
fn threads_have_names_and_parents() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new(&["-e", "sched:sched_process_exec,sched:sched_process_exit"]);
    let sample = "
def sample(s):
    thread = session.find_thread(s.sample_pid)
    if 'exit' in str(s.evsel):
        print('exit', thread.comm() == s.comm, thread.tid == s.sample_tid, thread.pid == s.sample_pid, thread.cpu == s.sample_cpu)
        print('parent', thread.ppid > 1)
";
    let known = "
import sys
import perf

session = None
";
    let unknown = "
try:
    session.find_thread(4_000_000)
except TypeError as error:
    print(error)
";
    let printed = recorded.printed(&format!("{known}{}{unknown}", program(sample)));
    assert!(printed.contains("exit True True True True\nparent True\n"), "{printed}");
    assert!(!printed.contains("exit False") && !printed.contains("True False"), "{printed}");
    assert!(printed.ends_with("Failed to find thread 4000000\n"), "{printed}");
}

#[test]
fn exceptions_end_the_session_and_reach_the_program() {
    needs([Need::Tracefs, Need::Python]);
    let recorded = Recorded::new(&["-e", "sched:sched_process_exec,sched:sched_process_exit"]);
    let sample = "
import perf, sys
seen, kept = [], []
def sample(s):
    seen.append(s.sample_time)
    kept.append(s)
    if len(seen) == 2:
        raise KeyError('second')
session = perf.session(perf.data(sys.argv[1]), sample)
try:
    session.process_events()
except KeyError as error:
    print(error, len(seen))
session.process_events()
assert seen == [event.sample_time for event in kept] and seen[2:4] == seen[:2] and seen[2:] == sorted(seen[2:])
print(len(seen) > 4, str(kept[-1].evsel), kept[-1].comm)
def stop(s):
    sys.exit(7)
perf.session(perf.data(sys.argv[1]), stop).process_events()
";
    let output = run(&recorded.folder, sample, &[&recorded.data]);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    let printed = stdout_of(&output);
    assert!(printed.starts_with("'second' 2\nTrue evsel(sched:sched_process_exit) "), "{printed}");
}

fn stdout_of(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn counts_reach_the_stat_function() {
    needs([Need::Perf, Need::Python]);
    let folder = Folder::new();
    let data = folder.path("stat.data");
    let mut command = std::process::Command::new("perf");
    command.args(["stat", "record", "-e", "task-clock,page-faults", "-o"]).arg(&data).args(["--", "ls", "/usr"]);
    assert!(command.output().unwrap().status.success());
    let script = "
import perf, sys
def stat(event, name):
    if isinstance(event, perf.stat_event):
        assert event.type == perf.RECORD_STAT and str(event.evsel) == f'evsel({name})'
        print(name, event.val > 0, event.ena >= event.run > 0)
    else:
        print(name, type(event).__name__, event.time > 0)
perf.session(perf.data(sys.argv[1]), stat=stat).process_events()
";
    let printed = printed(&folder, script, &[&data]);
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("task-clock") && line.ends_with("True True")), "{printed}");
    assert!(lines.iter().any(|line| line.starts_with("page-faults") && line.ends_with("True True")), "{printed}");
    assert_eq!(lines.last(), Some(&"None stat_round_event True"), "{printed}");
}

#[test]
fn losses_reach_the_function_for_them() {
    needs([Need::Tracefs, Need::Python]);
    let folder = Folder::new();
    let data = folder.path("lost.data");
    let mut command = perf_prof(&["record", "-q", "-m", "1", "-e", "raw_syscalls:*", "--call-graph", "fp", "-o"]);
    command.arg(&data).args(["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=100000"]);
    let output = command.output().unwrap();
    let lost_at_recording = said(&output);
    let script = "
import perf, sys
losses = []
samples = [0]
def sample(s):
    samples[0] += 1
def lost(event):
    assert isinstance(event, perf.lost_event) and event.type in (perf.RECORD_LOST, perf.RECORD_LOST_SAMPLES)
    losses.append(event.lost)
perf.session(perf.data(sys.argv[1]), sample, lost=lost).process_events()
print(samples[0] > 0, sum(losses))
";
    let printed = printed(&folder, script, &[&data]);
    let text = perf_prof(&["evlist", "-i"]).arg(&data).output().unwrap();
    let lost: u64 = printed.trim().strip_prefix("True ").unwrap().parse().unwrap();
    assert!(lost > 0, "{printed}{lost_at_recording}{}", said(&text));
    fs::remove_file(&data).unwrap();
}

#[test]
fn samples_of_equal_events_have_their_own_evsels() {
    needs([Need::Perf, Need::Tracefs, Need::Python]);
    let folder = Folder::new();
    let data = folder.path("equal.data");
    let exec = "sched:sched_process_exec";
    record(&data, &["-e", exec, "-e", exec, "--", "sh", "-c", "/bin/true; /bin/true"]);
    let script = "
import perf, sys
seen = []
def sample(event):
    assert event.sample_id in event.evsel.ids
    if not any(event.evsel is of for of in seen):
        seen.append(event.evsel)
    counts[event.evsel.ids[0]] = counts.get(event.evsel.ids[0], 0) + 1
counts = {}
perf.session(perf.data(sys.argv[1]), sample).process_events()
print(len(seen), sorted(counts.values()), {str(of) for of in seen})
";
    let printed = printed(&folder, script, &[&data]);
    assert_eq!(printed, "2 [3, 3] {'evsel(sched:sched_process_exec)'}\n");
}

#[test]
fn recordings_that_cannot_be_read_raise_the_errors_of_perf() {
    needs([Need::Python, Need::Tracefs]);
    let recorded = Recorded::new(&["-e", "sched:sched_process_exec"]);
    let program = "
import os, perf, sys
for make in lambda: perf.session(perf.data(__file__)), lambda: perf.session(sys.argv[-1]), lambda: perf.data('missing'):
    try:
        make()
    except (OSError, TypeError) as error:
        print(type(error).__name__)
read = os.open(sys.argv[-1], os.O_RDONLY)
data = perf.data(fd=read)
os.close(read)
samples = []
perf.session(data, sample=lambda sample: samples.append(1)).process_events()
print(len(samples) > 0)
";
    assert_eq!(recorded.printed(program), "OSError\nTypeError\nFileNotFoundError\nTrue\n");
}

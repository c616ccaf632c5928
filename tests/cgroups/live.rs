//! Live events of a cgroup: spans of tasks that other tasks switch or wake, system calls, names.

use std::collections::BTreeMap;

use expect_test::expect;

use super::{live, replayed, run_all, shell_in};
use crate::harness::{
    awake::Awake,
    cgroup::Cgroup,
    counting::objects,
    machine::{Need, needs},
    run::{perf_prof, printed, said, stdout},
    script::{CALL, Run, workload},
};

/// A script that adds up the spans by task: the number, and the total duration.
const BY_SPANS: &str = "
import collections
sums = collections.defaultdict(lambda: [0, 0])
def __sample__(e):
    row = sums[e.comm]
    row[0] += 1
    row[1] += e.duration
def __exit__():
    for comm, row in sorted(sums.items()): print(comm, *row)
def __partial__(): return dict(sums)
def __merge__(partials):
    for partial in partials:
        for comm, (count, total) in partial.items():
            sums[comm][0] += count
            sums[comm][1] += total
";

/// A script that prints the same sums, but computes them from switches and wakeups.
const BY_SWITCHES: &str = "
import collections
sums, left, waits = collections.defaultdict(lambda: [0, 0]), {}, {}
def sched__sched_switch(e):
    begun = {'offcpu': left.pop(e.next_pid, None), 'runqueue': waits.pop(e.next_pid, None)}['SOURCE']
    if begun is not None and e.next_comm.startswith('in-'):
        sums[e.next_comm][0] += 1
        sums[e.next_comm][1] += e._time - begun
    waits.pop(e.prev_pid, None)
    left.pop(e.prev_pid, None)
    if e.prev_pid and not e.prev_state & 0x30: left[e.prev_pid] = e._time
    if e.prev_pid and not e.prev_state & 0xff: waits[e.prev_pid] = e._time
def sched__sched_wakeup(e): waits.setdefault(e.pid, e._time)
sched__sched_wakeup_new = sched__sched_wakeup
def __exit__():
    for comm, row in sorted(sums.items()): print(comm, *row)
";

const SWITCHES: &str = "sched:sched_switch,sched:sched_wakeup,sched:sched_wakeup_new";

/// The kernel delivers a switch to a cgroup's events only if the task that leaves its CPU is in the cgroup. It delivers
/// a wakeup only if the waker is in the cgroup. In this test, the tasks are children of a shell. One task is in a
/// cgroup below the selected cgroup. A task of another cgroup has the same comm.
#[test]
fn spans_made_in_other_tasks_belong_to_the_cgroup_of_their_own_task() {
    let _awake = Awake::new();
    let (outer, other) = (Cgroup::new(), Cgroup::new());
    let inner = outer.below("inner");
    let naps = |comm: &str, count| format!("comm {comm}{}", " sleep-ms 20".repeat(count));
    let commands = [
        shell_in(&outer, &[&naps("in-outer", 3), &naps("in-outer", 5)]),
        shell_in(&inner, &[&naps("in-inner", 6)]),
        shell_in(&other, &[&naps("in-other", 6), &naps("in-outer", 5)]),
    ];
    let sums = |text: &str| -> BTreeMap<String, [u64; 2]> {
        let row = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0].to_owned(), [words[1].parse().unwrap(), words[2].parse().unwrap()])
        };
        text.lines().map(row).collect()
    };
    for (source, events) in [("offcpu", "sched:sched_switch"), ("runqueue", SWITCHES)] {
        let selector = format!("{source}/comm=in-*/");
        let of_outer = ["--cgroups", outer.name.as_str()];
        let (run, outcome) = live(BY_SPANS, &selector, &of_outer, &commands);
        let recording = run.path("r.data");
        let found = sums(&outcome.stdout);
        // The expected sums: the sums of all tasks with these comms, minus the sums of the other cgroup.
        let by_switches = BY_SWITCHES.replace("SOURCE", source);
        let mut expected = sums(&replayed(&by_switches, events, &["--order"], &recording).stdout);
        let of_other = sums(&replayed(BY_SPANS, &selector, &["--cgroups", &other.name], &recording).stdout);
        for (comm, [count, ns]) in &of_other {
            let all = expected.get_mut(comm).unwrap();
            *all = [all[0] - count, all[1] - ns];
        }
        expected.retain(|_, sum| *sum != [0, 0]);
        assert_eq!(found, expected, "{source}");
        let comms: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!((comms, of_other.len()), (vec!["in-inner", "in-outer"], 2));
        if source == "offcpu" {
            let (inner, outer, other) = (found["in-inner"], found["in-outer"], of_other["in-other"]);
            // There are eight naps, and six in each of two cgroups. The kernel may hide naps that end in an idle task,
            // in the recording too.
            for ([count, ns], naps) in [(inner, 6), (outer, 8), (other, 6)] {
                assert!(count >= naps / 2 && ns >= naps / 2 * 20_000_000, "{found:?} {of_other:?}");
            }
        }
        // The recording contains the cgroups, so a replay selects the same tasks, in one process or in several.
        for jobs in ["1", "3"] {
            let merged = replayed(BY_SPANS, &selector, &["--cgroups", &outer.name, "--jobs", jobs], &recording);
            assert_eq!((merged.stdout, merged.status), (outcome.stdout.clone(), 0), "{jobs}: {}", merged.stderr);
        }
    }
}

/// A sleeping task is moved to another cgroup, and does not run before its time off CPU ends.
#[test]
fn the_span_of_a_task_that_moves_belongs_to_the_cgroup_in_which_it_ends() {
    let _awake = Awake::new();
    let [from, to] = [Cgroup::new(), Cgroup::new()];
    let nap = workload("comm mover sleep-ms 400 sleep-ms 20");
    let script = format!(
        "
import time
def __interval__():
    global turns
    turns += 1
    if turns == 1:
        task = subprocess.Popen(['sh', '-c', 'echo $$ > {}; exec \"$@\"', 'sh', *{nap:?}])
        while open(f'/proc/{{task.pid}}/comm').read() != 'mover\\n': time.sleep(0.01)
        time.sleep(0.1)
        open('{}', 'w').write(str(task.pid))
        task.wait()
    elif turns == 3: sys.exit()
def span(e): print(e._event, e.comm, e.begin._cgroup, e._cgroup)
offcpu = runqueue = span
",
        from.procs(),
        to.procs()
    );
    let paths = |text: &str| text.replace(&from.name, "FROM").replace(&to.name, "TO");
    let selector = "offcpu/comm=mover,min=300ms/";
    let (run, outcome) = live(&script, selector, &["--cgroups", &to.name], &[]);
    expect![[r#"
        offcpu mover /FROM /TO
    "#]]
    .assert_eq(&paths(&outcome.stdout));
    let recording = run.path("r.data");
    let printing = "def offcpu(e): print(e._event, e.comm, e.begin._cgroup, e._cgroup)";
    let of = |name: &str| paths(&replayed(printing, selector, &["--cgroups", name], &recording).stdout);
    assert_eq!((of(&to.name), of(&from.name)), (paths(&outcome.stdout), String::new()));
}

#[test]
fn system_calls_are_counted_by_the_cgroup_of_their_task() {
    needs([Need::Tracefs, Need::Cgroups]);
    let (outer, other) = (Cgroup::new(), Cgroup::new());
    let inner = outer.below("inner");
    let commands =
        [shell_in(&outer, &["calls 30", "calls 10"]), shell_in(&inner, &["calls 20"]), shell_in(&other, &["calls 7"])];
    let script = "
import perf_prof
counts = perf_prof.Count('_cgroup')
kept = []
def syscall(e):
    counts.add(e)
    kept.append(e)
def __exit__():
    import copy
    for key, count in sorted(counts.items(), key=lambda item: item[1]): print(key, count)
    print(sorted({e._cgroup for e in kept}) == sorted({copy.copy(e)._cgroup for e in kept}) == sorted(counts))
";
    let names = |text: &str| text.replace(&outer.name, "OUTER").replace(&other.name, "OTHER");
    let list = format!("{},{},{}", inner.name, outer.name, other.name);
    let options = ["--all-cgroups", "--cgroups", list.as_str()];
    let (run, outcome) = live(script, "syscall/name=getpgid/", &options, &commands);
    expect![[r#"
        /OTHER 7
        /OUTER/inner 20
        /OUTER 40
        True
    "#]]
    .assert_eq(&names(&outcome.stdout));
    let script = "def syscall(e): print(e.name, e.args[0])";
    let replayed = replayed(script, "syscall/name=getpgid/", &["--cgroups", &other.name], &run.path("r.data"));
    assert_eq!(replayed.stdout.lines().count(), 7, "{}", replayed.stderr);
}

#[test]
fn a_script_that_sees_all_tasks_asks_which_are_in_the_cgroup() {
    let _awake = Awake::new();
    let [own, other] = [Cgroup::new(), Cgroup::new()];
    let commands = [
        shell_in(&own, &["comm in-own sleep-ms 20 sleep-ms 20"]),
        shell_in(&other, &["comm in-other sleep-ms 20 sleep-ms 20"]),
    ];
    let script = "
from perf_prof import is_target
import collections
switched = collections.Counter()
def sched__sched_switch(e):
    if e.next_comm.startswith('in-'): switched[e.next_comm, is_target(e.next_pid)] += 1
def __sample__(e): print('an event that was not selected:', e)
def __exit__(): print(sorted(switched), min(switched.values()) >= 2)
";
    let options = ["--order", "--all-cpus", "--cgroups", own.name.as_str()];
    let (run, outcome) = live(script, "sched:sched_switch", &options, &commands);
    expect![[r#"
        [('in-other', False), ('in-own', True)] True
    "#]]
    .assert_eq(&outcome.stdout);
    let replayed = replayed(script, "sched:sched_switch", &options[1..], &run.path("r.data"));
    assert_eq!(replayed.stdout, outcome.stdout, "{}", replayed.stderr);
}

/// The cgroup is removed before its name is needed, or even before its first event is delivered.
#[test]
fn a_cgroup_that_was_made_and_removed_during_the_run_has_a_name() {
    let outer = Cgroup::new();
    let made = outer.path.join("made");
    let call = workload("call 5").iter().map(|word| format!("'{word}' ")).collect::<String>();
    let line =
        format!("mkdir {0}; sh -c 'echo $$ > {0}/cgroup.procs; exec \"$@\"' sh {call}; rmdir {0}", made.display());
    let script = "
kept = []
def syscalls__sys_enter_getpgid(e): kept.append(e)
def __exit__(): print([(e.pid, e._cgroup) for e in kept if e._cgroup.endswith('/made')])
";
    let commands = [vec!["sh".to_owned(), "-c".to_owned(), line]];
    let (_, outcome) = live(script, CALL, &["--all-cgroups"], &commands);
    assert!(!made.exists());
    assert_eq!(outcome.stdout, format!("[(5, '/{}/made')]\n", outer.name));
}

#[test]
fn commands_select_cgroups_and_show_their_names() {
    let _awake = Awake::new();
    let cgroup = Cgroup::new();
    let folder = tempfile::tempdir().unwrap();
    let beside = |args: &[&str], operations: &str| {
        let mut command = perf_prof(args);
        command.args(["-q", "--cgroup", &cgroup.name, "--duration", "1s"]).current_dir(folder.path());
        let started =
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
        // The workload takes longer than the run.
        run_all(&[shell_in(&cgroup, &[operations])]);
        started.wait_with_output().unwrap()
    };
    let naps = format!("comm napper {}", "call 1 sleep-ms 20 ".repeat(100));
    let path = format!("/{}", cgroup.name);
    for line in printed(&beside(&["trace", "-e", "runqueue", "--all-cgroups"], &naps)) {
        assert!(line.ends_with(&format!("cgroup={path}")), "{line}");
    }
    let top = &objects(&stdout(&beside(&["top", "offcpu", "--by", "cgroup", "--json"], &naps)))[0];
    let keys: Vec<&str> = top["rows"].as_array().unwrap().iter().map(|row| row["cgroup"].as_str().unwrap()).collect();
    assert_eq!(keys, [path.as_str()], "{top}");
    let hist = stdout(&beside(&["hist", "offcpu", "--by", "_cgroup", "--json"], &naps));
    assert!(hist.contains(&path) && objects(&hist).len() == 1, "{hist}");
    beside(&["record", "-e", "page-faults,syscalls:sys_enter_getpgid", "-c", "1"], &naps);
    let report = stdout(&perf_prof(&["report", "--sort", "comm"]).current_dir(folder.path()).output().unwrap());
    assert!(report.contains("napper"), "{report}");
}

#[test]
fn cgroups_that_cannot_be_read_or_selected_are_errors() {
    let cgroup = Cgroup::new();
    let failed = |args: &[&str]| {
        let output = perf_prof(args).output().unwrap();
        assert!([Some(1), Some(2)].contains(&output.status.code()), "{}", said(&output));
        said(&output).replace(&cgroup.name, "CGROUP").lines().next().unwrap().to_owned()
    };
    let missing = failed(&["top", "offcpu", "--cgroups", "no-such-cgroup", "--duration", "1s"]);
    assert!(missing.starts_with("perf-prof: there is no cgroup `no-such-cgroup` in "), "{missing}");
    expect!["perf-prof: offcpu is made of events of all tasks; record with -a --all-cgroups, without -p or -t, and select the tasks when you read the recording"]
        .assert_eq(&failed(&["record", "-e", "offcpu", "--cgroups", &cgroup.name]));
    let error = failed(&["top", "offcpu", "--cgroups", &cgroup.name, "-C", "0"]);
    assert!(error.contains("leave -C and cpus= out"), "{error}");
    let error = failed(&["trace", "-e", "offcpu,page-faults", "--cgroups", &cgroup.name]);
    assert!(error.contains("tasks cannot be selected for page-faults in the same run"), "{error}");
}

#[test]
fn the_cgroup_of_samples_without_cgroups_is_an_error_that_names_the_option() {
    needs([Need::Tracefs]);
    let script = "
import perf_prof
def syscalls__sys_enter_getpgid(e):
    print('_cgroup' in e, 'cgroup' in dir(e))
    try: e._cgroup
    except AttributeError as error: print(error)
    try: perf_prof.Count('_cgroup').add(e)
    except perf_prof.Error as error: print(error)
    except Exception as error: print(type(error).__name__, error)
";
    let run = Run::script(script).call_event().workload("call 1");
    let outcome = run.run();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert_eq!(outcome.stdout.matches("--all-cgroups").count(), 2, "{}", outcome.stdout);
    assert!(outcome.stdout.starts_with("False False\n"), "{}", outcome.stdout);
}

/// A cgroup that is made again has other events, so a run that went on would see nothing of a service that was restarted.
#[test]
fn a_run_ends_when_its_cgroup_is_removed() {
    for selector in ["syscalls:sys_enter_getpgid", "runqueue"] {
        let cgroup = Cgroup::new();
        let script = "
import os
def __sample__(e): pass
def __interval__():
    os.rmdir(os.environ['FOLDER'])
    os.mkdir(os.environ['FOLDER'])
";
        let run = Run::script(script).event(selector).env("FOLDER", cgroup.path.to_str().unwrap());
        let outcome = run.options(["-q", "-i", "200ms", "--duration", "60s", "--cgroups", &cgroup.name]).run();
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        let told = format!("--cgroups: the run ends, because {} was removed", cgroup.name);
        assert_eq!(outcome.stderr.matches(&told).count(), 1, "{selector}: {}", outcome.stderr);
    }
}

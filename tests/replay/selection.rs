//! What can be selected in a recording: events, filters, CPUs, tasks, times.

use std::{path::PathBuf, process::Command, sync::OnceLock};

use perf_prof_format::abi::*;

use crate::harness::{
    machine::{Need, needs, skip},
    made::{Made, MadeAttr, padded, u32s, u64s},
    recording::{Folder, LIST, perf, perf_script, perf_script_with, python, record, record_here},
    run::{perf_prof, printed, stdout},
};

/// Returns a short recording that is made once for all tests.
fn recording() -> &'static (Folder, PathBuf) {
    static RECORDING: OnceLock<(Folder, PathBuf)> = OnceLock::new();
    needs([Need::Perf]);
    let make = || {
        let folder = Folder::new();
        let data = folder.path("perf.data");
        folder.write("list.py", LIST.as_bytes());
        let busy = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.02; ls / > /dev/null; done";
        let events = ["-e", "sched:sched_switch", "-e", "sched:sched_wakeup", "-e", "cpu-clock", "-a"];
        record(&data, &[&events[..], &["--", "sh", "-c", busy]].concat());
        (folder, data)
    };
    RECORDING.get_or_init(make)
}

fn list(args: &[&str]) -> Vec<String> {
    let (folder, data) = recording();
    let script = folder.path("list.py");
    let output = python(&[&["-q", "--input", data.to_str().unwrap()], args, &[script.to_str().unwrap()]].concat());
    stdout(&output).lines().map(str::to_owned).collect()
}

fn error(args: &[&str]) -> String {
    let (folder, data) = recording();
    let script = folder.path("list.py");
    let output = python(&[&["-q", "--input", data.to_str().unwrap()], args, &[script.to_str().unwrap()]].concat());
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn same(found: Vec<String>, expected: Vec<String>) {
    assert!(!expected.is_empty());
    assert_eq!(found.len(), expected.len());
    assert!(found == expected);
}

#[test]
fn events_by_name_and_pattern() {
    let (_, data) = recording();
    let all = perf_script(data);
    let of = |name: &str| all.iter().filter(|line| line.ends_with(name)).cloned().collect::<Vec<_>>();
    same(list(&["-e", "sched:sched_wakeup"]), of("sched_wakeup"));
    same(list(&["-e", "cpu-clock"]), of("cpu-clock"));
    same(list(&["-e", "sched:*,cpu-clock"]), all.clone());
    // An event that is selected twice is delivered twice.
    assert_eq!(list(&["-e", "cpu-clock,cpu-clock"]).len(), 2 * of("cpu-clock").len());
    let renamed = list(&["-e", "sched:sched_wakeup//alias=woken/"]);
    assert!(renamed.len() == of("sched_wakeup").len() && renamed.iter().all(|line| line.ends_with("sched:woken")));
    assert!(error(&["-e", "sched:sched_wakup"]).contains("did you mean sched:sched_wakeup"));
    assert!(error(&["-e", "cpu-clock:u"]).contains("cpu-clock:u is not in"));
    assert!(
        error(&["-e", "kmem:kmalloc"])
            .contains("the recording contains sched:sched_switch, sched:sched_wakeup, cpu-clock")
    );
}

/// Checks that `profile` and another selector deliver the same samples of a recording.
fn are_the_same(events: &str, selector: &str) {
    let folder = Folder::new();
    let (data, script) = (folder.path("perf.data"), folder.write("list.py", LIST.as_bytes()));
    record(&data, &["-a", "-e", events, "--", "sh", "-c", "for i in 1 2 3 4 5; do ls / >/dev/null; done"]);
    // If the hardware cannot count cycles, perf records a clock instead.
    if !perf(&["evlist"], &data).iter().any(|line| line == selector) {
        skip(Need::Pmu, format!("no {selector} in {:?}", perf(&["evlist"], &data)));
    }
    let run = |selector: &str| {
        let args = ["-q", "--input", data.to_str().unwrap(), "-e", selector, script.to_str().unwrap()];
        stdout(&python(&args)).lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect::<Vec<_>>()
    };
    same(run("profile"), run(selector));
}

/// `profile` selects one of two clocks. Otherwise their times would be added up.
#[test]
fn profile_is_one_event_of_a_recording() {
    needs([Need::Perf]);
    are_the_same("cpu-clock,task-clock", "cpu-clock");
}

/// `profile` does not select the clock too, because cycles and nanoseconds must not be added up.
#[test]
fn profile_is_cycles_where_they_were_recorded() {
    needs([Need::Perf]);
    are_the_same("cpu-clock,cycles", "cycles");
}

/// Braces must be accepted for recordings, whose events may be a group.
#[test]
fn braces_select_the_events_within() {
    let (folder, data) = recording();
    let all = perf_script(data);
    let of = |name: &str| all.iter().filter(|line| line.ends_with(name)).cloned().collect::<Vec<_>>();
    same(list(&["-e", "{sched:sched_switch,sched:sched_wakeup,cpu-clock}"]), all.clone());
    same(list(&["-e", "{sched:sched_wakeup}"]), of("sched_wakeup"));
    same(list(&["-e", "{cpu-clock,cpu-clock}:S"]), list(&["-e", "cpu-clock,cpu-clock"]));
    assert!(error(&["-e", "{sched:sched_wakeup,kmem:kmalloc}"]).contains("kmem:kmalloc is not in"));
    let group = folder.path("group.data");
    record(&group, &["-a", "-e", "{sched:sched_switch,context-switches}:S", "--", "sleep", "0.1"]);
    let script = folder.path("list.py");
    let run = |selector: &[&str]| {
        let args = [&["-q", "--input", group.to_str().unwrap()], selector, &[script.to_str().unwrap()]].concat();
        stdout(&python(&args)).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    same(run(&["-e", "{sched:sched_switch,context-switches}:S"]), run(&[]));
}

#[test]
fn filters_on_fields() {
    let (folder, _) = recording();
    folder.write("fields.py", b"def sched__sched_switch(e):\n    print(e.prev_pid, e.next_comm)\n");
    let script = folder.path("fields.py");
    let run = |event: &str| {
        let (_, data) = recording();
        let args = ["-q", "--input", data.to_str().unwrap(), "-e", event, script.to_str().unwrap()];
        stdout(&python(&args)).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = run("sched:sched_switch");
    let expected: Vec<_> =
        all.iter().filter(|line| !line.starts_with("1 ") && line.ends_with(" sleep")).cloned().collect();
    same(run("sched:sched_switch/prev_pid != 1 && next_comm ~ \"sl?*p\"/"), expected.clone());
    let others = run("sched:sched_switch/!(prev_pid != 1 && next_comm == sleep)/");
    assert_eq!(others.len() + expected.len(), all.len());
    let wrong = error(&["-e", "sched:sched_switch/prev == 0/"]);
    assert!(wrong.contains("no field `prev`") && wrong.contains("prev_pid (pid_t)"), "{wrong}");
}

#[test]
fn cpus_and_tasks_are_selected_as_in_perf_script() {
    let (_, data) = recording();
    same(list(&["-C", "0"]), perf_script_with(data, &["-C", "0"]));
    let task = list(&[]).iter().map(|line| line.split(' ').nth(2).unwrap().to_owned()).find(|tid| tid != "0").unwrap();
    same(list(&["-t", &task]), perf_script_with(data, &["--tid", &task]));
    same(list(&["-p", &task]), perf_script_with(data, &["--pid", &task]));
}

#[test]
fn names_of_tasks_and_functions_are_selected_as_in_perf_script() {
    needs([Need::Perf]);
    let (_, data) = recording();
    let comm = list(&[])[0].split(' ').next().unwrap().to_owned();
    for names in [&["--comms", &comm][..], &["--comms", "swapper,nobody"], &["-S", "schedule,__schedule"]] {
        let lines = |command: &mut Command| {
            let output = command.arg("script").args(["-G", "-F", "event,time", "-i"]).arg(data).args(names).output();
            stdout(&output.unwrap())
        };
        assert_eq!(lines(&mut perf_prof(&[])), lines(&mut Command::new("perf")), "{names:?}");
    }
}

/// The idle tasks have the id 0, which must be accepted.
#[test]
fn the_idle_tasks_can_be_selected() {
    needs([Need::Perf]);
    let idle: Vec<String> = list(&[]).into_iter().filter(|line| line.split(' ').nth(2) == Some("0")).collect();
    // Both lists may be empty: on a busy machine, the idle tasks have no events.
    assert_eq!(list(&["-t", "0"]), idle);
    assert_eq!(list(&["-p", "0"]), idle);
}

/// Options for call chains must not be ignored silently.
#[test]
fn call_chains_that_were_not_recorded_are_reported_as_missing() {
    let (folder, data) = recording();
    let script = folder.write(
        "count.py",
        b"n = 0\ndef __sample__(e):\n    global n\n    n += len(e._callchain)\ndef __exit__():\n    print(n)\n",
    );
    let run = |args: &[&str]| {
        let output = python(&[&["--input", data.to_str().unwrap()], args, &[script.to_str().unwrap()]].concat());
        assert_eq!(stdout(&output), "0\n");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let all =
        "sched:sched_switch, sched:sched_wakeup, cpu-clock were not recorded and cannot be shown; `perf record -g`";
    assert!(run(&["-g"]).contains(all));
    for selector in ["sched:sched_switch//stack/", "sched:sched_switch//max-stack=3/"] {
        let said = run(&["-e", selector, "-e", "cpu-clock"]);
        assert!(said.contains("warning: call chains of sched:sched_switch were not recorded"), "{said}");
    }
    assert!(!run(&[]).contains("call chains") && !run(&["-q", "-g"]).contains("call chains"));
}

/// Without these options, all frames are delivered.
#[test]
fn user_or_kernel_frames_are_left_out_of_a_replay_as_in_a_live_run() {
    let (folder, _) = recording();
    let script = "\
sides = set()
def __sample__(e):
    sides.update('kernel' if frame['kernel'] else 'user' for frame in e._callchain)
def __exit__(): print(*sorted(sides))
";
    let script = folder.write("sides.py", script.as_bytes());
    let run = |data: &str, args: &[&str]| {
        python(&[&["--input", folder.path(data).to_str().unwrap()], args, &[script.to_str().unwrap()]].concat())
    };
    // Samples have a fixed period and no frequency, because the kernel lowers its limit of frequencies if samples take
    // long.
    let ls = ["-c", "200000", "-e", "cpu-clock", "--", "ls", "-lR", "/usr/lib"];
    record(&folder.path("fp.data"), &[&["-g"][..], &ls].concat());
    record(&folder.path("dwarf.data"), &[&["--call-graph", "dwarf,2048"][..], &ls].concat());
    for data in ["fp.data", "dwarf.data"] {
        for (args, sides) in [
            (&[][..], "kernel user\n"),
            (&["--no-user-callchain"], "kernel\n"),
            (&["--no-kernel-callchain"], "user\n"),
            (&["-g", "--user-callchain", "--kernel-callchain"], "kernel user\n"),
        ] {
            let output = run(data, args);
            assert_eq!(stdout(&output), sides, "{data} {args:?}");
            assert!(!String::from_utf8_lossy(&output.stderr).contains("warning"));
        }
    }
    let both = run("fp.data", &["--no-user-callchain", "--no-kernel-callchain"]);
    let said = String::from_utf8_lossy(&both.stderr).into_owned();
    let none = "perf-prof: call chains without kernel frames and without user frames are empty; leave out only one of the two\n";
    assert_eq!((both.status.code(), &*said), (Some(1), none));
    // User frames that were not recorded are reported as missing.
    record(&folder.path("kernel.data"), &[&["-g", "--kernel-callchains"][..], &ls].concat());
    let output = run("kernel.data", &["--user-callchain"]);
    assert_eq!(stdout(&output), "kernel\n");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("warning: user frames of cpu-clock were not recorded"), "{said}");
}

/// Call chains are as long as the kernel would have recorded them with the same limit.
#[test]
fn max_stack_shortens_what_was_recorded() {
    let (folder, _) = recording();
    let data = folder.path("chains.data");
    record(&data, &["-g", "-e", "sched:sched_switch", "-a", "--", "sleep", "0.2"]);
    let text = b"def __sample__(e):\n    print(*[f['addr'] for f in e._callchain])\n";
    let script = folder.write("addresses.py", text);
    let chains = |selector: &str| {
        let args = ["-q", "--input", data.to_str().unwrap(), "-e", selector, script.to_str().unwrap()];
        stdout(&python(&args)).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (all, short) = (chains("sched:sched_switch"), chains("sched:sched_switch//max-stack=3/"));
    assert!(all.iter().any(|chain| chain.split(' ').count() > 3));
    let first = |chain: &String| chain.split(' ').take(3).collect::<Vec<_>>().join(" ");
    same(short, all.iter().map(first).collect());
}

#[test]
fn times_are_selected_as_in_perf_script() {
    let (_, data) = recording();
    let all = list(&[]);
    let time = |line: &String| line.split(' ').next().unwrap().parse::<u64>().unwrap();
    let seconds = |time: u64| format!("{}.{:09}", time / 1_000_000_000, time % 1_000_000_000);
    let (from, to) = (time(&all[all.len() / 3]), time(&all[all.len() / 2]));
    let range = format!("{},{}", seconds(from), seconds(to));
    same(list(&["--time", &range]), perf_script_with(data, &["--time", &range]));
    // The four parts together contain each event once.
    let slices: Vec<String> = (1..=4).flat_map(|n| list(&["--time", &format!("25%/{n}")])).collect();
    same(slices, all.clone());
    let halves = [list(&["--time", "0%,50%"]), list(&["--time", "50%,100%"])].concat();
    same(halves, all);
}

#[test]
fn options_of_live_events_are_refused() {
    needs([Need::Perf]);
    for (args, option) in [(&["-m", "8"][..], "-m"), (&["-F", "99"], "-F"), (&["--monotonic"], "--monotonic")] {
        let message = format!("{option} and --input cannot be combined: {option} sets how live events are recorded");
        assert!(error(args).contains(&message), "{}", error(args));
    }
}

#[test]
fn intervals_follow_the_times_of_events() {
    let (folder, data) = recording();
    let text = "import perf_prof\nfirst = last = None\nticks = 0\ndef __sample__(e):\n    global first, last\n    \
                first = first or e._time\n    last = e._time\n    assert e._time - first <= (ticks + 1) * 10_000_000\n\
                def __interval__():\n    global ticks\n    ticks += 1\n\
                def __exit__():\n    print(ticks == (last - first) // 10_000_000, ticks > 5)\n";
    let script = folder.write("ticks.py", text.as_bytes());
    let args = ["-q", "--input", data.to_str().unwrap(), "-i", "10", script.to_str().unwrap()];
    assert_eq!(stdout(&python(&args)), "True True\n");
}

#[test]
fn a_template_for_a_recording_runs() {
    let (folder, data) = recording();
    let data = data.to_str().unwrap();
    let template = stdout(&python(&["--input", data, "help"]));
    assert!(template.contains("def sched__sched_switch(event") && template.contains("def cpu_clock(event"));
    let script = folder.write("template.py", template.as_bytes());
    let output = stdout(&python(&["-q", "--input", data, "-N", "100", script.to_str().unwrap()]));
    assert!(output.ends_with("100 events\n"), "{output}");
}

/// `-p` selects the process and its children, and no other process, although it is created during the recording.
#[test]
fn a_process_that_starts_during_the_recording_is_selected_with_its_children_only() {
    const SAMPLE_ID_ALL: u64 = 1 << 18;
    let attr = MadeAttr { flags: SAMPLE_ID_ALL, ..MadeAttr::new(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME) };
    let id = |time| [u32s(&[3, 3]), u64s(&[time])].concat();
    let forked = |made: Made, child, parent, time| {
        let numbers = u32s(&[child, parent, child, parent]);
        made.record(PERF_RECORD_FORK, 0, &[numbers, u64s(&[time]), id(time)])
    };
    let made = Made::new(attr).record(PERF_RECORD_COMM, 0, &[u32s(&[3, 3]), padded("sh"), id(1)]);
    let made = made.sample(PERF_RECORD_MISC_USER, &[u64s(&[1]), id(2)]);
    let made = forked(forked(forked(made, 7, 3, 10), 8, 7, 20), 9, 3, 30);
    let made = made.sample(PERF_RECORD_MISC_USER, &[u64s(&[1]), id(40)]);
    let folder = Folder::new();
    let data = made.write(&folder);
    let script = "from perf_prof import is_target\n\
                  def __sample__(event): print([tid for tid in (3, 7, 8, 9, 999999) if is_target(tid)])\n";
    let script = folder.write("s.py", script.as_bytes());
    let output = python(&["-q", "--all-cpus", "--input", &data, "-p", "7", script.to_str().unwrap()]);
    assert_eq!(stdout(&output), "[]\n[7, 8]\n");
}

/// A live run has the events of the children of the processes that `-p` names. Those of a thread (`-t`) are not inherited.
#[test]
fn a_recorded_process_is_selected_with_the_children_that_it_creates_as_in_live_runs() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("children.data");
    let events = "sched:sched_switch,raw_syscalls:sys_enter,raw_syscalls:sys_exit";
    let named = "echo $$ > $0; sleep 0.02; sh -c 'sleep 0.02; :'; :";
    let script = format!("sleep 0.02; sh -c \"$0\" '{}'; sleep 0.02", folder.path("pid").display());
    record_here(&path, &["-m", "2048", "-e", events, "--", "sh", "-c", &script, named]);
    let pid = std::fs::read_to_string(folder.path("pid")).unwrap().trim().to_owned();
    let replayed = |text: &str, args: &[&str]| {
        let script = folder.write("script.py", text.as_bytes());
        let input = ["-q", "--input", path.to_str().unwrap(), "-e"];
        stdout(&python(&[&input[..], args, &[script.to_str().unwrap()]].concat()))
    };
    let of_samples = |args: &[&str]| -> Vec<String> {
        let lines = replayed("def __sample__(e):\n    print(e._time, e._pid, e._tid)\n", args);
        lines.lines().map(str::to_owned).collect()
    };
    let counted = |args: &[&str]| replayed("from perf_prof import Count\n__sample__ = Count('_tid')\n", args);
    let tasks = |lines: &[String]| -> std::collections::BTreeSet<String> {
        lines.iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).filter(|pid| pid != "-1").collect()
    };
    for selector in ["sched:sched_switch", "raw_syscalls:sys_enter", "syscall"] {
        let whole = of_samples(&[selector]);
        let selected = of_samples(&[selector, "-p", &pid]);
        // Two shells and two sleeps. The whole recording also has the first shell and its two sleeps.
        assert_eq!((tasks(&whole).len(), tasks(&selected).len()), (7, 4), "{selector} {pid}: {selected:?}");
        assert!(tasks(&selected).contains(&pid));
        assert_eq!(counted(&[selector, "-p", &pid, "--jobs", "3"]), counted(&[selector, "-p", &pid]), "{selector}");
        let halves = ["0%-50%", "50%-100%"].map(|half| of_samples(&[selector, "-p", &pid, "--time", half]));
        assert_eq!(halves.concat(), selected, "{selector}");
        assert_eq!(tasks(&of_samples(&[selector, "-t", &pid])), [pid.clone()].into(), "{selector}");
        let file = folder.path("events.ndjson");
        let export = ["export", "-q", "-e", selector, "-p", &pid, "-o", file.to_str().unwrap(), "-i"];
        stdout(&perf_prof(&export).arg(&path).output().unwrap());
        let exported = std::fs::read_to_string(&file).unwrap().matches("\"_event\":").count();
        assert_eq!(exported, selected.len(), "{selector}");
    }
    // perf selects the named process alone.
    let own = of_samples(&["sched:sched_switch", "-t", &pid]).len();
    let args = ["script", "-q", "--pid", &pid, "-i"];
    let shown = printed(&perf_prof(&args).arg(&path).output().unwrap());
    assert_eq!(shown.iter().filter(|line| line.contains("sched_switch")).count(), own);
}

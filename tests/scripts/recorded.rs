//! Checks that each script says how to record its events, and that it works on such a recording.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    thread,
    time::Duration,
};

use crate::{
    harness::compile::FRAMES,
    harness::{
        compile::compile,
        machine::{Need, needs},
        scripts::{in_path, row, script, text},
    },
};

/// Programs that start and exit, sleep, wake each other and touch memory.
const WORK: &str = "sh -c 'for i in 1 2 3 4 5 6 7 8; do ls /usr/bin | cat >/dev/null; sleep 0.02; done'";

/// The tasks that are recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tasks {
    /// Only the tasks of the command.
    OfCommand,
    /// All tasks, because the return of a task to its CPU is an event of another task. The rings are large enough for a
    /// busy machine.
    All,
}

/// Returns two commands from a script's usage: the one that records, and the one that reads the recording.
fn commands(usage: &str, tasks: Tasks) -> (String, String) {
    let usage = usage.replace("\\\n", "");
    let lines: Vec<&str> = usage.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.starts_with("perf-prof record ")).expect(&usage);
    let record = lines[at].replace("COMMAND", WORK).replace("sleep 10", WORK);
    let instead = if tasks == Tasks::All { " -a -m 2048 " } else { " " };
    (record.replace(" -a ", instead), lines[at + 1].to_owned())
}

/// Returns perf's command from the usage, and the command of perf-prof that it replaces. perf does not support sources,
/// so some scripts have none.
fn in_perf(usage: &str) -> Option<(String, String)> {
    let usage = usage.split_whitespace().collect::<Vec<_>>().join(" ");
    let (before, after) = usage.split_once(" can be used instead of `")?;
    let (_, offered) = before.rsplit_once("(`").expect(&usage);
    let first = |text: &str| text.split('`').next().unwrap().to_owned();
    Some((first(offered), first(after)))
}

fn shell(folder: &Path, command: &str) -> Output {
    let mut shell = Command::new("sh");
    in_path(shell.args(["-c", command]).current_dir(folder)).output().unwrap()
}

#[test]
fn scripts_work_on_recordings_that_their_usage_describes() {
    needs([Need::Tracefs]);
    let perf = Command::new("perf").arg("--version").output().is_ok();
    if !perf {
        println!("not tested: recordings of perf, which is not in PATH");
    }
    let mut by_both = 0;
    // Some kernels do not report what happens while a CPU is idle: there, tasks that sleep are not seen to come back.
    for (name, tasks, options, shown) in [
        ("wakeups.py", Tasks::OfCommand, "", " wake-ups, "),
        ("runqlat.py", Tasks::All, "--comm sh", "sh: "),
        ("syscalls.py", Tasks::OfCommand, "", " calls of "),
        ("execsnoop.py", Tasks::OfCommand, "", "/ls\n"),
        ("offcpu.py", Tasks::All, "--comm sh", " sh\n"),
        ("profile.py", Tasks::OfCommand, "", " samples in "),
        ("faults.py", Tasks::OfCommand, "", " minor and "),
        ("signals.py", Tasks::All, "", " SIGCHLD "),
        ("killsnoop.py", Tasks::OfCommand, "", " PARENT\n"),
    ] {
        let usage = text(script(name).arg("--usage").output().unwrap());
        let (record, show) = commands(&usage, tasks);
        let by_perf = in_perf(&usage).filter(|_| perf).map(|(theirs, ours)| record.replace(&ours, &theirs));
        let records = [Some(record.clone()), by_perf];
        by_both += usize::from(records[1].is_some());
        for record in records.into_iter().flatten() {
            let folder = tempfile::tempdir().unwrap();
            // stdout is no pipe, because perf would write the recording to a pipe. While another program on the machine
            // requests build ids, perf 6.1 takes the kernel's records for damaged, and aborts at its end. Then the
            // recording is repeated.
            let mut attempts = (0..20).map(|attempt: u64| {
                thread::sleep(Duration::from_millis(100 * attempt.min(7)));
                shell(folder.path(), &format!("{record} >/dev/null"))
            });
            let aborted = |output: &Output| output.status.code().is_none_or(|code| code > 128);
            let recorded = attempts.find(|output| !aborted(output)).unwrap();
            assert!(recorded.status.success(), "{record}: {}", String::from_utf8_lossy(&recorded.stderr));
            assert!(fs::exists(folder.path().join("perf.data")).unwrap(), "{record}");
            let shown_by = shell(folder.path(), &format!("{show} {options}"));
            let (out, err) = (String::from_utf8_lossy(&shown_by.stdout), String::from_utf8_lossy(&shown_by.stderr));
            // Events may be lost on a busy machine, so messages about losses are allowed.
            assert!(shown_by.status.success() && !err.contains("Traceback"), "{record}; {show}: {err}");
            assert!(out.contains(shown), "{record}; {show}: {out}");
            for nothing in ["\n0 samples", "no waits", "\n0 calls", ": 0 wake-ups", "\n0 minor", "in 0 stacks"] {
                assert!(!format!("\n{out}").contains(nothing), "{record}; {show}: {out}");
            }
        }
    }
    assert!(!perf || by_both >= 5, "perf made {by_both} recordings");
}

/// For a recording, the script must not read the mappings of processes that exist now.
#[test]
fn uprobe_latency_works_on_recordings_of_its_probes() {
    needs([Need::Tracefs, Need::Uprobes]);
    const NAPS: &str = "#include <unistd.h>
__attribute__((noinline)) void nap(void) { usleep(2000); }
int main(void) { for (int i = 0; i < 10; i++) nap(); return 0; }
";
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path(), "naps", NAPS, FRAMES);
    let probes = "-e function:nap@./naps";
    let recorded = shell(folder.path(), &format!("perf-prof record -q {probes} -- ./naps"));
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let mut command = script("uprobe_latency.py");
    command.args(["--input", "perf.data"]).current_dir(folder.path());
    let out = command.output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code() == Some(2) && err.contains("select the recorded functions with -e"), "{err}");
    let out = text(command.args(probes.split(' ')).output().unwrap());
    let has_naps = |out: &str| {
        let calls = row(out, "nap:");
        let mean: f64 = calls[4].parse().unwrap();
        assert!(calls[1..3] == ["10", "calls,"] && mean > 1950.0, "{out}");
    };
    has_naps(&out);
    // Recordings of single probes are read as spans.
    let recorded = shell(folder.path(), "perf-prof record -q -e uprobe:nap@./naps,uretprobe:nap@./naps -- ./naps");
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let mut command = script("uprobe_latency.py");
    command.args(["--input", "perf.data", "-e", "span:nap=uprobe:nap..uretprobe:nap//key=_tid/nested/"]);
    has_naps(&text(command.current_dir(folder.path()).output().unwrap()));
}

/// A recording contains the names of probes, but not their files.
#[test]
fn a_file_that_the_recording_cannot_tell_is_reported() {
    needs([Need::Tracefs, Need::Uprobes]);
    const NAP: &str = "__attribute__((noinline)) void nap(void) { __asm__(\"\"); }
int main(void) { nap(); return 0; }
";
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    compile(folder, "naps", NAP, FRAMES);
    let record = shell(folder, "perf-prof record -q -e uprobe:nap@./naps,uretprobe:nap@./naps -- ./naps");
    assert!(record.status.success(), "{}", String::from_utf8_lossy(&record.stderr));
    fs::write(folder.join("s.py"), "def uprobe__nap(event): print('nap')\n").unwrap();
    let said = "perf-prof: warning: perf.data contains the names of probes, but not their files; uprobe:nap@./other selects by the \
                name of the probe only\n";
    for command in ["python -q --input perf.data -e uprobe:nap@./other s.py", "report -q -e uprobe:nap@./other"] {
        let (status, out, err) = shown(folder, &format!("perf-prof {command}"));
        assert_eq!((status, &*err), (Some(0), said), "{command}");
        assert!(out.contains("nap"), "{out}");
    }
    // Without quotes, the path extends to the end.
    let (status, _, err) =
        shown(folder, "perf-prof python --input perf.data -e 'uprobe:nap@./naps/common_pid>0/' s.py");
    let error = "uprobe:nap@./naps/common_pid>0/: ./naps/common_pid>0/ is not a program or library; put the path in \
                 quotes if a filter follows\n";
    assert!(status == Some(1) && err.ends_with(error), "{err}");
    let quoted = "perf-prof python -q --input perf.data -e 'uprobe:nap@\"./naps\"/common_pid>0/' s.py";
    assert_eq!(shown(folder, quoted).1, "nap\n");
}

/// Records the whole machine for a short time.
#[track_caller]
fn recorded(folder: &Path, options: &str) {
    let output = shell(folder, &format!("perf-prof record -q -a {options} -- {WORK}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a command in a folder. Returns its status, stdout and stderr.
fn shown(folder: &Path, command: &str) -> (Option<i32>, String, String) {
    let output = shell(folder, command);
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(!err.contains("Traceback"), "{command}: {err}");
    (output.status.code(), out, err)
}

/// Without the script's first line, `perf-prof python` delivers all events in a recording. The two scripts must ignore
/// the events that they do not need.
#[test]
fn scripts_of_wake_ups_ignore_other_events_in_a_recording() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recorded(folder, "-e 'sched:sched_wak*,sched:sched_switch,sched:sched_process_exec'");
    for (name, options) in [("wakeups.py", "-i 1000"), ("runqlat.py", "")] {
        let path = script(name).get_program().to_owned();
        let (status, chosen, err) = shown(folder, &format!("{name} {options} --input perf.data"));
        assert_eq!(status, Some(0), "{err}");
        let all = format!("perf-prof python -q {options} --input perf.data '{}'", path.display());
        let (status, all, err) = shown(folder, &all);
        assert_eq!((status, all), (Some(0), chosen), "{err}");
    }
}

/// If a recording lacks an event that is not necessary, the script only prints a warning.
#[test]
fn a_script_does_without_events_that_its_result_does_not_need() {
    needs([Need::Tracefs]);
    for (events, name, lacks, sees) in [
        (
            "sched:sched_wakeup,sched:sched_switch",
            "runqlat.py",
            "sched:sched_wakeup_new: the first wait of each new task is not counted",
            " waits\n",
        ),
        (
            "sched:sched_wakeup",
            "wakeups.py",
            "sched:sched_wakeup_new: the first wake-up of each new task is not counted",
            " wake-ups, ",
        ),
        (
            "raw_syscalls:sys_enter",
            "syscalls.py --sort calls",
            "raw_syscalls:sys_exit: calls are counted, but neither their times nor their errors are known",
            "           -           -           -\n",
        ),
        (
            "sched:sched_process_exec,sched:sched_process_exit,syscalls:sys_enter_exit,syscalls:sys_enter_exit_group",
            "execsnoop.py",
            "signal:signal_generate, signal:signal_deliver: not all deaths by a signal are shown",
            " exit 0 after ",
        ),
        ("minor-faults", "faults.py --by process", "major-faults: only minor faults are counted", " minor and 0 major"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        recorded(folder, &format!("-e {events}"));
        let (_, serial, _) = shown(folder, &format!("{name} --input perf.data"));
        for jobs in ["", " --jobs 2"] {
            let (status, out, err) = shown(folder, &format!("{name} --input perf.data{jobs}"));
            assert_eq!(status, Some(0), "{err}");
            let warning = format!("perf-prof: warning: perf.data does not contain {lacks}\n");
            assert_eq!(err.matches(&warning).count(), 1, "{name}{jobs}: {err}");
            assert!(out.contains(sees) && out == serial, "{name}{jobs}: {out}");
        }
        // Events that the user selects with -e must be in the recording.
        let (status, _, err) = shown(folder, "wakeups.py --input perf.data -e sched:sched_wakeup_now");
        assert!(status == Some(1) && err.contains("sched:sched_wakeup_now is not in perf.data"), "{err}");
    }
}

/// The message must name the missing event and the command that records it.
#[test]
fn a_script_says_how_to_record_the_events_that_it_needs() {
    needs([Need::Tracefs]);
    for (name, needs, sees) in [
        ("runqlat.py", "sched:sched_switch", " waits\n"),
        ("syscalls.py", "raw_syscalls:sys_enter", " calls of "),
        ("faults.py", "minor-faults or major-faults", " minor and "),
        ("profile.py", "profile", " samples in "),
        ("offcpu.py", "sched:sched_switch", " off CPU in "),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        recorded(folder, "-e sched:sched_wakeup");
        for jobs in ["", " --jobs 2"] {
            let (status, out, err) = shown(folder, &format!("{name} --input perf.data{jobs}"));
            assert_eq!((status, out.as_str()), (Some(1), ""), "{name}{jobs}: {err}");
            let message = format!("perf-prof: {name} needs {needs}, which perf.data does not have; ");
            let command = err.strip_prefix(&message).and_then(|rest| rest.split_once(": ")).map(|(_, command)| command);
            let command = command.unwrap_or_else(|| panic!("{name}{jobs}: {err}"));
            if jobs.is_empty() {
                continue;
            }
            let output = shell(folder, &command.trim().replace("sleep 10", WORK));
            assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let (status, out, err) = shown(folder, &format!("{name} --input perf.data"));
        assert!(status == Some(0) && out.contains(sees), "{name}: {out}{err}");
    }
}

/// Recorded events may have other names than the script's functions: `profile` is recorded as cpu-clock, and sources
/// are made from other events.
#[test]
fn a_script_that_is_typed_behind_perf_prof_gets_the_events_of_its_first_line() {
    needs([Need::Tracefs]);
    for (name, events, sees) in [
        ("profile.py", "-g -e cpu-clock", " samples in "),
        ("schedblame.py", "-a -m 2048 -e sched:sched_switch,sched:sched_wakeup,sched:sched_wakeup_new", " waits of "),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        recorded(folder, events);
        let (status, out, err) = shown(folder, &format!("{name} --input perf.data"));
        assert!(status == Some(0) && out.contains(sees) && !format!("\n{out}").contains("\n0 "), "{name}: {out}{err}");
        let path = script(name).get_program().to_str().unwrap().to_owned();
        for jobs in ["", " --jobs 2"] {
            let typed = shown(folder, &format!("perf-prof python -q --input perf.data{jobs} {path}"));
            assert_eq!((typed.0, &typed.1), (status, &out), "{name}{jobs}: {}", typed.2);
        }
    }
}

/// A script without `__without__` needs all events of its first line. Events that the user selects with -e are always
/// needed.
#[test]
fn a_script_needs_the_events_of_its_first_line() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recorded(folder, "-e sched:sched_wakeup");
    let script = |without: &str| {
        let text = format!(
            "#!/usr/bin/env -S perf-prof python -e 'sched:sched_wakeup,sched:sched_switch' -q\n{without}\nn = 0\n\
             def __sample__(event):\n    global n\n    n += 1\ndef __exit__(): print(n > 0)\n"
        );
        fs::write(folder.join("s.py"), text).unwrap();
        shown(folder, "chmod +x s.py; ./s.py --input perf.data")
    };
    let (status, _, err) = script("");
    assert!(status == Some(1) && err.contains("s.py needs sched:sched_switch, which perf.data does not have"), "{err}");
    let (status, out, err) = script("__without__ = {'sched:sched_switch': None}");
    assert_eq!((status, out.as_str(), err.as_str()), (Some(0), "True\n", ""));
    let (status, _, err) = script("__without__ = ['sched:sched_switch']");
    assert!(status == Some(1) && err.contains("s.py: __without__ has to be a dict"), "{err}");
    let (status, _, err) =
        shown(folder, "perf-prof python --input perf.data -e sched:sched_wakeup,sched:sched_switch s.py");
    assert!(
        status == Some(1)
            && err.contains("sched:sched_switch is not in perf.data; the recording contains sched:sched_wakeup"),
        "{err}"
    );
}

/// Without call chains, the tables are empty or contain only tasks, and the script has to say why.
#[test]
fn a_script_says_that_there_are_no_call_chains() {
    needs([Need::Tracefs]);
    for (name, events, none, others) in [
        ("offcpu.py", "sched:sched_switch", "no call chains, so stacks are empty: -g", ""),
        ("profile.py", "cpu-clock", "no call chains, so no functions: -g", ""),
        ("faults.py", "minor-faults,major-faults", "no call chains, so no functions: -g", "--by process"),
        ("faults.py --by stack", "minor-faults,major-faults", "no call chains, so no stacks: -g", "--by process"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let said = |command: &str| {
            let (status, out, err) = shown(folder, command);
            assert!(status == Some(0) && !out.is_empty(), "{command}: {err}");
            err.matches(none).count()
        };
        recorded(folder, &format!("-e {events}"));
        for options in ["", " --jobs 2", " -i 50", " --jobs 2 -i 50"] {
            assert_eq!(said(&format!("{name} --input perf.data{options}")), 1, "{name}{options}");
        }
        if !others.is_empty() {
            assert_eq!(said(&format!("{name} --input perf.data {others}")), 0, "{name} {others}");
        }
        recorded(folder, &format!("-g -e {events}"));
        assert_eq!(said(&format!("{name} --input perf.data -i 50")), 0, "{name}");
    }
    // In a live run, the script says this only without -g.
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/offcpu.py");
    for (options, times) in [("", 1), ("-g ", 0)] {
        let folder = tempfile::tempdir().unwrap();
        let events = "-e sched:sched_switch -N 300";
        let live = format!("perf-prof python -q --order {options}{events} {} -i 50", script.display());
        let (_, out, err) = shown(folder.path(), &live);
        assert_eq!(err.matches("no call chains").count(), times, "{live}: {out}{err}");
    }
}

#[test]
fn lockstat_reads_a_recording_with_one_kind_of_locks() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let program = "import threading; [threading.Thread(target=int).start() for _ in range(9)]";
    let record = format!("perf-prof record -q -e syscall/name=futex/ -- python3 -c '{program}'");
    let recorded = shell(folder.path(), &record);
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let shown = |options: &[&str]| {
        let output = script("lockstat.py").args(options).current_dir(folder.path()).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text(output).contains(" waits in "), "{err}");
        err
    };
    assert!(!shown(&["--futex", "--input", "perf.data"]).contains("does not contain"));
    assert!(shown(&["--input", "perf.data"]).contains("does not contain lock: no locks of the kernel"));
}

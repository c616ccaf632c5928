//! Recordings of several selectors that need the same event of the kernel: the recording contains the event once.

use std::env::consts::ARCH;

use perf_prof_format::abi::system_calls;

use crate::harness::{
    machine::{Need, needs},
    recorder::{RecordRun, record_calls},
    recording::python,
    run::stdout,
    script::Run,
};

/// The number of calls of the workload.
const CALLS: u64 = 2000;

fn number(call: &str) -> i64 {
    system_calls::number(ARCH, call).unwrap()
}

/// A script that counts the begins of a system call, and its spans.
fn script(call: &str) -> String {
    format!(
        "
begins = spans = 0

def raw_syscalls__sys_enter(e):
    global begins
    begins += e.id == {}

def syscall(e):
    global spans
    spans += e.name == '{call}'

def __exit__():
    print(begins, spans)
",
        number(call)
    )
}

/// Returns what the script prints for a recording. With `selectors`, it gets only the events that they select.
fn counted(recorded: &RecordRun, selectors: Option<&str>) -> String {
    let (script, path) = (recorded.dir.path().join("count.py"), recorded.path());
    std::fs::write(&script, self::script("getppid")).unwrap();
    let mut args = vec!["-q", "--input", path.to_str().unwrap()];
    args.extend(selectors.into_iter().flat_map(|selectors| ["-e", selectors]));
    args.push(script.to_str().unwrap());
    stdout(&python(&args)).trim().to_owned()
}

/// Returns how many begins of `getppid` perf finds in a recording.
fn perfs_count(recorded: &RecordRun) -> u64 {
    let begin = format!("NR {} (", number("getppid"));
    let lines = recorded.perf(&["script"]);
    lines.lines().filter(|line| line.contains("sys_enter:") && line.contains(&begin)).count() as u64
}

#[test]
fn an_event_that_several_selectors_need_is_recorded_once() {
    needs([Need::Tracefs, Need::Perf, Need::Python]);
    let filter = format!("raw_syscalls:sys_enter/id == {}/,raw_syscalls:sys_*", number("getppid"));
    for selectors in [
        "syscall/name=getppid/,raw_syscalls:*",
        "syscall/name=getppid/,syscall/name=getppid|getpid/,raw_syscalls:sys_enter//stack/",
        &filter,
    ] {
        for form in [&[][..], &["-z"], &["--threads=cpu"], &["--overwrite"]] {
            let recorded = record_calls(&[&["-m", "32M", "-e", selectors], form].concat(), CALLS);
            assert_eq!(recorded.status, 0, "{}", recorded.said);
            let all = format!("{CALLS} {CALLS}");
            let events = format!("{CALLS} 0");
            assert_eq!(counted(&recorded, None), events, "{selectors} {form:?}");
            assert_eq!(counted(&recorded, Some("raw_syscalls:sys_enter")), events, "{selectors} {form:?}");
            assert_eq!(counted(&recorded, Some("syscall/name=getppid/,raw_syscalls:sys_enter")), all, "{form:?}");
            assert_eq!(perfs_count(&recorded), CALLS, "{selectors} {form:?}");
        }
    }
}

/// Each selector has a filter of its own. Their events are recorded once, and a replay tells them apart again.
#[test]
fn a_script_and_its_replay_get_the_same_events_of_selectors_that_share_them() {
    needs([Need::Tracefs, Need::Python]);
    let (getpgid, getpid) = (number("getpgid"), number("getpid"));
    let script = format!(
        "
import collections
counts = collections.Counter()

def raw_syscalls__one(e):
    counts['one', e.id == {getpgid}] += 1

def raw_syscalls__both(e):
    counts['both', e.id in ({getpgid}, {getpid})] += 1

def syscall(e):
    counts[e.name] += 1

def __exit__():
    print(sorted((str(key), count) for key, count in counts.items()))
"
    );
    let one = format!("raw_syscalls:sys_enter/id == {getpgid}/alias=one/");
    let both = format!("raw_syscalls:sys_enter/id == {getpgid} || id == {getpid}/alias=both/stack/");
    let selectors = format!("{one},{both},syscall/name=getpgid/");
    let live = Run::script(&script).event(&selectors).options(["--record", "r.data"]).workload("calls 300");
    let outcome = live.run();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    assert!(outcome.stdout.contains("\"('one', True)\", 300)") && !outcome.stdout.contains("False"), "{outcome:?}");
    assert!(outcome.stdout.contains("('getpgid', 300)"), "{outcome:?}");
    assert!(outcome.stderr.contains(&format!("{one}: the recording contains more events of")), "{outcome:?}");
    let path = live.path("r.data");
    let replay = Run::script(&script).event(&selectors).options(["--input", path.to_str().unwrap()]).run();
    assert_eq!(replay.stdout, outcome.stdout);
    let plain = Run::script(&self::script("getpgid")).event("raw_syscalls:sys_enter");
    let plain = plain.options(["-q", "--input", path.to_str().unwrap()]).run();
    assert_eq!(plain.stdout, "300 0\n");
}

/// The recording ends at the record of which the script got the last event.
#[test]
fn a_recording_ends_where_its_script_ended_although_selectors_share_events() {
    needs([Need::Tracefs, Need::Python]);
    let script = "
import sys
seen = 0

def __sample__(e):
    global seen
    seen += 1
    if seen == 10 and len(sys.argv) > 1:
        sys.exit()

def __exit__():
    print(seen)
";
    let selector = |alias: &str| format!("raw_syscalls:sys_enter/id == {}/alias={alias}/", number("getpgid"));
    let selectors = [selector("one"), selector("two")].join(",");
    let live = Run::script(script).event(&selectors).options(["--record", "r.data"]).args(["end"]);
    let live = live.workload("calls 300");
    assert_eq!(live.run().stdout, "10\n");
    let input = live.path("r.data");
    let input = ["-q", "--input", input.to_str().unwrap()];
    assert_eq!(Run::script(script).event(&selectors).options(input).run().stdout, "10\n");
    assert_eq!(Run::script(script).options(input).run().stdout, "5\n");
}

#[test]
fn an_event_of_a_group_is_recorded_by_no_other_selector() {
    needs([Need::Tracefs]);
    let refused = record_calls(&["-e", "{raw_syscalls:sys_enter,page-faults},syscall/name=getppid/"], 1);
    let why = "which a recording contains only once, and a group has it; select it outside of the group";
    assert!(refused.status != 0 && refused.said.contains(why), "{}", refused.said);
}

#[test]
fn a_filter_that_only_the_kernel_can_apply_is_refused_before_the_command_is_run() {
    needs([Need::Tracefs, Need::Python]);
    let filtered = "raw_syscalls:sys_enter/comm == \"app\"/";
    let why = format!(
        "{filtered} and syscall/name=getppid/ need raw_syscalls:sys_enter, which a recording contains only once, so the \
         kernel cannot apply the filter of {filtered}: `comm` cannot be used in a filter on a recording: a sample does \
         not contain the thread's name; record one of the two, or remove the filter"
    );
    let selectors = format!("{filtered},syscall/name=getppid/");
    let refused = record_calls(&["-e", &selectors], 1);
    assert!(refused.status != 0 && refused.said.contains(&why), "{}", refused.said);
    let script = Run::script("").event(&selectors).options(["--record", "r.data"]);
    let started = script.path("started");
    let outcome = script.args(["--exec", "touch", started.to_str().unwrap()]).run();
    assert!(outcome.status != 0 && outcome.stderr.contains(&why), "{outcome:?}");
    assert!(!started.exists());
    // The kernel applies a filter that all selectors have.
    let twice = format!("{filtered},{filtered}");
    assert_eq!(record_calls(&["-e", &twice], 1).status, 0);
}

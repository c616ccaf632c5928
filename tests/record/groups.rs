//! Groups of events that are scheduled together. In a group with `:S`, only the leader is sampled, and its samples
//! contain all counts.

use perf_prof_format::{abi::PERF_RECORD_LOST_SAMPLES, record::Record};

use crate::harness::{
    machine::{Need, needs},
    recorder::{CALL, RecordRun, generating_thread, record, record_attached, record_calls},
};

/// The event at the return of a call.
const RETURN: &str = "syscalls:sys_exit_getppid";

/// An event that never happens.
const NEVER: &str = "syscalls:sys_enter_reboot";

fn lines(recorded: &RecordRun, event: &str) -> u64 {
    let script = recorded.perf(&["script", "-F", "event"]);
    script.lines().filter(|line| line.trim().trim_end_matches(':') == event).count() as u64
}

/// Records a thread that makes calls and is not the main thread of its process.
fn attached(options: &[&str], calls: u64) -> RecordRun {
    record_attached(options, |pid| ("-t", generating_thread(pid)), calls)
}

/// A command's threads and processes inherit the group. Members are always enabled, and count while their leader is
/// enabled.
#[test]
fn each_event_of_a_group_is_sampled() {
    needs([Need::Tracefs, Need::Perf]);
    let group = format!("{{{NEVER},{CALL},{RETURN}}},sched:sched_process_exit");
    for options in [&["-m", "8M"][..], &["-m", "8M", "--threads"]] {
        let recorded = record_calls(&[&["-e", &group], options].concat(), 10_000);
        assert_eq!(recorded.status, 0, "{}", recorded.said);
        let (samples, lost) = (recorded.said_number("samples"), recorded.said_number("lost"));
        let ends = lines(&recorded, "sched:sched_process_exit");
        assert!((20_000..20_000 + ends + 1).contains(&(samples + lost)), "{}", recorded.said);
        assert_eq!(recorded.samples(), samples);
        let groups = recorded.perf(&["evlist", "-g"]);
        assert!(groups.starts_with(&format!("{{{NEVER},{CALL},{RETURN}}}\nsched:sched_process_exit\n")), "{groups}");
        let attrs = recorded.perf(&["evlist", "-v"]);
        let disabled: Vec<bool> = attrs.lines().take(4).map(|line| line.contains("disabled: 1")).collect();
        assert_eq!(disabled, [true, false, false, true], "{attrs}");
    }
}

#[test]
fn the_leader_is_sampled_and_reads_all() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = attached(&["-e", &format!("{{{CALL},{RETURN}}}:S")], 700);
    assert_eq!((recorded.status, recorded.said_number("samples")), (0, 700), "{}", recorded.said);
    // At the sample of the first call, no call has returned yet. So there is one return fewer.
    assert_eq!((lines(&recorded, CALL), lines(&recorded, RETURN)), (700, 699));
    let attrs = recorded.perf(&["evlist", "-v"]);
    for line in attrs.lines().take(2) {
        assert!(line.contains("|READ|") && line.contains("read_format: ID|GROUP|LOST"), "{attrs}");
        assert!(!line.contains("inherit: 1"), "{attrs}");
    }
    assert!(recorded.perf(&["evlist", "-g"]).starts_with(&format!("{{{CALL},{RETURN}}}\n")));
}

#[test]
fn losses_of_a_leader_that_reads_all_are_counted() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = attached(&["-m", "1", "--buffer", "4K", "-e", &format!("{{{CALL},{RETURN},{NEVER}}}:S")], 300_000);
    let (samples, lost) = (recorded.said_number("samples"), recorded.said_number("lost"));
    assert_eq!((recorded.status, samples + lost), (0, 300_000), "{}", recorded.said);
    assert!(is_counted(&recorded, samples, lost) > 0, "{}", recorded.said);
}

/// Checks the numbers of recorded and lost samples. Returns the number of lost samples.
fn is_counted(recorded: &RecordRun, samples: u64, lost: u64) -> u64 {
    let (mut found, mut told) = (0, 0);
    recorded.for_each_record(|kind, record| match record {
        Record::Sample => found += 1,
        Record::Lost { lost } if kind == PERF_RECORD_LOST_SAMPLES => told += lost,
        _ => {}
    });
    assert_eq!((found, told), (samples, lost), "{}", recorded.said);
    lost
}

#[test]
fn losses_of_members_are_counted() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-m", "1", "--buffer", "4K", "-e", &format!("{{{NEVER},{CALL},{RETURN}}}")], 100_000);
    let (samples, lost) = (recorded.said_number("samples"), recorded.said_number("lost"));
    assert_eq!((recorded.status, samples + lost), (0, 200_000), "{}", recorded.said);
    assert!(is_counted(&recorded, samples, lost) > 0, "{}", recorded.said);
}

/// Threads and processes that a command creates do not inherit a group with `:S`. A message says so.
#[test]
fn only_the_first_thread_of_a_command_has_a_leader_that_reads_all() {
    needs([Need::Tracefs, Need::Perf]);
    // The generator makes its calls in its second thread.
    let recorded = record_calls(&["-e", &format!("{{{CALL},page-faults}}:S")], 300);
    assert_eq!((recorded.status, recorded.said_number("samples")), (0, 0), "{}", recorded.said);
    assert!(
        recorded.said.contains("threads and processes that start during the recording are not recorded"),
        "{}",
        recorded.said
    );
    let recorded = record_calls(&["-q", "-a", "-e", &format!("{{{CALL},page-faults}}:S")], 300);
    assert_eq!((recorded.status, recorded.said.as_str()), (0, ""));
}

#[test]
fn invalid_groups_are_refused() {
    for (events, status, text) in [
        ("{cpu-clock,page-faults", 2, "the { is never closed"),
        ("{}:S", 2, "the group is empty"),
        ("{cpu-clock,{cs}}", 2, "a group cannot contain another group"),
        ("{cpu-clock,cs}:X", 2, "`:X` cannot follow a group"),
        ("{cpu-clock,cs//period=3/}:S", 2, "in a group with `:S`, only the first event is sampled"),
        ("{cpu-clock,cs//cpus=0/}", 1, "are not on the same CPUs"),
    ] {
        if status == 1 {
            needs([Need::Tracefs]);
        }
        let recorded = record(&["-e", events, "-a", "--", "true"]);
        assert!(recorded.status == status && recorded.said.contains(text), "{events}: {}", recorded.said);
    }
}

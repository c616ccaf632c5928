//! Replays records other than samples. Compares them with the output of the real perf.

use std::path::Path;

use perf_prof_format::{
    abi::{PERF_RECORD_SWITCH, PERF_RECORD_SWITCH_CPU_WIDE},
    record::{Batch, Ended, OtherRecords, Source as _, Switch, SwitchDirection, Wait, record_type},
};
use perf_prof_recordings::{Layouts, Recording, Replay, Selection};

use crate::harness::{
    machine::{Need, needs},
    recording::{perf, record, record_pipe},
};

/// Two tasks that wait for each other.
const COMMAND: [&str; 4] =
    ["--", "sh", "-c", "dd if=/dev/zero bs=1 count=3000 2>/dev/null | dd bs=1 of=/dev/null 2>&1"];

/// Returns the context switches of a replay, with their times.
fn switches(mut replay: Replay) -> Vec<(u64, Vec<u8>)> {
    let mut switches = Vec::new();
    loop {
        match replay.wait(None) {
            Wait::Batch(Batch::Sorted(sorted)) => {
                let times = sorted.records.iter().map(|record| record.time);
                let records = times.zip(sorted.in_order().map(|(_, record)| record.to_vec()));
                let is_switch =
                    |record: &[u8]| [PERF_RECORD_SWITCH, PERF_RECORD_SWITCH_CPU_WIDE].contains(&record_type(record));
                switches.extend(records.filter(|(_, record)| is_switch(record)));
            }
            Wait::Woken => {}
            Wait::Ended(ended) => {
                assert_eq!(ended, Ended::EndOfInput);
                assert!(replay.take_failure().is_none() && replay.late() == 0);
                assert_eq!(replay.take_warnings(), Vec::<String>::new());
                return switches;
            }
            other => panic!("{other:?}"),
        }
    }
}

fn others() -> OtherRecords {
    OtherRecords::of(&[PERF_RECORD_SWITCH, PERF_RECORD_SWITCH_CPU_WIDE])
}

/// Returns a line for a context switch: the time, the thread id, the direction, and the other task.
fn line(layouts: &Layouts, record: &[u8]) -> String {
    let Switch { direction, other_task, sample_id } = Switch::parse(record, layouts.trailer_of(record)).unwrap();
    let (time, (_, tid)) = (sample_id.time.unwrap(), sample_id.pid_tid.unwrap());
    let (name, other) = match direction {
        SwitchDirection::In => ("IN", "prev"),
        SwitchDirection::Out => ("OUT", "next"),
        SwitchDirection::OutPreempted => ("OUT preempt", "next"),
    };
    let other = other_task.map(|(pid, tid)| format!(" {other} pid/tid: {}/{}", pid as i32, tid as i32));
    let other = other.unwrap_or_default();
    // perf prints -1 for a task that has exited.
    let tid = tid as i32;
    format!("{tid} {}.{:09}: {name}{other}", time / 1_000_000_000, time % 1_000_000_000)
}

/// Returns the lines of `perf script --show-switch-events` in the form of [`line`].
fn lines_of_perf(path: &Path) -> Vec<String> {
    let lines = perf(&["script", "--ns", "--show-switch-events", "-F", "tid,time"], path);
    let switch = |line: &String| {
        let (place, switch) = line.split_once(": PERF_RECORD_SWITCH")?;
        let switch = switch.strip_prefix("_CPU_WIDE").unwrap_or(switch);
        let place: Vec<&str> = place.split_whitespace().filter(|word| !word.starts_with('[')).collect();
        let switch: Vec<&str> = switch.split_whitespace().collect();
        Some(format!("{} {}: {}", place[place.len() - 2], place[place.len() - 1], switch.join(" ")))
    };
    lines.iter().filter_map(switch).collect()
}

#[test]
fn switches_are_those_that_perf_prints() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let kinds: [&[&str]; 4] = [&[], &["-a"], &["-z"], &["pipe"]];
    for (at, kind) in kinds.into_iter().enumerate() {
        let path = folder.path().join(at.to_string());
        let args = ["--switch-events", "-e", "cpu-clock:u", "-c", "1000000"];
        match kind {
            ["pipe"] => record_pipe(&path, &[&args[..], &COMMAND].concat()),
            kind => record(&path, &[&args[..], kind, &COMMAND].concat()),
        }
        let open = || Recording::open(&path).unwrap();
        let selection = || Selection { others: others(), ..Selection::default() };
        let layouts = open().layouts().clone();
        let whole = switches(open().replay(selection()).unwrap());
        let lines: Vec<String> = whole.iter().map(|(_, record)| line(&layouts, record)).collect();
        assert!(lines.len() >= 4, "{}", lines.len());
        for (ours, perfs) in lines.iter().zip(lines_of_perf(&path)) {
            assert_eq!(*ours, perfs, "{kind:?}");
        }
        assert_eq!(lines.len(), lines_of_perf(&path).len(), "{kind:?}");
        // Context switches are only read if they are requested.
        assert!(switches(open().replay(Selection::default()).unwrap()).is_empty());
        let quarter = whole.len() / 4;
        let (from, to) = (whole[quarter].0, whole[2 * quarter].0);
        let times = vec![(from, to)];
        let part = switches(open().replay(Selection { times, ..selection() }).unwrap());
        let within = whole.iter().filter(|(time, _)| (from..=to).contains(time));
        assert_eq!(part, within.cloned().collect::<Vec<_>>());
    }
}

#[test]
fn switches_of_a_cpu_are_selected_by_cpu() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &[&["-a", "--switch-events", "-e", "cpu-clock:u"][..], &COMMAND].concat());
    let open = || Recording::open(&path).unwrap();
    let layouts = open().layouts().clone();
    let cpu = |record: &[u8]| layouts.cpu(record);
    let whole = switches(open().replay(Selection { others: others(), ..Selection::default() }).unwrap());
    let cpus = Some([0].into_iter().collect());
    let part = switches(open().replay(Selection { cpus, others: others(), ..Selection::default() }).unwrap());
    assert!(!part.is_empty());
    assert_eq!(part, whole.into_iter().filter(|(_, record)| cpu(record) == Some(0)).collect::<Vec<_>>());
}

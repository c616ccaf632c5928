//! Recordings that are compressed with zstd.

use crate::harness::{
    machine::{Need, needs},
    recorder::{CALL, RecordRun, record_calls},
};

/// The times of the samples, in the order in which perf shows them.
fn times(recorded: &RecordRun) -> Vec<f64> {
    let text = recorded.perf(&["script", "-F", "time"]);
    text.lines().map(|line| line.trim().trim_end_matches(':').parse().unwrap()).collect()
}

#[test]
fn perf_unpacks_every_record() {
    needs([Need::Tracefs, Need::Perf]);
    for (option, level) in [("-z", "level = 1"), ("-z7", "level = 7")] {
        let recorded = record_calls(&["-e", CALL, "-e", "sched:sched_switch", option], 200_000);
        let times = times(&recorded);
        assert_eq!(times.len() as u64, recorded.said_number("samples"), "{}", recorded.said);
        assert!(times.is_sorted());
        let header = recorded.perf(&["report", "--header-only"]);
        assert!(header.contains("compressed : Zstd") && header.contains(level), "{header}");
        let size = std::fs::metadata(recorded.path()).unwrap().len();
        assert!(size < 200_000 * 20, "{size}");
        let script = recorded.perf(&["script", "-F", "comm,event"]);
        let calls = script.lines().filter(|line| line.contains("getppid")).count() as u64;
        assert!(calls + recorded.said_number("lost") >= 200_000, "{}", recorded.said);
    }
}

#[test]
fn call_chains_are_unpacked_too() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", CALL, "--call-graph", "dwarf", "-z"], 200);
    let script = recorded.perf(&["script", "-F", "ip,sym"]);
    assert_eq!(script.matches("start_thread").count() as u64 + recorded.said_number("lost"), 200, "{script}");
}

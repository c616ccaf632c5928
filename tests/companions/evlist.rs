//! Compares what `perf-prof evlist` and the real `perf evlist` print.

use crate::harness::{
    machine::{Need, needs},
    recording::{ours, perf, record, record_pipe},
};

#[test]
fn names_are_those_of_perf() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let kinds: [&[&str]; 4] = [
        &["-e", "sched:*", "-a"],
        &["-e", "{cpu-clock,context-switches}:S", "-a"],
        &["--call-graph", "dwarf", "-e", "cpu-clock:u"],
        &["--threads", "-e", "irq:*,cpu-clock/freq=99/", "-a"],
    ];
    for (at, args) in kinds.into_iter().enumerate() {
        let path = folder.path().join(at.to_string());
        record(&path, &[args, &["--", "true"]].concat());
        let names: Vec<String> = perf(&["evlist"], &path).into_iter().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(ours(&["evlist"], &path), names, "{args:?}");
        let verbose = ours(&["evlist", "-v"], &path);
        assert!(verbose.iter().zip(&names).all(|(line, name)| line.starts_with(&format!("{name}: "))), "{verbose:?}");
        let json = ours(&["evlist", "--json"], &path).join("\n");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let in_json: Vec<&str> = json.as_array().unwrap().iter().filter_map(|event| event["name"].as_str()).collect();
        assert_eq!(in_json, names);
    }
}

#[test]
fn events_of_a_pipe_have_names() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe.data");
    record_pipe(&path, &["-e", "sched:sched_switch", "-a", "--", "true"]);
    assert_eq!(ours(&["evlist"], &path), ["sched:sched_switch", "dummy:HG"]);
}

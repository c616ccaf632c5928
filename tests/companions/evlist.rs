//! The events of recordings, beside what the real `perf evlist` says.

use std::process::{Command, Stdio};

use crate::harness::{can_record, ours, perf, record};

#[test]
fn names_are_those_of_perf() {
    if !can_record() {
        return;
    }
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
fn of_a_pipe() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe.data");
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-o", "-", "-e", "sched:sched_switch", "-a", "--", "true"]);
    command.stdout(std::fs::File::create(&path).unwrap()).stderr(Stdio::null());
    assert!(command.status().unwrap().success());
    assert_eq!(ours(&["evlist"], &path), ["sched:sched_switch", "dummy:HG"]);
}

//! Spans in exports: those of the selected tasks, and what says that some of them are missing.

use serde_json::Value as Json;

use crate::harness::{
    counting::objects,
    recording::Folder,
    run::{perf_prof, said, stdout},
};

use super::incomplete::{MISSING, NAPS, recording};

/// A filter that drops no switch.
const COMPLETE: &str = r#"next_comm != "nobody""#;

#[test]
fn an_export_has_the_spans_of_the_selected_tasks_that_a_trace_has() {
    let folder = Folder::new();
    let path = recording(&folder, COMPLETE);
    let spans = |command: &[&str], input: &str, options: &[&str]| -> Vec<Json> {
        let output = perf_prof(command).args(["-q", input]).arg(&path).args(options).output().unwrap();
        objects(&stdout(&output)).into_iter().filter(|object| object.get("partial").is_none()).collect()
    };
    let traced = |options: &[&str]| spans(&["trace", "--json"], "--input", options);
    let exported = |options: &[&str]| spans(&["export", "-o", "-", "--format", "ndjson"], "-i", options);
    let napper = traced(&["-e", "offcpu/comm=napper/", "-N", "1"]).remove(0)["_tid"].to_string();
    for (source, option) in [("offcpu", "-p"), ("offcpu", "-t"), ("runqueue", "-t"), ("syscall", "-p")] {
        let options = ["-e", source, option, &napper];
        let traced = traced(&options);
        assert!(traced.len() >= NAPS - 1, "{options:?}: {traced:?}");
        assert_eq!(exported(&options), traced, "{options:?}");
    }
}

#[test]
fn an_export_refuses_selections_with_which_spans_would_be_wrong() {
    let folder = Folder::new();
    let path = recording(&folder, COMPLETE);
    for (file, options, message) in [
        ("x.ndjson", &["-e", "offcpu", "-C", "0"][..], "may begin on one CPU and end on another"),
        ("x.parquet", &["-e", "syscall", "-C", "0"], "may begin on one CPU and end on another"),
        ("x.csv", &["-e", "offcpu", "-C", "0"], "may begin on one CPU and end on another"),
        ("x.arrow", &["-e", "offcpu//cpus=0/"], "may begin on one CPU and end on another"),
        ("x.arrow", &["-e", "offcpu,sched:sched_switch", "-t", "1"], "tasks cannot be selected for sched:sched_switch"),
    ] {
        let file = folder.path(file);
        let output = perf_prof(&["export", "-o"]).arg(&file).arg("-i").arg(&path).args(options).output().unwrap();
        assert!(said(&output).contains(message), "{options:?}: {}", said(&output));
        assert_eq!((output.status.code(), file.exists()), (Some(2), false), "{options:?}");
    }
}

#[test]
fn exports_from_which_spans_are_missing_are_partial() {
    let folder = Folder::new();
    let path = recording(&folder, MISSING);
    let export = |form: &str, source: &str| {
        let output = perf_prof(&["export", "-q", "-o", "-", "--format", form, "-e", source, "-i"]).arg(&path).output();
        output.unwrap().stdout
    };
    let last = |source: &str| objects(&String::from_utf8(export("ndjson", source)).unwrap()).pop().unwrap();
    let total = last("offcpu");
    assert_eq!((&total["kind"], &total["partial"], &total["lost"]), (&"total".into(), &true.into(), &0.into()));
    let reasons = total["reasons"].as_str().unwrap();
    assert!(reasons.contains("spans are missing: ") && reasons.contains(" of napper/"), "{reasons}");
    assert!(total["missing"].as_u64().unwrap() >= NAPS as u64 - 1, "{total}");
    let complete = "syscall/comm=napper/";
    assert_eq!(last(complete).get("partial"), None);
    for form in ["parquet", "arrow"] {
        let says = |source: &str| String::from_utf8_lossy(&export(form, source)).contains("spans are missing: ");
        assert_eq!((says("offcpu"), says(complete)), (true, false), "{form}");
    }
}

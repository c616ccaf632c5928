//! Checks that spans of system calls that BPF programs pair and add up equal the spans that perf-prof pairs.

use serde_json::Value as Json;

use super::{counts, json, needs_bpf, run};
use crate::harness::{counting::words, run::said};

#[test]
fn a_known_number_of_system_calls_is_paired() {
    needs_bpf();
    let object = json("always", &["top", "syscall/name=getpgid/", "--by", "name,comm"], &words(50_000, 2, 1));
    assert_eq!((&object["rows"][0]["name"], counts(&object)), (&"getpgid".into(), vec![200_000]));
}

/// Returns the rows of an object, without the values that differ between runs.
fn rows(object: &Json) -> Vec<Json> {
    let mut rows = object["rows"].as_array().unwrap().clone();
    let times = ["per_second", "total", "average", "max", "share"];
    rows.iter_mut().for_each(|row| times.iter().for_each(|name| _ = row.as_object_mut().unwrap().remove(*name)));
    rows.sort_by_key(Json::to_string);
    rows
}

#[test]
fn tables_of_spans_are_those_of_samples() {
    needs_bpf();
    let work = words(2000, 2, 1);
    for args in [
        &["top", "syscall/name=getpgid/", "--by", "name"][..],
        &["top", "syscall/name=getpgid/", "--by", "nr,comm"],
        // The result of a call depends on the processes of the machine, but no process has so large an id.
        &["top", "syscall/ret < 1000000000 && name == getpgid/", "--by", "name"],
    ] {
        let [kernel, samples] = ["always", "never"].map(|when| rows(&json(when, args, &work)));
        assert!(!kernel.is_empty(), "{args:?}");
        assert_eq!(kernel, samples, "{args:?}");
    }
}

#[test]
fn spans_that_need_more_stay_in_perf_prof() {
    needs_bpf();
    let reason = |selector: &str, by: &str| said(&run("always", &["top", selector, "--by", by], &words(1, 0, 0)));
    assert!(reason("syscall", "errno").contains("cannot read `errno`"));
    assert!(reason("offcpu", "waker_comm").contains("cannot read `waker_comm`"));
}

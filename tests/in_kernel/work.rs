//! Work items of the kernel that BPF programs pair and add up. Their number is known.

use serde_json::Value as Json;

use super::{json, needs_bpf};
use crate::{harness::workload::words, sources::work::write_through_a_terminal};

/// The number of work items that the workload causes.
const BYTES: usize = 1000;

/// The workload, which writes bytes to a pseudo terminal.
pub fn workload() {
    write_through_a_terminal(BYTES);
}

/// Returns the number of work spans that were added up, and whether some were reported as missing.
fn counted(when: &str) -> (u64, bool) {
    let object = json(when, &["top", "workqueue", "-a", "--by", "function"], &words("bytes"));
    let rows = object["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["function"] == "flush_to_ldisc").unwrap_or(&Json::Null);
    (row["count"].as_u64().unwrap_or(0), object["partial"] == true)
}

/// During the run, other programs may write to terminals, so the count may be too high. If another BPF program runs on
/// the CPU, the kernel skips the programs of perf-prof, so the count may be too low.
#[test]
fn each_work_is_counted_under_the_name_that_perf_prof_gives_it() {
    needs_bpf();
    for when in ["always", "never"] {
        let mut runs = (0..10).map(|_| counted(when));
        let complete = runs.find(|&(count, is_partial)| {
            assert!(is_partial || count >= BYTES as u64, "{when}: {count}");
            count == BYTES as u64
        });
        assert!(complete.is_some(), "{when}");
    }
}

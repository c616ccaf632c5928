//! Work of the kernel that programs pair and add up: of a known number.

use serde_json::Value as Json;

use super::{json, needs_bpf};
use crate::{harness::workload::words, sources::work::write_through_a_terminal};

/// How often the kernel works for the workload.
const BYTES: usize = 1000;

/// Writes bytes to a pseudo terminal.
pub fn workload() {
    write_through_a_terminal(BYTES);
}

/// Returns how many spans of the work were added up, and whether some are told as missing.
fn counted(when: &str) -> (u64, bool) {
    let object = json(when, &["top", "workqueue", "-a", "--by", "function"], &words("bytes"));
    let rows = object["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["function"] == "flush_to_ldisc").unwrap_or(&Json::Null);
    (row["count"].as_u64().unwrap_or(0), object["partial"] == true)
}

/// Others may write to terminals meanwhile, and may be at work with BPF when the kernel works for this one.
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

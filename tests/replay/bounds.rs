//! Memory is bounded in bytes, whatever a recording has: wide records, long texts, a million keys.

use super::{
    bombs::Bomb,
    hostile::{Peak, peak},
};
use crate::harness::{
    machine::{Need, needs},
    recording::Folder,
};

/// A span of the event itself that begins with each record and never ends.
const NEVER_ENDS: &str = "span:x=sys:e..sys:e//key=next_pid:prev_pid/";

/// The memory of the process with `--buffer 64M`, in MiB: the buffer, the interpreter, and what else a program has. All bombs
/// are at least twice as large.
const BOUND: u64 = 256;

/// Runs a script on a bomb with `--buffer 64M`. Returns what it printed.
fn replay_within_bound(bomb: Bomb, selector: &str, script: &str) -> String {
    needs([Need::Python]);
    let folder = Folder::new();
    let script = folder.write("s.py", script.as_bytes());
    let path = bomb.path();
    let args = ["python", "-q", "--buffer", "64M", "-e", selector, "--input", path.to_str().unwrap()];
    let Peak { status, stdout, said, memory } = peak(&[&args[..], &[script.to_str().unwrap()]].concat());
    assert_eq!(status, Some(0), "{said}");
    assert!(memory < BOUND, "{memory} MiB: {said}");
    stdout
}

#[test]
fn open_spans_of_wide_records_take_no_more_than_their_share() {
    let script = "
import perf_prof
def span__x(event):
    pass
def __exit__():
    row = perf_prof.stats()['events']['span:x']
    print(row['opened'], row['ended'], row['open'] + row['dropped'], 200 < row['open'] < 300)
";
    assert_eq!(replay_within_bound(Bomb::Records, NEVER_ENDS, script), "16000 0 16000 True\n");
}

//! Memory is bounded in bytes, whatever a recording contains: wide records, long texts, a million keys.

use super::{
    bombs::{Bomb, EVENT},
    hostile::{Peak, peak},
};
use crate::harness::{
    machine::{Need, needs},
    recording::Folder,
};

/// A span of the event itself. It begins with each record and never ends.
const NEVER_ENDS: &str = "span:x=sys:e..sys:e//key=next_pid:prev_pid/";

/// The maximum memory of the process with `--buffer 64M`, in MiB: the buffer, the interpreter, and the rest of a
/// program. All bombs are larger.
const BOUND: u64 = 256;

/// Runs a script on a bomb with `--buffer 64M`, and checks its memory. Returns the script's output.
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
    assert_eq!(replay_within_bound(Bomb::Records, NEVER_ENDS, script), "8000 0 8000 True\n");
}

/// Aggregators of long texts, of many keys, and of whole events. Each prints what it contains and what it lacks.
#[test]
fn tables_of_long_texts_and_of_many_keys_fold_what_has_no_room() {
    let count = |key: &str| {
        format!(
            "
from perf_prof import Count
sys__e = Count('{key}')
def __exit__():
    print(sys__e.total, sum(sys__e.values()) + sys__e.others, sys__e.times_folded > 0, len(sys__e) > 100)
    print('more than their share of --buffer' in str(sys__e))
"
        )
    };
    assert_eq!(replay_within_bound(Bomb::Texts, EVENT, &count("text")), "8000 8000 True True\nTrue\n");
    assert_eq!(replay_within_bound(Bomb::Keys, EVENT, &count("number")), "500000 500000 True True\nTrue\n");
}

#[test]
fn the_largest_events_are_kept_as_far_as_there_is_room() {
    let script = |keep: &str| {
        format!(
            "
from perf_prof import Top
sys__e = Top(1_000_000, 'number'{keep})
def __exit__():
    values = [value for _, value in sys__e.most_common()]
    print(values[0], values == sorted(values, reverse=True), len(values) > 100, len(values) + sys__e.without_room)
"
        )
    };
    assert_eq!(replay_within_bound(Bomb::Records, EVENT, &script("")), "8000 True True 8000\n");
    assert_eq!(replay_within_bound(Bomb::Texts, EVENT, &script(", keep='text'")), "8000 True True 8000\n");
}

/// Runs a command on a bomb with `--buffer 64M`, and checks its memory. Returns the output.
fn command_within_bound(args: &[&str], input: &str, bomb: Bomb) -> String {
    let path = bomb.path();
    let all = [args, &["--buffer", "64M", input, path.to_str().unwrap()]].concat();
    let Peak { status, stdout, said, memory } = peak(&all);
    assert_eq!(status, Some(0), "{args:?}: {said}");
    assert!(memory < BOUND, "{args:?}: {memory} MiB");
    stdout
}

#[test]
fn files_of_columns_are_written_in_batches_of_bytes() {
    let folder = Folder::new();
    for name in ["x.parquet", "x.arrow"] {
        let path = folder.path(name);
        let args = ["export", "-q", "-o", path.to_str().unwrap()];
        command_within_bound(&args, "-i", Bomb::Texts);
        // The compressed file contains all texts.
        assert!(path.metadata().unwrap().len() > 400_000, "{name}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn commands_that_add_up_take_no_more_than_their_share() {
    for (args, bomb) in [
        (&["top", "--by", "text", EVENT][..], Bomb::Texts),
        (&["top", "--by", "number", EVENT], Bomb::Keys),
        (&["top", "--json", "--by", "number", EVENT], Bomb::Keys),
        (&["hist", "--value", "next_pid", "--by", "number", EVENT], Bomb::Keys),
    ] {
        let shown = command_within_bound(args, "--input", bomb);
        assert!(shown.contains("others"), "{args:?}");
    }
    assert!(command_within_bound(&["report"], "-i", Bomb::Records).contains("Samples: 8K of event 'sys:e'"));
}

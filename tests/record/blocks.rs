//! The block index that a recording contains at its end.

use std::{path::Path, process::Command, sync::Arc};

use perf_prof_recordings::{BlockIndex, Recording};

use crate::harness::{
    machine::{Need, needs},
    recorder::{CALL, record_calls},
    run::tested_program,
};

/// Returns the block indexes of a recording, with the side-band records that are kept in memory.
fn blocks(path: &Path) -> Vec<Arc<BlockIndex>> {
    Recording::open(path).unwrap().index().unwrap().into_iter().flatten().collect()
}

/// The last bytes of a file with a stored block index, or with the time of its end only.
const END: &[u8] = b"blocks\0\x02";

/// Removes the mark of the stored index. Then the file has no index, like a file of perf.
fn forget(data: &Path) {
    let mut bytes = std::fs::read(data).unwrap();
    assert!(bytes.ends_with(END), "the file has no stored index");
    bytes.truncate(bytes.len() - END.len());
    std::fs::write(data, bytes).unwrap();
}

fn text(path: &Path, options: &[&str]) -> String {
    let mut command = Command::new(tested_program());
    let output = command.args(["script", "-i"]).arg(path).args(options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    // Comms of other tasks may contain any bytes.
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_stored_index_equals_the_computed_one() {
    needs([Need::Tracefs, Need::Perf]);
    for form in [&[][..], &["--threads"]] {
        // The rings hold all events, because lost events would be reported when the recording is read.
        let options = ["-e", CALL, "-e", "sched:sched_process_*", "-a", "-m", "2048"];
        let recorded = record_calls(&[&options, form].concat(), 20_000);
        let path = recorded.path();
        let data = if path.is_dir() { path.join("data") } else { path.clone() };
        // Selects a fifth of the samples. The number of samples in a fifth of the time would depend on the machine's
        // load.
        let all = text(&path, &["--ns", "-F", "time"]);
        let times: Vec<&str> = all.lines().map(|line| line.trim().trim_end_matches(':')).collect();
        let middle = format!("{},{}", times[times.len() * 2 / 5], times[times.len() * 3 / 5]);
        let middle = ["--time", &middle];
        let (said, part) = (blocks(&path), text(&path, &middle));
        forget(&data);
        let looked = blocks(&path);
        assert!(said == looked, "{form:?}: {said:?} {looked:?}");
        assert_eq!(said.iter().map(|index| index.sample_count()).sum::<u64>(), recorded.said_number("samples"));
        assert!(said.iter().map(|index| index.blocks.len()).sum::<usize>() > 10);
        assert!(part.lines().count() > 1000 && part == text(&path, &middle));
    }
}

/// Compressed records have to be decompressed before they can be indexed. A pipe has no room for an index.
#[test]
fn compressed_recordings_have_no_stored_index() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", CALL, "-z"], 2000);
    assert_eq!(stored_blocks(&std::fs::read(recorded.path()).unwrap()), 0);
    assert_ne!(stored_blocks(&std::fs::read(record_calls(&["-e", CALL], 2000).path()).unwrap()), 0);
    assert_eq!(recorded.samples(), recorded.said_number("samples"));
}

/// Returns how many blocks of records the end of a file describes.
fn stored_blocks(file: &[u8]) -> u64 {
    let Some(rest) = file.strip_suffix(END) else { return 0 };
    let number = |at: usize| u64::from_ne_bytes(rest[at..at + 8].try_into().unwrap());
    let end = rest.len() - 16;
    let (mut at, mut sum) = (end - number(end) as usize, 0);
    while at < end {
        let blocks = number(at + 16);
        sum += blocks;
        at += 24 + 64 * blocks as usize;
    }
    sum
}

/// `perf inject` crashes if the index is in a feature section of its own.
#[test]
fn perf_inject_reads_a_recording_with_a_stored_index() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", CALL], 2000);
    let injected = recorded.path().with_extension("injected");
    let mut perf = Command::new("perf");
    perf.args(["inject", "-b", "-i"]).arg(recorded.path()).arg("-o").arg(&injected);
    let output = perf.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read(recorded.path()).unwrap().ends_with(END));
    assert_eq!(text(&injected, &[]), text(&recorded.path(), &[]));
}

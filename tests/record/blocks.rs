//! Where a recording's blocks lie, as it says itself.

use std::{os::unix::fs::FileExt, path::Path, sync::Arc};

use perf_prof::perfdata::{BlockIndex, Recording};

use crate::harness::{CALL, PERF_PROF, record_calls, skipped};

/// Where samples lie in time; side-band is kept of blocks that a process need not read.
fn blocks(path: &Path) -> Vec<Arc<BlockIndex>> {
    Recording::open(path).unwrap().index().unwrap().into_iter().flatten().collect()
}

/// Has the file say nothing of its blocks, as perf's do not: the last bit of its features goes.
fn forget(data: &Path) {
    const LAST_OF_FEATURES: u64 = 103;
    let file = std::fs::File::options().read(true).write(true).open(data).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, LAST_OF_FEATURES).unwrap();
    assert_eq!(byte[0], 0x80, "it says nothing");
    file.write_all_at(&[0], LAST_OF_FEATURES).unwrap();
}

fn text(path: &Path, options: &[&str]) -> String {
    let mut command = std::process::Command::new(PERF_PROF);
    let output = command.args(["script", "-i"]).arg(path).args(options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_recording_says_of_its_blocks_what_is_found_by_looking() {
    if skipped() {
        return;
    }
    for form in [&[][..], &["--threads"]] {
        let recorded = record_calls(&[&["-e", CALL, "-e", "sched:sched_process_*", "-a"], form].concat(), 20_000);
        let path = recorded.path();
        let data = if path.is_dir() { path.join("data") } else { path.clone() };
        let middle = ["--time", "40%-60%"];
        let (said, part) = (blocks(&path), text(&path, &middle));
        forget(&data);
        let looked = blocks(&path);
        assert!(said == looked, "{form:?}: {said:?} {looked:?}");
        assert_eq!(said.iter().map(|index| index.sample_count()).sum::<u64>(), recorded.said_number("samples"));
        assert!(said.iter().map(|index| index.blocks.len()).sum::<usize>() > 10);
        assert!(part.lines().count() > 1000 && part == text(&path, &middle));
    }
}

/// Packed records are unpacked to be looked at, and a pipe has no place for it.
#[test]
fn a_packed_recording_says_nothing_of_its_blocks() {
    if skipped() {
        return;
    }
    let recorded = record_calls(&["-e", CALL, "-z"], 2000);
    let header = std::fs::read(recorded.path()).unwrap();
    assert_eq!((header[103], recorded.samples()), (0, recorded.said_number("samples")));
}

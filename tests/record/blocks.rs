//! Where a recording's blocks lie, as it says itself.

use std::{path::Path, process::Command, sync::Arc};

use perf_prof_core::perfdata::{BlockIndex, Recording};

use crate::harness::{
    machine::{Need, needs},
    recorder::{CALL, record_calls},
    run::PERF_PROF,
};

/// Where samples lie in time; side-band is kept of blocks that a process need not read.
fn blocks(path: &Path) -> Vec<Arc<BlockIndex>> {
    Recording::open(path).unwrap().index().unwrap().into_iter().flatten().collect()
}

/// What ends a file that says where its blocks lie.
const END: &[u8] = b"blocks\0\x01";

/// Has the file say nothing of its blocks, as perf's do not.
fn forget(data: &Path) {
    let mut bytes = std::fs::read(data).unwrap();
    assert!(bytes.ends_with(END), "it says nothing");
    bytes.truncate(bytes.len() - END.len());
    std::fs::write(data, bytes).unwrap();
}

fn text(path: &Path, options: &[&str]) -> String {
    let mut command = Command::new(PERF_PROF);
    let output = command.args(["script", "-i"]).arg(path).args(options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_stored_index_equals_the_computed_one() {
    needs([Need::Tracefs, Need::Perf]);
    for form in [&[][..], &["--threads"]] {
        // Rings that hold all of them: what was lost is said when the recording is read.
        let options = ["-e", CALL, "-e", "sched:sched_process_*", "-a", "-m", "2048"];
        let recorded = record_calls(&[&options, form].concat(), 20_000);
        let path = recorded.path();
        let data = if path.is_dir() { path.join("data") } else { path.clone() };
        // A fifth of the samples; of the time it would depend on what else the machine does.
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

/// Packed records are unpacked to be looked at, and a pipe has no place for it.
#[test]
fn compressed_recordings_have_no_stored_index() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", CALL, "-z"], 2000);
    assert!(!std::fs::read(recorded.path()).unwrap().ends_with(END));
    assert_eq!(recorded.samples(), recorded.said_number("samples"));
}

/// In a feature section of our own it was a segmentation fault.
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

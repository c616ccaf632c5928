//! Recordings that are compressed with zstd.

use std::fs;

use perf_prof_format::abi::perf_data::PERF_RECORD_COMPRESSED;

use crate::harness::{
    counting::objects,
    machine::{Need, needs},
    recorder::{CALL, RecordRun, record_calls},
    recording::Folder,
    run::{perf_prof, stdout},
};

/// The times of the samples, in the order in which perf shows them.
fn times(recorded: &RecordRun) -> Vec<f64> {
    let text = recorded.perf(&["script", "-F", "time"]);
    text.lines().map(|line| line.trim().trim_end_matches(':').parse().unwrap()).collect()
}

#[test]
fn perf_unpacks_every_record() {
    needs([Need::Tracefs, Need::Perf]);
    for (option, level) in [("-z", "level = 1"), ("-z7", "level = 7")] {
        let recorded = record_calls(&["-e", CALL, "-e", "sched:sched_switch", option], 200_000);
        let times = times(&recorded);
        assert_eq!(times.len() as u64, recorded.said_number("samples"), "{}", recorded.said);
        assert!(times.is_sorted());
        let header = recorded.perf(&["report", "--header-only"]);
        assert!(header.contains("compressed : Zstd") && header.contains(level), "{header}");
        let size = std::fs::metadata(recorded.path()).unwrap().len();
        assert!(size < 200_000 * 20, "{size}");
        let script = recorded.perf(&["script", "-F", "comm,event"]);
        let calls = script.lines().filter(|line| line.contains("getppid")).count() as u64;
        assert!(calls + recorded.said_number("lost") >= 200_000, "{}", recorded.said);
    }
}

#[test]
fn call_chains_are_unpacked_too() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", CALL, "--call-graph", "dwarf", "-z"], 200);
    let script = recorded.perf(&["script", "-F", "ip,sym"]);
    assert_eq!(script.matches("start_thread").count() as u64 + recorded.said_number("lost"), 200, "{script}");
}

/// Returns the places of compressed data in a file.
fn packed(file: &[u8]) -> Vec<usize> {
    let word = |at: usize| u64::from_ne_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (mut at, end) = (word(40), word(40) + word(48));
    let mut places = Vec::new();
    while at < end {
        let size = usize::from(u16::from_ne_bytes([file[at + 6], file[at + 7]]));
        if u32::from_ne_bytes(file[at..at + 4].try_into().unwrap()) == PERF_RECORD_COMPRESSED {
            places.extend(at + 8..at + size);
        }
        at += size;
    }
    places
}

/// Some wrong bits used to be decompressed to other events, and the numbers of these seemed to be exact.
#[test]
fn results_of_damaged_recordings_are_partial() {
    needs([Need::Tracefs]);
    let recorded = record_calls(&["-e", CALL, "-z"], 100_000);
    let samples = recorded.said_number("samples");
    let folder = Folder::new();
    let total = |path: &str, more: &[&str]| {
        let output = perf_prof(&["top", CALL, "--input", path]).args(more).output().unwrap();
        stdout(&output)
    };
    let of = |path: &str| objects(&total(path, &["--json"])).pop().unwrap();
    let whole = of(recorded.path().to_str().unwrap());
    assert_eq!(
        (&whole["partial"], whole["events"].as_u64()),
        (&(recorded.said_number("lost") != 0).into(), Some(samples))
    );
    let file = fs::read(recorded.path()).unwrap();
    let places = packed(&file);
    const BITS: usize = 10;
    for number in 0..BITS {
        let mut file = file.clone();
        file[places[number * (places.len() - 1) / (BITS - 1)]] ^= 1 << (number % 8);
        let path = folder.write("damaged.data", &file);
        let path = path.to_str().unwrap();
        let found = of(path);
        assert_eq!((&found["partial"], &found["damaged"]), (&true.into(), &true.into()), "{number}: {found}");
        assert!(found["events"].as_u64().unwrap() <= samples, "{number}: {found}");
        assert!(total(path, &[]).contains("at least"), "{number}");
    }
}

#[test]
fn perf_inject_copies_a_recording_with_checksums() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", CALL, "-z"], 50_000);
    let folder = Folder::new();
    let copy = folder.path("copy.data");
    recorded.perf(&["inject", "-o", copy.to_str().unwrap()]);
    let shown = |path: &std::path::Path| {
        let output = perf_prof(&["script", "-i", path.to_str().unwrap()]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        stdout(&output)
    };
    let whole = shown(&recorded.path());
    assert_eq!(whole.lines().count() as u64, recorded.said_number("samples"));
    assert!(shown(&copy) == whole);
}

//! Compares the headers that perf-prof prints with the headers that the real `perf report --header-only` prints.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use perf_prof_format::abi::perf_data::HEADER_SAMPLE_TIME;

use crate::harness::{
    machine::{Need, needs},
    recording::{ours, perf, record, record_here, record_pipe},
    run::{perf_prof, printed},
};

/// Returns the value in the line `# name : value`.
fn value(lines: &[String], name: &str) -> Option<String> {
    lines.iter().find_map(|line| {
        let rest = line.strip_prefix("# ")?.strip_prefix(name)?.trim_start();
        Some(rest.strip_prefix(':')?.trim().to_owned())
    })
}

/// Without these times, users could not see when a recording starts and ends.
#[test]
fn the_times_of_a_recording_are_in_its_header() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let kinds: [&[&str]; 4] = [
        &["-e", "sched:sched_switch"],
        &["-k", "mono", "-e", "cpu-clock"],
        &["-z", "-e", "cpu-clock"],
        &["--threads", "-e", "cpu-clock"],
    ];
    let command = ["-a", "--", "sleep", "0.1"];
    type Recorder = fn(&Path, &[&str]);
    let recorders: [(&str, Recorder); 2] = [("perf", record), ("ours", |path, args| record_here(path, args))];
    for (recorder, record) in recorders {
        for (at, args) in kinds.iter().enumerate() {
            // `-k` is only tested in recordings of perf.
            if recorder == "ours" && args.contains(&"-k") {
                continue;
            }
            let args =
                if recorder == "ours" && args[0] == "-z" { vec!["-z1", "-e", "cpu-clock"] } else { args.to_vec() };
            let path = folder.path().join(format!("{recorder}{at}"));
            record(&path, &[&args[..], &command].concat());
            let (theirs, own) = (perf(&["report", "--header-only"], &path), ours(&["script", "--header-only"], &path));
            assert_eq!(own, ours(&["report", "--header-only"], &path));
            let same = [
                "captured on",
                "hostname",
                "os release",
                "perf version",
                "arch",
                "nrcpus online",
                "nrcpus avail",
                "cmdline",
                "sample duration",
                "reference time",
            ];
            // perf does not look into data that it compresses, so it prints zeros.
            let has_times = value(&theirs, "sample duration").unwrap() != "0.000 ms";
            for name in same.into_iter().filter(|name| has_times || *name != "sample duration") {
                let expected = value(&theirs, name);
                assert!(expected.is_some() || name == "reference time", "{name}: {theirs:?}");
                // perf has no name for its own clock.
                let expected = expected.map(|text| text.replace("((not found))", "(perf's own)"));
                assert_eq!(value(&own, name), expected, "{name} of {args:?}");
            }
            if args.contains(&"-k") {
                assert_eq!(value(&own, "clockid"), value(&theirs, "clockid"));
            }
            let time = |name: &str| {
                let (theirs, own) = (value(&theirs, name).unwrap(), value(&own, name).unwrap());
                assert!(!has_times || own.starts_with(&theirs) && own.len() == theirs.len() + 3, "{theirs} {own}");
                own
            };
            // Users pass these times to `--time`. All samples are between them.
            let (first, last) = (time("time of first sample"), time("time of last sample"));
            let lines = |time: &str| ours(&["script", "-F", "time", "--time", time], &path).len();
            assert_eq!(lines(&format!("{first},{last}")), lines("0,"));
            assert!(lines(&format!("{last},")) >= 1 && lines(&format!(",{first}")) >= 1, "{args:?}");
        }
    }
}

/// perf finds these times in a pass over its records, and stores those of the first part if the pass fails.
#[test]
fn the_times_of_a_recording_are_those_of_its_samples_if_perf_stored_others() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &["-e", "sched:sched_switch", "-a", "--", "sleep", "0.1"]);
    let header = ours(&["report", "--header-only"], &path);
    let all = ours(&["script", "-F", "time"], &path);
    let top = |time: &[&str]| {
        let args = [&["top", "sched:sched_switch", "--by", "comm"], time].concat();
        printed(&perf_prof(&args).arg("--input").arg(&path).output().unwrap())
    };
    let rates = top(&[]);
    let [first, _] = stored_times(&path);
    change_stored_times(&path, [first, first + 1_000_000]);
    assert_eq!(ours(&["script", "-F", "time", "--time", "0%-100%"], &path), all);
    assert_eq!((top(&[]), top(&["--time", "0%-100%"])), (rates.clone(), rates));
    for name in ["time of first sample", "time of last sample", "sample duration"] {
        let now = ours(&["report", "--header-only"], &path);
        assert_eq!(value(&now, name), value(&header, name), "{name}");
    }
}

/// Returns where the feature section with the times of the first and the last sample is in a file.
fn place_of_times(file: &[u8]) -> usize {
    let word = |at: usize| u64::from_ne_bytes(file[at..at + 8].try_into().unwrap());
    let before = (word(72) & ((1 << HEADER_SAMPLE_TIME) - 1)).count_ones() as usize;
    word((word(40) + word(48)) as usize + 16 * before) as usize
}

fn stored_times(path: &Path) -> [u64; 2] {
    let file = fs::read(path).unwrap();
    let at = place_of_times(&file);
    [at, at + 8].map(|at| u64::from_ne_bytes(file[at..at + 8].try_into().unwrap()))
}

fn change_stored_times(path: &Path, times: [u64; 2]) {
    let mut file = fs::read(path).unwrap();
    let at = place_of_times(&file);
    file[at..at + 16].copy_from_slice(times.map(u64::to_ne_bytes).as_flattened());
    fs::write(path, file).unwrap();
}

/// The header of a pipe contains no times. If the data of a pipe is in a file, the times are read from the samples.
#[test]
fn the_times_of_a_pipe_are_known_if_it_is_in_a_file() {
    needs([Need::Perf]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe.data");
    record_pipe(&path, &["-e", "sched:sched_switch", "-a", "--", "sleep", "0.1"]);
    let kept = ours(&["report", "--header-only"], &path);
    let times = ours(&["script", "--ns", "-F", "time"], &path);
    let time = |line: Option<&String>| line.unwrap().trim().trim_end_matches(':').to_owned();
    assert_eq!(value(&kept, "time of first sample"), Some(time(times.first())));
    assert_eq!(value(&kept, "time of last sample"), Some(time(times.last())));
    let host = value(&kept, "hostname").unwrap();
    // While the data still comes through a pipe, the times are not known.
    let mut cat = Command::new("cat").arg(&path).stdout(Stdio::piped()).spawn().unwrap();
    let mut report = perf_prof(&["report", "--header-only", "-i", "-"]);
    let live = printed(&report.stdin(cat.stdout.take().unwrap()).output().unwrap());
    // `report` owns the read end of the pipe. Dropping it closes the pipe, so `cat` ends.
    drop(report);
    let _ = cat.wait();
    assert_eq!((value(&live, "hostname"), value(&live, "time of first sample")), (Some(host), None));
}

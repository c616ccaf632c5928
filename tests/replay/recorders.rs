//! Recordings of other recorders and of older versions of perf, which store facts in other places or not at all.

use std::{
    fs::File,
    path::Path,
    process::Output,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use perf_prof_format::abi::{perf_data::*, *};

use super::made::NATIVE;
use crate::harness::{
    machine::{Need, needs},
    made::{self, Made, MadeAttr, padded, u32s, u64s},
    recording::{Folder, ours, python, record},
    run::{perf_prof, said, stdout},
};

const TID_TIME: u64 = PERF_SAMPLE_TID | PERF_SAMPLE_TIME;

/// Returns the members IP, TID and TIME of a sample of process 7.
fn at(ip: u64, time: u64) -> Vec<u8> {
    [u64s(&[ip]), u32s(&[7, 7]), u64s(&[time])].concat()
}

/// Runs a script on a recording with these bytes.
fn replay(bytes: &[u8], script: &str, options: &[&str]) -> Output {
    let folder = Folder::new();
    let (data, script) = (folder.write("made.data", bytes), folder.write("s.py", script.as_bytes()));
    python(&[options, &["--input", data.to_str().unwrap(), script.to_str().unwrap()]].concat())
}

#[test]
fn formats_in_a_record_are_used_and_no_record_after_them_is_lost() {
    let attr = MadeAttr { kind: PERF_TYPE_TRACEPOINT, config: 0x176, ..MadeAttr::new(TID_TIME | PERF_SAMPLE_RAW) };
    let tracing = NATIVE.tracing_data();
    let mut body = [u32s(&[tracing.len() as u32]), tracing].concat();
    body.resize(body.len().next_multiple_of(8) + 40, 0);
    let raw = [u32s(&[0x176, 8]), b"abcd".to_vec(), u32s(&[-5i32 as u32, 0])].concat();
    let sample = |time: u64| [u32s(&[7, 7]), u64s(&[time]), u32s(&[raw.len() as u32]), raw.clone()];
    let made = Made::new(attr)
        .record(PERF_RECORD_HEADER_TRACING_DATA, 0, &[body])
        .kernel_mapping(0x1000, 0x1000, "[kernel.kallsyms]")
        .sample(0, &sample(1))
        .sample(0, &sample(2));
    for bytes in [made.file(), made.pipe()] {
        let output = replay(&bytes, "def sys__e(e): print(e._time, e['text'], e.number)\n", &[]);
        assert_eq!(stdout(&output), "1 abcd -5\n2 abcd -5\n", "{}", said(&output));
    }
}

/// Returns the attr of a hardware event that counts cycles, with these flags.
fn cycles(flags: u64) -> MadeAttr {
    MadeAttr { kind: PERF_TYPE_HARDWARE, config: 0, flags, ..MadeAttr::new(PERF_SAMPLE_IP | TID_TIME) }
}

#[test]
fn events_without_names_are_named_by_their_attrs_and_selected_without_modifiers() {
    const USER_ONLY: u64 = 1 << 5 | 1 << 6;
    const PRECISE_HOST: u64 = 2 << 15 | 1 << 20;
    for (flags, name) in [(0, "cycles"), (USER_ONLY, "cycles:u"), (PRECISE_HOST, "cycles:ppH")] {
        let made = Made::new(cycles(flags)).sample(PERF_RECORD_MISC_USER, &[at(0x1000, 1)]);
        let folder = Folder::new();
        for bytes in [made.file(), made.pipe()] {
            let data = folder.write("made.data", &bytes);
            assert_eq!(ours(&["evlist"], &data), [name]);
            assert_eq!(ours(&["script", "-q", "-F", "event"], &data)[0].trim_end(), format!("{name}:"));
            let output = replay(&bytes, "def cycles(e): print(e._event)\n", &["-e", "cycles"]);
            assert_eq!(stdout(&output), format!("{name}\n"));
        }
    }
    let raw = MadeAttr { kind: PERF_TYPE_RAW, config: 0x1a8, ..cycles(0) };
    let made = Made::new(raw).sample(PERF_RECORD_MISC_USER, &[at(0x1000, 1)]);
    let output = replay(&made.file(), "def __sample__(e): print(e._event)\n", &["-e", "r1a8"]);
    assert_eq!(stdout(&output), "raw 0x1a8\n");
}

#[test]
fn profile_takes_the_task_clock_where_neither_cycles_nor_cpu_clock_was_recorded() {
    let sample_type = PERF_SAMPLE_IP | TID_TIME | PERF_SAMPLE_CALLCHAIN;
    let attr = MadeAttr { config: PERF_COUNT_SW_TASK_CLOCK, ..MadeAttr::new(sample_type) };
    let chain = u64s(&[2, PERF_CONTEXT_USER, 0x1000]);
    let made = Made::new(attr).sample(PERF_RECORD_MISC_USER, &[at(0x1000, 1), chain]);
    let output = replay(&made.file(), "def profile(e): print(e._event, e.ip)\n", &["-e", "profile"]);
    assert_eq!(stdout(&output), "profile 4096\n");
    let folder = Folder::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/profile.py");
    let table = stdout(&python(&["-e", "profile/-g/", "--input", &made.write(&folder), script]));
    assert!(table.contains("1 samples in 1 functions"), "{table}");
}

#[test]
fn traces_that_are_not_decoded_are_reported_once_with_their_size() {
    const TRACE: usize = 48;
    let trace = [u64s(&[TRACE as u64, 0, 0]), u32s(&[0, 7, 0, 0])];
    let mut made = Made::new(MadeAttr::new(PERF_SAMPLE_IP | TID_TIME))
        .record(PERF_RECORD_AUXTRACE_INFO, 0, &[u32s(&[1, 0])])
        .kernel_mapping(0x1000, 0x1000, "[kernel.kallsyms]");
    for time in 1..=3 {
        made = made.record(PERF_RECORD_AUXTRACE, 0, &trace);
        // The trace data follows the record, and may look like a record.
        let bytes = made::record(PERF_RECORD_SAMPLE, 0, &[vec![0; TRACE - 8]]);
        made.records.extend(bytes);
        made = made.sample(PERF_RECORD_MISC_USER, &[at(0x1000, time)]);
    }
    for bytes in [made.file(), made.pipe()] {
        let output = replay(&bytes, "def __sample__(e): print(e._time)\n", &[]);
        assert_eq!(stdout(&output), "1\n2\n3\n");
        let line = "made.data: 144 bytes of intel_pt trace are not decoded; only sampled events are shown";
        assert_eq!(said(&output).matches(line).count(), 1, "{}", said(&output));
    }
}

#[test]
fn reports_name_generated_code_by_its_process_and_tasks_by_names_that_are_told_later() {
    let made = Made::new(MadeAttr::new(PERF_SAMPLE_IP | TID_TIME))
        .mapping(0x1000, 0x1000, [5, 2], "//anon")
        .sample(PERF_RECORD_MISC_USER, &[at(0x1010, 1)])
        .record(PERF_RECORD_COMM, 0, &[u32s(&[7, 7]), padded("later")])
        .sample(PERF_RECORD_MISC_USER, &[at(0x1010, 2)]);
    let folder = Folder::new();
    let report = ours(&["report", "-q", "--sort", "comm,dso"], made.write(&folder).as_ref());
    let lines: Vec<Vec<&str>> =
        report.iter().filter(|line| line.contains('%')).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines, [["100.00%", "later", "[JIT]", "tid", "7"]]);
}

const TIMES: &str = "def __sample__(e):\n    print(e._realtime)\n    e.print(callchain=False)\n";

/// Returns a recording of two samples with some hours between them.
fn hours() -> Made {
    let made = Made::new(MadeAttr::new(PERF_SAMPLE_IP | TID_TIME));
    let samples = [1_000_000_000, 20_000_000_000_000].map(|time| at(0x1000, time));
    samples.into_iter().fold(made, |made, sample| made.sample(PERF_RECORD_MISC_USER, &[sample]))
}

/// The file was written within a moment, so it is a copy, and its time stamps say nothing about the recording.
#[test]
fn copies_have_no_time_of_day_and_this_is_reported_once() {
    for made in [hours(), hours().text(HEADER_HOSTNAME, "another-machine")] {
        for bytes in [made.file(), made.pipe()] {
            let output = replay(&bytes, TIMES, &[]);
            let lines: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
            assert_eq!((&*lines[0], &*lines[2]), ("None", "None"));
            // The line starts with the task, and not with a date.
            assert!(lines[1].starts_with(' ') && lines[1].contains(" 1.000000: cpu-clock: "), "{lines:?}");
            let line = "does not say at what time of day it was recorded: _realtime is None";
            assert_eq!(said(&output).matches(line).count(), 1, "{}", said(&output));
        }
    }
}

/// The samples took less time than writing the copy, but they are older than the file.
#[test]
fn a_copy_of_a_short_recording_has_no_time_of_day() {
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let made = Made::new(MadeAttr::new(PERF_SAMPLE_IP | TID_TIME)).text(HEADER_HOSTNAME, hostname.trim_end());
    let samples = [1_000_000_000, 1_000_000_001].map(|time| at(0x1000, time));
    let made = samples.into_iter().fold(made, |made, sample| made.sample(PERF_RECORD_MISC_USER, &[sample]));
    let output = replay(&made.file(), "def __sample__(e): print(e._realtime)\n", &[]);
    assert_eq!(stdout(&output), "None\nNone\n");
    assert!(said(&output).contains("does not say at what time of day it was recorded"), "{}", said(&output));
}

#[test]
fn a_recorder_that_states_when_it_finished_gives_the_time_of_day() {
    let mut made = hours();
    made.features.push((HEADER_SIMPLEPERF_META_INFO, b"clockid\0perf\0timestamp\x001600000000\0".to_vec()));
    let output = replay(&made.file(), TIMES, &[]);
    let first = 1_600_000_000_000_000_000u64 - 20_000_000_000_000 + 1_000_000_000;
    assert!(stdout(&output).starts_with(&format!("{first}\n")), "{}", stdout(&output));
    let line = "a guess from the second in which the recorder finished, with an error of about a second";
    assert_eq!(said(&output).matches(line).count(), 1, "{}", said(&output));
}

/// perf does not store when it started and ended, unless `-k` selects a clock.
#[test]
fn a_guessed_time_of_day_says_how_late_it_may_be_and_what_makes_it_exact() {
    needs([Need::Perf]);
    let (folder, now) = (Folder::new(), || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i128);
    let (path, script) = (folder.path("plain.data"), folder.write("s.py", TIME.as_bytes()));
    let before = now();
    record(&path, &["-e", "page-faults:u", "-c", "1", "--", "/bin/true"]);
    let after = now();
    let times = |path: &Path| {
        let output = perf_prof(&["python", "-q", "--input"]).arg(path).arg(&script).output().unwrap();
        let times: Vec<i128> = stdout(&output).lines().map(|line| line.parse().unwrap()).collect();
        (times, said(&output))
    };
    let late = |said: &str| {
        let (_, rest) = said.split_once("late by at most ").unwrap_or_else(|| panic!("{said}"));
        let seconds: f64 = rest.split(' ').next().unwrap().parse().unwrap();
        (seconds * 1e9) as i128
    };
    let (guessed, warning) = times(&path);
    assert_eq!(warning.matches("perf record -k CLOCK_MONOTONIC").count(), 1, "{warning}");
    assert!(guessed.iter().all(|&time| before <= time && time - late(&warning) <= after), "{guessed:?} {warning}");
    // A changed time stamp of the file moves the guessed times, and the message says so.
    let changed = SystemTime::now() + Duration::from_secs(5);
    File::options().append(true).open(&path).unwrap().set_modified(changed).unwrap();
    let (moved, warning) = times(&path);
    assert!(moved[0] - guessed[0] >= 5_000_000_000 && moved[0] - late(&warning) <= guessed[0], "{moved:?} {warning}");
    record(&path, &["-k", "CLOCK_MONOTONIC", "-e", "page-faults:u", "-c", "1", "--", "/bin/true"]);
    let (exact, warning) = times(&path);
    assert!(exact.iter().all(|&time| after <= time && time <= now()) && warning.is_empty(), "{exact:?} {warning}");
}

const TIME: &str = "def __sample__(e): print(e._realtime)\n";

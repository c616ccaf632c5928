//! Runs the whole program on recordings that are damaged, cut off or unusual. The program prints what can be read, and
//! reports what is wrong.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
};

use perf_prof_format::{
    abi::{PERF_RECORD_SAMPLE, perf_data::PERF_RECORD_COMPRESSED},
    record::{Records, record_type},
};
use perf_prof_recordings::Recording;

use super::made::{FOREIGN, Maker, NATIVE};
use crate::harness::{
    machine::{Need, needs},
    recording::{Folder, LIST, python, record, record_here},
    run::{stdout, tested_program},
    wait,
};

/// The output of a run, its messages, and its exit status.
struct Ran {
    out: String,
    said: String,
    status: i32,
}

#[track_caller]
fn run(args: &[&str], input: &Path) -> Ran {
    let program = tested_program();
    let output = Command::new(program).args(args).arg("-i").arg(input).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    // A run that a signal ended has no exit status, for example after the abort of a panic.
    Ran { out: text(output.stdout), said: text(output.stderr), status: output.status.code().unwrap() }
}

#[track_caller]
fn script(input: &Path) -> Ran {
    run(&["script"], input)
}

/// The number of samples in the generated recording that belong to an event.
const SAMPLES: usize = 4;

/// Returns the number of printed events. Indented lines after an event are its call chain.
fn events(ran: &Ran) -> usize {
    ran.out.lines().filter(|line| !line.is_empty() && !line.starts_with('\t')).count()
}

#[test]
fn either_byte_order_prints_the_same() {
    let folder = Folder::new();
    let expected = script(&folder.write("native.data", &NATIVE.file(&NATIVE.records())));
    assert_eq!((expected.status, events(&expected)), (0, SAMPLES), "{}{}", expected.out, expected.said);
    for (name, bytes) in [
        ("foreign.data", FOREIGN.file(&FOREIGN.records())),
        ("native.pipe", NATIVE.pipe(&NATIVE.records())),
        ("foreign.pipe", FOREIGN.pipe(&FOREIGN.records())),
    ] {
        let ran = script(&folder.write(name, &bytes));
        assert_eq!((ran.status, &ran.out), (0, &expected.out), "{name}");
    }
}

/// Wherever a file is cut off, the program says what is missing, or that the file is no recording. It exits with status
/// 0 or 1.
#[test]
fn truncated_at_every_byte() {
    let folder = Folder::new();
    let cuts = |name: &'static str, bytes: Vec<u8>| {
        let folder = &folder;
        move || {
            let mut before = 0;
            for cut in 0..bytes.len() {
                let path = folder.write(name, &bytes[..cut]);
                let ran = script(&path);
                let path = path.to_str().unwrap();
                assert!([0, 1].contains(&ran.status), "{name} {cut}: {}", ran.said);
                // A pipe may end at any byte without a message.
                let is_told = ran.said.contains(path) && ran.said.starts_with("perf-prof: ");
                assert!(is_told || (name == "pipe" && ran.status == 0), "{name} {cut}: {}", ran.said);
                let events = events(&ran);
                assert!(events >= before, "{name} {cut}: {}", ran.out);
                before = events;
            }
            assert_eq!(before, SAMPLES, "{name}");
        }
    };
    let (file, pipe) = (cuts("file", NATIVE.file(&NATIVE.records())), cuts("pipe", NATIVE.pipe(&NATIVE.records())));
    std::thread::scope(|scope| {
        scope.spawn(file);
        scope.spawn(pipe);
    });
}

/// Copies that were not finished, or copies onto a full disk.
#[test]
fn a_message_about_a_cut_file_of_perf_names_the_file_the_cause_and_the_way_out() {
    needs([Need::Perf]);
    let folder = Folder::new();
    let path = folder.path("perf.data");
    record(&path, &["-e", "sched:sched_switch", "-a", "--", "sleep", "0.1"]);
    let file = fs::read(&path).unwrap();
    let word = |at: usize| u64::from_ne_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (attrs, data, size) = (word(24), word(40), word(48));
    let sections = word(data + size);
    let lost = "the names and fields of tracepoints are not known";
    for (cut, cause) in [
        (8, "its header is incomplete"),
        (100, "its header is incomplete"),
        (attrs - 4, "its list of events is incomplete"),
        (attrs + 20, "its list of events is incomplete"),
        (data, "its records should be"),
        (data + size / 2, "its records should be"),
        (data + size - 8, "its records should be"),
        (data + size, lost),
        (data + size + 8, lost),
        (sections, lost),
        (sections + 100, lost),
    ] {
        let path = folder.write("cut.data", &file[..cut]);
        let name = path.to_str().unwrap();
        for command in [&["script"][..], &["report"], &["evlist"]] {
            let Ran { said, .. } = run(command, &path);
            let is_told = |line: &str| {
                line.contains(name) && line.contains(cause) && line.ends_with("copy it again, or record again")
            };
            assert!(said.lines().any(is_told), "{command:?} {cut}: {said}");
            assert_eq!(said.matches("outside the file").count(), usize::from(cut >= sections), "{cut}: {said}");
        }
        // An event that is named has no name in such a file.
        let top = Command::new(tested_program()).args(["top", "sched:sched_switch", "--input", name]).output().unwrap();
        let said = String::from_utf8_lossy(&top.stderr);
        assert!(top.status.code() == Some(1) && said.contains("copy it again, or record again"), "{cut}: {said}");
    }
}

#[test]
fn files_that_are_no_recordings_are_refused() {
    let folder = Folder::new();
    let directory = folder.path("directory");
    fs::create_dir(&directory).unwrap();
    for (path, text) in [
        (folder.write("text", b"a file of text, of more than 104 bytes"), "is not a perf.data file"),
        (folder.write("old", b"PERFFILE"), "is cut off: its header is incomplete"),
        (folder.write("empty", b""), "is empty: nothing was recorded"),
        (directory, "is a directory without a file `data`"),
        (folder.path("missing"), "No such file or directory"),
    ] {
        for command in [&["script"][..], &["report"], &["evlist"]] {
            let Ran { out, said, status } = run(command, &path);
            assert!(status == 1 && out.is_empty() && said.lines().count() == 1, "{command:?}: {said}");
            assert!(said.contains(text) && said.contains(path.to_str().unwrap()), "{command:?}: {said}");
        }
        let list = folder.write("list.py", LIST.as_bytes());
        let output = python(&["--input", path.to_str().unwrap(), list.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(text), "{said}");
    }
}

#[test]
fn features_out_of_bounds_are_named_and_left_out() {
    let folder = Folder::new();
    let (file, table) = (NATIVE.file(&NATIVE.records()), 104 + 16 + 160 + NATIVE.records().len());
    for (feature, name) in [(0, "TRACING_DATA"), (1, "HOSTNAME"), (2, "NRCPUS")] {
        for (at, value) in [(0, u64::MAX), (0, 1 << 40), (8, u64::MAX), (8, 1 << 40)] {
            let mut file = file.clone();
            let at = table + 16 * feature + at;
            file[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            let ran = script(&folder.write("perf.data", &file));
            let warning = format!("{name} cannot be read: it lies outside the file");
            assert!(ran.status == 0 && ran.said.contains(&warning), "{}", ran.said);
            assert_eq!(events(&ran), SAMPLES);
        }
    }
}

#[test]
fn ids_that_no_event_has_are_counted() {
    let folder = Folder::new();
    let path = folder.write("perf.data", &NATIVE.file(&NATIVE.records()));
    let said = "1 samples were left out, because the recording has no event with their ids";
    let ran = script(&path);
    assert!(ran.status == 0 && ran.said.contains(said), "{}", ran.said);
    let list = folder.write("list.py", LIST.as_bytes());
    let output = python(&["--input", path.to_str().unwrap(), list.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains(said));
    assert_eq!(stdout(&output).lines().filter(|line| line.contains("sys:e")).count(), SAMPLES);
}

/// Returns a file with a million events, of which only one has a sample.
fn million() -> Vec<u8> {
    let mut file = NATIVE.file(&[]);
    let count = 1_000_000u64;
    let ids = 104 + 16;
    let attrs = ids + 8 * count;
    file.truncate(104);
    file[24..40].copy_from_slice(&[NATIVE.u64(attrs), NATIVE.u64(80 * count)].concat());
    let data = attrs + 80 * count;
    let sample = NATIVE.sample(1_000_050, 5);
    file[40..56].copy_from_slice(&[NATIVE.u64(data), NATIVE.u64(sample.len() as u64)].concat());
    file.resize(ids as usize, 0);
    (0..count).for_each(|number| file.extend((51 + number).to_ne_bytes()));
    for number in 0..count {
        file.extend([NATIVE.attr(), NATIVE.u64(ids + 8 * number), NATIVE.u64(8)].concat());
    }
    file.extend(sample);
    // The offsets of the feature sections.
    let features = Maker::file(NATIVE, &[]);
    let table = 104 + 16 + 160;
    let moved = data + NATIVE.sample(0, 0).len() as u64 - table as u64;
    for section in features[table..table + 48].chunks_exact(16) {
        let offset = u64::from_ne_bytes(section[..8].try_into().unwrap()) + moved;
        file.extend([&offset.to_ne_bytes()[..], &section[8..]].concat());
    }
    file.extend(&features[table + 48..]);
    file
}

/// The format of each event has to be found quickly.
#[test]
fn a_million_events_are_read() {
    let folder = Folder::new();
    let path = folder.write("perf.data", &million());
    let ran = script(&path);
    assert_eq!((ran.status, events(&ran)), (0, 1), "{}", ran.said);
    let ran = run(&["evlist"], &path);
    assert_eq!((ran.status, ran.out.lines().count()), (0, 1_000_000), "{}", ran.said);
}

/// Makes a recording with `program`, and kills the recorder before it finishes.
fn killed(path: &Path, program: &str, args: &[&str]) {
    let mut command = Command::new(program);
    command.args(["record", "-q", "-o"]).arg(path).args(args).stdout(Stdio::null()).stderr(Stdio::null());
    let mut recorder = command.spawn().unwrap();
    wait::until("400 kB are recorded", || fs::metadata(path).map_or(0, |file| file.len()) >= 400_000);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
}

#[test]
fn a_recorder_that_was_killed_leaves_what_it_had_written() {
    needs([Need::Perf]);
    let folder = Folder::new();
    for (program, name) in [("perf", "theirs.data"), (tested_program(), "ours.data")] {
        let path = folder.path(name);
        killed(&path, program, &["-m", "1", "-e", "sched:*,timer:*", "-a"]);
        let size = u64::from_ne_bytes(fs::read(&path).unwrap()[48..56].try_into().unwrap());
        assert_eq!(size, 0, "{name}");
        let ran = script(&path);
        assert!(ran.status == 0 && ran.said.contains("was not finished"), "{name}: {}", ran.said);
        assert!(ran.out.lines().count() > 100, "{name}: {}{}", ran.out, ran.said);
        let by_name = ["--input", path.to_str().unwrap(), "-e", "sched:sched_switch"];
        if program == "perf" {
            // In a killed recording of perf, events have no names. A user who selects an event by name gets the reason.
            let asked = python(&[&by_name[..], &["s.py"]].concat());
            let said = String::from_utf8_lossy(&asked.stderr).into_owned();
            assert!(said.contains("was not finished") && said.contains("sched:sched_switch is not in"), "{said}");
        } else {
            // A recording of perf-prof describes its events before the records.
            let count = "n = 0\ndef sched__sched_switch(event):\n    global n\n    n += event.next_pid >= 0\n\
                         def __exit__(): print(n)\n";
            let counted =
                python(&[&by_name[..], &[folder.write("count.py", count.as_bytes()).to_str().unwrap()]].concat());
            let switches = ran.out.lines().filter(|line| line.contains(" sched:sched_switch: ")).count();
            assert!(switches > 0 && ran.out.contains(" ==> next_comm="), "{}", ran.out);
            assert_eq!(stdout(&counted).trim(), switches.to_string());
        }
    }
}

/// Features that are known at the start are written before the records. A finished recording contains them once.
#[test]
fn early_features_are_stored_once() {
    needs([Need::Perf]);
    let folder = Folder::new();
    let path = folder.path("perf.data");
    let mut recorder = Command::new(tested_program());
    recorder.args(["record", "-q", "-o"]).arg(&path).args(["-e", "sched:sched_switch", "-a", "--", "sleep", "0.1"]);
    assert!(recorder.status().unwrap().success());
    let file = fs::read(&path).unwrap();
    let format: &[u8] = b"name: sched_switch\n";
    assert_eq!(file.windows(format.len()).filter(|bytes| *bytes == format).count(), 1);
    let header = Command::new("perf").args(["report", "--header-only", "-i"]).arg(&path).output().unwrap();
    let header = String::from_utf8_lossy(&header.stdout).into_owned();
    assert!(header.contains("name = sched:sched_switch") && header.contains("# hostname : "), "{header}");
}

/// If the disk is full, the features after the records are not written. The names of events are also stored before the
/// records, and must be found there.
#[test]
fn a_recording_without_its_end_has_event_names() {
    needs([Need::Perf]);
    let folder = Folder::new();
    let path = folder.path("perf.data");
    let mut recorder = Command::new(tested_program());
    recorder.args(["record", "-q", "-o"]).arg(&path).args(["-e", "sched:sched_switch", "-a", "--", "sleep", "0.1"]);
    assert!(recorder.status().unwrap().success());
    let whole = script(&path);
    let mut file = fs::read(&path).unwrap();
    // The recorder has written the size of the records, but no features.
    file[72..104].fill(0);
    let word = |at: usize| u64::from_ne_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (begin, size) = (word(40), word(48));
    file.truncate(begin + size);
    let ran = script(&folder.write("cut.data", &file));
    assert!(ran.status == 0 && ran.said.contains("was not finished"), "{}", ran.said);
    assert!(ran.out == whole.out && ran.out.contains(" sched:sched_switch: "), "{}", ran.out);
    // A copy onto a full disk lacks the end of the records too.
    let mut file = fs::read(&path).unwrap();
    file.truncate(begin + size - 8);
    let ran = script(&folder.write("copy.data", &file));
    assert!(ran.status == 0 && ran.said.contains("copy.data is cut off: its records should be"), "{}", ran.said);
    assert!(!ran.said.contains("features") && ran.out.contains(" sched:sched_switch: "), "{}{}", ran.said, ran.out);
    // Without some bytes among the last records, the features are not where the header says. The first half has only records about
    // tasks if there were few switches.
    for missing in [1, 16, 100, 1000] {
        let mut file = fs::read(&path).unwrap();
        let at = begin + size - 1100;
        file.drain(at..at + missing);
        let ran = script(&folder.write("moved.data", &file));
        assert!(ran.status == 0 && ran.said.contains("moved.data is damaged: "), "{missing}: {}", ran.said);
        assert!(ran.out.contains(" sched:sched_switch: "), "{missing}: {}{}", ran.said, ran.out);
    }
}

#[test]
fn damaged_zstd_data_costs_only_what_follows() {
    needs([Need::Perf]);
    let folder = Folder::new();
    let path = folder.path("perf.data");
    record(&path, &["-z", "-e", "sched:*,timer:*", "-a", "--", "sleep", "0.3"]);
    let (whole, file) = (script(&path), fs::read(&path).unwrap());
    let word = |at: usize| u64::from_ne_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (mut at, end) = (word(40), word(40) + word(48));
    let mut packed = Vec::new();
    while at < end {
        let size = usize::from(u16::from_ne_bytes([file[at + 6], file[at + 7]]));
        if u32::from_ne_bytes(file[at..at + 4].try_into().unwrap()) == PERF_RECORD_COMPRESSED {
            packed.push(at + 8..at + size);
        }
        at += size;
    }
    for damaged in [0, packed.len() / 2, packed.len() - 1] {
        let mut file = file.clone();
        // zstd has no block of this type, so decompression fails.
        file[packed[damaged].clone()].fill(0xff);
        let ran = script(&folder.write("damaged.data", &file));
        assert!(ran.status == 0 && ran.said.contains("compressed records are left out from byte"), "{}", ran.said);
        // Events before the damage are printed. After damage in the first compressed record, nothing can be
        // decompressed. The last record may contain no samples.
        let (left, all) = (events(&ran), events(&whole));
        assert!(if damaged == 0 { left == 0 } else { (1..=all).contains(&left) }, "{damaged}: {left} of {all}");
    }
}

/// The writer closes the pipe within a record.
#[test]
fn a_pipe_that_ends_within_a_record_is_reported() {
    let folder = Folder::new();
    let whole = NATIVE.pipe(&NATIVE.records());
    let path = folder.write("pipe", &whole[..whole.len() - 20]);
    let mut command = Command::new(tested_program());
    let mut cat = Command::new("cat").stdin(File::open(&path).unwrap()).stdout(Stdio::piped()).spawn().unwrap();
    let output = command.args(["script", "-i", "-"]).stdin(cat.stdout.take().unwrap()).output().unwrap();
    cat.wait().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("the input is cut off"), "{said}");
}

/// perf-prof stores when the events were turned off.
#[test]
fn a_sample_from_after_the_end_is_left_out_and_does_not_make_the_recording_longer() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("perf.data");
    record_here(&path, &["-e", "sched:sched_switch", "-a", "--", "sleep", "0.1"]);
    let mut bytes = fs::read(&path).unwrap();
    let recording = Recording::open(&path).unwrap();
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (mut at, end, mut times) = (word(40), word(40) + word(48), Vec::new());
    for record in Records::new(&bytes[at..end]) {
        if record_type(record) == PERF_RECORD_SAMPLE {
            let time = recording.layouts().time(record).unwrap();
            times.push((time, at + record.windows(8).position(|bytes| bytes == time.to_ne_bytes()).unwrap()));
        }
        at += record.len();
    }
    // Without the first or the last sample, the recording would be shorter.
    times.sort_unstable();
    let (_, flipped) = times[times.len() / 2];
    bytes[flipped + 6] ^= 1 << 4;
    let damaged = folder.write("damaged.data", &bytes);
    let warning =
        "damaged.data is damaged: 1 sample is left out, because the time in it is after the end of the recording";
    let ran = script(&damaged);
    assert!(ran.status == 0 && ran.said.contains(warning), "{}", ran.said);
    assert_eq!(events(&ran), times.len() - 1, "{}", ran.said);
    let length = |path: &Path| {
        let args = ["top", "sched:sched_switch", "--by", "_event", "--json", "--input"];
        let output = Command::new(tested_program()).args(args).arg(path).output().unwrap();
        let total: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        total["seconds"].as_f64().unwrap()
    };
    let (before, after) = (length(&path), length(&damaged));
    assert!((0.99..1.01).contains(&(after / before)), "{before} s, {after} s");
    // Intervals end where the recording does, and each process of `--jobs` warns about its own part.
    for shares in [&[][..], &["--jobs", "2"]] {
        let list = folder.write("count.py", COUNT.as_bytes());
        let args = [&["--input", damaged.to_str().unwrap(), "-i", "10"], shares, &[list.to_str().unwrap()]].concat();
        let output = python(&args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.matches(warning).count(), 1, "{shares:?}: {said}");
        assert_eq!(stdout(&output).trim(), (times.len() - 1).to_string(), "{shares:?}");
    }
}

/// Prints the number of samples.
const COUNT: &str = "
from collections import Counter
from perf_prof import Parts

parts = Parts(total=Counter())
__partial__, __merge__ = parts.partial, parts.merge

def sched__sched_switch(event):
    parts._total['samples'] += 1

def __exit__():
    print(parts._total['samples'])
";

/// The index in a recording of perf-prof was stored before the damage, so perf-prof compares the records with the
/// index.
#[test]
fn samples_whose_type_was_damaged_after_they_were_recorded_are_counted() {
    needs([Need::Tracefs, Need::Perf]);
    let folder = Folder::new();
    let path = folder.path("perf.data");
    let recorder = &mut Command::new(tested_program());
    recorder.args(["record", "-q", "-e", "sched:sched_switch", "-a", "-o"]).arg(&path).args(["--", "true"]);
    assert!(recorder.status().unwrap().success());
    let mut bytes = fs::read(&path).unwrap();
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let (mut at, end) = (word(40), word(40) + word(48));
    let mut samples = Vec::new();
    while at < end {
        if bytes[at..at + 4] == 9u32.to_ne_bytes() {
            samples.push(at);
        }
        at += usize::from(u16::from_ne_bytes([bytes[at + 6], bytes[at + 7]]));
    }
    // A type that no program writes, and a type that a newer kernel may write.
    for (sample, kind) in samples.iter().zip([0xdead_beefu32, 40]) {
        bytes[*sample..sample + 4].copy_from_slice(&kind.to_ne_bytes());
    }
    let ran = script(&folder.write("damaged.data", &bytes));
    assert_eq!((ran.status, events(&ran)), (0, samples.len() - 2), "{}", ran.said);
    assert!(ran.said.contains("2 records are left out, because the type in the header is wrong"), "{}", ran.said);
}

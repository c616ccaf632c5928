//! Recordings that were made to harm the reader: small files that take much memory, and files of other users.

use std::{
    fs,
    io::Write,
    os::unix::fs::{FileExt, chown},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use perf_prof_format::abi::perf_data::PERF_RECORD_COMPRESSED;

use super::made::NATIVE;
use crate::harness::{
    machine::{Need, needs, skip},
    recording::{Folder, python},
    run::{said, stdout, tested_program},
    wait::EndsThreads,
    workload,
};

/// The result of a run, with its peak memory.
pub struct Peak {
    /// The exit status, or `None` if a signal ended the run.
    pub status: Option<i32>,
    pub stdout: String,
    pub said: String,
    /// The peak memory, in MiB.
    pub memory: u64,
}

/// Runs perf-prof with these arguments.
pub fn peak(args: &[&str]) -> Peak {
    // Until exec, the peak memory of a process includes the memory of the process that forked it. The tests take much
    // memory, so a small process starts perf-prof.
    let words = workload::words("peak");
    let output = Command::new(&words[0]).args(&words[1..]).args(args).output().unwrap();
    let text = stdout(&output);
    let (stdout, measured) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
    let mut numbers = measured.split_whitespace().map(|number| number.parse::<u64>().unwrap());
    let (status, kib) = (numbers.next().unwrap(), numbers.next().unwrap());
    let status = (status < 256).then_some(status as i32);
    Peak { status, stdout: stdout.to_owned(), said: said(&output), memory: kib / 1024 }
}

/// Runs perf-prof with these arguments on a recording. Returns the exit status, stderr, and the peak memory in MiB.
fn peak_of(args: &[&str], path: &Path) -> (Option<i32>, String, u64) {
    let Peak { status, said, memory, .. } = peak(&[args, &["-i", path.to_str().unwrap()]].concat());
    (status, said, memory)
}

/// Runs perf-prof with the arguments of this process. After its output, prints a line with its exit status (256 if a
/// signal ended it) and its peak memory in KiB.
#[expect(clippy::zombie_processes, reason = "wait4 waits for the child")]
pub fn measured() {
    let mut command = Command::new(tested_program());
    let child = command.args(std::env::args_os().skip(3)).spawn().unwrap();
    // SAFETY: rusage consists of plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    // SAFETY: the pointers lead to values of the types that the call fills, and the child is this process's own.
    let waited = unsafe { libc::wait4(child.id() as i32, &raw mut status, 0, &raw mut usage) };
    assert_eq!(waited, child.id() as i32);
    let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 256 };
    println!("\n{code} {}", usage.ru_maxrss);
}

/// Returns `count` samples, compressed. `time` returns the time of a sample.
fn packed(count: u64, time: impl Fn(u64) -> u64) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    for number in 0..count {
        encoder.write_all(&NATIVE.sample(50, time(number))).unwrap();
    }
    compressed_records(&encoder.finish().unwrap())
}

/// Returns the records of a recording with compressed data.
pub fn compressed_records(packed: &[u8]) -> Vec<u8> {
    // As in files of perf, the sizes of these records need not be multiples of 8.
    let records = packed.chunks(65_000).map(|part| NATIVE.record(PERF_RECORD_COMPRESSED, 0, &[part.to_vec()]));
    records.collect::<Vec<_>>().concat()
}

#[test]
fn a_small_file_with_many_overlapping_records_takes_no_more_than_buffer() {
    const SAMPLES: u64 = 400_000;
    let folder = Folder::new();
    let path = folder.path("bomb.data");
    // In the second file, each block contains a record of time 1. So no block can be released before the last block was
    // read.
    let same = |_| 1;
    let overlapping = |number| if number % 100 == 0 { 1 } else { number };
    for (what, records) in [("same", packed(SAMPLES, same)), ("overlapping", packed(SAMPLES, overlapping))] {
        fs::write(&path, NATIVE.file(&records)).unwrap();
        for command in ["script", "report"] {
            let (status, said, memory) = peak_of(&[command, "--buffer", "32M"], &path);
            let text = format!("perf-prof: {} needs more than 32 MiB of memory to be read", path.display());
            assert!(status == Some(1) && said.contains(&text), "{what}: {status:?} {said}");
            assert!(memory < 256, "{what}: {memory} MiB");
        }
    }
}

/// Few of these records are in memory at the same time, so the smallest limit is enough.
#[test]
fn records_in_the_order_of_time_are_read_with_a_small_buffer() {
    let folder = Folder::new();
    let path = folder.path("large.data");
    fs::write(&path, NATIVE.file(&packed(300_000, |number| number))).unwrap();
    let (status, said, memory) = peak_of(&["report", "--buffer", "1M"], &path);
    assert!(status == Some(0), "{said}");
    assert!(memory < 256, "{memory} MiB");
}

/// The name of the system must not be copied for each format.
#[test]
fn many_formats_of_a_system_with_a_long_name_take_little_memory() {
    let folder = Folder::new();
    let path = folder.path("formats.data");
    let text = "name: e\nID: 1\nformat:\n\nprint fmt: \"\"\n";
    let formats: Vec<_> = (0..10_000u32).map(|id| text.replace("ID: 1", &format!("ID: {id}"))).collect();
    let formats: Vec<_> =
        formats.iter().map(|text| [NATIVE.u64(text.len() as u64), text.clone().into()].concat()).collect();
    let system = [&b"s".repeat(500_000)[..], b"\0"].concat();
    let tracing = NATIVE.tracing_data_of(&system, 10_000, &formats.concat());
    fs::write(&path, NATIVE.pipe_with(&tracing, &NATIVE.records())).unwrap();
    let (status, said, memory) = peak_of(&["script", "-q"], &path);
    assert!(status == Some(0), "{said}");
    assert!(memory < 256, "{memory} MiB");
}

#[test]
fn a_description_that_takes_too_much_memory_is_refused() {
    let folder = Folder::new();
    let path = folder.path("sparse.data");
    let mut bytes = NATIVE.file(&NATIVE.records());
    // The size of the attrs section. Most of the file is a hole, which takes no disk space.
    const SIZE: u64 = 1 << 36;
    let attrs = 24 + 8;
    bytes[attrs..attrs + 8].copy_from_slice(&NATIVE.u64(1_000_000 * 80));
    fs::write(&path, &bytes).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_len(SIZE).unwrap();
    let (status, said, memory) = peak_of(&["script", "--buffer", "16M"], &path);
    assert!(status == Some(1) && said.contains("sparse.data needs more than 64 MiB of memory"), "{said}");
    assert!(memory < 256, "{memory} MiB");
}

/// The reader must not wait for somebody to write into the pipe.
#[test]
fn a_pipe_among_the_files_of_a_directory_is_refused() {
    let folder = Folder::new();
    let directory = folder.path("directory");
    for part in ["data", "data.0"] {
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("data"), NATIVE.file(&NATIVE.records())).unwrap();
        let pipe = directory.join(part);
        let _ = fs::remove_file(&pipe);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut command = crate::harness::run::perf_prof(&["script", "-i"]);
        let output = crate::harness::run::with_patience(command.arg(&directory), 60).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("not a regular file"), "{part}: {said}");
    }
}

#[test]
fn recordings_of_other_users_are_read_only_with_force() {
    const OTHER: u32 = 65_534;
    let folder = Folder::new();
    let (file, directory) = (folder.path("other.data"), folder.path("directory"));
    fs::create_dir(&directory).unwrap();
    for path in [&file, &directory.join("data")] {
        fs::write(path, NATIVE.file(&NATIVE.records())).unwrap();
        if chown(path, Some(OTHER), Some(OTHER)).is_err() {
            skip(Need::PlainUser, "files cannot be given to another user");
        }
    }
    let script = folder.path("s.py");
    fs::write(&script, "def __sample__(event): pass\n").unwrap();
    let python = ["python", "-q", "--force", "--input"];
    for path in [&file, &directory] {
        for command in ["script", "report", "evlist", "script --header-only"] {
            let words: Vec<&str> = command.split(' ').collect();
            let (status, said, _) = peak_of(&words, path);
            assert!(status == Some(1) && said.contains("belongs to another user (uid 65534)"), "{command}: {said}");
            let (status, said, _) = peak_of(&[&words[..], &["-f"]].concat(), path);
            assert_eq!(status, Some(0), "{command}: {said}");
        }
        for (options, status) in [(&python[..2], 1), (&python[..3], 0)] {
            let mut command = Command::new(tested_program());
            let output = command.args(options).arg("--input").arg(path).arg(&script).output().unwrap();
            assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    // Users may read files of root and their own files.
    chown(&file, Some(0), Some(0)).unwrap();
    assert_eq!(peak_of(&["script"], &file).0, Some(0));
}

#[test]
fn a_file_that_changes_and_shrinks_while_it_is_read_ends_no_run_by_a_signal() {
    needs([Need::Python]);
    let folder = Folder::new();
    let whole = NATIVE.file(&[NATIVE.records(), packed(20_000, |number| number)].concat());
    let path = folder.write("perf.data", &whole);
    let script = folder.write("script.py", b"def __sample__(event):\n    event._time\n").display().to_string();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // The file keeps its inode, as on a file system that returns different bytes at each read.
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            for (round, byte) in (0..).zip((0..=255u8).cycle()) {
                if ends.load(Relaxed) {
                    break;
                }
                let size = whole.len() * (round % 7) / 6;
                file.set_len(size as u64).unwrap();
                file.write_all_at(&whole, 0).unwrap();
                file.write_all_at(&[byte; 4], (round * 37 % whole.len()) as u64).unwrap();
            }
        });
        let _end = EndsThreads(&ends);
        for args in [&["evlist"][..], &["script"], &["report"]].into_iter().cycle().take(60) {
            let output = Command::new(tested_program()).args(args).arg("-i").arg(&path).output().unwrap();
            assert!(output.status.code().is_some_and(|status| status <= 1), "{args:?}: {output:?}");
        }
        for _ in 0..10 {
            let output = python(&["-q", "--input", path.to_str().unwrap(), &script]);
            assert!(output.status.code().is_some_and(|status| status <= 1), "{output:?}");
        }
    });
}

//! Error messages, which say what is wrong and how to correct it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::harness::{
    machine::{Need, needs, skip},
    recorder::{CALL, command, record},
    run::tested_program,
};

fn said(args: &[&str]) -> (i32, String) {
    let output = Command::new(tested_program()).arg("record").args(args).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn wrong_usage() {
    for (args, text) in [
        (&[][..], "no event selected; use -e"),
        (&["-e", "a:b", "-p", "1", "-t", "1"], "-p and -t cannot be combined"),
        (&["--filter", "x>0", "-e", "a:b"], "--filter 'x>0' comes before the first -e"),
        (&["-e", "cpu-clock", "--filter", "x>0"], "--filter cannot be applied to `cpu-clock`"),
        (&["-e", "a:b", "-C", "0", "-t", "1"], "-C and -t cannot be combined"),
        (&["-e", "a:b", "-c", "1", "-F", "2"], "-c and -F cannot be combined"),
        (&["-e", "a:b", "-k", "sundial"], "invalid value 'sundial'"),
        (&["-e", "a:b", "--bogus"], "unexpected argument '--bogus'"),
    ] {
        let (status, stderr) = said(args);
        assert!(status == 2 && stderr.contains(text) && stderr.contains("--help"), "{args:?}: {stderr}");
    }
}

#[test]
fn help_shows_an_example() {
    let output = Command::new(tested_program()).args(["record", "--help"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("perf-prof record -e sched:sched_switch -a -- sleep 10"),
        "{text}"
    );
}

/// A recording that never started leaves no file.
#[test]
fn a_recording_that_cannot_start_leaves_no_file() {
    needs([Need::Tracefs, Need::Perf]);
    for (args, text) in [
        (&["-e", "no:such_event", "-a"][..], "unknown event no:such_event"),
        (&["-e", CALL, "-C", "4000"], "CPU 4000 does not exist or is offline"),
        (&["-e", CALL, "--", "/no/such/command"], "cannot execute /no/such/command"),
        (&["-e", CALL, "-p", "2147483647"], "there is no process 2147483647"),
    ] {
        let recorded = record(args);
        assert!(recorded.status == 1 && recorded.said.contains(text), "{}", recorded.said);
        assert!(!recorded.path().exists(), "{args:?}");
    }
}

/// The error must be found before the command starts.
#[test]
fn an_unwritable_output_is_reported_before_the_command_starts() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    for (place, why) in [
        ("none/perf.data", "there is no folder 'none'; create it or give another file"),
        ("file/perf.data", "'file' is not a folder; give another file"),
        // No file can be created in /proc.
        ("/proc/perf.data", "cannot write '/proc/perf.data': "),
    ] {
        for threads in [&[][..], &["--threads"]] {
            let args = [&["-e", CALL, "-o", place][..], threads, &["--", "touch", "begun"]].concat();
            let output = command(&dir, &args).output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains("cannot write '") && stderr.contains(why), "{stderr}");
            assert_eq!((output.status.code(), dir.path().join("begun").exists()), (Some(1), false), "{stderr}");
        }
    }
}

/// A folder at the path of the output is only renamed if it is a recording.
#[test]
fn a_folder_that_is_no_recording_is_not_moved_away() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    for name in ["empty", "full"] {
        fs::create_dir(place(name)).unwrap();
    }
    fs::write(place("full/data"), "of somebody").unwrap();
    let run = |name: &str, options: &[&str]| {
        let args = [&["-q", "-e", CALL, "-o", name][..], options, &["--", "true"]].concat();
        let output = command(&dir, &args).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for name in ["empty", "full"] {
        let why = "it is a folder, not a recording; give a file, for example";
        assert_eq!(run(name, &[]), (Some(1), format!("perf-prof: cannot write '{name}': {why} '{name}/perf.data'\n")));
    }
    let why =
        "this folder already contains other files; give a folder that does not exist yet, for example 'full/perf.data'";
    assert_eq!(run("full", &["--threads"]), (Some(1), format!("perf-prof: cannot write 'full': {why}\n")));
    fs::write(place("s.py"), "def __sample__(event): pass\n").unwrap();
    let mut python = std::process::Command::new(tested_program());
    python.args(["python", "-q", "-e", CALL, "--record", "empty", "s.py", "--exec", "true"]).current_dir(dir.path());
    if cfg!(feature = "python") {
        let said = String::from_utf8(python.output().unwrap().stderr).unwrap();
        assert!(said.contains("cannot write 'empty': it is a folder, not a recording"), "{said}");
    }
    assert_eq!(fs::read_dir(place("empty")).unwrap().count(), 0);
    // A recording with --threads is a directory. It uses an empty directory of the user, which keeps its owner and
    // permissions.
    let inode = |name: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(place(name)).unwrap());
    let before = inode("empty");
    // A recording that cannot start leaves no files.
    assert_eq!(run("empty", &["--threads", "--control", "fifo:none"]).0, Some(1));
    assert_eq!(fs::read_dir(place("empty")).unwrap().count(), 0);
    assert_eq!(run("empty", &["--threads"]), (Some(0), String::new()));
    assert!(place("empty/data.0").exists() && inode("empty") == before);
    // The folder is a recording now, so it may be renamed.
    assert_eq!(run("empty", &[]), (Some(0), String::new()));
    assert!(place("empty").is_file() && inode("empty.old") == before);
    for name in ["full.old", "empty.old.old"] {
        assert!(!place(name).exists(), "{name}");
    }
}

/// A failed start must not leave an empty file, and must not rename the previous recording.
#[test]
fn a_recording_that_cannot_start_leaves_the_previous_one() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = tempfile::tempdir().unwrap();
    let disk = mount_disk(&dir, "64k");
    let path = disk.join("perf.data");
    fs::write(&path, "former").unwrap();
    assert!(fs::write(disk.join("rest"), vec![1; 64 << 10]).is_err(), "the disk is not full");
    let files = |options: &[&str]| {
        let mut args = vec!["-e", CALL, "-a", "-o", path.to_str().unwrap()];
        args.extend(options);
        args.push("true");
        let output = command(&dir, &args).output().unwrap();
        let mut names: Vec<_> = fs::read_dir(&disk).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned(), names, fs::read(&path))
    };
    let runs = [files(&[]), files(&["--threads=cpu"])];
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    for (status, said, names, former) in runs {
        assert!(said.contains("cannot write") && said.contains("No space left on device"), "{said}");
        assert_eq!((status, names), (Some(1), vec!["perf.data".into(), "rest".into()]), "{said}");
        assert_eq!(former.unwrap(), b"former");
    }
}

/// The named pipe must not be removed.
#[test]
fn a_named_pipe_is_refused_and_not_removed() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = tempfile::tempdir().unwrap();
    assert!(Command::new("mkfifo").arg(dir.path().join("fifo")).status().unwrap().success());
    let output = command(&dir, &["-e", CALL, "-o", "fifo", "--", "true"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("'fifo': it is a pipe"), "{stderr}");
    assert!(dir.path().join("fifo").exists());
}

/// Mounts a disk of this size in the folder.
fn mount_disk(dir: &TempDir, size: &str) -> PathBuf {
    let disk = dir.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(&disk).status();
    if !mount.is_ok_and(|status| status.success()) {
        skip(Need::Namespaces, "tmpfs cannot be mounted");
    }
    disk
}

/// Records until a disk of this size is full. Checks that perf can read the recording, and that the recording contains
/// the number of samples that could not be written.
fn on_a_full_disk(size: &str, options: &[&str]) {
    needs([Need::Tracefs, Need::Perf]);
    let dir = tempfile::tempdir().unwrap();
    let disk = mount_disk(&dir, size);
    let path = disk.join("perf.data");
    // The command gets SIGTERM when the disk is full.
    let work = "while :; do :; done </dev/null & P=$!; trap 'kill $P' TERM; \
                dd if=/dev/zero of=/dev/null bs=1 count=600000 2>/dev/null; kill $P";
    let args = [options, &["-a", "-o", path.to_str().unwrap(), "--", "sh", "-c", work]].concat();
    let output = command(&dir, &args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let status = output.status.code();
    let script = Command::new("perf").args(["script", "-F", "event", "-i"]).arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&script.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&script.stderr).into_owned();
    let report = Command::new(tested_program()).args(["report", "-q", "--json", "-i"]).arg(&path).output().unwrap();
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("No space left on device") && said.contains("the recording ends here"), "{said}");
    assert!(text.matches("syscalls:sys_enter_").count() > 1000, "{complaints}");
    // perf only prints warnings about losses.
    let foreign = complaints.lines().find(|line| {
        let known = ["Warning:", "Check IO/CPU overload!"].contains(line) || line.is_empty();
        !(known || line.starts_with("Processed ") && line.contains(" and lost "))
    });
    assert_eq!(foreign, None, "{complaints}");
    let dropped = said.split(" samples could not be written").next().and_then(|text| text.rsplit(' ').next());
    let dropped: u64 = dropped.unwrap().parse().unwrap();
    let report: Json = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!((&report["partial"], dropped != 0), (&true.into(), true), "{said}");
    assert!(report["lost"].as_u64().unwrap() >= dropped, "{said}: {}", report["lost"]);
}

#[test]
fn a_full_disk_leaves_a_recording_that_can_be_read() {
    on_a_full_disk("4m", &["-e", "syscalls:sys_enter_*"]);
}

/// If `data` contains no records, its header must not look like the header of an unfinished recording. Otherwise comms
/// and formats would not be read, and the files of the threads could not be read either.
#[test]
fn a_full_disk_leaves_a_packed_directory_that_can_be_read() {
    on_a_full_disk("2m", &["-z", "--threads", "-e", "syscalls:sys_enter_read,syscalls:sys_enter_write"]);
}

/// Returns a time up to which half of the samples of a recording were taken, as `--time` takes it.
fn time_of_half(path: &Path) -> String {
    let output = Command::new(tested_program()).args(["script", "-F", "time", "-i"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let times: Vec<&str> = text.lines().map(|line| line.trim().trim_end_matches(':')).collect();
    format!(",{}", times[times.len() / 2])
}

/// The samples that could not be written come after all others, so no earlier span is missing.
#[test]
fn a_full_disk_takes_no_spans_from_before() {
    needs([Need::Tracefs]);
    for options in [&["-q", "-e", "syscall"][..], &["-q", "-e", "syscall", "--threads"]] {
        let dir = tempfile::tempdir().unwrap();
        let disk = mount_disk(&dir, "4m");
        let path = disk.join("perf.data");
        let work = ["--", "dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=600000"];
        let output = command(&dir, &[options, &["-o", path.to_str().unwrap()], &work].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // Each call of dd makes two samples.
        let spans = |times: &str| -> u64 {
            let mut top = Command::new(tested_program());
            let output = top.args(["top", "syscall", "--time", times, "--input"]).arg(&path).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let count = text.split(" spans in ").next().and_then(|text| text.rsplit(' ').next()?.parse().ok());
            count.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
        };
        // On a busy machine, half of the time may have fewer samples than the other half.
        let found = ["0%-100%", &time_of_half(&path)].map(spans);
        assert!(Command::new("umount").arg(&disk).status().unwrap().success());
        assert!(said.contains("No space left on device"), "{said}");
        assert!(found[0] > 5000 && found[1] > found[0] / 4, "{options:?}: {found:?}");
    }
}

/// A dump is written in the order of time, whichever rings its samples come from. So the samples that could not be written
/// come after all others.
#[test]
fn a_full_disk_takes_no_spans_of_a_dump_from_before() {
    needs([Need::Tracefs, Need::TwoCpus]);
    // On a busy machine, the commands may make too few calls for a full disk.
    assert!((0..4).any(|_| fills_a_disk_with_a_dump()), "the disk was not full");
}

/// Returns whether the dump of two commands filled a disk. Then checks the dump.
fn fills_a_disk_with_a_dump() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let disk = mount_disk(&dir, "2m");
    // The ring of each CPU gets more samples than the disk has space for, and fewer than it holds: the oldest samples of a ring
    // that is full are gone, and spans beside them are missing.
    let dd = "dd if=/dev/zero of=/dev/null bs=1 status=none";
    let work = format!("for cpu in 0 1; do timeout 1 taskset -c $cpu {dd} & done; wait");
    let folder = format!("{}/", disk.display());
    let args = ["-q", "--before", "60s", "-e", "syscall", "-o", &folder, "--", "sh", "-c", &work];
    let output = command(&dir, &args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let dumps: Vec<_> = fs::read_dir(&disk).unwrap().map(|entry| entry.unwrap().path()).collect();
    let mut top = Command::new(tested_program());
    let output = top.args(["top", "syscall", "--json", "-q", "--input"]).args(&dumps).output().unwrap();
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    assert_eq!(dumps.len(), 1, "{said}");
    if !said.contains("No space left on device") {
        return false;
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let total: Json = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let [spans, missing] = ["events", "missing"].map(|member| total[member].as_u64().unwrap());
    assert!(total["partial"] == true && spans > 1000 && missing < spans / 10, "{total} {said}");
    true
}

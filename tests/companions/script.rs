//! The text of recordings, line by line beside what the real `perf script` prints of them.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::harness::{can_record, ours, perf, perf_prof, record, stdout};

/// Where names of functions differ, and why: `docs/recordings.md` lists the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    /// There are none: the text is equal to the byte.
    None,
    /// The same places, some by another name.
    Differ,
    /// User frames are unwound by each in its own way; all else is the same.
    Unwound,
}

/// Records with these arguments and compares.
#[track_caller]
fn check(args: &[&str], names: Names) {
    if can_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.data");
        record(&path, args);
        compare(&path, &[], names);
    }
}

#[track_caller]
fn compare(path: &Path, options: &[&str], names: Names) {
    let args = [&["script"], options].concat();
    let (perf, ours) = (without_last_frames(perf(&args, path)), without_last_frames(ours(&args, path)));
    let (perf, ours) = match names {
        Names::Unwound => (without_user_frames(perf), without_user_frames(ours)),
        Names::None | Names::Differ => (perf, ours),
    };
    let ours = if names == Names::None { ours } else { without_damaged_chains(&perf, ours) };
    assert!(perf.len() > 10, "perf shows {} lines", perf.len());
    let mut explained = 0;
    for (at, (perf, ours)) in perf.iter().zip(&ours).enumerate() {
        if perf == ours {
            continue;
        }
        let same_place = || without_name(perf).is_some_and(|place| Some(place) == without_name(ours));
        let same = names != Names::None && (same_place() || is_of_before_exec(ours) || is_deleted(perf));
        assert!(same, "line {}:\n{perf}\n{ours}", at + 1);
        explained += 1;
    }
    assert_eq!(ours.len(), perf.len());
    println!("{} lines, {explained} with another name", perf.len());
}

/// perf counts its markers too when it takes 127 entries of a call chain, and so leaves out the last frames of long ones.
fn without_last_frames(lines: Vec<String>) -> Vec<String> {
    let mut frames = 0;
    let is_among_first = |line: &String| {
        frames = if line.starts_with('\t') { frames + 1 } else { 0 };
        frames <= 120
    };
    lines.into_iter().filter(is_among_first).collect()
}

/// A chain of a program without frame pointers may hold any number, also one that only a mark between kernel and program
/// could be: perf leaves such a chain out.
fn without_damaged_chains(perf: &[String], ours: Vec<String>) -> Vec<String> {
    let mut perf = perf.iter().peekable();
    let mut has_chain = true;
    let mut kept = Vec::new();
    for line in ours {
        if line.starts_with('\t') {
            // Of each event both have a first line.
            has_chain = perf.next_if(|line| line.starts_with('\t')).is_some() || (has_chain && perf.peek().is_none());
            if !has_chain {
                continue;
            }
        } else {
            perf.by_ref().find(|line| !line.starts_with('\t'));
        }
        kept.push(line);
    }
    kept
}

/// Frames of programs, whose addresses are those in their files.
fn without_user_frames(lines: Vec<String>) -> Vec<String> {
    let is_user = |line: &String| line.starts_with('\t') && !line.ends_with("([kernel.kallsyms])");
    lines.into_iter().filter(|line| !is_user(line)).collect()
}

/// A line with a place, without the function's name: perf and the kernel choose among several names of one place in
/// different ways, the function of a return address is looked up at the address by perf and at the call by us, and some
/// names of PLT entries and of large files only one of the two knows.
fn without_name(line: &str) -> Option<(String, String)> {
    let (begin, dso) = line.rsplit_once(" (")?;
    let is_number = |word: &&str| u64::from_str_radix(word, 16).is_ok();
    let addr = match line.starts_with('\t') {
        true => begin.split_whitespace().next().filter(is_number)?,
        // Behind the time and the event's name.
        false => {
            let mut words = begin.split_whitespace();
            words.by_ref().filter(|word| word.ends_with(':')).nth(1)?;
            words.filter(|word| word.len() > 5).find(is_number)?
        }
    };
    let at = begin.find(addr)? + addr.len();
    Some((begin[..at].to_owned(), dso.to_owned()))
}

/// Between exec and the first instruction of the new program, a call chain still has the caller's address, which is in
/// none of the new program's mappings. perf looks it up in the old ones.
fn is_of_before_exec(ours: &str) -> bool {
    ours.starts_with('\t') && ours.ends_with(" [unknown] ([unknown])")
}

/// A file that had been removed when it was mapped: of other programs that ran meanwhile.
fn is_deleted(perf: &str) -> bool {
    perf.ends_with(" (deleted))")
}

const SLEEP: [&str; 4] = ["-a", "--", "sleep", "0.3"];
const LS: [&str; 4] = ["--", "ls", "-lR", "/usr/lib"];

#[test]
fn one_event() {
    check(&[&["-e", "sched:sched_wakeup"][..], &SLEEP].concat(), Names::None);
}

#[test]
fn several_events() {
    check(
        &[&["-e", "sched:sched_switch,sched:sched_wakeup,sched:sched_process_exit,irq:*"][..], &SLEEP].concat(),
        Names::None,
    );
}

#[test]
fn tracepoints_with_call_chains() {
    check(&[&["-g", "-e", "sched:sched_switch"][..], &SLEEP].concat(), Names::Differ);
}

#[test]
fn several_events_with_call_chains() {
    check(
        &[&["-g", "-e", "sched:sched_wakeup,sched:sched_switch", "-e", "cpu-clock,page-faults"][..], &LS].concat(),
        Names::Differ,
    );
}

#[test]
fn one_of_several_events_with_call_chains() {
    let events = ["-e", "sched:sched_switch/call-graph=fp/", "-e", "sched:sched_wakeup", "-e", "cpu-clock"];
    check(&[&events[..], &LS].concat(), Names::Differ);
}

#[test]
fn copies_of_stacks() {
    check(&[&["--call-graph", "dwarf", "-e", "cpu-clock"][..], &LS].concat(), Names::Unwound);
}

#[test]
fn compressed() {
    check(&[&["-z", "-e", "sched:sched_switch"][..], &SLEEP].concat(), Names::None);
}

#[test]
fn a_directory() {
    check(&[&["--threads", "-e", "sched:sched_switch"][..], &SLEEP].concat(), Names::None);
}

#[test]
fn a_compressed_directory() {
    check(&[&["--threads", "-z", "-e", "sched:sched_switch"][..], &SLEEP].concat(), Names::None);
}

fn check_pipe(args: &[&str]) {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe.data");
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-o", "-"]).args(args).stdout(File::create(&path).unwrap()).stderr(Stdio::null());
    assert!(command.status().unwrap().success());
    compare(&path, &[], Names::None);
    let mut ours = perf_prof(&["script", "-i", "-"]);
    let ours = ours.stdin(File::open(&path).unwrap()).output().unwrap();
    assert_eq!(stdout(&ours), perf(&["script"], &path));
}

#[test]
fn a_pipe() {
    check_pipe(&[&["-e", "sched:sched_switch,sched:sched_wakeup"][..], &SLEEP].concat());
}

#[test]
fn a_compressed_pipe() {
    check_pipe(&[&["-z", "-e", "sched:sched_switch"][..], &SLEEP].concat());
}

#[test]
fn switches_as_side_band() {
    check(&[&["--switch-events", "-e", "cpu-clock", "-e", "sched:sched_wakeup"][..], &LS].concat(), Names::Differ);
}

#[test]
fn a_group_that_the_leader_samples() {
    check(&[&["-e", "{cpu-clock,context-switches,page-faults}:S", "-a"][..], &LS].concat(), Names::Differ);
}

#[test]
fn registers() {
    check(&[&["--intr-regs", "-e", "cpu-clock"][..], &LS].concat(), Names::Differ);
}

/// Without CPUs in the samples, lines have none.
#[test]
fn a_command_by_thread() {
    check(&[&["-e", "cpu-clock,page-faults"][..], &LS].concat(), Names::Differ);
}

/// The kernel's own text of system calls is not what their print format says, which perf shows.
#[test]
fn system_calls() {
    check(&["-e", "syscalls:*", "--", "ls", "-l", "/"], Names::None);
}

#[test]
fn a_process() {
    if !can_record() {
        return;
    }
    let mut busy = Command::new("sh").args(["-c", "while :; do /bin/true; done"]).spawn().unwrap();
    let pid = busy.id().to_string();
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("perf.data");
    record(&path, &["-e", "syscalls:sys_enter_*", "-p", &pid, "--", "sleep", "0.2"]);
    busy.kill().unwrap();
    busy.wait().unwrap();
    compare(&path, &[], Names::None);
}

#[test]
fn options() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &[&["-g", "-e", "sched:sched_switch,cpu-clock"][..], &SLEEP].concat());
    compare(&path, &["--ns"], Names::Differ);
    compare(&path, &["-G"], Names::Differ);
    compare(&path, &["-C", "0", "-G", "-F", "comm,tid,time,event"], Names::None);
    compare(&path, &["-F", "pid,tid,cpu,time,period,event,trace", "--time", "10%/2"], Names::None);
}

/// `| head` is no failure.
#[test]
fn a_closed_pipe_is_a_quiet_end() {
    if !can_record() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    record(&path, &[&["-e", "sched:sched_switch,irq:*,timer:*"][..], &SLEEP].concat());
    let mut ours =
        perf_prof(&["script", "-i"]).arg(&path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(ours.stdout.take());
    let output = ours.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn errors_name_what_is_wrong() {
    let said = |args: &[&str]| {
        let output = perf_prof(&["script"]).args(args).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, text) = said(&["-i", "not-there.data"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("not-there.data"), "{text}");
    let (status, text) = said(&["-F", "tme"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("there is no field `tme`; fields are comm, pid,"), "{text}");
    let (status, text) = said(&["--time", "5,3"]);
    assert_eq!((status, text.contains("ends before it begins")), (Some(2), true), "{text}");
}

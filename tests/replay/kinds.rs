//! Replays of all kinds of recordings. Events and their order are the same as in `perf script`.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::harness::{
    machine::{Need, needs, skip},
    recording::{Folder, LIST, perf_script, python, record, record_pipe},
    run::{stdout, tested_program},
    wait::Killed,
};

const SWITCHES: [&str; 3] = ["-e", "sched:sched_switch", "-a"];
const SLEEP: [&str; 3] = ["--", "sleep", "0.3"];

/// Records with these arguments, and compares all events with the events that `perf script` lists.
#[track_caller]
fn check(args: &[&str]) {
    needs([Need::Perf]);
    let folder = Folder::new();
    let data = folder.path("perf.data");
    record(&data, args);
    compare(&folder, &data, args);
}

#[track_caller]
fn compare(folder: &Folder, data: &Path, args: &[&str]) {
    let script = folder.write("list.py", LIST.as_bytes());
    let mut expected = perf_script(data);
    let output = python(&["-q", "--input", data.to_str().unwrap(), script.to_str().unwrap()]);
    let mut found: Vec<String> = stdout(&output).lines().map(str::to_owned).collect();
    if data.is_dir() {
        // perf shows events of several CPUs in the same nanosecond in the order of the files in the directory.
        let words = |line: &str| line.split(' ').map(|word| word.parse().unwrap_or(0)).collect::<Vec<u64>>();
        assert!(found.is_sorted_by_key(|line| words(line)[0]), "{args:?}");
        let by_time_and_cpu = |line: &String| (words(line)[0], words(line)[1]);
        [&mut found, &mut expected].into_iter().for_each(|lines| lines.sort_by_key(by_time_and_cpu));
    }
    assert!(expected.len() > 10, "{args:?}: perf shows only {} events", expected.len());
    assert_eq!(found.len(), expected.len(), "{args:?}\n{}", String::from_utf8_lossy(&output.stderr));
    let first = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(first, None, "{args:?}: {:?} {:?}", found[first.unwrap_or(0)], expected[first.unwrap_or(0)]);
}

/// Records into a pipe with these arguments. Replays the stream from a file and from a pipe.
fn check_pipe(args: &[&str]) {
    needs([Need::Perf]);
    let folder = Folder::new();
    let data = folder.path("pipe.data");
    record_pipe(&data, args);
    compare(&folder, &data, args);
    let script = folder.write("list.py", LIST.as_bytes());
    let mut cat = Command::new("cat").arg(&data).stdout(Stdio::piped()).spawn().unwrap();
    let output = Command::new(tested_program())
        .args(["python", "-q", "--input", "-"])
        .arg(&script)
        .stdin(cat.stdout.take().unwrap())
        .output()
        .unwrap();
    cat.wait().unwrap();
    assert_eq!(stdout(&output).lines().collect::<Vec<_>>(), perf_script(&data));
}

#[test]
fn one_event() {
    // An idle machine has few events, so the command causes some.
    let wakes_up = ["--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 0.02; done"];
    check(&[&["-e", "sched:sched_wakeup", "-a"][..], &wakes_up].concat());
}

#[test]
fn several_events_with_call_chains() {
    let events = ["-g", "-e", "sched:sched_wakeup", "-e", "sched:sched_switch", "-e", "cpu-clock", "-a"];
    check(&[&events[..], &SLEEP].concat());
}

#[test]
fn copies_of_stacks() {
    check(&[&["--call-graph", "dwarf", "-e", "cpu-clock", "-a"][..], &SLEEP].concat());
}

#[test]
fn compressed() {
    check(&[&["-z"][..], &SWITCHES, &SLEEP].concat());
}

#[test]
fn a_directory() {
    check(&[&["--threads"][..], &SWITCHES, &SLEEP].concat());
}

#[test]
fn a_compressed_directory() {
    check(&[&["--threads", "-z"][..], &SWITCHES, &SLEEP].concat());
}

#[test]
fn a_pipe() {
    check_pipe(&[&SWITCHES[..], &SLEEP].concat());
}

#[test]
fn a_compressed_pipe() {
    check_pipe(&[&["-z"][..], &SWITCHES, &SLEEP].concat());
}

#[test]
fn switches_as_side_band() {
    check(&[&["--switch-events", "-e", "cpu-clock", "-e", "sched:sched_wakeup", "-a"][..], &SLEEP].concat());
}

#[test]
fn a_group_that_the_leader_samples() {
    check(&[&["-e", "{cpu-clock,context-switches,page-faults}:S", "-a"][..], &SLEEP].concat());
}

/// With `-c`, perf's samples contain no period, because it is the same for all of them.
#[test]
fn periods_that_are_only_in_the_attr_are_delivered() {
    needs([Need::Perf]);
    let folder = Folder::new();
    let data = folder.path("perf.data");
    let busy = "i=0; while [ $i -lt 50 ]; do /bin/true; i=$((i + 1)); done";
    record(&data, &["-a", "-c", "10", "-e", "page-faults", "--", "sh", "-c", busy]);
    let path = data.to_str().unwrap();
    let sum = "n = 0\ndef page_faults(e):\n    global n\n    n += 1\n    assert e._period == e.period == e['period'] == 10\n\
               def __exit__():\n    print(n)\n";
    let script = folder.write("sum.py", sum.as_bytes());
    let samples = stdout(&python(&["-q", "--input", path, script.to_str().unwrap()]));
    let samples: usize = samples.trim().parse().unwrap();
    let lines = |program: &str| {
        let mut command = Command::new(program);
        let output = command.args(["script", "-F", "tid,time,period,event", "-i", path]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let expected = lines("perf");
    assert!(samples > 10 && samples == expected.lines().count(), "{samples}: {expected}");
    assert!(expected.lines().all(|line| line.contains(" 10 page-faults:")), "{expected}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&lines(tested_program())), words(&expected));
}

#[test]
fn registers() {
    check(&[&["--intr-regs", "-e", "cpu-clock", "-a"][..], &SLEEP].concat());
}

#[test]
fn a_process() {
    needs([Need::Perf]);
    let busy = "i=0; while [ $i -lt 20000 ]; do /bin/true; i=$((i + 1)); done";
    let child = Killed(Command::new("sh").args(["-c", busy]).spawn().unwrap());
    let events = ["-e", "sched:sched_process_fork", "-e", "syscalls:sys_enter_exit_group", "-p"];
    // The recording lasts until the work is done, so the traced process makes enough progress even on a slow machine.
    let work = "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i + 1)); done";
    check(&[&events[..], &[&child.0.id().to_string()], &["--", "sh", "-c", work]].concat());
}

#[test]
fn a_command() {
    check(&["-e", "syscalls:sys_enter_openat", "-e", "syscalls:sys_enter_mmap", "--", "ls", "-l", "/"]);
}

/// System calls must get the names of the recorded architecture, not the names of this machine.
#[test]
fn system_calls_have_the_names_of_the_recorded_architecture() {
    needs([Need::Perf]);
    let folder = Folder::new();
    let data = folder.path("perf.data");
    record(&data, &[&SWITCHES[..], &SLEEP].concat());
    // The feature section ARCH contains a text that is followed by zeros.
    let [here, there] = [b"x86_64\0\0", b"aarch64\0"];
    let mut bytes = std::fs::read(&data).unwrap();
    let Some(at) = bytes.windows(here.len()).rposition(|window| window == here) else {
        skip(Need::Vdso, "not recorded on x86-64");
    };
    let script = folder.write(
        "names.py",
        b"from perf_prof import *\ndef __sample__(e): pass\n\
          def __exit__(): print(syscall_name(0), syscall_name(63), syscall_name(9999), syscall_nr('read'))\n",
    );
    let names = || stdout(&python(&["-q", "--input", data.to_str().unwrap(), script.to_str().unwrap()]));
    assert_eq!(names(), "read uname sys_9999 0\n");
    bytes[at..at + there.len()].copy_from_slice(there);
    std::fs::write(&data, bytes).unwrap();
    assert_eq!(names(), "io_setup read sys_9999 63\n");
}

//! Strings of system calls: what a program opened, compared with what the program itself knows.

use std::{ffi::OsStr, process::Command};

use crate::{
    cgroups::{live, shell_in},
    harness::{
        cgroup::Cgroup,
        machine::{Need, needs},
        recording::Folder,
        run::{perf_prof, said, stdout},
        script::{Run, workload},
    },
};

const OPENAT: &str = "syscalls:sys_enter_openat//str=filename/";

/// A script that prints the strings that start with a folder that does not exist.
const SCRIPT: &str = "
def syscalls__sys_enter_openat(e):
    if (e.filename_str or '').startswith('/strings/'): print(e.filename_str, e.filename_cut, e.flags, e._period)
";

#[test]
fn a_script_gets_the_names_of_the_files_that_a_command_opens() {
    super::needs_bpf();
    let long = format!("/strings/{}", "x".repeat(400));
    let operations = format!("open /strings/a open /strings/b open {long} fork open /strings/c");
    let run = Run::script(SCRIPT).event(OPENAT).options(["-q", "--order", "--record", "r.data"]).workload(&operations);
    let outcome = run.run();
    let cut = format!("{}...", &long[..252]);
    let expected = format!("/strings/a False 0 1\n/strings/b False 0 1\n{cut} True 0 1\n/strings/c False 0 1\n");
    assert_eq!(outcome.stdout, expected, "{}", outcome.stderr);
    let recording = run.path("r.data");
    let replayed =
        Run::script(SCRIPT).event("syscalls:sys_enter_openat").options(["-q", "--input"]).options([&recording]);
    assert_eq!(replayed.run().stdout, expected);
}

/// BPF programs apply the filter of the kernel's events.
#[test]
fn only_events_that_pass_the_filter_are_written() {
    super::needs_bpf();
    let event = "syscalls:sys_enter_openat/flags == 1/str=filename/";
    let run = Run::script(SCRIPT).event(event).options(["-q"]).workload("open /strings/a");
    assert_eq!(run.run().stdout, "");
}

#[test]
fn an_address_without_a_string_has_none() {
    super::needs_bpf();
    let script = "
def syscalls__sys_enter_openat(e):
    if e.filename == 1: print(e.filename_str, e['filename_str'], e.get('filename_str', 'default'))
";
    let operations = format!("syscall {} 3 1 0", libc::SYS_openat);
    let run = Run::script(script).event(OPENAT).options(["-q"]).workload(&operations);
    let outcome = run.run();
    assert_eq!(outcome.stdout, "None None None\n", "{}", outcome.stderr);
}

/// Other tasks open files at the same time.
#[test]
fn the_selected_cgroup_is_that_of_the_other_events() {
    super::needs_bpf();
    needs([Need::Cgroups]);
    let (own, other) = (Cgroup::new(), Cgroup::new());
    let commands = [shell_in(&own, &["open /strings/own"]), shell_in(&other, &["open /strings/other"])];
    let (_, outcome) = live(SCRIPT, OPENAT, &["--cgroups", &own.name], &commands);
    assert_eq!(outcome.stdout, "/strings/own False 0 1\n", "{}", outcome.stderr);
}

/// The process creates a child that opens the file. Another process opens one too.
#[test]
fn a_process_is_selected_with_the_children_that_it_creates() {
    super::needs_bpf();
    let folder = Folder::new();
    let fifo = folder.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let opens = |name: &str| {
        workload(&format!("open /strings/{name}")).iter().map(|word| format!("'{word}' ")).collect::<String>()
    };
    let waits = format!("read line < {}; {}; exit", fifo.display(), opens("own"));
    let mut target = Command::new("sh").args(["-c", &waits]).spawn().unwrap();
    let goes = format!("{}; echo go > {}", opens("other"), fifo.display());
    let commands = [["sh", "-c", &goes].map(str::to_owned).to_vec()];
    let (_, outcome) = live(SCRIPT, OPENAT, &["-p", &target.id().to_string()], &commands);
    assert_eq!(outcome.stdout, "/strings/own False 0 1\n", "{}", outcome.stderr);
    target.wait().unwrap();
}

/// A script that prints the strings of the calls of the source `syscall`.
const CALLS: &str = "
def syscall(e):
    text = e.filename_str if e.pathname_str is None else e.pathname_str
    if text and text.startswith('/strings/'): print(e.name, text, e.errno, e.newname_str)
";

#[test]
fn a_source_has_the_strings_of_any_call_also_when_it_is_replayed() {
    super::needs_bpf();
    let operations = format!("open /strings/a syscall {} 0 0 0 open /strings/b", libc::SYS_unlink);
    let run = Run::script(CALLS).event("syscall/str/").options(["-q", "--record", "r.data"]).workload(&operations);
    let outcome = run.run();
    assert_eq!(outcome.stdout, "openat /strings/a ENOENT None\nopenat /strings/b ENOENT None\n", "{}", outcome.stderr);
    let replay = |event: &str, options: &[&str]| {
        let run = Run::script(CALLS).event(event).options(["-q", "--input", run.path("r.data").to_str().unwrap()]);
        run.options(options).run()
    };
    assert_eq!(replay("syscall", &[]).stdout, outcome.stdout);
    let filtered = replay("syscall/filename_str ~ \"*/b\"/str/", &[]);
    assert_eq!(filtered.stdout, "openat /strings/b ENOENT None\n", "{}", filtered.stderr);
}

#[test]
fn a_recording_without_strings_says_so() {
    super::needs_bpf();
    let script = "def syscall(e):\n    if e.nr == 257: print(e.filename_str)\n";
    let run = Run::script(script).event("syscall").options(["-q", "--record", "r.data"]).workload("open /strings/a");
    let outcome = run.run();
    // Without `str`, events have no such member.
    assert!(outcome.stderr.contains("filename_str"), "{}", outcome.stderr);
    let path = run.path("r.data");
    let replayed = Run::script(script).event("syscall/str/").options([OsStr::new("--input"), path.as_os_str()]).run();
    assert!(replayed.stdout.lines().all(|line| line == "None"), "{}", replayed.stdout);
    assert!(replayed.stderr.contains("has no strings of system calls, so they are None"), "{}", replayed.stderr);
}

#[test]
fn a_recording_with_strings_is_one_that_perf_reads() {
    super::needs_bpf();
    needs([Need::Perf]);
    let folder = Folder::new();
    let path = folder.path("r.data");
    let mut command = perf_prof(&["record", "-q", "-e", OPENAT, "-o"]);
    let output = command.arg(&path).arg("--").args(workload("open /strings/a open /strings/b")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let own = stdout(&perf_prof(&["script", "-i"]).arg(&path).output().unwrap());
    let perf = Command::new("perf").args(["script", "-i"]).arg(&path).output().unwrap();
    let perf = String::from_utf8(perf.stdout).unwrap();
    // perf only knows the print format.
    for (text, before) in [(&own, ""), (&perf, "filename_str: ")] {
        let names = ["/strings/a", "/strings/b"].map(|name| text.matches(&format!("{before}\"{name}\"")).count());
        assert_eq!(names, [1, 1], "{text}");
    }
}

#[test]
fn what_cannot_have_strings_is_refused() {
    super::needs_bpf();
    let refused = |event: &str| {
        let output = perf_prof(&["trace", "-e", event, "--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        said(&output)
    };
    for (event, text) in [
        ("syscalls:sys_enter_openat//str=flags/", "does not point to a string; fields that do: filename"),
        ("syscalls:sys_enter_openat//str=path/", "has no field `path`; its fields that point to strings: filename"),
        ("{syscalls:sys_enter_openat//str=filename/,sched:sched_switch}", "cannot be in a group"),
        ("sched:sched_process_exec//str=pid/", "has no fixed size"),
        ("syscalls:sys_enter_openat/filename_str ~ \"/etc/*\"/str=filename/", "the length of `filename_str` differs"),
    ] {
        let said = refused(event);
        assert!(said.contains(text), "{event}: {said}");
    }
}

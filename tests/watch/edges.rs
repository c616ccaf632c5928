//! Spans at the edges of a recording and of the selected time (`--time`).

use std::{ffi::OsStr, fs::File, process::Command};

use serde_json::Value as Json;

use super::replay;
use crate::harness::{
    counting::objects,
    machine::{Need, needs},
    recording::{Folder, record_here},
    run::{perf_prof, printed, said},
    script::{Run, workload},
    wait,
};

/// The span from `getpgid` to `getsid`, which only tests call. Their argument is the key.
const PAIR: &str = "span:pair=syscalls:sys_enter_getpgid..syscalls:sys_enter_getsid//key=pid";

/// Records both events of [`PAIR`] in a workload.
fn record_pair(folder: &Folder, operations: &str) -> std::path::PathBuf {
    needs([Need::Tracefs]);
    let path = folder.path("pair.data");
    let command = workload(operations);
    let args = ["-e", "syscalls:sys_enter_getpgid", "-e", "syscalls:sys_enter_getsid", "--"];
    record_here(&path, &args.into_iter().chain(command.iter().map(String::as_str)).collect::<Vec<_>>());
    path
}

fn total(path: &std::path::Path, args: &[&str]) -> Json {
    objects(&replay("top", path, &[&["--json"], args].concat()).join("\n")).pop().unwrap()
}

/// The workload makes no call after the span begins, like a process that hangs.
#[test]
fn an_open_span_lasts_until_the_recording_ended_and_not_until_its_last_event() {
    let folder = Folder::new();
    let path = record_pair(&folder, "call 3 sleep-ms 100");
    let selector = format!("{PAIR}/open/");
    let object = total(&path, &["--by", "pid", &selector]);
    let row = &object["rows"][0];
    assert_eq!((&row["pid"], &row["count"]), (&3.into(), &1.into()), "{object}");
    assert!(row["total"].as_u64() >= Some(100_000_000), "{object}");
    assert_eq!((&object["partial"], &object["unfinished"]), (&true.into(), &1.into()), "{object}");
    let lines = replay("top", &path, &["--by", "pid", &selector]);
    assert!(lines[0].starts_with("total: at least 1 span "), "{lines:?}");
    assert!(lines.contains(&"(at least: 1 span had not ended at the end, and lasts longer)".to_owned()), "{lines:?}");
    // `min=` keeps it too.
    let long = format!("{PAIR}/min=50ms/open/");
    assert_eq!(replay("trace", &path, &["-e", &long]).len(), 1);
}

/// Times of spans that had not ended are too short. Their numbers and other fields are complete.
#[test]
fn open_spans_make_tables_and_pictures_of_times_in_scripts_lower_bounds() {
    const TEXT: &str = "
from perf_prof import Count, FlameGraph, Heatmap, Hist, Sum, Top
tables = [Sum('duration', 'pid'), Hist('duration'), Top(1, 'duration'), Count('pid'), Sum('pid'), Top(1, 'pid')]
pictures = [FlameGraph(count_name='ns'), Heatmap(), FlameGraph(), Heatmap(unit='bytes')]
def add(event):
    for picture in pictures:
        picture.add(*([('f',), event.duration] if isinstance(picture, FlameGraph) else [event._time, event.duration]))
span__pair = [*tables, add]
def __exit__():
    for table in tables: print('1 span had not ended at the end' in table._repr_html_(), end=' ')
    print()
    for picture in pictures: print('1 span had not ended at the end' in picture._repr_svg_(), end=' ')
    print()
";
    let folder = Folder::new();
    let path = record_pair(&folder, "call 3");
    let run = Run::script(TEXT).event(format!("{PAIR}/open/")).options([OsStr::new("--input"), path.as_os_str()]);
    let outcome = run.run();
    let expected = "True True True False False False \nTrue True False False \n";
    assert_eq!((outcome.status, outcome.stdout.as_str()), (0, expected), "{}", outcome.stderr);
}

/// The span begins in the first half, and ends in the second one.
#[test]
fn a_span_belongs_to_the_time_in_which_it_ends() {
    let folder = Folder::new();
    let path = record_pair(&folder, &format!("call 1 sleep-ms 100 syscall {} 1 0 0", libc::SYS_getsid));
    let selector = format!("{PAIR}/");
    let spans = |command: &str, time: &str| {
        let args = ["--json", "--by", "pid", &selector, "--time", time];
        let object = objects(&replay(command, &path, &args).join("\n")).pop().unwrap();
        object["events"].as_u64().unwrap()
    };
    for command in ["top", "hist"] {
        let halves = ["0%-50%", "50%-100%", "0%-100%"].map(|time| spans(command, time));
        assert_eq!(halves, [0, 1, 1], "{command}");
    }
    let object = total(&path, &["--by", "pid", &selector, "--time", "50%-100%"]);
    assert!(object["rows"][0]["max"].as_u64() >= Some(100_000_000), "{object}");
    let lines = |time: &str| replay("trace", &path, &["-e", &selector, "--time", time]).len();
    assert_eq!(["0%-50%", "50%-100%"].map(lines), [0, 1]);
}

/// One span goes from the first range into the hole, and one from the hole into the second range. Only the last is in a range.
#[test]
fn a_span_does_not_go_on_over_the_time_between_two_ranges() {
    let folder = Folder::new();
    let end = |pid: u32| format!("syscall {} {pid} 0 0", libc::SYS_getsid);
    let operations = format!("call 1 sleep-ms 100 {} call 1 sleep-ms 100 {} call 2 {}", end(1), end(1), end(2));
    let path = record_pair(&folder, &operations);
    let selector = format!("{PAIR}/");
    assert_eq!(total(&path, &["--by", "pid", &selector])["events"], 3);
    for ranges in ["0%-20%,80%-100%", "80%-100%,0%-20%"] {
        let object = total(&path, &["--by", "pid", &selector, "--time", ranges]);
        assert_eq!((&object["events"], &object["rows"][0]["pid"]), (&1.into(), &2.into()), "{object}");
        assert_eq!(object["partial"], true, "{object}");
        let output = perf_prof(&["top", &selector, "--time", ranges, "--input"]).arg(&path).output().unwrap();
        let text = "spans: they were open at the end of a range of --time, and what follows it is not read\n";
        assert!(said(&output).contains(text), "{}", said(&output));
    }
    // Without a hole between them, two ranges are as one.
    let object = total(&path, &["--by", "pid", &selector, "--time", "0%-20%,20%-100%"]);
    assert_eq!((&object["events"], &object["partial"]), (&3.into(), &false.into()), "{object}");
}

/// A task waits in read() when the recording begins. The command of the recording writes what it waits for.
#[test]
fn a_call_that_began_before_the_recording_is_told() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let (path, fifo) = (folder.path("calls.data"), folder.path("fifo"));
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = Command::new("sh").args(["-c", "exec < \"$0\"; read a; read b"]).arg(&fifo).spawn().unwrap();
    let reader = wait::Killed(reader);
    // While the pipe is open for writing, the second read() waits.
    let _writer = File::options().write(true).open(&fifo).unwrap();
    let (pid, waits) = (reader.0.id().to_string(), format!("{} ", libc::SYS_read));
    let call = || std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    wait::until("the task waits in read()", || call().starts_with(&waits));
    let events = ["-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit", "-p", &pid];
    let command = ["--", "sh", "-c", "sleep 0.1; echo > \"$0\"; sleep 0.1", fifo.to_str().unwrap()];
    record_here(&path, &[&events[..], &command].concat());
    let object = total(&path, &["syscall/name=read/"]);
    assert_eq!((&object["begun_before"], &object["partial"]), (&1.into(), &false.into()), "{object}");
    // The end is the first event of the recording, so nothing shows how long the call lasted.
    assert_eq!(object["begun_before_time"], Json::Null, "{object}");
    for command in [&["top", "syscall/name=read/"][..], &["trace", "-e", "syscall/name=read/"]] {
        let output = perf_prof(command).arg("--input").arg(&path).output().unwrap();
        let told = "1 span ended that began before the recording: it is not counted";
        assert!(said(&output).contains(told), "{}", said(&output));
    }
    // The next read() waits until the end.
    let open = total(&path, &["syscall/name=read,open/"]);
    assert_eq!((&open["events"], &open["unfinished"]), (&1.into(), &1.into()), "{open}");
}

/// A filter leaves the entries of one call out, as damage may.
#[test]
fn a_call_without_its_entry_makes_tables_partial() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("calls.data");
    let enter = format!("raw_syscalls:sys_enter/id != {}/", libc::SYS_getsid);
    let command = workload(&format!("call 1 syscall {} 0 0 0", libc::SYS_getsid));
    let args = ["-e", &enter, "-e", "raw_syscalls:sys_exit", "--"];
    record_here(&path, &args.into_iter().chain(command.iter().map(String::as_str)).collect::<Vec<_>>());
    let object = total(&path, &["syscall/name=getsid/"]);
    assert_eq!((&object["partial"], &object["missing"]), (&true.into(), &1.into()), "{object}");
    let output = perf_prof(&["top", "syscall", "--input"]).arg(&path).output().unwrap();
    let lines = printed(&output);
    let why = "1 span lacks its begin or its end in the recording";
    assert!(lines[0].starts_with("total: at least ") && lines.iter().any(|line| line.contains(why)), "{lines:?}");
    // Of other calls none is known to be missing. The filter may have left some out.
    let other = total(&path, &["syscall/name=getpgid/"]);
    assert_eq!((&other["partial"], &other["missing"]), (&true.into(), &0.into()), "{other}");
}

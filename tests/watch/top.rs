//! `perf-prof top`: counts by keys.

use std::{fs, process::Stdio};

use serde_json::Value as Json;

use super::{json, recording, replay, run};
use crate::harness::{
    counting::{CALL, Waiting, objects, words},
    machine::{Need, needs},
    recorder::await_events,
    recording::{Folder, record_here},
    run::{PATIENCE, perf_prof, printed, said, stdout, with_patience},
    script::workload,
};

/// Returns the counts of the rows of an object.
fn counts(object: &Json) -> Vec<u64> {
    object["rows"].as_array().unwrap().iter().map(|row| row["count"].as_u64().unwrap()).collect()
}

#[test]
fn events_are_counted_by_task() {
    needs([Need::Tracefs]);
    let lines = printed(&run(&["top", CALL], &words(1234, 0, 0)));
    assert!(lines[0].starts_with("total: 1234 events in "), "{lines:?}");
    assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["comm", "count", "share", "per", "second"]);
    let row: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(row[..3], ["wide", "1234", "100.0%"]);
    assert!(row[3].parse::<f64>().unwrap() > 0.0, "{row:?}");
    assert_eq!(lines[3..], [""]);
}

/// The event's field `pid` is not the process that makes the call.
#[test]
fn keys_are_fields_or_what_all_events_have() {
    needs([Need::Tracefs]);
    let work = words(40, 2, 1);
    let by_field = json(&["top", CALL, "--by", "pid"], &work);
    assert_eq!(counts(&by_field[0]), [4; 40]);
    let mut pids: Vec<u64> =
        by_field[0]["rows"].as_array().unwrap().iter().map(|row| row["pid"].as_u64().unwrap()).collect();
    pids.sort_unstable();
    assert!(pids.into_iter().eq(0..40));
    // The main thread and two other threads are one process, and the child is another.
    assert_eq!(counts(&json(&["top", CALL, "--by", "_pid"], &work)[0]), [120, 40]);
    assert_eq!(counts(&json(&["top", CALL, "--by", "tid"], &work)[0]), [40; 4]);
    let both = json(&["top", CALL, "--by", "event,comm"], &work);
    assert_eq!((&both[0]["rows"][0]["event"], &both[0]["rows"][0]["comm"]), (&CALL.into(), &"wide".into()));
    assert_eq!((&both[0]["rows"][0]["share"], &both[0]["kind"]), (&1.0.into(), &"total".into()));
}

#[test]
fn fields_are_added_up_by_key_and_the_largest_sum_comes_first() {
    needs([Need::Tracefs]);
    let work = words(40, 2, 1);
    let sums = |args: &[&str]| -> Vec<Vec<i64>> {
        let object = &json(&[&["top", CALL], args].concat(), &work)[0];
        let of_row = |row: &Json| {
            let sums = row["sums"].as_object().unwrap().values().map(|sum| sum.as_i64().unwrap());
            [row["count"].as_i64().unwrap()].into_iter().chain(sums).collect()
        };
        object["rows"].as_array().unwrap().iter().map(of_row).collect()
    };
    // Each thread makes calls for the processes 0 to 39. The first three threads are one process, and the child is
    // another.
    let one = (0..40).sum::<i64>();
    assert_eq!(sums(&["--by", "_pid", "--sum", "pid"]), [[120, 3 * one], [40, one]]);
    let number = libc::SYS_getpgid;
    let both = [[120, 3 * 40 * number, 3 * one], [40, 40 * number, one]];
    assert_eq!(sums(&["--by", "_pid", "--sum", "pid,__syscall_nr"]), both);
    assert_eq!(sums(&["--by", "_pid", "--sum", "pid", "--sum", "__syscall_nr"]), both);
    // All keys have the same count, so only the sums decide.
    let largest: Vec<i64> = sums(&["--by", "pid", "--sum", "pid"]).iter().map(|row| row[1]).collect();
    assert_eq!(largest, (0..40).rev().map(|pid| 4 * pid).collect::<Vec<_>>());
}

/// The tables of all fields are empty again at the start of each interval.
#[test]
fn the_sums_of_all_intervals_are_those_of_the_run() {
    needs([Need::Tracefs]);
    let work = words(4000, 2, 0);
    let objects = json(&["top", CALL, "--by", "tid", "--sum", "pid,__syscall_nr", "-i", "1"], &work);
    let (total, intervals) = objects.split_last().unwrap();
    assert_eq!(total["kind"], "total");
    for field in ["pid", "__syscall_nr"] {
        let sum = |object: &Json| {
            let rows = object["rows"].as_array().unwrap().iter();
            rows.map(|row| row["sums"][field].as_i64().unwrap()).sum::<i64>()
        };
        // Only the total contains the events after the last interval.
        assert!(intervals.iter().map(sum).sum::<i64>() <= sum(total), "{objects:?}");
        let each = if field == "pid" { (0..4000).sum::<i64>() } else { 4000 * libc::SYS_getpgid };
        assert_eq!(sum(total), 3 * each);
    }
}

#[test]
fn sums_have_the_unit_of_their_field_live_and_from_a_recording() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let recording = recording(&folder);
    let live = printed(&run(&["top", CALL, "--sum", "pid"], &words(100, 0, 0)));
    let replayed = replay("top", &recording, &[CALL, "--sum", "pid"]);
    for lines in [live, replayed] {
        assert_eq!(
            lines[1].split("  ").map(str::trim).collect::<Vec<_>>(),
            ["comm", "count", "total pid", "share", "per second"]
        );
        let row: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(row[..4], ["wide", "100", "4950", "100.0%"], "{lines:?}");
    }
    // The sum of the durations is the total of a span.
    let spans = ["top", "syscall/name=getpgid/", "--by", "name"];
    let sum = json(&[&spans[..], &["--sum", "duration,ret"]].concat(), &words(100, 0, 0));
    let row = &sum[0]["rows"][0];
    assert!(row["sums"]["duration"].as_u64() > Some(100) && row["sums"]["ret"].is_i64(), "{row}");
    let lines = printed(&run(&[&spans[..], &["--sum", "duration,ret"]].concat(), &words(100, 0, 0)));
    assert!(lines[1].contains("total ms") && lines[1].contains("total ret"), "{lines:?}");
    for (field, said) in [("pdi", "did you mean `pid`?"), ("_comm", "cannot be added up: it is text, not a number")] {
        let output = run(&["top", CALL, "--sum", field], &words(1, 0, 0));
        assert!(!output.status.success() && self::said(&output).contains(said), "{}", self::said(&output));
    }
}

/// The name alone selects the system call, as in `perf-prof trace -e openat`.
#[test]
fn the_name_of_a_system_call_is_an_event() {
    needs([Need::Tracefs]);
    let name = CALL.strip_prefix("syscalls:sys_enter_").unwrap();
    let rows = json(&["top", &format!("{name},reboot"), "--by", "name"], &words(1234, 0, 0));
    assert_eq!((counts(&rows[0]), &rows[0]["rows"][0]["name"]), (vec![1234], &name.into()));
    let lines = printed(&run(&["hist", name], &words(1234, 0, 0)));
    assert!(lines.iter().any(|line| line.starts_with("1234 values, p50 ")), "{lines:?}");
    let folder = Folder::new();
    let (path, command) = (folder.path("calls.data"), words(1234, 0, 0));
    let args = ["-e", name, "-e", "reboot", "--"].into_iter().chain(command.iter().map(String::as_str));
    record_here(&path, &args.collect::<Vec<_>>());
    let lines = replay("top", &path, &[name]);
    assert!(
        lines[0].starts_with("total: 1,234 spans in ") || lines[0].starts_with("total: 1234 spans in "),
        "{lines:?}"
    );
}

#[test]
fn several_events_are_counted_apart() {
    needs([Need::Tracefs]);
    let events = format!("{CALL}/pid<10/alias=few/,{CALL}/pid>=10/alias=many/");
    let objects = json(&["top", &events], &words(100, 0, 0));
    let rows = objects[0]["rows"].as_array().unwrap();
    let shown: Vec<(&str, u64)> =
        rows.iter().map(|row| (row["event"].as_str().unwrap(), row["count"].as_u64().unwrap())).collect();
    assert_eq!(shown, [("syscalls:many", 90), ("syscalls:few", 10)]);
}

#[test]
fn the_largest_counts_are_shown_and_the_rest_is_told() {
    needs([Need::Tracefs]);
    let lines = printed(&run(&["top", CALL, "--by", "pid", "-n", "3"], &words(10, 0, 0)));
    assert_eq!(lines.len(), 7, "{lines:?}");
    assert_eq!(lines[5], "(7 more keys, 7 together)");
}

#[test]
fn intervals_add_up_to_the_total() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let file = folder.path("objects");
    let waiting = Waiting::new(200, 2, 0);
    let mut command = perf_prof(&["top", CALL, "-i", "20", "--json", "-p", &waiting.pid()]);
    let mut counting = with_patience(&mut command, PATIENCE).stdout(fs::File::create(&file).unwrap()).spawn().unwrap();
    await_events(&counting, &file);
    waiting.go();
    assert!(counting.wait().unwrap().success());
    let objects = objects(&fs::read_to_string(&file).unwrap());
    let (total, intervals) = objects.split_last().unwrap();
    assert!(!intervals.is_empty() && intervals.iter().all(|interval| interval["kind"] == "interval"), "{objects:?}");
    assert!(intervals.is_sorted_by_key(|interval| (interval["time"].as_f64().unwrap() * 1e6) as u64), "{objects:?}");
    let events = |object: &Json| object["events"].as_u64().unwrap();
    // Only the total contains the events after the last interval.
    assert!(intervals.iter().map(events).sum::<u64>() <= events(total));
    assert_eq!((events(total), &total["kind"]), (200 * (1 + 2 + 2), &"total".into()));
}

/// The times of the events decide when an interval of a recording ends.
#[test]
fn intervals_of_a_recording_are_those_of_its_time() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("calls.data");
    let command = workload("call 1 sleep-ms 100 call 2 call 3 sleep-ms 100 call 4 sleep-ms 120 call 9");
    // The recording goes on after the last of these events.
    let selector = format!("{CALL}/pid<9/");
    let args = ["-e", CALL, "--"].into_iter().chain(command.iter().map(String::as_str));
    record_here(&path, &args.collect::<Vec<_>>());
    let shown =
        |args: &[&str]| objects(&replay("top", &path, &[&["-i", "50", "--json", &selector], args].concat()).join("\n"));
    let objects = shown(&[]);
    let (total, intervals) = objects.split_last().unwrap();
    let events: Vec<u64> = intervals.iter().map(|interval| interval["events"].as_u64().unwrap()).collect();
    assert!(events.len() >= 6 && events[0] == 1 && events.contains(&2) && events.contains(&0), "{objects:?}");
    assert_eq!(total["events"], 4, "{objects:?}");
    for (at, interval) in intervals.iter().enumerate() {
        assert_eq!((&interval["kind"], interval["seconds"].as_f64()), (&"interval".into(), Some(0.05)), "{objects:?}");
        assert!((interval["time"].as_f64().unwrap() - 0.05 * (at + 1) as f64).abs() < 1e-9, "{objects:?}");
    }
    assert_eq!(shown(&["--by", "pid"]).last().unwrap()["rows"].as_array().unwrap().len(), 4);
    let lines = replay("hist", &path, &["-i", "50ms", "--value", "pid"]);
    assert!(lines[0].starts_with("0.050 s: 1 event in 0.050000 s"), "{lines:?}");
}

#[test]
fn a_recording_is_counted() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = recording(&folder);
    let lines = replay("top", &path, &[]);
    assert!(lines[0].starts_with("total: 100 events in ") && lines[2].starts_with("wide    100  100.0%"), "{lines:?}");
    let objects = objects(&replay("top", &path, &["--json", "--by", "comm,pid", &format!("{CALL}/pid<5/")]).join(""));
    assert_eq!(counts(&objects[0]), [1; 5]);
}

/// An empty cell would make the columns look shifted.
#[test]
fn an_empty_key_is_shown_as_a_dash() {
    needs([Need::Tracefs]);
    let command = ["sh", "-c", r"printf '\0' > /proc/$$/comm"].map(str::to_owned);
    let lines = printed(&run(&["top", "task:task_rename", "--by", "newcomm"], &command));
    let keys: Vec<&str> = lines[2..].iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(keys.contains(&"-") && keys.contains(&"sh"), "{lines:?}");
}

/// The lock tracepoints are those of the kernel's own locks.
#[test]
fn a_selector_of_futexes_leads_to_the_script_that_shows_them() {
    for command in ["top", "hist", "trace"] {
        let selector: &[&str] = if command == "trace" { &["-e", "lock/kind=futex/"] } else { &["lock/kind=futex/"] };
        let output = perf_prof(&[command]).args(selector).args(["--input", "not-there.data"]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("use scripts/lockstat.py --futex"), "{command}: {message}");
    }
}

/// `-i` of report and export names a recording, so users may write this.
#[test]
fn a_file_as_interval_leads_to_the_option_for_recordings() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("perf.data"), "").unwrap();
    let said = |command: &str, path: &str| {
        let output = perf_prof(&[command, "-i", path]).current_dir(&folder).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    for command in ["top", "hist", "trace"] {
        let message = said(command, "perf.data");
        assert!(message.contains("--input perf.data reads the recording"), "{command}: {message}");
    }
    assert!(!said("top", "not-there.data").contains("reads the recording"));
    needs([Need::Python]);
    assert!(said("python", "perf.data").contains("--input perf.data reads the recording"));
}

/// Without an error, the counts of one recording would look like the counts of both.
#[test]
fn a_second_recording_is_refused() {
    for command in [&["top"][..], &["hist", "--value", "x"], &["trace"]] {
        let output = perf_prof(command).args(["--input", "a.data", "--input", "b.data"]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("--input b.data: this command reads one recording"), "{message}");
        assert_eq!(output.status.code(), Some(2));
    }
    let output = perf_prof(&["top", "--input", "host*.data"]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("--input host*.data: this command reads one recording"), "{message}");
}

#[test]
fn call_chains_are_keys() {
    needs([Need::Tracefs]);
    let objects = json(&["top", CALL, "-g", "--by", "stack"], &words(50, 0, 0));
    let rows = objects[0]["rows"].as_array().unwrap();
    assert_eq!(objects[0]["events"], 50);
    assert!(rows.iter().any(|row| row["stack"].as_str().unwrap().ends_with(";syscall")), "{rows:?}");
}

#[test]
fn a_command_that_does_not_exist_is_an_error_without_a_table() {
    needs([Need::Tracefs]);
    for command in ["top", "hist"] {
        let output = perf_prof(&[command, "syscall", "--", "no-such-command"]).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert_eq!((output.status.code(), &*shown), (Some(1), ""), "{command}: {}", said(&output));
        assert!(said(&output).contains("no-such-command"), "{}", said(&output));
    }
}

#[test]
fn events_with_e_are_told_where_they_belong() {
    let output = perf_prof(&["top", "-e", "syscall"]).output().unwrap();
    assert!(said(&output).contains("write the events without -e: `perf-prof top EVENT,...`"), "{}", said(&output));
}

#[test]
fn keys_that_are_call_chains_are_recorded_without_another_option() {
    needs([Need::Tracefs]);
    for event in [CALL, "syscall/name=getpgid/"] {
        let objects = json(&["top", event, "--by", "stack"], &words(50, 0, 0));
        let rows = objects[0]["rows"].as_array().unwrap();
        let has_program = |row: &Json| row["stack"].as_str().unwrap().split(';').any(|frame| frame == "syscall");
        assert!(objects[0]["events"] == 50 && rows.iter().any(has_program), "{event}: {rows:?}");
    }
    // The call chains of a recording cannot be changed any more.
    let folder = Folder::new();
    let path = super::recording(&folder);
    let output = perf_prof(&["top", "--by", "stack", "--input"]).arg(&path).output().unwrap();
    let message = "syscalls:sys_enter_getpgid has no call chains for `stack`: use -g, or write \
                   syscalls:sys_enter_getpgid//stack/; a recording must be made with one of them";
    assert_eq!((output.status.code(), said(&output)), (Some(1), format!("perf-prof: {message}\n")));
}

/// Without a terminal, rows have no maximum width, so call chains are as long as in `--json`.
#[test]
fn call_chains_are_whole_off_a_terminal() {
    needs([Need::Tracefs]);
    let top = ["top", CALL, "-g", "--by", "stack,comm"];
    let rows = &json(&top, &words(50, 0, 0))[0]["rows"];
    let longest =
        rows.as_array().unwrap().iter().map(|row| row["stack"].as_str().unwrap()).max_by_key(|stack| stack.len());
    let text = stdout(&run(&top, &words(50, 0, 0)));
    assert!(text.lines().any(|line| line.ends_with(&format!("  {}", longest.unwrap()))), "{longest:?} in {text}");
    assert!(text.lines().any(|line| line.starts_with("comm ") && line.ends_with("per second  stack")), "{text}");
    assert!(!text.contains("..."), "{text}");
}

/// On some machines, the C library has frame pointers, and on others it has none.
#[test]
fn call_chains_that_end_early_are_told_once() {
    needs([Need::Tracefs]);
    let top = |how: &[&str]| {
        let args = ["top", "raw_syscalls:sys_enter", "--by", "stack", "--json", "-i", "20"];
        run(&[&args, how].concat(), &["sh", "-c", "exec ls / >/dev/null"].map(str::to_owned))
    };
    let output = top(&["-g"]);
    let (mut short, mut all) = (0, 0);
    let objects = objects(&stdout(&output));
    for row in objects.last().unwrap()["rows"].as_array().unwrap() {
        let frames = row["stack"].as_str().unwrap().split(';').filter(|frame| !frame.ends_with("_[k]")).count();
        let count = row["count"].as_u64().unwrap();
        short += if (1..=2).contains(&frames) { count } else { 0 };
        all += if frames > 0 { count } else { 0 };
    }
    let hint =
        "perf-prof: call chains end early; programs and libraries without frame pointers need --call-graph dwarf\n";
    assert_eq!(said(&output), if short * 2 > all { hint } else { "" });
    for how in [&["--call-graph", "dwarf"][..], &["-g", "-q"]] {
        assert_eq!(said(&top(how)), "", "{how:?}");
    }
}

#[test]
fn a_field_that_no_event_has_is_an_error() {
    needs([Need::Tracefs]);
    for (field, similar) in [("prev_pidd", "prev_pid"), ("srcline", "stack_lines")] {
        let output = run(&["top", "sched:sched_switch", "--by", field], &words(1, 0, 0));
        assert_eq!(output.status.code(), Some(1));
        let said = said(&output);
        assert_eq!(
            said,
            format!("perf-prof: sched:sched_switch has no field or member `{field}`; did you mean `{similar}`?\n")
        );
    }
}

#[test]
fn a_path_that_needs_strings_names_the_option() {
    needs([Need::Tracefs]);
    for (selector, by) in [("fsync", "path"), ("syscall", "comm,filename_str")] {
        let output = run(&["top", selector, "--by", by], &words(1, 0, 0));
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(" only with the option `str`: write syscall/str/"), "{said}");
    }
}

#[test]
fn the_arguments_of_calls_are_numbers() {
    needs([Need::Tracefs]);
    let selector = "syscall/name=getpgid/";
    let total = json(&["top", selector, "--by", "args"], &words(3, 0, 0)).pop().unwrap();
    assert!(total["rows"][0]["args"].as_array().is_some_and(|args| args.len() == 6), "{total}");
    let lines = printed(&run(&["top", selector, "--by", "args"], &words(3, 0, 0)));
    assert!(lines[2].starts_with("(0x"), "{lines:?}");
}

#[test]
fn a_command_without_its_dashes_is_named() {
    needs([Need::Tracefs]);
    for command in [&["top"][..], &["hist", "--value", "pid"]] {
        let output = perf_prof(&[command, &[CALL, "sh", "-"]].concat()).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("perf-prof: unknown event sh"), "{said}");
        assert!(said.ends_with("; to run a command, write `--` before it: `-- sh -`\n"), "{said}");
    }
}

#[test]
fn the_reader_of_the_tables_may_close_its_pipe() {
    needs([Need::Tracefs]);
    let mut command = perf_prof(&["top", "sched:sched_switch", "-i", "20", "-a"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut counting = with_patience(&mut command, PATIENCE).spawn().unwrap();
    drop(counting.stdout.take());
    let output = counting.wait_with_output().unwrap();
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
}

#[test]
fn the_table_comes_after_the_output_of_the_command() {
    needs([Need::Tracefs]);
    let program = ["sh", "-c", "echo from the program; exit 4"].map(str::to_owned);
    let output = run(&["top", "sched:sched_process_exec"], &program);
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("from the program\ntotal: 1 event in "), "{text}");
}

/// The program goes on when the run has ended, so its call does too.
#[test]
fn a_run_that_shows_no_call_points_to_the_option_open_if_a_call_hangs() {
    needs([Need::Tracefs, Need::Programs]);
    let folder = tempfile::tempdir().unwrap();
    let said_pid = folder.path().join("pid");
    let hangs = "python3 -c 'import os; print(os.getpid(), flush=True); os.read(os.pipe()[0], 1)' >$0 2>&1 & sleep 1";
    let program = ["sh", "-c", hangs, said_pid.to_str().unwrap()].map(str::to_owned);
    let output = run(&["top", "syscall/name=read, min=60s/"], &program);
    let pid: i32 = fs::read_to_string(&said_pid).unwrap().trim().parse().unwrap();
    // SAFETY: kill() takes no memory.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    let hint = "fulfils `name=read, min=60s`; the option `open` adds spans that began and have not ended\n";
    assert!(said(&output).ends_with(hint), "{}", said(&output));
}

#[test]
fn a_misspelt_system_call_is_an_error_and_one_that_nobody_made_is_named() {
    needs([Need::Tracefs]);
    let misspelt = run(&["top", "syscall/name=opnat/"], &words(1, 0, 0));
    assert_eq!(misspelt.status.code(), Some(1));
    assert!(said(&misspelt).contains("`name` of syscall is never `opnat`; did you mean openat"), "{}", said(&misspelt));
    let rows = [
        (&["top", "syscall/name=reboot/"][..], "perf-prof: syscall: there was no span for `name=reboot`\n"),
        (&["trace", "-e", "syscall/name=getpgid, min=60s/"], "none of 5 spans fulfils `name=getpgid, min=60s`\n"),
        (&["hist", "syscall/ret==-77 && nr==121/", "-q"], ""),
    ];
    for (args, expected) in rows {
        let output = run(args, &words(5, 0, 0));
        assert!(said(&output).ends_with(expected) && said(&output).lines().count() <= 1, "{args:?}: {}", said(&output));
        assert_eq!(expected.is_empty(), said(&output).is_empty(), "{args:?}: {}", said(&output));
    }
}

#[test]
fn system_calls_of_a_recording_are_named_in_errors_with_the_selector_to_write() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("calls.data");
    let command = words(3, 0, 0);
    let args: Vec<&str> = ["-e", "syscall", "--"].into_iter().chain(command.iter().map(String::as_str)).collect();
    record_here(&path, &args);
    let refused = |selector: &str| {
        let output = perf_prof(&["top", selector, "--input"]).arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        said(&output)
    };
    assert!(refused("getpgid/str/").contains("write 'syscall/name=getpgid,str/'"), "{}", refused("getpgid/str/"));
    assert!(refused("read/min=50ms/").contains("write 'syscall/name=read,min=50ms/'"), "{}", refused("read/min=50ms/"));
    assert!(refused("fsyncc").contains("did you mean fsync"), "{}", refused("fsyncc"));
    // These names are not suggested for a recording without system calls.
    let other = recording(&folder);
    let output = perf_prof(&["top", "fsyncc", "--input"]).arg(&other).output().unwrap();
    assert!(!said(&output).contains("did you mean fsync"), "{}", said(&output));
}

#[test]
fn names_that_select_nothing_are_told_with_those_that_may_have_been_meant() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = recording(&folder);
    let comm = "wide";
    let misspelt = format!("{comm}x");
    let report = |args: &[&str]| said(&perf_prof(&["report", "-i"]).arg(&path).args(args).output().unwrap());
    let expected = format!("perf-prof: none of 100 samples is of `--comms {misspelt}`; did you mean {comm}?\n");
    assert_eq!(report(&["--comms", &misspelt]), expected);
    assert_eq!(report(&["-S", "nonsense"]), "perf-prof: none of 100 samples is of `-S nonsense`\n");
    assert_eq!(report(&["--dsos", "a,b"]), "perf-prof: none of 100 samples is of `--dsos a,b`\n");
    for args in [&["--comms", comm][..], &["-q", "--comms", &misspelt]] {
        assert_eq!(report(args), "", "{args:?}");
    }
}

//! `perf-prof trace`: a line for each event.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
};

use serde_json::Value as Json;

use super::{recording, replay, run};
use crate::harness::{
    counting::{CALL, Waiting, objects, words},
    machine::{Need, needs},
    recorder::await_events,
    recording::{Folder, ours, record, record_here},
    run::{PATIENCE, perf_prof, printed, said, stdout, with_patience},
    terminal::on_terminal,
    wait,
};

/// Runs `perf-prof trace` with these arguments and the command.
fn trace(args: &[&str], command: &[String]) -> Output {
    run(&[&["trace"], args].concat(), command)
}

/// Returns the seconds at the start of a line.
fn seconds(line: &str) -> f64 {
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn an_event_in_the_place_of_the_command_is_named() {
    needs([Need::Tracefs]);
    let message = |word: &str| {
        let output = perf_prof(&["trace", word]).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        said(&output)
    };
    let none = "No such file or directory (os error 2)";
    for word in ["offcpu", "sched:sched_switch", "offcpu,sched:sched_switch", "openat"] {
        let hint = format!("perf-prof: cannot execute {word}: {none}; did you mean `-e {word}`?\n");
        assert_eq!(message(word), hint);
    }
    assert_eq!(message("no-such-program"), format!("perf-prof: cannot execute no-such-program: {none}\n"));
    // The same holds for an event beside -e, -p or --input, and for a selector with a mistake.
    let word = "offcpu/min=1ms";
    let rows: [(&[&str], &str); 4] = [
        (&["-e", CALL], "cannot execute offcpu/min=1ms: No such file or directory (os error 2)"),
        (&["-p", "1"], "a command and -C, -p, -t or --cgroups cannot be combined"),
        (&["--input", "perf.data"], "`'offcpu/min=1ms'` is not run: the events come from the recording of --input"),
        (&[], "cannot execute offcpu/min=1ms: No such file or directory (os error 2)"),
    ];
    for (options, start) in rows {
        let text = said(&perf_prof(&["trace"]).args(options).arg(word).output().unwrap());
        let (first, _) = text.split_once('\n').unwrap();
        let hint = format!("; did you mean `-e {word}`?");
        assert!(first.starts_with(&format!("perf-prof: {start}")) && first.ends_with(&hint), "{options:?}: {text}");
    }
}

#[test]
fn a_source_in_the_place_of_a_subsystem_is_explained() {
    let output = perf_prof(&["trace", "-e", "syscall:openat", "--", "true"]).output().unwrap();
    let text = "unknown event syscall:openat: syscall is a source, whose events are selected by options; \
                `perf-prof list -v syscall` shows them";
    assert!(output.status.code() == Some(1) && said(&output).contains(text), "{}", said(&output));
}

#[test]
fn each_event_of_a_command_is_a_line_in_the_order_of_time() {
    needs([Need::Tracefs]);
    let lines = printed(&trace(&["-e", CALL], &words(50, 2, 1)));
    assert_eq!(lines.len(), 50 * (1 + 2 + 1));
    let times: Vec<f64> = lines.iter().map(|line| seconds(line)).collect();
    assert!(times[0] == 0.0 && times.is_sorted(), "{times:?}");
    for line in &lines {
        let (task, event) = line[11..].trim_start().split_once(' ').unwrap();
        let (_, tid) = task.rsplit_once('/').unwrap();
        assert!(tid.parse::<u32>().unwrap() > 1, "{line}");
        assert!(event.trim_start().starts_with(&format!("{CALL}: sys_getpgid(pid: ")), "{line}");
    }
}

#[test]
fn system_calls_are_selected_by_their_names() {
    needs([Need::Tracefs]);
    let lines = printed(&trace(&["-e", "getpgid,getsid"], &words(20, 0, 1)));
    assert_eq!(lines.len(), 40);
    for (at, line) in lines.iter().enumerate() {
        let (_, call) = line[11..].trim_start().split_once(' ').unwrap();
        assert!(call.trim_start().starts_with("getpgid(pid: ") && line.ends_with(" ms)"), "{at}: {line}");
    }
}

#[test]
fn attributes_of_a_system_call_are_those_of_its_spans() {
    needs([Need::Tracefs]);
    let lines = printed(&trace(&["-e", "getpgid//stack/"], &words(3, 0, 0)));
    let calls = lines.iter().filter(|line| line.contains("getpgid(pid: ")).count();
    assert!(calls == 3 && lines.len() > calls, "{lines:?}");
    assert!(lines[1].starts_with("    "), "{lines:?}");
}

#[test]
fn without_events_each_system_call_of_the_command_is_a_line() {
    needs([Need::Tracefs, Need::Bpf]);
    let shell = ["sh", "-c", "cd /nowhere 2> /dev/null"].map(str::to_owned);
    let output = trace(&[], &shell);
    let (status, lines) = (output.status.code(), String::from_utf8(output.stdout).unwrap());
    assert_eq!(status, Some(2), "{lines}");
    let failed: Vec<&str> = lines.lines().filter(|line| line.contains(" chdir(filename: \"/nowhere\")")).collect();
    assert!(matches!(failed[..], [line] if line.contains(") = -1 ENOENT (")), "{lines}");
    assert!(lines.lines().count() > 10, "{lines}");
}

#[test]
fn json_has_the_values_of_all_fields() {
    needs([Need::Tracefs]);
    let events = objects(&stdout(&trace(&["--json", "-e", CALL], &words(30, 0, 2))));
    let mut pids: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for event in &events {
        assert_eq!((&event["_event"], &event["_comm"]), (&CALL.into(), &"wide".into()));
        assert!(event["_time"].is_u64() && event["_realtime"].is_i64() && event["_cpu"].is_u64(), "{event}");
        let tid = event["_tid"].as_i64().unwrap();
        pids.entry(tid).or_default().push(event["pid"].as_i64().unwrap());
    }
    let expected: Vec<i64> = (0..30).collect();
    assert_eq!(pids.len(), 3);
    assert!(pids.values().all(|pids| *pids == expected), "{pids:?}");
}

/// The state of a sleeping task is a number with a name.
#[test]
fn json_has_names_of_values() {
    needs([Need::Tracefs]);
    let sleeps = ["sh", "-c", "sleep 0.01; sleep 0.01"].map(str::to_owned);
    let events = objects(&stdout(&trace(&["--json", "-e", "sched:sched_switch"], &sleeps)));
    let of_sleep = |event: &&Json| event["prev_comm"] == "sleep" && event["prev_state"] == 1;
    let slept: Vec<&Json> = events.iter().filter(of_sleep).collect();
    assert!(slept.len() >= 2, "{events:?}");
    for event in slept {
        assert_eq!(event["_names"]["prev_state"], "S");
        assert!(event["_text"].as_str().unwrap().contains(" prev_state=S ==> "), "{event}");
    }
}

#[test]
fn filters_and_a_limit_select_events() {
    needs([Need::Tracefs]);
    let filtered = printed(&trace(&["-e", CALL, "--filter", "pid>=90"], &words(100, 0, 0)));
    assert_eq!(filtered.len(), 10);
    assert_eq!(printed(&trace(&["-e", CALL, "-N", "7"], &words(100, 0, 0))).len(), 7);
    let two = format!("{CALL}/pid<3/,{CALL}/pid==50/alias=fifty/");
    let names = printed(&trace(&["-e", &two], &words(100, 0, 0)));
    assert_eq!(names.len(), 4);
    assert_eq!(names.iter().filter(|line| line.contains(" syscalls:fifty: ")).count(), 1, "{names:?}");
}

#[test]
fn a_running_process_is_traced() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let file = folder.path("lines");
    let waiting = Waiting::new(20, 2, 0);
    let mut command = perf_prof(&["trace", "-e", CALL, "-p", &waiting.pid(), "-o"]);
    let mut tracing = with_patience(command.arg(&file), PATIENCE).spawn().unwrap();
    await_events(&tracing, &file);
    waiting.go();
    assert!(tracing.wait().unwrap().success());
    // The calls are made by the main thread, 2 threads from before, and 2 threads that are created later.
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 20 * (1 + 2 + 2));
}

#[test]
fn the_status_of_the_command_is_that_of_the_trace() {
    needs([Need::Tracefs]);
    let command = ["sh", "-c", "exit 3"].map(str::to_owned);
    let output = trace(&["-e", "sched:sched_process_exec"], &command);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("sched:sched_process_exec: filename="));
}

#[test]
fn an_interrupt_ends_the_trace_and_the_command() {
    needs([Need::Tracefs]);
    let script = "/bin/true; kill -INT $PPID; exec sleep 1000";
    let command = ["sh", "-c", script].map(str::to_owned);
    let output = trace(&["-e", "sched:sched_process_exec"], &command);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("filename=/bin/true"), "{text} {}", said(&output));
    assert!(output.status.code().is_some(), "{}", output.status);
}

#[test]
fn a_reader_may_close_its_pipe() {
    needs([Need::Tracefs]);
    let mut command = perf_prof(&["trace", "-e", CALL, "--"]);
    command.args(words(200_000, 0, 0)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tracing = with_patience(&mut command, PATIENCE).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(tracing.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains(CALL), "{first}");
    let output = tracing.wait_with_output().unwrap();
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
}

#[test]
fn a_recording_has_the_same_lines() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = recording(&folder);
    let lines = replay("trace", &path, &[]);
    assert_eq!(lines.len(), 100);
    assert_eq!(seconds(&lines[0]), 0.0);
    // With the clock of the events, the times equal the times of perf script.
    let clock = replay("trace", &path, &["--timestamps", "clock", "-N", "1"]);
    let script = printed(&perf_prof(&["script", "-F", "time", "-i"]).arg(&path).output().unwrap());
    assert_eq!(clock.len(), 1);
    assert_eq!(clock[0].split_whitespace().next().unwrap(), script[0].trim().trim_end_matches(':'));
    // Only in the first line, the time since the previous line is 0.
    let deltas: Vec<f64> =
        replay("trace", &path, &["--timestamps", "delta"]).iter().map(|line| seconds(line)).collect();
    let whole = seconds(&lines[99]);
    assert!(deltas[0] == 0.0 && (deltas.iter().sum::<f64>() - whole).abs() < 0.001, "{deltas:?}");
    let events = objects(&replay("trace", &path, &["--json"]).join("\n"));
    assert!((0..100).eq(events.iter().map(|event| event["pid"].as_i64().unwrap())));
    assert!(events[0].get("_realtime").is_none());
    assert_eq!(replay("trace", &path, &["-e", &format!("{CALL}/pid<5/")]).len(), 5);
}

#[test]
fn export_writes_the_same_objects() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("calls.data");
    let command = words(20, 2, 1);
    let events = ["-q", "-g", "-e", CALL, "-e", "syscalls:sys_exit_getpgid", "-e", "minor-faults:u", "--"];
    record_here(&path, &events.into_iter().chain(command.iter().map(String::as_str)).collect::<Vec<_>>());
    let span = format!("span:call={CALL}..syscalls:sys_exit_getpgid");
    for selected in [&[][..], &["-e", &span], &["-e", "minor-faults:u"]] {
        let traced = replay("trace", &path, &[&["--json"], selected].concat());
        let mut export = perf_prof(&["export", "-q", "-o", "-", "--format", "ndjson", "-i"]);
        assert_eq!(printed(&export.arg(&path).args(selected).output().unwrap()), traced, "{selected:?}");
        assert!(!traced.is_empty(), "{selected:?}");
    }
}

#[test]
fn dates_are_those_of_the_day() {
    needs([Need::Tracefs]);
    let today = || stdout(&Command::new("date").arg("+%F %H").output().unwrap()).trim().to_owned();
    let folder = Folder::new();
    let (before, path) = (today(), recording(&folder));
    let shown = replay("trace", &path, &["--timestamps", "date", "-N", "1"]).remove(0);
    assert!([before, today()].iter().any(|hour| shown.starts_with(hour)), "{shown}");
}

#[test]
fn call_chains_are_below_their_lines() {
    needs([Need::Tracefs]);
    let output = stdout(&trace(&["-g", "-e", CALL, "-N", "1"], &words(1, 0, 0)));
    let mut lines = output.lines();
    assert!(lines.next().unwrap().contains(CALL));
    assert!(lines.clone().all(|line| line.starts_with("    ")), "{output}");
    // For the tracepoints of system calls, the kernel reports only user frames.
    assert!(lines.any(|line| line.contains(" syscall+0x")), "{output}");
    let events = objects(&stdout(&trace(&["-g", "--json", "-e", CALL, "-N", "1"], &words(1, 0, 0))));
    assert!(events[0]["_callchain"].as_array().unwrap().iter().all(|frame| frame["addr"].is_u64()), "{events:?}");
}

#[test]
fn only_a_terminal_gets_colours_unless_the_user_wants_none() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = recording(&folder);
    let mut command = perf_prof(&["trace", "-N", "1", "--input"]);
    command.arg(&path).env_remove("NO_COLOR");
    let coloured = String::from_utf8(on_terminal(&mut command)).unwrap();
    assert!(coloured.contains(&format!("\x1b[1m{CALL}\x1b[0m: sys_getpgid(pid: 0)")), "{coloured:?}");
    let plain = String::from_utf8(on_terminal(command.env("NO_COLOR", "1"))).unwrap();
    assert!(plain.contains(CALL) && !plain.contains('\x1b'), "{plain:?}");
    let file = folder.path("out");
    stdout(&command.env_remove("NO_COLOR").arg("-o").arg(&file).stdout(Stdio::null()).output().unwrap());
    assert_eq!(fs::read_to_string(&file).unwrap().trim_end(), plain.trim_end());
}

#[test]
fn a_system_call_that_hangs_lasts_until_the_run_ends() {
    needs([Need::Tracefs]);
    // The begin of the call is the last event of the command. The condition leaves out a call that seems to be short.
    let events = "syscall/open,name=clock_nanosleep,min=300ms/";
    let output = trace(&["-q", "--json", "-e", events, "--duration", "2s"], &["sleep".into(), "60".into()]);
    let open = objects(&stdout(&output));
    assert!(open.len() == 1 && open[0]["open"] == true, "{open:?}");
}

#[test]
fn a_recording_is_read_by_local_times_of_day() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = recording(&folder);
    // The time zone is not that of most machines, and there is half an hour in it.
    let run = |args: &[&str]| {
        let mut command = perf_prof(&["trace", "-q", "--timestamps", "date", "--input"]);
        printed(&command.arg(&path).args(args).env("TZ", "Asia/Kolkata").output().unwrap())
    };
    let all = run(&[]);
    // A line begins with the date, and the time to the microsecond. Events of the same microsecond belong together.
    let moment = |at: usize| all[at][..26].to_owned();
    let expected: Vec<&String> =
        all.iter().filter(|line| (moment(30)..=moment(60)).contains(&line[..26].to_owned())).collect();
    assert!(expected.len() > 20 && expected.len() < 80, "{all:?}");
    let to = moment(60) + "999";
    for range in [format!("{},{to}", moment(30)), format!("{},{}", &moment(30)[11..], &to[11..])] {
        assert_eq!(run(&["--time", &range]).iter().collect::<Vec<_>>(), expected, "{range}");
    }
    assert_eq!(run(&["--time", &format!("{},", &moment(0)[11..16])]), all);
    assert_eq!(run(&["--time", ",2020-01-01T00:00"]), Vec::<String>::new());
}

#[test]
fn times_of_day_that_are_not_in_the_recording_are_answered_with_those_that_are() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = recording(&folder);
    let run = |times: &str| {
        let mut command = perf_prof(&["trace", "-e", CALL, "--timestamps", "date", "--time", times, "--input"]);
        command.arg(&path).env("TZ", "Asia/Kolkata").output().unwrap()
    };
    let text = said(&run("2020-01-01T00:00,2020-01-01T00:01"));
    let times = text.split_once(", which is `--time ").and_then(|(_, times)| times.split_once('`'));
    let (times, _) = times.unwrap_or_else(|| panic!("{text}"));
    // The times can be typed, and all samples are in them.
    assert_eq!(printed(&run(times)).len(), 100);
}

#[test]
fn a_recorded_system_call_has_the_line_of_a_live_run() {
    needs([Need::Tracefs, Need::Bpf]);
    let folder = Folder::new();
    let path = folder.path("calls.data");
    let selector = "syscall/name=chdir,str/";
    record_here(&path, &["-e", selector, "--", "sh", "-c", "cd /nowhere 2> /dev/null; true"]);
    let lines = replay("trace", &path, &["-e", selector]);
    assert!(lines.iter().any(|line| line.contains(" chdir(filename: \"/nowhere\") = -1 ENOENT (")), "{lines:?}");
}

/// The recording contains no event, because the task hangs since before it.
#[test]
fn a_hang_that_is_older_than_the_recording_is_explained() {
    needs([Need::Tracefs]);
    let folder = Folder::new();
    let path = folder.path("hang.data");
    let sleeper = wait::Killed(Command::new("sleep").arg("60").spawn().unwrap());
    let pid = sleeper.0.id().to_string();
    let sleeps = format!("{} ", libc::SYS_clock_nanosleep);
    let call = || fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    wait::until("the task sleeps", || call().starts_with(&sleeps));
    record_here(&path, &["-e", "syscall", "-p", &pid, "--duration", "300ms"]);
    let text = said(&perf_prof(&["trace", "-e", "syscall/open/", "--input"]).arg(&path).output().unwrap());
    assert!(text.contains("no sample in ") && text.contains(", although it was made for 0."), "{text}");
    assert!(text.contains("has no event until it ends; `cat /proc/PID/stack` shows where a task waits"), "{text}");
}

#[test]
fn a_recording_that_does_not_say_when_it_was_made_is_not_read_by_times_of_day() {
    needs([Need::Tracefs, Need::Perf]);
    let folder = Folder::new();
    let (path, copy) = (folder.path("perf.data"), folder.path("copy.data"));
    record(&path, &["-e", "sched:sched_process_exec", "--", "sh", "-c", "/bin/true; sleep 0.2; /bin/true"]);
    fs::copy(&path, &copy).unwrap();
    let output = perf_prof(&["trace", "--time", "21:49,", "--input"]).arg(&copy).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let reason = format!("{} does not say at what time of day it was recorded", copy.display());
    assert!(said(&output).contains(&reason) && said(&output).contains("--time 21:49:00,:"), "{}", said(&output));
    // With the time of the file, it is guessed.
    let day = ["trace", "-q", "--time", "2020-01-01T00:00,", "--input"];
    let output = perf_prof(&day).arg(&path).output().unwrap();
    assert!(said(&output).contains("is a guess"), "{}", said(&output));
    assert_eq!(printed(&output).len(), ours(&["script"], &path).len());
}

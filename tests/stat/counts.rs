//! Counts that are known in advance.

use std::fs;

use perf_prof_system::procfs;

use crate::harness::{
    counting::{CALL, Waiting, await_line, count, json, objects, rows, stat, words},
    machine::{Need, needs},
};

#[test]
fn calls_of_a_command_are_counted_exactly() {
    needs([Need::Tracefs]);
    for (calls, threads, children) in [(1234, 0, 0), (100, 4, 0), (100, 0, 3), (617, 2, 2)] {
        let objects = json(&["-e", CALL, "--"], &words(calls, threads, children));
        assert_eq!(count(&objects[0], CALL), u64::from(calls * (1 + threads + children)));
    }
}

/// As in perf, a filter applies to the events of the last `-e` before it.
#[test]
fn only_calls_that_pass_the_filter_are_counted() {
    needs([Need::Tracefs]);
    let filter = format!("id=={}", libc::SYS_getpgid);
    let objects = json(&["-e", "raw_syscalls:sys_enter", "--filter", &filter, "-e", CALL, "--"], &words(321, 0, 0));
    assert_eq!(count(&objects[0], "raw_syscalls:sys_enter"), 321);
    assert_eq!(count(&objects[0], CALL), 321);
}

#[test]
fn a_process_is_counted_from_now_on_with_its_threads_and_what_it_starts() {
    needs([Need::Tracefs]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("counts");
    let waiting = Waiting::new(100, 4, 2);
    let pid = waiting.pid();
    let mut command = stat(&["-I", "20", "--summary", "--json", "-e", CALL, "-p", &pid, "-o"]);
    let mut counting = command.arg(&file).spawn().unwrap();
    await_line(&file);
    waiting.go();
    // Counting ends when the process exits.
    assert!(counting.wait().unwrap().success());
    let objects = objects(&fs::read_to_string(&file).unwrap());
    let (whole, intervals) = objects.split_last().unwrap();
    assert!(intervals.iter().all(|interval| interval["time"].is_number()), "{objects:?}");
    // The calls are made by the main thread, 4 threads from before, 4 threads that are created later, and 2 children.
    assert_eq!(count(whole, CALL), 100 * (1 + 4 + 4 + 2));
    assert_eq!(intervals.iter().map(|interval| count(interval, CALL)).sum::<u64>(), count(whole, CALL));
}

#[test]
fn a_thread_is_counted_alone() {
    needs([Need::Tracefs]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("counts");
    let waiting = Waiting::new(100, 4, 2);
    let threads = procfs::tasks(waiting.child.id()).unwrap();
    let last = threads.last().unwrap().to_string();
    let mut command = stat(&["-I", "20", "--summary", "--json", "-e", CALL, "-t", &last, "-o"]);
    let mut counting = command.arg(&file).spawn().unwrap();
    await_line(&file);
    waiting.go();
    assert!(counting.wait().unwrap().success());
    let objects = objects(&fs::read_to_string(&file).unwrap());
    assert_eq!(count(objects.last().unwrap(), CALL), 100);
}

#[test]
fn filters_select_what_is_counted() {
    needs([Need::Tracefs]);
    let filtered = format!("{CALL}/pid>=1000/alias=high/");
    let events = format!("{CALL},{filtered},{CALL}/pid==7/");
    let objects = json(&["-e", &events, "--"], &words(1234, 0, 1));
    assert_eq!(count(&objects[0], CALL), 2 * 1234);
    assert_eq!(count(&objects[0], "high"), 2 * 234);
    // If two events had the same name, the second one is named by its selector.
    assert_eq!(count(&objects[0], &format!("{CALL}/pid==7/")), 2);
}

#[test]
fn cpus_are_summed_or_shown_apart() {
    needs([Need::Tracefs]);
    // Only calls with this argument are counted, because other tests make the same system call at the same time.
    let event = format!("{CALL}/pid==4242/alias=mine/");
    let words = words(5000, 3, 1);
    for cpus in [&["-a"][..], &["-C", "0"]] {
        let args = |more| [cpus, more, &["-e", &event, "--"]].concat();
        let whole = json(&args(&[]), &words);
        let apart = json(&args(&["--per-cpu"]), &words);
        let apart = rows(&apart[0], "mine");
        if cpus == ["-a"] {
            assert!(count(&whole[0], "mine") >= 5, "{whole:?}");
            assert!(apart.iter().sum::<u64>() >= 5, "{apart:?}");
            assert_eq!(apart.len(), std::thread::available_parallelism().unwrap().get());
        } else {
            assert_eq!(apart.len(), 1);
        }
    }
}

#[test]
fn an_event_on_some_cpus_counts_there_only() {
    needs([Need::Tracefs]);
    let cpus = std::thread::available_parallelism().unwrap().get();
    let each: Vec<String> = (0..cpus).map(|cpu| format!("{CALL}//alias=on{cpu}/cpus={cpu}/")).collect();
    let objects = json(&["-e", CALL, "-e", &each.join(","), "--"], &words(1000, 3, 1));
    let on_each: u64 = (0..cpus).map(|cpu| count(&objects[0], &format!("on{cpu}"))).sum();
    assert_eq!((count(&objects[0], CALL), on_each), (5000, 5000));
}

#[test]
fn runs_are_repeated_and_their_mean_is_shown() {
    needs([Need::Tracefs]);
    let objects = json(&["-r", "3", "-e", CALL, "--"], &words(123, 1, 0));
    assert_eq!(objects.len(), 1);
    assert_eq!((count(&objects[0], CALL), &objects[0]["runs"]), (246, &3.into()));
    assert_eq!(objects[0]["events"][0]["deviation"], 0.0);
}

#[test]
fn probes_are_counted() {
    needs([Need::Tracefs]);
    needs([Need::Uprobes]);
    let python = ["python3", "-c", "import os; [os.getpgid(0) for _ in range(321)]"].map(str::to_owned);
    let probe = "uprobe:getpgid@libc//alias=probe/";
    let objects = json(&["-e", CALL, "-e", probe, "--"], &python);
    assert_eq!((count(&objects[0], CALL), count(&objects[0], "probe")), (321, 321));
}

/// What perf-prof does before the command's exec does not belong to the command.
#[test]
fn what_happens_before_exec_is_not_counted() {
    needs([Need::Tracefs]);
    let events = "syscalls:sys_enter_execve,syscalls:sys_exit_execve,sched:sched_process_exec";
    let objects = json(&["-e", events, "--"], &["true".to_owned()]);
    let counts = events.split(',').map(|event| count(&objects[0], event));
    assert_eq!(counts.collect::<Vec<_>>(), [0, 1, 1]);
}

#[test]
fn a_clock_is_shown_in_nanoseconds_and_as_cpus_in_use() {
    needs([Need::Tracefs]);
    let objects = json(&["-e", "task-clock,page-faults", "--"], &words(10, 0, 0));
    let clock = &objects[0]["events"][0];
    let cpus = clock["value"].as_f64().unwrap() / 1e9 / objects[0]["elapsed"].as_f64().unwrap();
    assert_eq!((&clock["unit"], &clock["metric_unit"]), (&"ns".into(), &"CPUs utilized".into()));
    assert!((clock["metric"].as_f64().unwrap() - cpus).abs() < 1e-6, "{objects:?}");
    assert!(count(&objects[0], "page-faults") > 0);
}

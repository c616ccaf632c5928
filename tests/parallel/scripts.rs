//! Checks that scripts print the same bytes in several processes as in one.

use std::{
    path::Path,
    process::{Command, Output},
};

use super::run_script;
use crate::harness::{
    compile::{FRAMES, compile},
    machine::{Need, needs},
    recording::{record, record_here},
    run::{said, tested_program},
};

/// Many tasks that sleep, wake other tasks, wait for a CPU, start and exit.
const BUSY: &str = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do \
                    (for j in 1 2 3 4 5 6 7 8; do sleep 0.004; echo $i; done | cat >/dev/null) & done; wait";

/// Causes more events than rings of one page can hold.
const BURST: &str = "for i in 1 2 3 4; do (head -c 30000 /dev/zero | dd bs=1 of=/dev/null 2>/dev/null) & done; wait";

const SCHED: &str = "sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_switch";
const SYSCALLS: &str = "raw_syscalls:sys_enter,raw_syscalls:sys_exit";

/// Records into `perf.data`.
fn recorded(folder: &Path, options: &[&str], work: &str) {
    needs([Need::Tracefs, Need::Perf]);
    record(&folder.join("perf.data"), &[options, &["--", "sh", "-c", work]].concat());
}

const SHARES: [&[&str]; 5] =
    [&["--jobs", "3"], &["--jobs", "2", "--split", "cpu"], &["--jobs", "2"], &["--jobs", "7"], &["--jobs", "16"]];

/// Checks with two divisions of the recording.
#[track_caller]
fn check(folder: &Path, name: &str, options: &[&str]) -> (String, String) {
    check_with(&SHARES[..2], folder, name, options)
}

/// Checks with all divisions of the recording. So there are many borders between parts, and tasks wait at each.
#[track_caller]
fn check_all(folder: &Path, name: &str, options: &[&str]) -> (String, String) {
    check_with(&SHARES, folder, name, options)
}

/// Returns what a script prints, and its last messages about losses. Checks that they are equal for each division in
/// `shares`.
#[track_caller]
fn check_with(shares: &[&[&str]], folder: &Path, name: &str, options: &[&str]) -> (String, String) {
    let run = |shares: &[&str]| -> (String, String) {
        let output: Output = run_script(folder, name, &[&["--input", "perf.data"], options, shares].concat());
        let said = said(&output);
        assert!(output.status.success(), "{name} {options:?} {shares:?}: {said}");
        // Each process prints these lines while it runs.
        let is_while_running = |line: &&str| line.ends_with("while the recording was made");
        // A script says at the end of an interval that most chains so far end early; processes of --jobs say it at the end.
        let is_hint = |line: &&str| line.contains("call chains end early");
        let total: Vec<&str> = said.lines().filter(|line| !is_while_running(line) && !is_hint(line)).collect();
        let total = total.join("\n");
        // Comms of other programs may contain bytes that are not UTF-8.
        (String::from_utf8_lossy(&output.stdout).into_owned(), without_counts_of_cpus(&total))
    };
    let serial = run(&[]);
    for shares in shares {
        let shared = run(shares);
        assert!(shared == serial, "{name} {options:?} {shares:?}:\n{shared:?}\nserial:\n{serial:?}");
    }
    serial
}

/// Removes the numbers of events that each CPU lost, because the processes of `--jobs` list CPUs without numbers.
fn without_counts_of_cpus(said: &str) -> String {
    let words: Vec<&str> = said.split(' ').collect();
    let is_count = |at: usize| {
        words[at].parse::<u64>().is_ok() && words.get(at + 1..at + 3).is_some_and(|next| next == ["on", "CPU"])
    };
    let kept: Vec<&str> = (0..words.len()).filter(|&at| !is_count(at)).map(|at| words[at]).collect();
    kept.join(" ")
}

#[test]
fn waits_that_cross_a_border_are_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recorded(folder, &["-a", "-e", SCHED], BUSY);
    let (out, _) = check_all(folder, "runqlat.py", &[]);
    let waits: u64 =
        out.lines().filter_map(|line| line.strip_suffix(" waits")?.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    assert!(waits > 500, "{out}");
    check(folder, "runqlat.py", &["--comm", "sleep", "--all", "-i", "37"]);
    check(folder, "runqlat.py", &["-i", "20", "--time", "20%,70%"]);
    check(folder, "wakeups.py", &[]);
    check(folder, "wakeups.py", &["-i", "25", "-C", "0"]);
}

/// Threads that always wait for the same lock, so chains of waits go over all borders between parts.
const CONVOY: &str = r#"
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *work(void *of) {
    for (int i = 0; i < 30; i++) {
        pthread_mutex_lock(&lock);
        usleep(1000);
        pthread_mutex_unlock(&lock);
        usleep(200);
    }
    return of;
}
int main(void) {
    pthread_t threads[5];
    for (int i = 0; i < 5; i++) pthread_create(threads + i, 0, work, 0);
    for (int i = 0; i < 5; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;

#[test]
fn holders_of_futexes_are_found_across_borders() {
    needs([Need::Tracefs, Need::Compilers]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let program = compile(folder, "convoy", CONVOY, FRAMES);
    record_here(&folder.join("perf.data"), &["-g", "-e", "syscall/name=futex/", "--", program.to_str().unwrap()]);
    let shares = [SHARES[0], SHARES[2], SHARES[3], SHARES[4]];
    let (out, _) = check_with(&shares, folder, "lockstat.py", &["--futex", "--by-thread"]);
    assert!(out.matches(", through ").count() >= 5, "{out}");
}

/// Compressed recordings of perf do not state when they start. Recordings with `--threads` are folders.
#[test]
fn recordings_of_other_kinds_are_shared_too() {
    for options in [["-z"].as_slice(), &["--threads"], &["--threads", "-z"]] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        recorded(folder, &[&["-a", "-e", SCHED], options].concat(), BUSY);
        check(folder, "runqlat.py", &["-i", "50"]);
    }
}

/// perf-prof's recordings can be read from several positions, even if they are compressed.
#[test]
fn our_own_compressed_recordings_are_shared_too() {
    // The serial replay sorts within a window of 64 MiB if the recorder marked the ends of rounds too late. So the
    // recording has to be smaller: the burst is shorter, and system calls of other programs are not recorded.
    let work = format!("{} & {BUSY}", BURST.replace("30000", "12000"));
    needs([Need::Tracefs]);
    let own = ["sh", "head", "dd", "sleep", "cat"].map(|name| format!("comm==\"{name}\"")).join("||");
    let syscalls = SYSCALLS.split(',').map(|event| format!("{event}/{own}/")).collect::<Vec<_>>().join(",");
    for form in [["-z", "-o", "perf.data"].as_slice(), &["-z", "--threads", "-o", "perf.data"], &["-z", "-o", "-"]] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut command = Command::new(tested_program());
        command.args(["record", "-q", "-a", "-m", "4096", "-e", SCHED, "-e", &syscalls]).args(form);
        let output = command.args(["--", "sh", "-c", &work]).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        if form.contains(&"-") {
            std::fs::write(folder.join("perf.data"), output.stdout).unwrap();
        }
        check_with(&[SHARES[0], SHARES[2], SHARES[3]], folder, "runqlat.py", &["-i", "50"]);
        check(folder, "syscalls.py", &["--time", "20%,40%"]);
    }
}

/// A script that receives a loss forgets its states, in all processes.
#[test]
fn each_loss_is_reported_in_one_part() {
    for (events, name) in [(SCHED, "runqlat.py"), (SYSCALLS, "syscalls.py")] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        recorded(folder, &["-a", "-m", "1", "-e", events], BURST);
        for options in [[].as_slice(), &["-i", "30"]] {
            // The recording is not divided by CPU. Simultaneous events of two CPUs are delivered in the order of the
            // file, which two parts do not know.
            let (_, total) = check_with(&[SHARES[0], SHARES[3]], folder, name, options);
            if !total.contains("lost ") {
                println!("not tested with {name}: nothing was lost");
            }
        }
    }
}

#[test]
fn calls_that_cross_a_border_are_timed_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recorded(folder, &["-a", "-e", SYSCALLS], BUSY);
    let (out, _) = check_all(folder, "syscalls.py", &["--top", "1000"]);
    // A wait for a child takes longer than most parts.
    assert!(out.contains("wait4 ") && out.contains(" ms"), "{out}");
    check(folder, "syscalls.py", &["--by-pid", "--sort", "max", "-i", "40"]);
}

#[test]
fn stacks_are_added_up() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recorded(folder, &["-a", "-g", "-F", "997", "-e", "cpu-clock"], BUSY);
    let folded = || std::fs::read_to_string(folder.join("f.folded")).unwrap();
    check(folder, "profile.py", &["--by-pid", "-i", "100"]);
    check(folder, "profile.py", &["--flame", "f.folded"]);
    let shared = folded();
    assert!(run_script(folder, "profile.py", &["--input", "perf.data", "--flame", "f.folded"]).status.success());
    assert!(shared == folded() && shared.contains("sleep;"), "{shared}");

    recorded(folder, &["-a", "-g", "-c", "1", "-e", "minor-faults,major-faults"], BUSY);
    check(folder, "faults.py", &["--by", "process", "--top", "1000"]);
    check(folder, "faults.py", &["--by", "stack", "--flame", "f.folded", "-i", "100"]);
}

#[test]
fn times_off_cpu_that_cross_a_border_are_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recorded(folder, &["-a", "-g", "-e", "sched:sched_switch"], BUSY);
    // Only `sleep` is compared. The files of other programs may be replaced between two runs, and then their functions
    // have no names.
    let (out, _) = check_with(&SHARES[1..4], folder, "offcpu.py", &["--top", "1000", "--comm", "sleep"]);
    assert!(out.contains(" sleep\n") && out.contains(" off CPU in "), "{out}");
    let options = ["--comm", "sh", "--state", "interruptible", "--min", "1000", "-i", "37"];
    check_with(&SHARES[..1], folder, "offcpu.py", &options);
    check_with(&SHARES[..1], folder, "offcpu.py", &["--comm", "cat", "--flame", "f.folded", "-i", "100"]);
    let folded = || {
        let text = std::fs::read_to_string(folder.join("f.folded")).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let shared = folded();
    assert!(
        run_script(folder, "offcpu.py", &["--input", "perf.data", "--comm", "cat", "--flame", "f.folded"])
            .status
            .success()
    );
    assert_eq!(shared, folded());
    // With -t, no switches to the task are recorded.
    let (out, _) = check_with(&SHARES[..1], folder, "offcpu.py", &["-t", "1"]);
    assert!(out.contains("0.000 ms off CPU in 0 stacks"), "{out}");
}

/// Tasks that left their CPU in one range were off it until the next range.
#[test]
fn no_time_off_cpu_goes_on_over_a_time_that_is_not_selected() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recorded(folder, &["-a", "-g", "-e", "sched:sched_switch"], BUSY);
    let total = |times: &str| -> u64 {
        let (out, _) = check_with(&SHARES[..2], folder, "offcpu.py", &["--comm", "sh", "--time", times]);
        let total = out.lines().find_map(|line| line.split_once(" off CPU in ")).unwrap_or_else(|| panic!("{out}")).0;
        let (number, unit) = total.split_once(' ').unwrap();
        let us = number.replace('.', "").parse::<u64>().unwrap();
        if unit == "s" { us * 1000 } else { us }
    };
    let [one, other, both] = ["10%-40%", "60%-90%", "10%-40%,60%-90%"].map(total);
    // From 1 s on, a total has three decimals.
    assert!((one + other).abs_diff(both) < 2000 && one > 0 && other > 0, "{one} {other} {both}");
    let refused = run_script(folder, "offcpu.py", &["--input", "perf.data", "-C", "0"]);
    assert!(said(&refused).contains("cannot be combined with --all-cpus"), "{}", said(&refused));
}

/// A task that goes to another CPU would look as if it waited until it comes back.
#[test]
fn scripts_that_ask_for_all_cpus_refuse_a_recording_of_one() {
    needs([Need::Tracefs, Need::Perf, Need::TwoCpus]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recorded(folder, &["-C", "0", "-g", "-e", "sched:sched_switch"], "sleep 0.01");
    let refused = run_script(folder, "offcpu.py", &["--input", "perf.data"]);
    let said = said(&refused);
    assert!(!refused.status.success() && said.contains("perf.data has the events of only some CPUs, but"), "{said}");
}

#[test]
fn processes_that_begin_and_end_in_different_parts_have_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let events = "task:task_newtask,sched:sched_process_exec,sched:sched_process_exit,syscalls:sys_enter_exit,\
                  syscalls:sys_enter_exit_group,signal:signal_generate,signal:signal_deliver";
    // Some processes end by a signal, one has threads, and most last longer than a part.
    let work = "for i in 1 2 3 4 5 6; do sleep 0.7 & sleep 9 & p=$!; ls >/dev/null; sh -c 'sleep 0.02; exit 3' & \
                kill -TERM $p; sleep 0.05; done; python3 -c 'import threading, time\nfor _ in range(3): \
                threading.Thread(target=time.sleep, args=(.1,)).start()'; wait";
    recorded(folder, &["-a", "-m", "512", "-e", events], work);
    let (out, _) = check_all(folder, "execsnoop.py", &["--forks"]);
    for text in ["killed by SIGTERM from sh ", "exit 3 after ", " exec ", " fork "] {
        assert!(out.contains(text), "{out}");
    }
    // There may also be exits of other programs.
    assert!(out.lines().filter(|line| line.contains(" exit ")).count() >= 24, "{out}");
    let (sleeps, _) = check(folder, "execsnoop.py", &["--name", "sleep"]);
    // The lines show the measured times, so the sleeps of 0.7 s and 0.02 s are only counted.
    let ended = sleeps.lines().filter(|line| line.contains(" exit 0 after ") && line.ends_with("sleep"));
    assert!(ended.count() >= 12, "{sleeps}");
}

/// A program with threads and nested calls. The first argument is the depth. The last argument is N: every Nth call of
/// `left` ends by longjmp(). If N is 0, `left` is not called.
const NESTED: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>
static __thread jmp_buf out;
static int depth, leaves;
__attribute__((noinline)) int nest(int n) { int more = n ? nest(n - 1) : 0; __asm__ volatile(""); return more + 1; }
__attribute__((noinline)) int left(int is) { if (is) longjmp(out, 1); __asm__ volatile(""); return 1; }
__attribute__((noinline)) int outer(void) {
    for (volatile int i = 0; i < 30; i++) {
        usleep(200);
        nest(depth);
        if (leaves && !setjmp(out)) left(i % leaves == 0);
    }
    return 1;
}
static void *run(void *none) { for (volatile int i = 0; i < 3; i++) outer(); return none; }
int main(int count, char **words) {
    pthread_t threads[3];
    depth = atoi(words[1]);
    leaves = atoi(words[count - 1]);
    for (int i = 0; i < 3; i++) pthread_create(threads + i, 0, run, 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;

/// Tests `uprobe_latency.py` in several processes.
#[test]
fn calls_of_programs_that_cross_a_border_are_timed_once() {
    needs([Need::Tracefs, Need::Uprobes, Need::Compilers]);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("nested.c"), NESTED).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-optimize-sibling-calls", "-o", "nested", "nested.c", "-lpthread"]);
    match compiler.current_dir(folder).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => panic!("cc: {error}"),
    }
    let probes = ["outer", "nest", "left"].map(|name| format!("function:{name}@./nested"));
    let probes = ["-e", &probes.join(",")];
    for (depth, leaves, pages) in [("3", "0", "1024"), ("3", "4", "1024"), ("70", "0", "1024"), ("50", "3", "1")] {
        let mut command = Command::new(tested_program());
        command.args(["record", "-q", "-m", pages, "-o", "perf.data"]).args(probes);
        let output = command.args(["--", "./nested", depth, leaves]).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        // Small rings lose events.
        let shares = [SHARES[0], SHARES[2], SHARES[3]];
        let (out, _) = check_with(&shares, folder, "uprobe_latency.py", &probes);
        let options = ["-i", "20", "--ns", "--min", "5"];
        check_with(&shares[..2], folder, "uprobe_latency.py", &[&probes[..], &options].concat());
        if (depth, leaves) == ("3", "0") {
            assert!(out.contains("outer: 9 calls, ") && out.contains("nest: 1080 calls, "), "{out}");
        }
    }
}

/// Samples may lack the CPU. A part may not know what was counted before its first sample.
#[test]
fn recordings_that_cannot_be_divided_among_jobs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let refused = |shares: &[&str]| {
        let output = run_script(folder, "profile.py", &[&["--input", "perf.data"], shares].concat());
        assert_eq!(output.status.code(), Some(1));
        said(&output)
    };
    recorded(folder, &["--per-thread", "-e", "cpu-clock"], "true");
    let message = refused(&["--jobs", "2", "--split", "cpu"]);
    assert!(message.contains("--split cpu: not all samples of perf.data contain their CPU"), "{message}");
    recorded(folder, &["-a", "-e", "{cpu-clock,task-clock}:S"], BUSY);
    let message = refused(&["--jobs", "2"]);
    assert!(message.contains("contain counter values") && message.contains("use `--split cpu`"), "{message}");
    check_by_cpu(folder);
}

fn check_by_cpu(folder: &Path) {
    let run = |shares: &[&str]| {
        let output = run_script(folder, "profile.py", &[&["--input", "perf.data"], shares].concat());
        assert!(output.status.success(), "{}", said(&output));
        output.stdout
    };
    assert_eq!(run(&["--jobs", "2", "--split", "cpu"]), run(&[]));
}

/// Compressed recordings do not state when they ended, but scripts still need the time of day.
#[test]
fn the_time_of_day_is_known_in_compressed_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    recorded(folder, &["-a", "-z", "-e", "sched:sched_switch"], "sleep 0.1");
    let text = "\
import os, perf_prof
last = None
def __sample__(event):
    global last
    last = event._realtime
def __partial__(): return last
def __merge__(partials):
    global last
    last = max(filter(None, partials))
def __exit__(): print(last // 10**9 == int(os.stat('perf.data').st_mtime), perf_prof.realtime() == last, perf_prof.is_recording())
";
    std::fs::write(folder.join("s.py"), text).unwrap();
    for shares in [[].as_slice(), &["--jobs", "2"]] {
        let mut command = Command::new(tested_program());
        command.args(["python", "-q", "--input", "perf.data"]).args(shares).arg("s.py").current_dir(folder);
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "True True True\n", "{}", said(&output));
    }
}

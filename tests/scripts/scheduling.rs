//! Tests `wakeups.py`, `runqlat.py` and `offcpu.py` on tasks that sleep, wait and are woken.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use crate::harness::{
    awake::Awake,
    machine::{Need, needs, skip},
    run::perf_prof,
    scripts::{beside, filtered, first_in_first_out, on_made_up_events, on_workload, row, script, text},
    task::{named, pin_to_first},
    wait::Killed,
};

const ROUNDS: usize = 1000;

/// Two tasks that take turns. With SCHED_FIFO on one CPU, neither runs before the other sleeps. So each byte wakes a
/// task.
pub fn ping_pong() {
    pin_to_first();
    assert!(first_in_first_out());
    let (mut there, mut back) = ([0; 2], [0; 2]);
    let mut byte = 0u8;
    let byte = (&raw mut byte).cast();
    // SAFETY: pipes and byte live across the calls; the child of the fork calls nothing else.
    unsafe {
        assert!(libc::pipe(there.as_mut_ptr()) == 0 && libc::pipe(back.as_mut_ptr()) == 0);
        match libc::fork() {
            0 => {
                named(c"pong");
                libc::write(back[1], byte, 1);
                for _ in 0..ROUNDS {
                    libc::read(there[0], byte, 1);
                    libc::write(back[1], byte, 1);
                }
                libc::_exit(0)
            }
            child => {
                libc::read(back[0], byte, 1);
                named(c"ping");
                for _ in 0..ROUNDS {
                    libc::write(there[1], byte, 1);
                    libc::read(back[0], byte, 1);
                }
                named(c"done");
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
        }
    }
}

#[test]
fn wakeups_counts_a_ping_pong_exactly() {
    // This is checked in another thread, because the thread keeps its real-time policy.
    needs([Need::Tracefs]);
    if !thread::spawn(first_in_first_out).join().unwrap() {
        skip(Need::RealTime, "no real-time scheduling for us");
    }
    for name in ["ping", "pong"] {
        let out = on_workload("wakeups.py", &["-i", "100000", "--comm", name], "ping-pong");
        let total = format!("whole run: {ROUNDS} wake-ups, 1 task");
        assert!(out.lines().any(|line| line == total), "{out}");
        assert_eq!(row(&out, name)[2], ROUNDS.to_string(), "{out}");
    }
}

const SLEEPS: u64 = 50;

/// Returns the number of times that this thread or a process started to run on a CPU, as the kernel counts it: the
/// third number in `schedstat`.
fn arrivals(who: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{who}/schedstat")).unwrap();
    text.split_whitespace().nth(2).unwrap().parse().unwrap()
}

/// Sleeps while another process computes on the same CPU. Prints what the kernel counted for both.
pub fn sleeps() {
    pin_to_first();
    named(c"rq-busy");
    // SAFETY: the child of the fork calls nothing but getppid.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: getppid takes no argument and cannot fail.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    }
    named(c"rq-sleep");
    let before = arrivals("thread-self");
    for _ in 0..SLEEPS {
        thread::sleep(Duration::from_millis(1));
    }
    let after = arrivals("thread-self");
    println!("\nrq-sleep {}", after - before);
    println!("rq-busy {}", arrivals(&child.to_string()));
    // SAFETY: the child was not reaped yet.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

#[test]
fn runqlat_counts_the_waits_that_the_kernel_counts() {
    needs([Need::Tracefs, Need::Schedstat]);
    let _awake = Awake::new();
    let mut runqlat = filtered("runqlat.py", |event| match event {
        "sched:sched_switch" => "prev_comm~\"rq-*\"||next_comm~\"rq-*\"",
        _ => "comm~\"rq-*\"",
    });
    runqlat.args(["-i", "50"]);
    let (out, truth) = beside(runqlat, "sleeps");
    let histograms = histograms(&out);
    for name in ["rq-sleep", "rq-busy"] {
        let true_count: u64 = row(&truth, name)[1].parse().unwrap();
        let waits: u64 = histograms.iter().filter(|(command, _)| command == name).map(|(_, count)| count).sum();
        assert!(true_count >= if name == "rq-sleep" { SLEEPS } else { 1 }, "{truth}");
        // A task may wait a few more times before and after the kernel's count is read.
        assert!(
            (true_count..true_count + 10).contains(&waits),
            "{name}: {waits} waits, the kernel counted {true_count}\n{out}"
        );
    }
}

/// With --comm or --tid, waits of other tasks do not count as missed.
#[test]
fn runqlat_counts_missed_starts_of_waits_only_for_selected_tasks() {
    needs([Need::Tracefs]);
    let out = on_made_up_events(
        "runqlat.py",
        "
script.args.comm = 'b'
script.came(1, 5, 'a')
script.came(1, 6, 'b')
print(script.counts['unpaired'])
script.args.tid = 7
switch = event(_time=3, _cpu=0, prev_pid=5, prev_state=1, next_pid=6, next_comm='b')
script.sched__sched_switch(switch)
print(script.counts['unpaired'])
",
    );
    assert!(out.starts_with("1\n1\n"), "{out}");
}

/// Returns the command and the number of waits of each histogram. Checks that the rows of each histogram add up to this
/// number.
fn histograms(text: &str) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    let mut sum = 0;
    let mut check = |found: &[(String, u64)], row: Option<u64>| match row {
        Some(count) => sum += count,
        None => {
            assert_eq!(found.last().map_or(0, |&(_, count)| count), sum, "{text}");
            sum = 0;
        }
    };
    for line in text.lines() {
        if let Some(count) = line.strip_suffix(" waits") {
            check(&found, None);
            let (command, count) = count.rsplit_once(": ").unwrap();
            found.push((command.to_owned(), count.parse().unwrap()));
        } else if let (true, Some((_, count))) = (line.contains(" -> "), line.split_once(" : ")) {
            check(&found, Some(count.split_whitespace().next().unwrap().parse().unwrap()));
        }
    }
    check(&found, None);
    assert!(!found.is_empty());
    found
}

const NAPS: u64 = 20;

/// Sleeps in a task with its own comm. Prints how long all sleeps took.
pub fn naps() {
    // The sleeper and a busy thread stay on one CPU, so it is never idle: some kernels do not trace how an idle CPU
    // switches to a task.
    // SAFETY: a set of CPUs is plain data, and the calls read no more than it.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut cpus);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&cpus), &cpus), 0);
    }
    thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    named(c"napper");
    let began = Instant::now();
    for _ in 0..NAPS {
        thread::sleep(Duration::from_millis(10));
    }
    let took = began.elapsed();
    named(c"awake");
    println!("\nnaps {}", took.as_micros());
}

#[test]
fn offcpu_adds_up_the_naps_of_a_sleeper() {
    needs([Need::Tracefs]);
    let directory = tempfile::tempdir().unwrap();
    let [folded, svg] = ["off.folded", "off.svg"].map(|name| directory.path().join(name).display().to_string());
    let args = |file| ["-i", "50", "--comm", "napper", "--state", "interruptible", "--flame", file];
    let offcpu = |file| {
        let mut offcpu = filtered("offcpu.py", |_| "prev_comm==\"napper\"||next_comm==\"napper\"");
        offcpu.args(args(file));
        offcpu
    };
    let (out, truth) = beside(offcpu(&folded), "naps");
    let took: u64 = row(&truth, "naps")[1].parse().unwrap();
    let lines = fs::read_to_string(&folded).unwrap();
    let asleep = lines.lines().map(|line| line.rsplit_once(' ').unwrap());
    let asleep = asleep.inspect(|(stack, _)| {
        assert!(stack.starts_with("napper;") && stack.contains(";do_nanosleep_[k];schedule_[k]"), "{stack}")
    });
    let sum: u64 = asleep.map(|(_, us)| us.parse::<u64>().unwrap()).sum();
    // A nap begins a little before the task leaves the CPU, and rounding may take a microsecond.
    assert!((NAPS * 9_500..=took).contains(&sum), "{sum} us in {lines}, the sleeper measured {took} us");
    // The tables of the intervals add up to the same time.
    let tables = out.lines().filter_map(|line| line.split_once(" off CPU in ")).map(|(time, _)| microseconds(time));
    assert!(tables.sum::<u64>().abs_diff(sum) <= sum / 100, "{out}");
    assert!(out.contains(" do_nanosleep\n") && !out.contains("_[k]"), "{out}");

    beside(offcpu(&svg), "naps");
    let svg = fs::read_to_string(&svg).unwrap();
    assert!(svg.contains("<title>do_nanosleep (") && svg.contains(" us, 100.00%)"), "{svg}");
}

/// Converts a time such as `1.5 s` or `1.5 ms` to microseconds.
fn microseconds(shown: &str) -> u64 {
    let (number, unit) = shown.trim().split_once(' ').unwrap();
    (number.parse::<f64>().unwrap() * if unit == "s" { 1e6 } else { 1e3 }) as u64
}

/// The time between the exit of a task and the start of the next task with its id is not time off CPU.
#[test]
fn offcpu_does_not_take_a_dead_task_for_the_next_one_with_its_number() {
    needs([Need::Tracefs]);
    let out = on_made_up_events(
        "offcpu.py",
        "
class Table(list):
    def add(self, began, us): self.append((began.prev_pid, us))
script.report.table = Table()
def switch(us, prev, state, next):
    script.sched__sched_switch(event(
        _time=us * 1000, _cpu=0, _pid=prev, prev_pid=prev, prev_comm='t', prev_state=state, next_pid=next))
switch(0, 7, 1, 8)
switch(5, 8, 0, 7)
for at, dead in (10, 0x10), (1000, 0x20):  # EXIT_DEAD, EXIT_ZOMBIE
    switch(at, 7, dead, 8)
    switch(at + 700, 8, 1, 7)
print(script.report.table, [event.prev_pid for _, _, event in script.left.values()])
",
    );
    assert_eq!(out, "[(7, 5), (8, 5), (8, 290)] [8]\n");
}

#[test]
fn the_picture_of_offcpu_says_that_switches_were_not_seen() {
    needs([Need::Tracefs]);
    let out = on_made_up_events(
        "offcpu.py",
        "
import re, tempfile
from perf_prof import FlameGraph
class Switch(tuple):  # A switch is its own stack.
    pass
def switch(us, prev, state, next):
    made = Switch(('t', 'f'))
    made.__dict__.update(
        _time=us * 1000, _cpu=0, _pid=prev, _tid=prev, _comm='t', prev_pid=prev, prev_comm='t', prev_state=state, next_pid=next)
    script.sched__sched_switch(made)
with tempfile.TemporaryDirectory() as folder:
    for prev in 8, 9:  # Task 8 came to the CPU.
        script.args.flame, script.whole = folder + '/x.svg', FlameGraph(colors='offcpu', count_name='us')
        script.counts.clear()
        switch(0, 7, 1, 8)
        switch(1500, prev, 1, 7)
        script.__exit__()
        lines = re.search('id=.subtitle.[^>]*>(.*?)</text>', open(script.args.flame).read())[1]
        print('subtitle', re.sub('(<[^>]*>)+', ' ', lines).strip())
",
    );
    let shown: Vec<&str> = out.lines().filter(|line| line.starts_with("subtitle ")).collect();
    let partial =
        "switches that were not seen, by losses, a filter or the kernel: 1 or more; times may be missing or wrong";
    assert!(shown.len() == 2 && !shown[0].contains("not seen") && shown[1].ends_with(partial), "{out}");
    // The last switch is one away from a task.
    assert!(shown.iter().all(|line| line.contains("partial: tasks that had not come back at the end")), "{out}");
}

/// Returns the time off CPU of the command `sleep`, in microseconds.
fn nap_of(out: &str) -> u64 {
    let line = out.lines().find(|line| line.ends_with("  sleep")).unwrap_or_else(|| panic!("no sleep in {out}"));
    microseconds(&line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

/// Repeats a run until its output is as expected. Some kernels do not report all switches to perf events, and perf
/// itself lacks them too. The script then says that switches are missing.
fn with_all_switches(run: impl Fn() -> String, is_expected: impl Fn(&str) -> bool) -> String {
    for _ in 0..30 {
        let shown = run();
        if is_expected(&shown) {
            return shown;
        }
        assert!(shown.contains("(switches that were not seen"), "{shown}");
    }
    panic!("switches were missing in all runs");
}

/// The events that end a wait belong to other tasks, so the script has to receive these events too.
#[test]
fn a_command_selects_the_tasks_that_wait() {
    needs([Need::Tracefs]);
    let args = ["--state", "interruptible", "--min", "90000", "--exec", "sh", "-c", "sleep 0.1"];
    let run = || text(script("offcpu.py").args(args).output().unwrap());
    let shown = with_all_switches(run, |shown| shown.lines().any(|line| line.ends_with("  sleep")));
    assert!(nap_of(&shown) >= 100_000, "{shown}");
    let tasks: Vec<&str> =
        shown.lines().filter(|line| line.contains("%  ")).map(|l| l.rsplit("  ").next().unwrap()).collect();
    assert!(tasks.iter().all(|task| ["sh", "sleep"].contains(task)), "{shown}");

    let run = || text(script("runqlat.py").args(["--exec", "sh", "-c", "sleep 0.1"]).output().unwrap());
    let shown = with_all_switches(run, |shown| histograms(shown).iter().any(|(command, _)| command == "sleep"));
    let commands = histograms(&shown);
    let own = |command: &str| ["sh", "sleep", "perf-prof"].contains(&command);
    assert!(commands.iter().all(|(command, _)| own(command)), "{shown}");
}

/// The options of perf-prof and of the script select the same tasks, live and in a recording.
#[test]
fn a_process_and_a_thread_select_the_tasks_that_wait() {
    needs([Need::Tracefs]);
    let busy = std::process::Command::new("sh").args(["-c", "while sleep 0.01; do :; done"]).spawn().unwrap();
    let busy = Killed(busy);
    let id = busy.0.id().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data").display().to_string();
    let events = "sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_switch";
    let mut record = perf_prof(&["record", "-q", "-a", "-m", "2048", "-e", events, "-o", &file, "--", "sleep", "1"]);
    assert!(record.output().unwrap().status.success());
    let shown = |options: &[&str]| text(script("runqlat.py").args(options).output().unwrap());
    let recorded = |option: &str| shown(&["--input", &file, option, &id]);
    let of_thread = recorded("-t");
    let tasks = |out: &str| -> Vec<String> { histograms(out).into_iter().map(|(command, _)| command).collect() };
    assert_eq!(tasks(&of_thread), ["sh"], "{of_thread}");
    assert_eq!(recorded("--tid"), of_thread);
    // The process itself is selected, without its children.
    assert_eq!(recorded("--pid"), of_thread);
    let of_process = recorded("-p");
    assert!(tasks(&of_process).contains(&"sleep".to_owned()) && tasks(&of_process).contains(&"sh".to_owned()));
    let live = std::thread::scope(|scope| {
        let live = scope.spawn(|| shown(&["-t", &id]));
        std::thread::sleep(Duration::from_millis(1500));
        // The run ends when the thread exits.
        // SAFETY: the child was not reaped yet.
        unsafe { libc::kill(busy.0.id() as i32, libc::SIGKILL) };
        live.join().unwrap()
    });
    assert_eq!(tasks(&live), ["sh"], "{live}");
}

#[test]
fn runqlat_shows_percentiles_of_each_task() {
    needs([Need::Tracefs]);
    let out = on_made_up_events(
        "runqlat.py",
        "
script.args.top = 2
def wait(tid, comm, start, ns):
    script.waiting.woken(start, tid, 0)
    script.came(start + ns, tid, comm)
for n in range(1, 101): wait(5, 'a', 10**6 * n, n * 1000)
wait(6, 'a', 5, 300)
wait(7, 'b', 5, 200)
script.__exit__()
",
    );
    let words = |comm: &str, tid: &str| -> Vec<f64> {
        let row = out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = row.into_iter().find(|row| row.starts_with(&[comm, tid])).unwrap_or_else(|| panic!("{out}"));
        row[2..].iter().map(|word| word.parse().unwrap()).collect()
    };
    let [waits, p50, p99, longest] = words("a", "5")[..] else { panic!("{out}") };
    assert_eq!((waits, longest), (100.0, 100.0), "{out}");
    assert!((50.0..=50.5).contains(&p50) && (99.0..=100.0).contains(&p99), "{out}");
    assert_eq!(words("a", "6"), [1.0, 0.3, 0.3, 0.3], "{out}");
    assert!(out.contains("3 tasks, 1 more with a larger --top\n"), "{out}");
}

#[test]
fn switches_that_were_not_seen_are_counted() {
    needs([Need::Tracefs]);
    let switches = "
def switch(cpu, prev, next):
    script.sched__sched_switch(event(_time=switch.now, _cpu=cpu, _pid=prev, prev_pid=prev, prev_comm='t',
                                     prev_state=1, next_pid=next, next_comm='t'))
    switch.now += 1000
switch.now = 1000
switch(0, 7, 8); switch(1, 5, 6); switch(0, 8, 9); switch(1, 6, 0); switch(0, 9, 7)
print(script.counts['unseen'])
switch(0, 8, 9)
switch(1, 5, 6)
print(script.counts['unseen'])
";
    for name in ["runqlat.py", "offcpu.py"] {
        // A made event has no stack that offcpu.py could count.
        let table = if name == "offcpu.py" {
            "class Table:\n    def add(self, *_): pass\nscript.report.table = Table()"
        } else {
            ""
        };
        let test = format!("{table}{switches}");
        assert!(on_made_up_events(name, &test).starts_with("0\n2\n"), "{name}");
        // Those of other threads do not concern the times of a thread.
        let of_thread = |tid: u32| format!("{table}\nscript.args.tid = {tid}{switches}");
        for (tid, counts) in [(8, "0\n1\n"), (5, "0\n1\n"), (4, "0\n0\n")] {
            assert!(on_made_up_events(name, &of_thread(tid)).starts_with(counts), "{name} {tid}");
        }
    }
}

/// The kernel sets no process id in events of an exiting task.
#[test]
fn offcpu_knows_the_process_of_a_task_that_exits() {
    needs([Need::Tracefs]);
    let out = on_made_up_events(
        "offcpu.py",
        "
import perf_prof.script
perf_prof.script.is_target = lambda tid: True
perf_prof.script.process_of = {5: 7, 6: 8}.get
script.args.pid = 7
for tid, pid in (5, -1), (5, 7), (5, 8), (6, -1):
    script.sched__sched_switch(event(
        _time=5, _cpu=0, _pid=pid, prev_pid=tid, prev_comm='t', prev_state=0x100, next_pid=0))
    print(len(script.left))
    script.left.clear()
",
    );
    assert_eq!(out, "1\n1\n0\n0\n");
}

/// Events after the last interval are in a table of their own, so all tables add up to the whole run.
#[test]
fn wakeups_after_the_last_interval_have_a_table() {
    needs([Need::Tracefs]);
    let out = on_made_up_events(
        "wakeups.py",
        "
def wake(): script.sched__sched_wakeup(event(comm='a', pid=5, target_cpu=0))
wake()
script.__interval__()
wake(); wake()
script.__exit__()
",
    );
    let titles: Vec<&str> = out.lines().filter(|line| line.contains(" wake-ups, ")).collect();
    assert!(titles.len() == 3 && titles[0].ends_with(": 1 wake-ups, 1 task"), "{out}");
    assert_eq!(titles[1..], ["after the last interval: 2 wake-ups, 1 task", "whole run: 3 wake-ups, 1 task"]);
}

/// A loss on one CPU does not affect tasks that left another CPU. Waits that a loss may have made wrong are counted.
#[test]
fn a_loss_drops_the_waits_of_its_own_cpu_only() {
    needs([Need::Tracefs]);
    let losses = "
import perf_prof
def loses(at, cpu):
    perf_prof._parts.lost_cpu = lambda: cpu
    script.__lost__(at - 1, at)
def switch(at, cpu, prev, state, next):
    script.sched__sched_switch(event(_time=at * 1000, _cpu=cpu, _pid=prev, prev_pid=prev, prev_comm='t',
                                     prev_state=state, next_pid=next, next_comm='t'))
";
    let offcpu = "
class Table(list):
    def add(self, began, us): self.append((began.prev_pid, us))
script.report.table = Table()
switch(10, 0, 5, 1, 0); switch(10, 1, 6, 1, 0)
loses(20_000, 0)
switch(20, 0, 0, 0, 5); switch(30, 1, 0, 0, 6)
switch(40, 0, 5, 1, 6); switch(45, 1, 6, 1, 5)
print(script.report.table, script.counts['untold'])
loses(46_000, None)
switch(60, 1, 0, 0, 6)
print(script.report.table, script.counts['untold'], script.counts['untold ns'] // 1000)
";
    let out = on_made_up_events("offcpu.py", &format!("{losses}{offcpu}"));
    assert_eq!(out, "[(6, 20), (5, 5)] 1\n[(6, 20), (5, 5)] 2 25\n");
    let runqlat = "
switch(10, 0, 5, 0, 9); switch(10, 1, 6, 0, 9)
loses(20_000, 0)
switch(30, 0, 9, 1, 5); switch(30, 1, 9, 1, 6)
print([(tid, waits.longest) for (_, tid), waits in script.report.table['t']['tasks'].items()], script.counts['untold'])
def wake(at, tid): script.sched__sched_wakeup(event(_time=at * 1000, _cpu=0, pid=tid, target_cpu=1))
wake(40, 7)
loses(50_000, 1)
wake(60, 7)
switch(70, 1, 6, 1, 7)
print(script.report.table['t']['tasks']['t', 7].longest, script.counts['untold'])
";
    let out = on_made_up_events("runqlat.py", &format!("{losses}{runqlat}"));
    assert!(out.starts_with("[(6, 20000)] 1\n10000 1\n"), "{out}");
}

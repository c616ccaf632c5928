//! The time off CPU, added up in the kernel: of all sleeps, on each CPU, and with events that BPF programs miss.

use std::{
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use perf_prof_format::abi::bpf::MapType;
use perf_prof_system::bpf::{Map, MapDefinition};
use serde_json::Value as Json;

use super::{counts, needs_bpf};
use crate::harness::{
    awake::Awake,
    counting::objects,
    run::{PATIENCE, perf_prof, stdout, with_patience},
    script::Run,
    task::{allowed_cpus, named, pin},
    wait::EndsThreads,
    workload,
};

/// The environment variable with the CPU of the sleeper.
const CPU: &str = "PERF_PROF_TEST_CPU";
const SLEEPS: u32 = 200;

/// With this environment variable, the sleeper is a thread that starts later.
const LATE: &str = "PERF_PROF_TEST_LATE";

/// Sleeps on one CPU in a task with its own comm. Then prints how often the task left the CPU, and for how long it ran,
/// in ns.
pub fn sleeper() {
    if std::env::var_os(LATE).is_some() {
        thread::sleep(Duration::from_millis(1000));
        thread::spawn(sleeps).join().unwrap();
    } else {
        sleeps();
    }
}

fn sleeps() {
    pin(std::env::var(CPU).unwrap().parse().unwrap());
    named(c"sleeper");
    let (before, began) = (switches(), Instant::now());
    (0..SLEEPS).for_each(|_| thread::sleep(Duration::from_millis(5)));
    let (after, took) = (switches(), began.elapsed());
    named(c"awake");
    eprintln!("switches {} {}", after - before, took.as_nanos());
}

/// Returns the number of times that this thread has left its CPU.
fn switches() -> u64 {
    // SAFETY: the structure is plain data, and lives across the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage
    };
    (usage.ru_nvcsw + usage.ru_nivcsw) as u64
}

/// The result of a run on the sleeper, and what the sleeper itself counted.
struct Slept {
    object: Json,
    switches: u64,
    nanoseconds: u64,
}

impl Slept {
    /// Traces the sleeper on a CPU, in the kernel.
    fn trace(cpu: u32, args: &[&str]) -> Slept {
        let mut command = perf_prof(&["top"]);
        command.args(args).args(["--in-kernel", "always", "--json", "--"]).args(workload::words("sleeper"));
        let output = with_patience(command.env(CPU, cpu.to_string()), PATIENCE).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let object = objects(&stdout(&output)).pop().unwrap();
        let numbers = said.lines().find_map(|line| line.strip_prefix("switches ")).unwrap_or_else(|| panic!("{said}"));
        let mut numbers = numbers.split(' ').map(|number| number.parse::<u64>().unwrap());
        Slept { object, switches: numbers.next().unwrap(), nanoseconds: numbers.next().unwrap() }
    }

    fn spans(&self) -> u64 {
        counts(&self.object).iter().sum()
    }

    fn total(&self) -> u64 {
        self.object["rows"].as_array().unwrap().iter().map(|row| row["total"].as_u64().unwrap()).sum()
    }
}

/// On some virtual machines, perf gets no events of the idle task of some CPUs. BPF programs do, so no sleep is
/// missing, whatever the CPU does.
#[test]
fn each_time_off_a_cpu_is_counted_on_all_cpus() {
    needs_bpf();
    for cpu in allowed_cpus() {
        // Events are missed if another program uses BPF on the CPU, and some machines have switches without a
        // tracepoint event. Both are reported.
        let mut runs = (0..20).map(|_| Slept::trace(cpu, &["offcpu/comm=sleeper/", "--by", "state"]));
        let slept = runs.find(|slept| {
            let is_complete = slept.object["partial"] == false;
            assert!(is_complete || slept.object["missing"] != 0 || slept.object["lost"] != 0, "{}", slept.object);
            is_complete
        });
        let slept = slept.unwrap();
        // The sleeper may be preempted between its own counting and the change of its comm.
        let more = slept.spans().checked_sub(slept.switches).unwrap_or_else(|| panic!("CPU {cpu}: {}", slept.object));
        assert!(more <= 2, "CPU {cpu}: {} {}", slept.switches, slept.object);
        assert!(slept.switches >= u64::from(SLEEPS) * 9 / 10, "{}", slept.switches);
        assert!(slept.total() >= 9 * slept.nanoseconds / 10, "CPU {cpu}: {} {}", slept.nanoseconds, slept.object);
        assert!(more != 0 || slept.total() <= slept.nanoseconds, "CPU {cpu}: {} {}", slept.nanoseconds, slept.object);
    }
}

/// Only the command is selected, but the events of its spans happen in other tasks.
#[test]
fn the_tasks_of_a_command_are_selected_by_the_task_of_each_span() {
    needs_bpf();
    for source in ["offcpu", "oncpu", "runqueue"] {
        let slept = Slept::trace(allowed_cpus()[0], &[source, "--by", "comm"]);
        let rows = slept.object["rows"].as_array().unwrap();
        let of_sleeper = rows.iter().find(|row| row["comm"] == "sleeper").unwrap();
        let count = of_sleeper["count"].as_u64().unwrap();
        // A wakeup without a tracepoint event is not noticed.
        let least = if source == "runqueue" { slept.switches * 9 / 10 } else { slept.switches };
        assert!(slept.object["partial"] == true || count >= least, "{source}: {} {count}", slept.switches);
        // The remaining rows are the comms that the task has before and after `sleeper`.
        assert!(rows.len() <= 4 && rows.iter().all(|row| row["comm"] != "swapper/0"), "{source}: {}", slept.object);
    }
}

/// The threads of a process are selected: threads from before the tracing, and threads that the process creates later.
#[test]
fn the_threads_of_a_process_are_selected_by_the_task_of_each_span() {
    needs_bpf();
    let words = workload::words("sleeper");
    for (source, late) in [("offcpu", true), ("oncpu", false), ("runqueue", true)] {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env(CPU, allowed_cpus()[0].to_string()).stderr(Stdio::null());
        if late {
            command.env(LATE, "1");
        }
        let mut child = command.spawn().unwrap();
        let pid = child.id().to_string();
        let args = ["top", source, "--by", "comm", "-p", &pid, "--in-kernel", "always", "--json"];
        let output = with_patience(&mut perf_prof(&args), PATIENCE).output().unwrap();
        child.wait().unwrap();
        let object = objects(&stdout(&output)).pop().unwrap();
        let rows = object["rows"].as_array().unwrap();
        let of_sleeper = rows.iter().find(|row| row["comm"] == "sleeper").unwrap_or_else(|| panic!("{object}"));
        let count = of_sleeper["count"].as_u64().unwrap();
        // The thread starts long after perf-prof, except on a very busy machine.
        let least = if late { 180 } else { 10 };
        assert!((least..=260).contains(&count), "{source}: {object}");
        assert!(rows.len() <= 4, "{source}: {object}");
    }
}

#[test]
fn a_script_is_told_where_spans_are_added_up_and_how_many() {
    needs_bpf();
    let script = "
import perf_prof
offcpu = perf_prof.Count('comm')

def __exit__():
    row = perf_prof.stats()['events']['offcpu']
    print(row['where'], row['lost'] is not None, row['opened'] == row['ended'] + row['open'] + row['dropped'])
    print(0 < offcpu.total == row['delivered'] <= row['ended'])
";
    let _awake = Awake::new();
    for (when, place) in [("always", "kernel True"), ("never", "perf-prof False")] {
        let run =
            Run::script(script).options(["-e", "offcpu", "--in-kernel", when]).workload("sleep-ms 20 call 1").run();
        assert_eq!((run.status, run.stdout), (0, format!("{place} True\nTrue\n")), "{}", run.stderr);
    }
}

/// Reads a large BPF map repeatedly on a CPU until `ends` is set. Meanwhile, BPF programs of tracepoints do not run on
/// that CPU.
pub fn read_on(cpu: u32, ends: &AtomicBool) {
    pin(cpu);
    let (name, map_type, flags, inner) = ("large", MapType::Hash, 0, None);
    let entries = 1 << 20;
    let map = Map::new(&MapDefinition { name, map_type, key_size: 8, value_size: 8, entries, flags, inner }).unwrap();
    while !ends.load(Ordering::Relaxed) {
        map.for_each(|_, _| {}).unwrap();
    }
}

#[test]
fn a_wakeup_that_programs_miss_makes_no_span_wrong_and_is_told() {
    needs_bpf();
    let cpu = allowed_cpus()[0];
    let ends = AtomicBool::new(false);
    let slept = thread::scope(|scope| {
        scope.spawn(|| read_on(cpu, &ends));
        let _end = EndsThreads(&ends);
        // The timer that wakes the sleeper interrupts the reading.
        Slept::trace(cpu, &["runqueue/comm=sleeper/", "--by", "comm"])
    });
    assert_eq!(slept.object["partial"], true, "{}", slept.object);
    assert!(slept.object["lost"].as_u64().unwrap() > 0, "{}", slept.object);
    assert!(slept.spans() < slept.switches && slept.total() < slept.nanoseconds, "{}", slept.object);
}

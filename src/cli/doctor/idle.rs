//! Checks whether the events of each CPU's idle task arrive. A task sleeps on each CPU. During its sleep, the switches
//! to the idle task and from the idle task are counted.

use std::{
    os::fd::{AsFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use perf_prof_format::{
    abi::{PERF_TYPE_TRACEPOINT, perf_event_attr},
    spec::CpuSet,
};
use perf_prof_system::{CallError, perf, procfs, thread::pin, tracefs::Tracefs};

use super::Check;

/// The total time that the task sleeps on a CPU.
const SLEEP: Duration = Duration::from_millis(20);
const NAP: Duration = Duration::from_millis(1);

/// How often a CPU switched to its idle task, and how often it switched from its idle task to another task. A switch of
/// one kind always follows a switch of the other kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Switches {
    cpu: u32,
    to_idle: u64,
    from_idle: u64,
}

/// The sources whose events may happen in interrupts of an idle CPU, and that do not notice at once that these are missing.
#[cfg(feature = "python")]
const IN_INTERRUPTS: [&str; 5] = ["block-io", "irq", "softirq", "hrtimer", "tcp"];

/// Returns whether words of a command line name a source whose events may happen in interrupts of an idle CPU.
#[cfg(feature = "python")]
pub(super) fn are_in_interrupts<'a>(mut words: impl Iterator<Item = &'a str>) -> bool {
    let is_named = |word: &str| {
        let mut parts = word.trim_start_matches("-e").split(|part: char| !part.is_ascii_alphanumeric() && part != '-');
        parts.any(|part| IN_INTERRUPTS.contains(&part))
    };
    words.any(is_named)
}

pub(super) fn idle_events() -> Check {
    match measure() {
        Ok(switches) => judge(&switches),
        Err(error) => Check::warn("idle tasks", format!("not measured: {error:#}"), None),
    }
}

/// Sleeps on all CPUs at the same time. Returns the switches of each CPU.
fn measure() -> anyhow::Result<Vec<Switches>> {
    let id = Tracefs::find()?.id("sched", "sched_switch")?;
    let cpus: Vec<u32> = procfs::online_cpus()?.iter().collect();
    let counters =
        cpus.iter().map(|&cpu| Ok((cpu, count(id, cpu, c"next_pid == 0")?, count(id, cpu, c"prev_pid == 0")?)));
    let counters = counters.collect::<Result<Vec<_>, CallError>>()?;
    thread::scope(|scope| {
        for cpu in cpus {
            scope.spawn(move || sleep_on(cpu));
        }
    });
    let switches = counters
        .into_iter()
        .map(|(cpu, to_idle, from_idle)| Ok(Switches { cpu, to_idle: read(&to_idle)?, from_idle: read(&from_idle)? }));
    Ok(switches.collect::<Result<_, CallError>>()?)
}

/// Starts a counter of the switches on a CPU that pass a filter. Returns its descriptor.
fn count(id: u32, cpu: u32, filter: &std::ffi::CStr) -> Result<OwnedFd, CallError> {
    let mut attr = perf_event_attr { type_: PERF_TYPE_TRACEPOINT, config: id.into(), ..Default::default() };
    attr.set_disabled(1);
    let counter = perf::open(&attr, perf::Attach::Cpu(cpu))?;
    perf::set_filter(counter.as_fd(), filter)?;
    perf::enable(counter.as_fd())?;
    Ok(counter)
}

fn read(counter: &OwnedFd) -> Result<u64, CallError> {
    let mut count = [0];
    perf::read(counter.as_fd(), &mut count)?;
    Ok(count[0])
}

/// Sleeps on a CPU, if this process may run there. If the CPU has nothing else to do, its idle task runs during each
/// nap.
fn sleep_on(cpu: u32) {
    let cpus: CpuSet = [cpu].into_iter().collect();
    if pin(&cpus).is_ok() {
        let start = Instant::now();
        while start.elapsed() < SLEEP {
            thread::sleep(NAP);
        }
    }
}

fn judge(switches: &[Switches]) -> Check {
    let name = "idle tasks";
    let list =
        |is: fn(&Switches) -> bool| -> CpuSet { switches.iter().filter(|cpu| is(cpu)).map(|cpu| cpu.cpu).collect() };
    // A CPU counts as silent only after two switches to its idle task. After a single switch, the CPU may still be idle
    // at the end of the measurement.
    let silent = list(|cpu| cpu.to_idle > 1 && cpu.from_idle == 0);
    let busy = list(|cpu| cpu.to_idle <= 1 && cpu.from_idle == 0);
    let others = list(|cpu| cpu.to_idle <= 1 || cpu.from_idle != 0);
    let unknown =
        if busy.is_empty() { String::new() } else { format!("; not known of CPU {busy}, which had other work") };
    if silent.is_empty() {
        let seen = list(|cpu| cpu.from_idle != 0);
        let detail = match seen.is_empty() {
            true => "whether their events arrive is not known: all CPUs had other work; check again when one is idle"
                .to_owned(),
            false => format!("their events arrive on CPU {seen}{unknown}"),
        };
        return if busy.is_empty() { Check::ok(name, detail) } else { Check::unknown(name, detail) };
    }
    let detail = format!(
        "no event of the idle task of CPU {silent} arrives; there, times of tasks are incomplete (offcpu, oncpu, runqueue, \
         task-state), and events in interrupts of the idle CPU are missing (irq, softirq, hrtimer, ends in block-io and tcp); \
         a table of offcpu is complete if -v says `counted in the kernel`{unknown}"
    );
    Check::warn(name, detail, Some(&mend(&silent, &others)))
}

/// Returns the advice for silent CPUs. Running a program on other CPUs does not always help, because a device may
/// interrupt a silent CPU. Keeping a silent CPU busy always helps, because the idle task of a busy CPU does not run.
fn mend(silent: &CpuSet, others: &CpuSet) -> String {
    let first = silent.iter().next().unwrap_or_default();
    let awake = format!(
        "keep CPU {silent} from idling, for example CPU {first}: taskset -c {first} nice -n 19 sh -c 'while :; do :; done'"
    );
    match others.is_empty() {
        true => awake,
        false => format!("taskset -c {others} COMMAND, for the times of its tasks; for interrupts of devices, {awake}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::State, *};

    #[cfg(feature = "python")]
    #[test]
    fn sources_of_interrupts_are_found_among_options() {
        let is_found = |words: &str| are_in_interrupts(words.split(' '));
        for words in ["-e block-io", "-eirq", "--event=syscall,tcp", "-e softirq/vec=net_rx/", "-q -e offcpu,hrtimer"] {
            assert!(is_found(words), "{words}");
        }
        assert!(!is_found("-e syscall,runqueue --listen 127.0.0.1:9464 -e irqs"));
    }

    #[test]
    fn a_cpu_whose_idle_task_is_left_without_an_event_is_named() {
        let cpu = |cpu, to_idle, from_idle| Switches { cpu, to_idle, from_idle };
        let rows = [
            (vec![cpu(0, 9, 8), cpu(1, 5, 5)], State::Ok, "their events arrive on CPU 0-1", None),
            (
                vec![cpu(0, 9, 8), cpu(1, 0, 0)],
                State::Unknown,
                "their events arrive on CPU 0; not known of CPU 1, which had",
                None,
            ),
            (
                vec![cpu(0, 9, 8), cpu(1, 5, 0), cpu(2, 7, 0)],
                State::Warn,
                "no event of the idle task of CPU 1-2 arrives",
                Some("taskset -c 0 "),
            ),
            (vec![cpu(0, 0, 0), cpu(1, 1, 0)], State::Unknown, "whether their events arrive is not known", None),
            (
                vec![cpu(0, 9, 0)],
                State::Warn,
                "no event of the idle task of CPU 0 arrives",
                Some("keep CPU 0 from idling, "),
            ),
        ];
        for (switches, state, detail, mend) in rows {
            let check = judge(&switches);
            assert_eq!(check.state, state);
            assert!(check.detail.starts_with(detail), "{}", check.detail);
            assert_eq!(check.mend.is_some(), mend.is_some());
            assert!(mend.is_none_or(|mend| check.mend.unwrap().starts_with(mend)));
        }
    }
}

//! Finds switches and wakeups that were not delivered, although no loss was reported. A later event of the same CPU or task
//! contradicts the earlier ones.
//!
//! In the switches of a CPU, the task that leaves must be the task that came last. Some kernels deliver no events of the
//! idle tasks of some CPUs. Then a switch is missing after each switch to the idle task.

use rustc_hash::FxHashMap;

use crate::event::IdleEvents;

/// The thread id of the idle tasks.
const IDLE: i32 = 0;

/// For this time after the first event, in ns, missing wakeups are not counted. A live run enables the events of the CPUs
/// one after another, so some CPUs may not deliver events yet.
const STARTING: u64 = 100_000_000;

/// A second wakeup of a task on the same CPU within this time, in ns, is the same wakeup. If both the waker and the task are
/// selected (`record -p`), the kernel delivers the event to each of them (`perf_tp_event()` in kernel/events/core.c).
const SAME_WAKEUP: u64 = 10_000;

/// The maximum number of followed tasks, and of followed CPUs. A damaged recording may contain any number.
const MOST: usize = 1 << 18;

/// What is known about CPUs and tasks.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    cpus: FxHashMap<u32, Cpu>,
    /// The state of each task, as its events show it.
    tasks: FxHashMap<i32, State>,
    /// The time of the first event.
    first: Option<u64>,
    /// The tasks of which an earlier event is missing, as the last event shows.
    contradicted: Vec<i32>,
    /// Whether the last event is a second wakeup of a task, with no switch to the task in between. The task must have run in
    /// between.
    is_woken_again: bool,
}

#[derive(Debug, Default)]
struct Cpu {
    /// The running task; `None` if it is unknown.
    running: Option<i32>,
    /// Whether an event of the idle task was delivered.
    has_idle_events: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// The task was preempted, and waits for a CPU.
    Runnable,
    /// The task was woken, and waits for a CPU.
    Woken(Wakeup),
    Blocked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wakeup {
    at: At,
    /// Whether the task was off its CPU at the wakeup. If false, it may have been running since before the first event.
    is_off_cpu: bool,
    /// Whether this is a second wakeup whose missing switch was not counted yet. It is counted if the next event of the task
    /// is a switch to the task.
    is_second: bool,
}

/// Where and when an event of the scheduler happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    /// The CPU on which it happened.
    pub cpu: u32,
    /// Its time, in ns.
    pub time: u64,
}

impl Scheduler {
    /// Notes that a task leaves a CPU. `state` is `prev_state` of the switch. If the switch shows whether events of the
    /// CPU's idle task are delivered, returns this.
    pub fn leaves(&mut self, at: At, task: i32, state: i64) -> Option<IdleEvents> {
        self.begin(at);
        let cpu = self.cpus.entry(at.cpu).or_default();
        let running = cpu.running.take();
        let mut idle = None;
        if task == IDLE && !std::mem::replace(&mut cpu.has_idle_events, true) {
            idle = Some(IdleEvents::Delivered);
        }
        if let Some(missed) = running.filter(|&running| running != task) {
            if missed == IDLE {
                idle = Some(IdleEvents::Missing);
            } else {
                self.contradicted.push(missed);
                self.tasks.remove(&missed);
            }
            if task != IDLE {
                self.contradicted.push(task);
            }
        }
        // `source::task_state` explains the bits.
        match state & 0xff {
            _ if task == IDLE => {}
            0 => _ = self.tasks.insert(task, State::Runnable),
            state if state & 0x30 != 0 => _ = self.tasks.remove(&task),
            _ => _ = self.tasks.insert(task, State::Blocked),
        }
        idle
    }

    /// Notes that a task starts to run on a CPU.
    pub fn comes(&mut self, at: At, task: i32) {
        self.begin(at);
        self.cpus.entry(at.cpu).or_default().running = Some(task);
        if task == IDLE {
            return;
        }
        let before = self.tasks.insert(task, State::Running);
        if matches!(before, Some(State::Running | State::Woken(Wakeup { is_second: true, .. }))) {
            self.contradicted.push(task);
        }
    }

    /// Like `comes`, for a source that also receives wakeups: if a blocked task starts to run, its wakeup is missing.
    pub fn comes_after_wakeup(&mut self, at: At, task: i32) {
        let was_blocked = self.is_started(at) && self.tasks.get(&task) == Some(&State::Blocked);
        self.comes(at, task);
        if was_blocked {
            self.contradicted.push(task);
        }
    }

    /// Notes that a task is woken.
    ///
    /// A wakeup sets the state of the task to TASK_RUNNING, and a task in this state is not woken (`ttwu_state_match()` in
    /// kernel/sched/core.c). Only the task itself leaves this state. So a task runs between two wakeups.
    pub fn wakes(&mut self, at: At, task: i32) {
        self.begin(at);
        let is_started = self.is_started(at);
        let new = |is_off_cpu| State::Woken(Wakeup { at, is_off_cpu, is_second: false });
        let state = match self.tasks.get(&task).copied() {
            None => new(false),
            // A task that prepares to sleep can be woken while it still runs.
            Some(State::Running) => State::Running,
            // A task can be preempted while it prepares to sleep (`ttwu_runnable()`). Then it is already waiting for a CPU,
            // and goes on waiting.
            Some(State::Runnable | State::Blocked) => new(true),
            Some(State::Woken(last)) => {
                let after = at.time.saturating_sub(last.at.time);
                if last.at.cpu == at.cpu && after <= SAME_WAKEUP {
                    return;
                }
                self.is_woken_again = true;
                // The task may have been running since before the first event. Its next switch will show this, so do not
                // decide yet.
                let is_missed = self.is_started(last.at) && is_started;
                if is_missed && last.is_off_cpu {
                    self.contradicted.push(task);
                }
                let is_second = last.is_second || is_missed && !last.is_off_cpu;
                State::Woken(Wakeup { at, is_second, ..last })
            }
        };
        self.tasks.insert(task, state);
    }

    /// Returns whether the last event is a second wakeup of a task, with no switch to the task in between. The task must
    /// have run in between, so an open wait for a CPU is over.
    pub fn is_woken_again(&self) -> bool {
        self.is_woken_again
    }

    fn is_started(&self, at: At) -> bool {
        self.first.is_some_and(|first| at.time.saturating_sub(first) > STARTING)
    }

    fn begin(&mut self, at: At) {
        self.first.get_or_insert(at.time);
        self.contradicted.clear();
        self.is_woken_again = false;
        if self.tasks.len() > MOST || self.cpus.len() > MOST {
            (self.tasks, self.cpus) = Default::default();
        }
    }

    /// Returns the tasks of which an earlier event is missing, as the last event shows.
    pub fn contradicted(&self) -> &[i32] {
        &self.contradicted
    }

    /// Forgets the states of CPUs and tasks, because events were lost.
    pub fn clear(&mut self) {
        self.cpus.values_mut().for_each(|cpu| cpu.running = None);
        self.tasks.clear();
        self.contradicted.clear();
        self.is_woken_again = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A switch on a CPU: the task that leaves with its state, and the task that comes. Or the wakeup of a task.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Switch(u32, (i32, i64), i32),
        Wakeup(i32),
    }
    use Event::{Switch, Wakeup};

    const SLEEPS: i64 = 1;
    const DIES: i64 = 0x20;

    /// Returns, for each event, the tasks that it contradicts. Also returns the CPUs that lack a switch of their idle task.
    fn found(events: &[Event]) -> (Vec<Vec<i32>>, Vec<u32>) {
        let (mut scheduler, mut cpus) = (Scheduler::default(), Vec::new());
        scheduler.begin(At { cpu: 0, time: 1 });
        let tasks = (1..).zip(events).map(|(number, &event)| {
            let time = STARTING + 1 + number * 1_000_000;
            match event {
                Wakeup(task) => {
                    scheduler.wakes(At { cpu: 0, time }, task);
                    scheduler.contradicted().to_vec()
                }
                Switch(cpu, (task, state), next) => {
                    let at = At { cpu, time };
                    cpus.extend((scheduler.leaves(at, task, state) == Some(IdleEvents::Missing)).then_some(cpu));
                    let left = scheduler.contradicted().to_vec();
                    scheduler.comes_after_wakeup(at, next);
                    [left, scheduler.contradicted().to_vec()].concat()
                }
            }
        });
        (tasks.collect(), cpus)
    }

    #[test]
    fn a_machine_without_gaps_has_no_contradiction() {
        let events = [
            // The first event of a CPU or a task contradicts nothing.
            Switch(0, (7, 0), 8),
            Switch(1, (9, SLEEPS), 0),
            Switch(0, (8, SLEEPS), 7),
            Wakeup(8),
            Switch(1, (0, 0), 8),
            // One task moves to another CPU. Another task is woken before it leaves its CPU.
            Switch(0, (7, 0), 0),
            Wakeup(8),
            Switch(1, (8, 0), 7),
            Switch(1, (7, DIES), 8),
            // A task exits, and a new task gets its id.
            Wakeup(7),
            Switch(0, (0, 0), 7),
        ];
        assert_eq!(found(&events), (vec![vec![]; events.len()], vec![]));
    }

    #[test]
    fn a_switch_that_was_not_delivered_is_found_by_the_next_event_of_its_cpu_or_task() {
        let rows: [(&[Event], &[i32]); 6] = [
            // The switch from 7 to 8 is missing.
            (&[Switch(0, (6, SLEEPS), 7), Switch(0, (8, SLEEPS), 9)], &[7, 8]),
            // Two switches to task 7 on a CPU, and none away from it.
            (&[Switch(0, (6, SLEEPS), 7), Switch(0, (8, 0), 7)], &[7, 8]),
            // A switch to task 7, which still runs on another CPU, as its events show.
            (&[Switch(0, (6, SLEEPS), 7), Switch(1, (8, SLEEPS), 7)], &[7]),
            // The wakeup of task 7 is missing.
            (&[Switch(0, (7, SLEEPS), 8), Switch(0, (8, 0), 7)], &[7]),
            // The switch from task 7 to the idle task is missing: the next switch is away from the idle task.
            (&[Switch(0, (6, SLEEPS), 7), Switch(0, (0, 0), 9)], &[7]),
            // A negative thread id.
            (&[Switch(0, (6, SLEEPS), 0), Switch(0, (-1, 0), 0)], &[-1]),
        ];
        for (events, expected) in rows {
            let (tasks, _) = found(events);
            assert_eq!(tasks.last().map(Vec::as_slice), Some(expected));
        }
    }

    /// If a task may have been running at the first event, its next switch decides.
    #[test]
    fn a_task_that_is_woken_again_has_run_unless_it_runs() {
        let rows: [(&[Event], &[i32]); 5] = [
            (&[Switch(1, (7, SLEEPS), 0), Wakeup(7), Wakeup(7)], &[7]),
            // Task 7 was preempted while it prepared to sleep. The first wakeup ends this preparation.
            (&[Switch(0, (7, 0x100), 8), Wakeup(7)], &[]),
            (&[Switch(0, (7, 0x100), 8), Wakeup(7), Wakeup(7)], &[7]),
            (&[Wakeup(7), Wakeup(7), Switch(0, (8, 0), 7)], &[7]),
            (&[Wakeup(7), Wakeup(7), Wakeup(7), Switch(0, (7, SLEEPS), 8), Wakeup(7), Switch(0, (8, 0), 7)], &[]),
        ];
        for (events, expected) in rows {
            assert_eq!(found(events).0.concat(), expected, "{events:?}");
        }
    }

    /// While some CPUs do not deliver events yet, a second wakeup drops the open wait, but the wait does not count as a gap.
    #[test]
    fn while_events_are_being_enabled_a_second_wakeup_is_not_counted() {
        let mut scheduler = Scheduler::default();
        let at = |time| At { cpu: 0, time };
        scheduler.leaves(at(1), 7, SLEEPS);
        scheduler.wakes(at(2), 7);
        scheduler.wakes(at(2 + SAME_WAKEUP), 7);
        assert!(!scheduler.is_woken_again());
        scheduler.wakes(At { cpu: 1, time: 3 + SAME_WAKEUP }, 7);
        assert!(scheduler.is_woken_again() && scheduler.contradicted().is_empty());
        scheduler.wakes(at(2 * STARTING), 7);
        assert!(scheduler.is_woken_again() && scheduler.contradicted().is_empty());
        scheduler.wakes(at(3 * STARTING), 7);
        assert_eq!((scheduler.is_woken_again(), scheduler.contradicted()), (true, &[7][..]));
        scheduler.comes(at(4 * STARTING), 7);
        assert!(!scheduler.is_woken_again() && scheduler.contradicted().is_empty());
    }

    #[test]
    fn a_cpu_whose_idle_task_has_no_events_is_found() {
        let nap = [Switch(1, (7, SLEEPS), 0), Switch(0, (0, 0), 8), Wakeup(7), Switch(0, (8, SLEEPS), 0)];
        let (tasks, cpus) = found(&[nap, nap, nap].concat());
        assert_eq!(cpus, [1, 1]);
        assert_eq!(tasks.concat().into_iter().filter(|&task| task == 7).count(), 2);
    }

    #[test]
    fn after_a_loss_nothing_is_known() {
        let mut scheduler = Scheduler::default();
        let at = |cpu| At { cpu, time: 10 * STARTING };
        scheduler.comes(at(0), 7);
        scheduler.comes(at(1), 8);
        scheduler.clear();
        assert_eq!(scheduler.leaves(at(0), 9, 0), None);
        scheduler.comes(at(0), 8);
        assert!(scheduler.contradicted().is_empty());
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut scheduler = Scheduler::default();
        for task in 0..3 * MOST as i32 {
            scheduler.comes(At { cpu: task as u32, time: 1 }, task);
        }
        assert!(scheduler.tasks.len() <= MOST + 1 && scheduler.cpus.len() <= MOST + 1);
    }
}

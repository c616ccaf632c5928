//! Which tasks lack spans, and which CPUs deliver no events of their idle task.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

/// The maximum number of tasks with counts of their own.
const MOST_TASKS: usize = 10_000;

/// The maximum number of CPUs whose idle task's events are counted. Further CPUs are ignored. No machine has more, but a
/// damaged recording may contain any CPU number.
const MOST_CPUS: usize = 1 << 16;

/// A CPU may lack this many switches of its idle task without being reported. At the start of a run, some switches are
/// missing, because the CPUs do not start to deliver events at the same time.
const BY_CHANCE: u64 = 2;

/// The tasks that lack spans, and the CPUs that deliver no events of their idle task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Incomplete {
    tasks: FxHashMap<i32, TaskGaps>,
    /// The gaps of tasks beyond [`MOST_TASKS`].
    of_others: u64,
    missing_of_others: u64,
    cpus: BTreeMap<u32, CpuGaps>,
}

/// The gaps of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskGaps {
    /// The number of gaps: its dropped spans, and its events that were not delivered.
    pub count: u64,
    /// The maximum total duration, in ns, of its spans that were dropped because events were lost.
    pub missing: u64,
    /// The time of the last gap in ns.
    pub time: u64,
    /// The name of the task, if another process or a BPF program sent it. Empty if the name has to be looked up.
    pub name: SentName,
}

/// The name of a task as numbers, filled up with zeros. The names of the kernel's workers have up to 63 bytes
/// (`proc_task_name()` in fs/proc/array.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentName([u64; NAME_WORDS]);

const NAME_WORDS: usize = 8;

impl SentName {
    /// Keeps the name up to its first NUL.
    pub fn new(name: &[u8]) -> SentName {
        let mut bytes = [0; 8 * NAME_WORDS];
        bytes.iter_mut().zip(name.iter().take_while(|byte| **byte != 0)).for_each(|(to, from)| *to = *from);
        let mut words = [0; NAME_WORDS];
        words.iter_mut().zip(bytes.as_chunks().0).for_each(|(to, from)| *to = u64::from_le_bytes(*from));
        SentName(words)
    }

    /// Returns the name; `None` if there is none.
    pub fn get(&self) -> Option<Vec<u8>> {
        let bytes = self.0.iter().flat_map(|word| word.to_le_bytes());
        Some(bytes.take_while(|byte| *byte != 0).collect()).filter(|name: &Vec<u8>| !name.is_empty())
    }
}

/// Whether a CPU delivers events of its idle task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleEvents {
    /// The idle task stopped running, but its switch was not delivered.
    Missing,
    /// An event of the idle task was delivered.
    Delivered,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CpuGaps {
    missing: u64,
    /// How many processes have seen an event of the idle task. Several processes may replay parts of a recording.
    delivered: u64,
}

impl Incomplete {
    /// Adds the gaps of another span.
    pub fn add_all(&mut self, other: &Incomplete) {
        self.of_others += other.of_others;
        self.missing_of_others += other.missing_of_others;
        other.tasks.iter().for_each(|(&task, &gaps)| self.add_gaps(task, gaps));
        other.cpus.iter().for_each(|(&cpu, &gaps)| self.add_cpu(cpu, gaps));
    }

    /// Counts one gap of a task.
    pub fn add(&mut self, task: i32, time: u64) {
        self.add_gaps(task, TaskGaps { count: 1, time, ..TaskGaps::default() });
    }

    /// Counts gaps of a task whose name is known.
    pub fn add_named(&mut self, task: i32, count: u64, name: &[u8]) {
        self.add_gaps(task, TaskGaps { count, name: SentName::new(name), ..TaskGaps::default() });
    }

    /// Counts gaps of unknown tasks.
    pub fn add_of_others(&mut self, count: u64) {
        self.of_others += count;
    }

    /// Adds the maximum duration of a dropped span of a task, in ns.
    pub fn add_time(&mut self, task: i32, missing: u64) {
        self.add_gaps(task, TaskGaps { missing, ..TaskGaps::default() });
    }

    fn add_gaps(&mut self, task: i32, more: TaskGaps) {
        let is_full = self.tasks.len() >= MOST_TASKS;
        match self.tasks.get_mut(&task) {
            Some(gaps) => {
                gaps.count += more.count;
                gaps.missing += more.missing;
                // Names are those of the last gap, and a task that calls exec gets another one.
                if more.time >= gaps.time && more.name != SentName::default() {
                    gaps.name = more.name;
                }
                gaps.time = gaps.time.max(more.time);
            }
            None if is_full => {
                self.of_others += more.count;
                self.missing_of_others += more.missing;
            }
            None => _ = self.tasks.insert(task, more),
        }
    }

    /// Notes that a CPU delivered an event of its idle task, or did not deliver one.
    pub fn add_idle(&mut self, cpu: u32, events: IdleEvents) {
        self.add_cpu(
            cpu,
            match events {
                IdleEvents::Missing => CpuGaps { missing: 1, delivered: 0 },
                IdleEvents::Delivered => CpuGaps { missing: 0, delivered: 1 },
            },
        );
    }

    fn add_cpu(&mut self, cpu: u32, more: CpuGaps) {
        if self.cpus.len() >= MOST_CPUS && !self.cpus.contains_key(&cpu) {
            return;
        }
        let gaps = self.cpus.entry(cpu).or_default();
        gaps.missing += more.missing;
        gaps.delivered += more.delivered;
    }

    /// Returns the number of all gaps.
    pub fn gaps(&self) -> u64 {
        self.tasks.values().map(|gaps| gaps.count).sum::<u64>() + self.of_others
    }

    /// Returns the maximum total duration of all dropped spans, in ns.
    pub fn missing(&self) -> u64 {
        self.tasks.values().map(|gaps| gaps.missing).sum::<u64>() + self.missing_of_others
    }

    /// Returns the tasks and their gaps, those with the most missing time or gaps first.
    pub fn tasks(&self) -> Vec<(i32, TaskGaps)> {
        let mut tasks: Vec<_> = self.tasks.iter().map(|(&task, &gaps)| (task, gaps)).collect();
        tasks.sort_unstable_by_key(|&(task, gaps)| (std::cmp::Reverse((gaps.missing, gaps.count)), task));
        tasks
    }

    /// Returns the CPUs that were idle, as their switches show, but delivered no event of their idle task.
    pub fn cpus_without_idle_events(&self) -> Vec<u32> {
        let silent = self.cpus.iter().filter(|(_, gaps)| gaps.delivered == 0 && gaps.missing > BY_CHANCE);
        silent.map(|(&cpu, _)| cpu).collect()
    }

    /// Encodes everything as numbers, for [`Incomplete::merge`] in another process. `name` returns the name that a task had
    /// at a time. The result contains the names, because the other process may not know them.
    pub fn encode(&self, name: impl Fn(i32, u64) -> Option<Vec<u8>>) -> Vec<u64> {
        let lengths = [self.tasks.len() as u64, self.cpus.len() as u64];
        let mut numbers = vec![self.of_others, self.missing_of_others, lengths[0], lengths[1]];
        for (&task, gaps) in &self.tasks {
            let found = || name(task, gaps.time).map_or(gaps.name, |name| SentName::new(&name));
            let SentName(name) = if gaps.name == SentName::default() { found() } else { gaps.name };
            numbers.extend([task as u64, gaps.count, gaps.missing, gaps.time]);
            numbers.extend(name);
        }
        numbers.extend(self.cpus.iter().flat_map(|(&cpu, gaps)| [cpu.into(), gaps.missing, gaps.delivered]));
        numbers
    }

    /// Adds what another process encoded. Returns the numbers that follow.
    pub fn merge<'a>(&mut self, numbers: &'a [u64]) -> &'a [u64] {
        let [of_others, missing_of_others, tasks, cpus, rest @ ..] = numbers else { return &[] };
        self.of_others += of_others;
        self.missing_of_others += missing_of_others;
        let (rows, rest) = split_rows::<{ 4 + NAME_WORDS }>(rest, *tasks);
        for &[task, count, missing, time, ref name @ ..] in rows {
            self.add_gaps(task as i32, TaskGaps { count, missing, time, name: SentName(*name) });
        }
        let (rows, rest) = split_rows::<3>(rest, *cpus);
        for &[cpu, missing, delivered] in rows {
            self.add_cpu(cpu as u32, CpuGaps { missing, delivered });
        }
        rest
    }
}

/// Splits off `count` rows, or all rows if there are fewer.
fn split_rows<const N: usize>(numbers: &[u64], count: u64) -> (&[[u64; N]], &[u64]) {
    let all = numbers.as_chunks::<N>().0;
    let rows = &all[..usize::try_from(count).map_or(all.len(), |count| count.min(all.len()))];
    (rows, &numbers[N * rows.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tasks_with_the_most_gaps_come_first() {
        let mut incomplete = Incomplete::default();
        [(5, 10), (-3, 11), (5, 20), (9, 12)].into_iter().for_each(|(task, time)| incomplete.add(task, time));
        let tasks: Vec<_> = incomplete.tasks().into_iter().map(|(task, gaps)| (task, gaps.count, gaps.time)).collect();
        assert_eq!(tasks, [(5, 2, 20), (-3, 1, 11), (9, 1, 12)]);
        (0..2 * MOST_TASKS as i32).for_each(|task| incomplete.add(task, 1));
        assert_eq!((incomplete.gaps(), incomplete.tasks().len()), (4 + 2 * MOST_TASKS as u64, MOST_TASKS));
    }

    #[test]
    fn a_cpu_is_without_events_of_its_idle_task_if_none_came() {
        let mut incomplete = Incomplete::default();
        for _ in 0..=BY_CHANCE {
            [0, 1].into_iter().for_each(|cpu| incomplete.add_idle(cpu, IdleEvents::Missing));
        }
        incomplete.add_idle(0, IdleEvents::Delivered);
        incomplete.add_idle(2, IdleEvents::Missing);
        assert_eq!(incomplete.cpus_without_idle_events(), [1]);
    }

    #[test]
    fn the_numbers_of_several_processes_add_up() {
        let mut parts = [Incomplete::default(), Incomplete::default()];
        parts[0].add(-7, 5);
        parts[0].add_idle(1, IdleEvents::Missing);
        parts[1].add(-7, 9);
        parts[1].add(8, 2);
        parts[1].add_idle(1, IdleEvents::Missing);
        parts[1].add_idle(1, IdleEvents::Missing);
        const WORKER: &[u8] = b"kworker/1:1-virtio_vsock";
        let name = |task: i32, _| (task == 8).then(|| WORKER.to_vec());
        let numbers = parts.map(|part| part.encode(name)).concat();
        let mut whole = Incomplete::default();
        let rest = whole.merge(&numbers);
        assert!(whole.merge(rest).is_empty());
        assert_eq!((whole.gaps(), whole.cpus_without_idle_events()), (3, vec![1]));
        assert_eq!((whole.tasks[&8].name.get().as_deref(), whole.tasks[&-7].name.get()), (Some(WORKER), None));
        for (time, name) in [(20, "after"), (3, "before")] {
            let mut part = Incomplete::default();
            part.add(8, time);
            whole.merge(&part.encode(|_, _| Some(name.into())));
        }
        assert_eq!(whole.tasks[&8].name.get().as_deref(), Some(&b"after"[..]));
        // Numbers that do not fit their lengths.
        assert_eq!(whole.merge(&[0, 0, u64::MAX, u64::MAX, 5, 5]), [5, 5]);
        assert!(whole.merge(&[5, 5]).is_empty());
        assert_eq!(whole.gaps(), 5);
    }
}

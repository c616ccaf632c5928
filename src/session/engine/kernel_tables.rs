//! Tables that programs in the kernel fill: when they are read, and where their rows go.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use perf_prof_events::{
    aggregate::{Definition, Groups, Others, Plan},
    event::{SpanCounts, Stats},
};
use perf_prof_in_kernel::{
    load::{Reading, SelectedTasks, StringWriters, TableInKernel, together},
    span::SpanCounters,
    table::Row,
};
use perf_prof_system::{
    CallError,
    budget::{Budget, HeldFor, Holding},
    fork_lock, output,
};

/// What the receiver of a run does with the samples of an event.
pub enum EventUse {
    /// It adds them to these tables, and does nothing else with them.
    Tables(Vec<TableUse>),
    /// It needs the samples themselves, for this reason. It is the end of a sentence with `because`.
    Samples(&'static str),
}

/// A table to which a receiver adds the samples of an event.
pub struct TableUse {
    /// What is added up.
    pub definition: Definition,
    /// The definition, compiled for the event's type.
    pub plan: Plan,
    /// The table. It gets what the kernel has added up before each interval and at the end. It may get it at other times
    /// too, so others lock it only for a short time.
    pub table: SharedGroups,
}

/// A table that a receiver shares with the run.
pub type SharedGroups = Arc<Mutex<Groups>>;

/// How often tables are checked for room.
pub const CHECK_EVERY: Duration = Duration::from_millis(20);

/// A table in the kernel.
pub struct KernelTable {
    /// The index of the event.
    pub event: usize,
    /// The program and its table.
    pub in_kernel: TableInKernel,
    /// The index of the table that gets the rows.
    pub target: usize,
}

/// The tables in the kernel of a run. They are empty if the kernel adds up nothing.
#[derive(Default)]
pub struct KernelTables {
    tables: Vec<KernelTable>,
    targets: Vec<SharedGroups>,
    selected: SelectedTasks,
    budget: Option<Budget>,
    /// The memory of all tables in the kernel.
    memory: Option<Holding>,
    /// How often they are read beside intervals.
    read_every: Option<Duration>,
    has_failed: bool,
    /// The programs that write records. They have no tables.
    writers: StringWriters,
}

/// Which tables are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of them. The run goes on.
    All,
    /// All of them, at the end of the run.
    Last,
    /// Those that need more room.
    Filling,
}

impl KernelTables {
    /// Creates the tables of a run, none at first. The run's tasks are selected by `selected`.
    pub fn new(budget: Budget, selected: SelectedTasks, read_every: Option<Duration>) -> KernelTables {
        let memory = Some(budget.hold(HeldFor::Tables));
        KernelTables { budget: Some(budget), selected, read_every, memory, ..KernelTables::default() }
    }

    /// Returns the tasks that are selected.
    pub fn selected(&self) -> &SelectedTasks {
        &self.selected
    }

    /// Returns the index of a table that gets rows.
    pub fn target(&mut self, table: &SharedGroups) -> usize {
        let known = self.targets.iter().position(|known| Arc::ptr_eq(known, table));
        known.unwrap_or_else(|| {
            self.targets.push(table.clone());
            self.targets.len() - 1
        })
    }

    /// Adds a table, whose program runs.
    pub fn add(&mut self, table: KernelTable) {
        self.tables.push(table);
        self.note_memory();
    }

    /// Adds the programs that write records.
    pub fn add_writers(&mut self, writers: StringWriters) {
        self.writers = writers;
    }

    /// Returns whether the kernel adds up nothing.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Returns how often tables are read beside intervals.
    pub fn read_every(&self) -> Option<Duration> {
        self.read_every.filter(|_| !self.is_empty())
    }

    /// Reads tables: what the kernel has added up since the last reading goes to the receiver's tables.
    pub fn read(&mut self, which: Which, stats: &Stats) {
        if which != Which::Filling {
            self.writers.missed().for_each(|(event, missed)| stats.set_missed_in_kernel(event, missed));
        }
        let is_wanted = |table: &KernelTable| which != Which::Filling || table.in_kernel.is_filling();
        if !self.tables.iter().any(is_wanted) {
            return;
        }
        let mut of_targets: Vec<Vec<Row>> = self.targets.iter().map(|_| Vec::new()).collect();
        let mut refused = Vec::new();
        let mut last_event = None;
        let readings = together(&mut self.tables, |table| match which {
            Which::All => Some(table.in_kernel.read()),
            Which::Last => Some(table.in_kernel.read_last()),
            Which::Filling => table.in_kernel.is_filling().then(|| table.in_kernel.read()),
        });
        for (KernelTable { event, in_kernel, target }, reading) in self.tables.iter_mut().zip(readings) {
            // All programs of an event see the same events.
            let is_first = last_event.replace(*event) != Some(*event);
            let Some(reading) = reading else { continue };
            if is_first {
                stats.set_missed_in_kernel(*event, in_kernel.missed());
            }
            match reading {
                Ok(Reading { rows, refused: events, refused_amount, added, own }) => {
                    if is_first {
                        stats.count_in_kernel(*event, added, own);
                        if let Some(counts) = stats.span(*event) {
                            count_spans(counts, in_kernel.spans_since(), added);
                        }
                    }
                    of_targets[*target].extend(rows);
                    if events != 0 {
                        refused.push((*target, Others { keys: events, amount: refused_amount }));
                    }
                }
                Err(error) => report(&mut self.has_failed, &error),
            }
        }
        // The receiver may be a script, whose threads fork.
        let _held = fork_lock::hold();
        for (table, rows) in self.targets.iter().zip(of_targets) {
            let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
            hand_over(&mut table, rows, self.budget.as_ref());
        }
        for (target, others) in refused {
            self.targets[target].lock().unwrap_or_else(PoisonError::into_inner).add_others(&others);
        }
        self.note_memory();
    }

    fn note_memory(&mut self) {
        let bytes = self.tables.iter().map(|table| table.in_kernel.bytes()).sum();
        self.memory.iter_mut().for_each(|memory| memory.set(bytes));
    }

    /// Returns the descriptors that keep programs attached.
    pub fn into_events(self) -> Vec<OwnedFd> {
        let of_tables = self.tables.into_iter().flat_map(|table| table.in_kernel.into_events());
        of_tables.chain(self.selected.into_events()).chain(self.writers.into_events()).collect()
    }
}

/// Adds to the counts of spans what programs have counted.
fn count_spans(counts: &SpanCounts, spans: SpanCounters, added: u64) {
    counts.add_opened(spans.opened);
    counts.add_ended(spans.ended);
    counts.add_dropped(spans.dropped);
    counts.add_replaced(spans.replaced);
    counts.add_without_begin(spans.without_begin);
    counts.add_without_room(spans.without_room);
    counts.add_lost(spans.lost);
    counts.add_delivered(added);
}

/// Adds rows to the receiver's table, in the order in which their keys came first.
fn hand_over(table: &mut Groups, mut rows: Vec<Row>, budget: Option<&Budget>) {
    if rows.is_empty() {
        return;
    }
    rows.sort_by_key(|row| row.first);
    let mut read = Groups::new(table.definition().clone());
    if let Some(budget) = budget {
        read = read.within(budget);
    }
    rows.iter().for_each(|row| read.add_amount(&row.key, &row.amount));
    table.merge(&read);
}

/// Says that a table could not be read, the first time. What is in it is read later.
fn report(has_failed: &mut bool, error: &CallError) {
    if !std::mem::replace(has_failed, true) {
        output::say(format_args!("a table in the kernel cannot be read now: {error}"));
    }
}

//! Tables that BPF programs fill in the kernel: when the run reads them, and which receiver gets their rows.

use std::{sync::Arc, time::Duration};

use super::call_pairs::CallPairs;
use perf_prof_events::{
    aggregate::{Definition, Groups, Others, Plan},
    derive::Span,
    event::{Context, SpanCounts, Stats},
};
use perf_prof_in_kernel::{
    load::{Gaps, InterpretersInKernel, Reading, SelectedTasks, StringWriters, TableInKernel},
    span::SpanCounters,
    table::Row,
};
use perf_prof_system::{
    CallError,
    budget::{Budget, HeldFor, Holding},
    clock::Clock,
    close_in_child, fork_lock,
    mutex::Mutex,
    output,
    together::together,
};

use super::kernel_chains::{ProgramClock, UnnamedRows};

/// What the receiver of a run does with an event's samples.
pub enum EventUse {
    /// The receiver only adds the samples to these tables.
    Tables(Vec<TableUse>),
    /// The receiver needs the samples. The text is the reason: the end of a message, after `because`.
    Samples(&'static str),
}

/// A table to which a receiver adds the samples of an event.
pub struct TableUse {
    /// What the table adds up.
    pub definition: Definition,
    /// The definition, compiled for the event's type.
    pub plan: Plan,
    /// The receiver's table. The run adds the rows of the kernel's tables to it before each interval and at the end,
    /// and may do so at other times. So the receiver must lock it only for a short time.
    pub table: SharedGroups,
}

/// A table that a receiver shares with the run.
pub type SharedGroups = Arc<Mutex<Groups>>;

/// How often the run checks whether tables in the kernel need more space.
pub const CHECK_EVERY: Duration = Duration::from_millis(20);

/// A table in the kernel.
pub struct KernelTable {
    /// The index of the event.
    pub event: usize,
    /// The program and its table.
    pub in_kernel: TableInKernel,
    /// The index of the receiver's table that gets the rows.
    pub target: usize,
    /// The span whose occurrences are added up, and the context of its run.
    pub span: Option<(Arc<Span>, Arc<Context>)>,
    /// The number of events that the programs had missed when the run began.
    pub missed_before: u64,
}

/// The kernel tables of a run. Empty if perf-prof adds up all events itself.
#[derive(Default)]
pub struct KernelTables {
    tables: Vec<KernelTable>,
    targets: Vec<SharedGroups>,
    selected: SelectedTasks,
    /// The number of events that the programs for following tasks had missed when the run began.
    missed_by_tasks: u64,
    budget: Option<Budget>,
    /// The memory that all tables in the kernel use, for the budget of the run.
    memory: Option<Holding>,
    /// The memory that open spans use in the kernel.
    open: Option<Holding>,
    /// How often the run reads the tables in addition to the reads at intervals and at the end; `None` if never.
    read_every: Option<Duration>,
    has_failed: bool,
    /// The BPF programs that write the records of events with strings. They have no tables.
    writers: StringWriters,
    /// The programs that pair system calls.
    pairs: CallPairs,
    /// The relation between the programs' clock and the clock of records.
    clock: ProgramClock,
    /// Rows that the run has read, whose call chains have no names yet.
    unnamed: Vec<UnnamedRows>,
    /// Rows whose call chains have names, each with the index of its table.
    named: Vec<(usize, Vec<Row>)>,
}

/// Which tables the run reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All tables. The run continues.
    All,
    /// All tables, as soon as possible, because another thread waits for them. The run continues.
    Requested,
    /// All tables, at the end of the run.
    Last,
    /// Only the tables that need more space.
    Filling,
}

impl KernelTables {
    /// Creates an empty list of tables. `selected` are the tasks that the run selects.
    /// `clock` is the clock of the records.
    pub fn new(budget: Budget, selected: SelectedTasks, read_every: Option<Duration>, clock: Clock) -> KernelTables {
        let [memory, open] = [HeldFor::Tables, HeldFor::Spans].map(|of| Some(budget.hold(of)));
        let clock = ProgramClock::of(clock);
        KernelTables { budget: Some(budget), selected, read_every, memory, open, clock, ..KernelTables::default() }
    }

    /// Returns the tasks that are selected.
    pub fn selected(&self) -> &SelectedTasks {
        &self.selected
    }

    /// Returns the index of a receiver's table. Adds the table if it is new.
    pub fn target(&mut self, table: &SharedGroups) -> usize {
        let known = self.targets.iter().position(|known| Arc::ptr_eq(known, table));
        known.unwrap_or_else(|| {
            self.targets.push(table.clone());
            self.targets.len() - 1
        })
    }

    /// Adds a table whose program is attached.
    pub fn add(&mut self, table: KernelTable) {
        if table.in_kernel.has_chains() && !self.has_chains() {
            self.clock.compare();
        }
        self.tables.push(table);
        self.note_memory();
    }

    /// Adds the programs that write the records of events with strings.
    pub fn add_writers(&mut self, writers: StringWriters, budget: &Budget) {
        self.writers = writers;
        self.memory.get_or_insert_with(|| budget.hold(HeldFor::Tables));
        self.note_memory();
    }

    /// Returns the processes with an interpreter, if a program reads their frames.
    pub fn interpreters(&self) -> Option<InterpretersInKernel> {
        self.writers.interpreters().into_iter().chain(self.pairs.interpreters()).reduce(InterpretersInKernel::and)
    }

    /// Adds the programs that pair system calls.
    pub fn add_pairs(&mut self, pairs: CallPairs, budget: &Budget) {
        self.pairs = pairs;
        self.open.get_or_insert_with(|| budget.hold(HeldFor::Spans));
        self.note_memory();
    }

    /// Returns the programs that pair system calls.
    pub fn pairs(&mut self) -> &mut CallPairs {
        &mut self.pairs
    }

    /// Begins the run. While programs were loaded, the programs that were already attached missed events. These events
    /// do not count as lost.
    pub fn begin(&mut self) {
        self.tables.iter_mut().for_each(|table| table.missed_before = table.in_kernel.missed());
        self.missed_by_tasks = self.selected.missed();
        self.pairs.spans.iter_mut().for_each(|span| span.in_kernel.begin());
    }

    /// Returns whether there are no kernel tables.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Returns how often the run reads the tables in addition to the reads at intervals and at the end.
    pub fn read_every(&self) -> Option<Duration> {
        self.read_every.filter(|_| !self.is_empty())
    }

    /// Reads tables, and adds their new rows to the receiver's tables.
    pub fn read(&mut self, which: Which, stats: &Stats) {
        if which != Which::Filling {
            self.writers.missed().into_iter().for_each(|(event, missed)| stats.set_missed_in_kernel(event, missed));
            self.pairs.note_missed(stats);
            self.pairs.count(stats);
        }
        self.tables.iter_mut().for_each(|table| table.in_kernel.notice_misses());
        let is_wanted = |table: &KernelTable| which != Which::Filling || table.in_kernel.is_filling();
        if !self.tables.iter().any(is_wanted) {
            return;
        }
        if self.has_chains() {
            self.clock.compare();
        }
        let mut of_targets: Vec<Vec<Row>> = self.targets.iter().map(|_| Vec::new()).collect();
        let (mut refused, mut failure, mut last_event) = (Vec::new(), None, None);
        let of_tasks = self.selected.missed().saturating_sub(self.missed_by_tasks);
        let readings = together(&mut self.tables, |table| match which {
            Which::All => Some(table.in_kernel.read()),
            Which::Requested if table.in_kernel.can_stay() => Some(table.in_kernel.read_in_place()),
            Which::Requested => Some(table.in_kernel.read()),
            Which::Last => Some(table.in_kernel.read_in_place()),
            Which::Filling => table.in_kernel.is_filling().then(|| table.in_kernel.read()),
        });
        for (table, reading) in self.tables.iter_mut().zip(readings) {
            let KernelTable { event, in_kernel, target, span, missed_before } = table;
            // All programs of an event count the same events. So the counts of the event's first program are used.
            let is_first = last_event.replace(*event) != Some(*event);
            let Some(reading) = reading else { continue };
            if is_first {
                stats.set_missed_in_kernel(*event, in_kernel.missed().saturating_sub(*missed_before) + of_tasks);
            }
            match reading {
                Ok(Reading { rows, chains, refused: events, refused_amount, added, own }) => {
                    if is_first {
                        stats.count_in_kernel(*event, added, own);
                        if let (Some(counts), Some((span, context))) = (stats.span(*event), span) {
                            count_spans(counts, in_kernel.spans_since(), added);
                            match in_kernel.gaps_since() {
                                Ok(gaps) => count_gaps(counts, (span, context), &gaps),
                                Err(error) => failure = failure.or(Some(error)),
                            }
                        }
                    }
                    if in_kernel.has_chains() {
                        self.unnamed.push(UnnamedRows { target: *target, rows, chains, clock: self.clock });
                    } else {
                        of_targets[*target].extend(rows);
                    }
                    if events != 0 {
                        refused.push((*target, Others { keys: events, amount: refused_amount }));
                    }
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        self.report(failure, which, stats);
        self.hand_over(of_targets);
        let _held = fork_lock::hold();
        for (target, others) in refused {
            self.targets[target].lock().add_others(&others);
        }
        self.note_memory();
    }

    /// Reports the first error of reading a table, and an error at the end of the run.
    fn report(&mut self, error: Option<CallError>, which: Which, stats: &Stats) {
        let Some(error) = error else { return };
        if which == Which::Last {
            stats.note_unread();
            output::say_lost(format_args!(
                "a table in the kernel cannot be read: {error}; what it has added up since its last reading is missing"
            ));
        } else if !std::mem::replace(&mut self.has_failed, true) {
            output::say(format_args!(
                "a table in the kernel cannot be read yet: {error}; nothing is lost, because perf-prof reads it again later"
            ));
        }
    }

    /// Returns whether keys contain call chains. To name these call chains, the context needs the side-band records up
    /// to the times of the rows.
    pub fn has_chains(&self) -> bool {
        self.tables.iter().any(|table| table.in_kernel.has_chains())
    }

    /// Returns whether there are rows whose call chains have no names yet. The receiver does not have these rows.
    pub fn has_unnamed(&self) -> bool {
        !self.unnamed.is_empty()
    }

    /// Names the frames of call chains. The caller must meet the conditions of [`Context::with_symbols`]. The context
    /// must know the side-band records up to the times of the rows. Afterwards the caller calls
    /// [`KernelTables::hand_over_named`].
    pub fn name_chains(&mut self, context: &Context) {
        self.named.extend(self.unnamed.drain(..).map(|rows| rows.named(context)));
    }

    /// Adds the rows with named call chains to the receiver's tables.
    pub fn hand_over_named(&mut self) {
        let mut of_targets: Vec<Vec<Row>> = self.targets.iter().map(|_| Vec::new()).collect();
        self.named.drain(..).for_each(|(target, rows)| of_targets[target].extend(rows));
        self.hand_over(of_targets);
        self.note_memory();
    }

    /// Adds rows to the receiver's tables.
    fn hand_over(&self, of_targets: Vec<Vec<Row>>) {
        // The receiver may be a script whose threads fork. A child must not inherit a locked table.
        let _held = fork_lock::hold();
        for (table, rows) in self.targets.iter().zip(of_targets) {
            let mut table = table.lock();
            hand_over(&mut table, &rows, self.budget.as_ref());
        }
    }

    fn note_memory(&mut self) {
        let of_tables: usize = self.tables.iter().map(|table| table.in_kernel.bytes()).sum();
        let unnamed: usize = self.unnamed.iter().map(UnnamedRows::bytes_of_chains).sum();
        let of_tables = of_tables + self.writers.bytes();
        self.memory.iter_mut().for_each(|memory| memory.set(of_tables + unnamed));
        let of_open: usize = self.tables.iter().map(|table| table.in_kernel.open_bytes()).sum();
        let of_open = of_open + self.pairs.bytes();
        self.open.iter_mut().for_each(|open| open.set(of_open));
    }

    /// Detaches the programs. Closing the last event of a tracepoint takes 40 ms, so a child process closes it.
    pub fn close(self) {
        let of_tables = self.tables.into_iter().flat_map(|table| table.in_kernel.into_slow());
        let of_tables = of_tables.chain(self.selected.into_slow()).chain(self.writers.into_slow());
        close_in_child::close(of_tables.chain(self.pairs.into_slow()));
    }
}

/// Adds the span counts of the programs to the counts of the run.
pub(super) fn count_spans(counts: &SpanCounts, spans: SpanCounters, added: u64) {
    counts.add_opened(spans.opened);
    counts.add_ended(spans.ended);
    counts.add_dropped(spans.dropped);
    counts.add_replaced(spans.replaced);
    counts.add_without_begin(spans.without_begin);
    counts.add_without_room(spans.without_room);
    counts.add_lost(spans.lost);
    counts.add_delivered(added);
}

/// Adds the events that each task has missed to the counts of its spans.
fn count_gaps(counts: &SpanCounts, (span, context): (&Span, &Context), gaps: &[Gaps]) {
    for &Gaps { task, comm, count } in gaps {
        let Some(task) = task else {
            counts.add_unseen(count);
            counts.incomplete().add_of_others(count);
            continue;
        };
        let name = || Some(comm.split(|byte| *byte == 0).next().unwrap_or_default().to_vec());
        if span.may_lack_spans(context, task, name) {
            counts.add_unseen(count);
            counts.incomplete().add_named(task, count, &comm);
        }
    }
}

/// Adds rows to the receiver's table, in the order in which their keys were first seen.
fn hand_over(table: &mut Groups, rows: &[Row], budget: Option<&Budget>) {
    if rows.is_empty() {
        return;
    }
    // A row is large, so sorting moves references.
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by_key(|row| row.first);
    if table.keeps_first_keys() {
        // Add the rows directly. A table of this reading alone might fold keys that the receiver's table contains.
        rows.iter().for_each(|row| table.add_amount(&row.key, &row.amount));
        return;
    }
    let mut read = Groups::new(table.definition().clone());
    if let Some(budget) = budget {
        read = read.within(budget);
    }
    rows.iter().for_each(|row| read.add_amount(&row.key, &row.amount));
    table.merge(&read);
}

//! The counts of spans: how many were opened, ended and dropped.

use std::sync::{
    MutexGuard,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use perf_prof_system::mutex::Mutex;

use super::Incomplete;

/// The counts of a selected span. `opened` is the sum of `ended`, `dropped` and the spans that are still open.
#[derive(Debug, Default)]
pub struct SpanCounts {
    opened: AtomicU64,
    ended: AtomicU64,
    dropped: AtomicU64,
    lost: AtomicU64,
    replaced: AtomicU64,
    unseen: AtomicU64,
    unended: AtomicU64,
    ambiguous: AtomicU64,
    undecided: AtomicU64,
    without_task: AtomicU64,
    without_begin: AtomicU64,
    delivered: AtomicU64,
    unfinished: AtomicU64,
    unpaired: AtomicU64,
    begun_before: AtomicU64,
    time_before: AtomicU64,
    begun_before_events: AtomicU64,
    begun_before_open: AtomicU64,
    without_room: AtomicU64,
    /// Spans that were open when this process started to count. Another process has counted them in `opened`.
    before: AtomicU64,
    incomplete: Mutex<Incomplete>,
    overdue: Mutex<Incomplete>,
}

macro_rules! counts {
    ($($name:ident $count:ident $text:literal;)*) => {
        impl SpanCounts {
            $(
                #[doc = concat!("Returns the number of ", $text)]
                pub fn $name(&self) -> u64 {
                    self.$name.load(Relaxed)
                }

                /// Adds `more` to the count. Only one thread writes, so no atomic addition is needed.
                #[inline]
                pub fn $count(&self, more: u64) {
                    self.$name.store(self.$name.load(Relaxed) + more, Relaxed);
                }
            )*

            /// Returns the counts that are summed up over the processes that replay parts of a recording.
            pub(in crate::event) fn summed(&self) -> impl Iterator<Item = &AtomicU64> {
                [$(&self.$name),*].into_iter()
            }
        }
    };
}

counts! {
    opened add_opened "spans that began.";
    ended add_ended "spans that ended, whether they were delivered or not.";
    dropped add_dropped "spans that began and were dropped: after a loss, because the key began again, or because memory was short.";
    lost add_lost "dropped spans that were open during a loss.";
    replaced add_replaced "dropped spans whose key began again, if this means that the key is wrong or that an end is missing.";
    unseen add_unseen "events of tasks that were not delivered, although no loss was reported: the next event contradicts the last one.";
    unended add_unended "spans that began, and whose ends were not seen, although no loss was reported.";
    ambiguous add_ambiguous "dropped spans whose end cannot be distinguished from the end of another span.";
    undecided add_undecided "spans that were left out because the filter reads a path that they have, and that is not known.";
    without_task add_without_task "spans that were left out because the user selected tasks, and their task is not known.";
    without_begin add_without_begin "events that end a span, but no span with their key was open.";
    delivered add_delivered "spans that the program received.";
    unpaired add_unpaired "spans whose begins or whose ends are missing in the recording.";
    begun_before add_begun_before "spans that began before the run or the recording and ended in it. They are not counted otherwise.";
    time_before add_time_before "nanoseconds that these spans lasted at least: from the start of the recording on.";
    begun_before_events add_begun_before_events "events of spans whose begins were not seen: packets that were sent again.";
    begun_before_open add_begun_before_open "these spans. It counts at most `max-open`.";
    unfinished add_unfinished "spans that the program received although they had not ended.";
    without_room add_without_room "spans that were dropped because more than `max-open` were open, or because they took too much memory.";
}

impl SpanCounts {
    /// Returns the number of spans that are open.
    pub fn open(&self) -> u64 {
        (self.before.load(Relaxed) + self.opened()).saturating_sub(self.ended() + self.dropped())
    }

    /// Locks the gaps: which tasks lack spans.
    pub fn incomplete(&self) -> MutexGuard<'_, Incomplete> {
        self.incomplete.lock()
    }

    /// Locks the gaps of spans that are open and should have ended long ago. During a run, they replace each other: a span
    /// that ends after all is no gap any more.
    pub fn overdue(&self) -> MutexGuard<'_, Incomplete> {
        self.overdue.lock()
    }

    /// Returns all gaps so far, with those of overdue spans.
    pub fn gaps_so_far(&self) -> Incomplete {
        let mut all = self.incomplete().clone();
        all.add_all(&self.overdue());
        all
    }

    /// Counts the spans that were open when this process started to count as opened by it, because no other process does.
    pub fn count_open_before(&self) {
        self.add_opened(self.before.swap(0, Relaxed));
    }

    /// Sets the number of spans that were open when this process started to count.
    pub fn set_open_before(&self, open: u64) {
        self.before.store(open, Relaxed);
    }
}

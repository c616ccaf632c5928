//! System calls whose begin and end BPF programs pair: the counts of these programs, and the splitters of their
//! records.

use perf_prof_events::{derive::PairSplitter, event::Stats};
use perf_prof_in_kernel::load::{InterpretersInKernel, PairsInKernel, SelectedTasks};
use perf_prof_system::close_in_child::Slow;

use super::kernel_tables::count_spans;

/// The spans of system calls that BPF programs pair in the kernel.
#[derive(Default)]
pub struct CallPairs {
    /// The tasks whose calls are paired.
    pub selected: SelectedTasks,
    /// The spans.
    pub spans: Vec<PairedSpan>,
}

/// A span whose system calls are paired in the kernel.
pub struct PairedSpan {
    /// The index of the span's event type.
    pub event: usize,
    /// The span's programs.
    pub in_kernel: PairsInKernel,
    /// Splits the program's record of a call into the samples of its begin and its end.
    pub splitter: PairSplitter,
}

impl CallPairs {
    /// Adds what the programs have counted to the counts of the spans. A program counts a span before its record
    /// arrives here.
    pub fn count(&mut self, stats: &Stats) {
        for PairedSpan { event, in_kernel, .. } in &mut self.spans {
            if let Some(counts) = stats.span(*event) {
                count_spans(counts, in_kernel.spans_since(), 0);
            }
            stats.count_in_kernel(*event, 0, in_kernel.own_since());
        }
    }

    /// Notes how many events the programs have missed.
    pub fn note_missed(&self, stats: &Stats) {
        let of_tasks = if self.spans.is_empty() { 0 } else { self.selected.missed() };
        self.spans.iter().for_each(|span| stats.set_missed_in_kernel(span.event, span.in_kernel.missed() + of_tasks));
    }

    /// Returns the memory that the maps of the programs take in the kernel, in bytes.
    pub fn bytes(&self) -> usize {
        self.spans.iter().map(|span| span.in_kernel.bytes()).sum()
    }

    /// Returns the processes with an interpreter, for each span whose programs read their frames.
    pub fn interpreters(&self) -> impl Iterator<Item = InterpretersInKernel> {
        self.spans.iter().filter_map(|span| span.in_kernel.interpreters())
    }

    /// Returns the splitter for the records of each span, with the index of the span's event type.
    pub fn splitters(&self) -> impl Iterator<Item = (usize, PairSplitter)> {
        self.spans.iter().map(|span| (span.event, span.splitter.clone()))
    }

    /// Returns the fds that keep the programs attached. Closing them is slow.
    pub fn into_slow(self) -> impl Iterator<Item = Slow> {
        self.spans.into_iter().flat_map(|span| span.in_kernel.into_slow()).chain(self.selected.into_slow())
    }
}

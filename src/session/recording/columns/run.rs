//! The threads that decode a recording, and the batches that the program gets from them.

use std::{
    io,
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use arrow_array::RecordBatch;
use perf_prof_events::{
    column::{BatchLimit, Plan},
    event::{Context, Stats},
};
use perf_prof_recordings::PerfDataError;
use perf_prof_system::{mutex::Mutex, output, own_threads};

use super::{
    decode::Decoder,
    hand_over::{ColumnBatch, HandOver, Next, PartEnd, PartError, Taken},
    parts::ColumnParts,
};
use crate::dividing::PartCounts;

/// The maximum number of threads. More threads would need more memory for waiting batches.
const MOST_THREADS: usize = 4;

/// A recording that is being decoded.
pub struct ColumnRun {
    decoder: Arc<Decoder>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    found: Mutex<Found>,
    stats: Arc<Stats>,
}

/// The warnings and losses of the parts that the program has taken.
#[derive(Default)]
struct Found {
    /// The losses after the last row that was taken.
    losses: Vec<(u64, u64)>,
    counts: PartCounts,
    has_ended: bool,
}

impl ColumnRun {
    /// Starts the threads. `rows` is the number of rows of a batch, and `stats` gets the counts of the parts.
    /// `realtime_offset` is added to times to get nanoseconds since the Unix epoch, if the plan needs it.
    pub fn start(
        mut parts: ColumnParts,
        plan: Plan,
        rows: usize,
        stats: Arc<Stats>,
        realtime_offset: i64,
    ) -> Result<ColumnRun, PerfDataError> {
        let ranges = parts.divide()?;
        let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get());
        let count = cpus.min(MOST_THREADS).min(ranges.len());
        parts.warnings.drain(..).for_each(|warning| output::say(format_args!("warning: {warning}")));
        // A part counts as begun until the program has taken all of it. The limit is one part more than the number of
        // threads. So a thread that has decoded its part can begin another part while the program takes an earlier one.
        let budget = parts.budget();
        let (to, limit) = (HandOver::new(ranges.len(), count + 1, &budget), BatchLimit::new(rows, &budget, count));
        let decoder = Arc::new(Decoder { parts, ranges, plan, limit, realtime_offset, to });
        let threads = (0..count).map(|_| start_thread(decoder.clone())).collect::<io::Result<Vec<_>>>();
        let threads = threads.map_err(|error| {
            decoder.to.close();
            PerfDataError::io(&decoder.parts.name, error)
        })?;
        Ok(ColumnRun { decoder, threads: Mutex::new(threads), found: Mutex::default(), stats })
    }

    /// Returns the next batch. Waits at most for `time`.
    pub fn next(&self, time: Duration) -> Next {
        loop {
            match self.decoder.to.take(time) {
                Taken::Batch(mut batch) => {
                    let losses = std::mem::take(&mut self.found.lock().losses);
                    batch.lost.splice(0..0, losses);
                    return Next::Batch(batch);
                }
                Taken::PartEnd(Ok(end)) => self.add(end),
                Taken::PartEnd(Err(error)) => {
                    self.decoder.to.close();
                    return Next::Failed(error);
                }
                Taken::Nothing => return Next::Nothing,
                Taken::End => return self.end(),
                Taken::Closed => return Next::End,
            }
        }
    }

    /// Adds the warnings and losses of a part.
    fn add(&self, end: PartEnd) {
        let PartEnd { counts, warnings, losses } = end;
        self.stats.add(&counts.stats);
        let mut found = self.found.lock();
        found.losses.extend(losses);
        found.counts.add(&counts);
        warnings.iter().for_each(|warning| output::say(format_args!("warning: {warning}")));
    }

    /// Returns the item after the last batch: the losses that were not reported yet, if there are any.
    fn end(&self) -> Next {
        let mut found = self.found.lock();
        if std::mem::replace(&mut found.has_ended, true) {
            return Next::End;
        }
        let counts = std::mem::take(&mut found.counts);
        if counts.count_losses(&self.stats) != 0 {
            found.losses.push((0, counts.last));
        }
        match std::mem::take(&mut found.losses) {
            losses if losses.is_empty() => Next::End,
            lost => Next::Batch(ColumnBatch { rows: RecordBatch::new_empty(self.decoder.plan.schema.clone()), lost }),
        }
    }

    /// Ends the run after the parts that are already begun.
    pub fn stop(&self) {
        self.decoder.to.stop();
    }

    /// Ends the run and its threads. Returns the number of rows that were taken.
    pub fn close(&self) -> u64 {
        let taken = self.decoder.to.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // No error occurs, because the thread itself catches panics.
            let _ = thread.join();
        }
        taken
    }

    /// Passes the recording's tasks, mappings and symbols to `context`.
    pub fn tell_names(&self, context: &Arc<Context>) -> Result<(), PerfDataError> {
        self.decoder.parts.tell_names(context)
    }
}

fn start_thread(decoder: Arc<Decoder>) -> io::Result<JoinHandle<()>> {
    let body = move || {
        while let Some(part) = decoder.to.begin() {
            let end = panic::catch_unwind(AssertUnwindSafe(|| decoder.decode(part)));
            match end.unwrap_or_else(|panic| Err(PartError::Panic(text(&*panic)))) {
                Ok(Some(end)) => decoder.to.end(part, Ok(end)),
                Ok(None) => return,
                Err(error) => {
                    decoder.to.stop();
                    decoder.to.end(part, Err(error));
                }
            }
        }
    };
    own_threads::spawn("perf_prof", body)
}

/// Returns the message of a panic.
fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}

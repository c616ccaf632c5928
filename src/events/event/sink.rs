//! The interface that delivers events to a receiver: the script host, a command, or in tests an object that collects them.

/// Why a sink wants no more events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The program asked to end the run with this exit status (`sys.exit`).
    Exit(u8),
    /// The user pressed Ctrl-C.
    Interrupted,
    /// Whoever read the output of the program has closed the pipe.
    ClosedPipe,
    /// The limit for the number of events was reached.
    Limit,
    /// A callback failed, and the run ends at the first failure.
    Failed,
}

/// Whether the run goes on, and if not, why it stops.
pub type Flow = std::ops::ControlFlow<Stop>;

/// The receiver of events while a sink is entered (see [`Sink::enter`]). A receiver that needs only samples can ignore the
/// other calls.
pub trait Deliver {
    /// Delivers a sample. `event` is the index of its event type, and `record` the whole record.
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow;
    /// Returns the next receiver: the calls that this receiver does not implement go to the next receiver.
    fn inner(&mut self) -> Option<&mut dyn Deliver> {
        None
    }
    /// Reports that a ring starts to lose events. When the loss is over, [`Deliver::lost`] reports its times. Receivers
    /// that keep state between events need this call. The call comes before the next event if live events are delivered in
    /// the order of time, or if the recording is a file. Otherwise it may come later.
    fn loss_begins(&mut self) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.loss_begins())
    }
    /// Ends the last [`Deliver::loss_begins`] without a report: the ring was only nearly full, or the events up to `time` are
    /// not in a recording. `time` is 0 in live runs.
    fn loss_is_over(&mut self, time: u64) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.loss_is_over(time))
    }
    /// Reports that events were lost between the times `start` and `end`. Both times are 0 if events are not delivered in
    /// the order of time.
    fn lost(&mut self, start: u64, end: u64) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.lost(start, end))
    }
    /// Reports that records between the times `start` and `end` are not read: the recording is damaged or its end is missing, the
    /// user did not select this time, or the events were off. Called where this time begins and where it ends, because samples
    /// in between may be delivered. `end` is `u64::MAX` if it is the end of the recording. For the last receiver, it is a loss.
    /// Beside it, derived events are told by [`Deliver::loss_begins`].
    fn unread(&mut self, start: u64, end: u64) -> Flow {
        match self.inner() {
            Some(inner) => inner.unread(start, end),
            None => self.lost(start, end),
        }
    }
    /// Reports that the thread `tid` exited at `time`, in ns. A replay of a part of a recording also reports earlier exits.
    fn task_exited(&mut self, tid: i32, time: u64) {
        if let Some(inner) = self.inner() {
            inner.task_exited(tid, time);
        }
    }
    /// Reports that the thread `tid` was created at `time`, in ns. A replay of a part of a recording also reports earlier threads.
    fn task_created(&mut self, tid: i32, time: u64) {
        if let Some(inner) = self.inner() {
            inner.task_created(tid, time);
        }
    }
    /// Reports a span that is missing because events were lost. Called only if [`Sink::counts_missing`] returns true.
    /// `record` looks like an open span, and its duration is the longest that the span can have had.
    fn missing(&mut self, event: usize, record: &[u8]) {
        if let Some(inner) = self.inner() {
            inner.missing(event, record);
        }
    }
    /// Delivers a record that is not a sample, such as a context switch or a count of `perf stat record`. The run delivers
    /// the types that it asks for ([`perf_prof_format::record::OtherRecords`]), in their order among the samples. A record
    /// without a time gets the time of the last sample before it, or 0.
    fn other_record(&mut self, record: &[u8], time: u64) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.other_record(record, time))
    }
    /// Reports the end of an interval.
    fn interval(&mut self) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.interval())
    }
    /// Reports that somebody asked for statistics.
    fn print_stat(&mut self, indent: u32) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.print_stat(indent))
    }
    /// Returns how many events the program keeps at the moment.
    fn kept_events(&mut self) -> usize {
        self.inner().map_or(0, |inner| inner.kept_events())
    }
    /// Writes the output that the program has buffered.
    fn flush(&mut self) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.flush())
    }
    /// Reports that all events until `time`, in ns, were delivered. Called before [`Deliver::interval`], and before another
    /// thread gets the tables. The run goes on.
    fn delivered_until(&mut self, time: u64) {
        if let Some(inner) = self.inner() {
            inner.delivered_until(time);
        }
    }
    /// Reports that no event can follow after `time`, in ns. Spans that have not ended last until `time`. Called before
    /// [`Deliver::exit`].
    fn events_ended(&mut self, time: u64) {
        if let Some(inner) = self.inner() {
            inner.events_ended(time);
        }
    }
    /// Reports that spans had not ended and were not delivered, and their number. Called right before [`Deliver::exit`], for
    /// sources whose spans often outlast a run, unless the limit for the number of events was reached.
    fn not_ended(&mut self, event: usize, number: u64) {
        if let Some(inner) = self.inner() {
            inner.not_ended(event, number);
        }
    }
    /// Reports the end of the run. Called exactly once, however the run ends.
    fn exit(&mut self) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.exit())
    }
}

/// A receiver of events. Entering a sink acquires what its program needs, such as the GIL. The run loop enters the sink
/// once for a batch of events, and leaves it before waiting for the next batch.
pub trait Sink {
    /// Called once, before the first batch. Live events are enabled by then.
    fn begin(&mut self) {}

    /// Enters the sink, calls `body`, and leaves the sink.
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver));

    /// Delivers the samples that the sink has held back. Called after each batch, when the run loop has left the sink.
    fn deliver_held(&mut self) -> Flow {
        Flow::Continue(())
    }

    /// Returns whether the program wants calls of [`Deliver::missing`].
    fn counts_missing(&self) -> bool {
        false
    }

    /// Returns whether the program buffers its output, so that [`Deliver::flush`] has to be called from time to time.
    fn collects_output(&self) -> bool {
        false
    }
}

/// A receiver that acquires nothing to receive events, so it is its own sink.
pub trait AlwaysEntered: Deliver {}

impl<R: AlwaysEntered> Sink for R {
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        body(self);
    }
}

/// A sink that drops all events.
pub struct Discard;

impl Deliver for Discard {
    fn sample(&mut self, _: usize, _: &[u8]) -> Flow {
        Flow::Continue(())
    }
}

impl AlwaysEntered for Discard {}

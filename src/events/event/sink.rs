//! The interface that delivers events to a receiver: to the script host, or in tests to an object that collects the
//! events.

/// The reason why a sink wants no more events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The program requested the end of the run with this exit status (`sys.exit`).
    Exit(u8),
    /// The user interrupted the run with the keyboard.
    Interrupted,
    /// The reader of the program's output has closed the pipe.
    ClosedPipe,
    /// The requested number of events was delivered.
    Limit,
    /// A callback failed, and the run has to end at the first failure.
    Failed,
}

/// Says if the run continues, and if not, why it stops.
pub type Flow = std::ops::ControlFlow<Stop>;

/// The calls that a program receives while its sink is entered (see [`Sink::enter`]). A program that needs only samples
/// can ignore the other calls.
pub trait Deliver {
    /// Delivers a sample. `event` is the index of its event type, and `record` is the whole record.
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow;
    /// Returns the receiver behind this one. It gets the calls that this receiver does not handle itself.
    fn inner(&mut self) -> Option<&mut dyn Deliver> {
        None
    }
    /// Reports that a ring begins to lose events. When the loss is over, [`Deliver::lost`] is called with the times of
    /// the loss. Receivers that keep state between events need this call. It is sure to come before the next event only
    /// if live events are delivered in the order of time, or if the recording is a file.
    fn loss_begins(&mut self) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.loss_begins())
    }
    /// Takes back the last [`Deliver::loss_begins`]: no event was lost, because the ring was only nearly full.
    fn loss_averted(&mut self) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.loss_averted())
    }
    /// Reports that events were lost between the times `start` and `end`. Both are 0 if events are not delivered in the
    /// order of time.
    fn lost(&mut self, start: u64, end: u64) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.lost(start, end))
    }
    /// Reports a span that is missing because events were lost. Called only if [`Sink::counts_missing`] returns true.
    /// The record has the form of an open span. Its duration is the maximum that the span may have had.
    fn missing(&mut self, event: usize, record: &[u8]) {
        if let Some(inner) = self.inner() {
            inner.missing(event, record);
        }
    }
    /// Delivers a record that is not a sample, such as a record of a context switch or a count of `perf stat record`.
    /// It is delivered in its order among the samples, and only if the run requests its type
    /// ([`perf_prof_format::record::OtherRecords`]). A record without a time gets the time of the last sample before
    /// it, or 0 if there is no such sample.
    fn other_record(&mut self, record: &[u8], time: u64) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.other_record(record, time))
    }
    /// Reports that another interval has passed.
    fn interval(&mut self) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.interval())
    }
    /// Reports that statistics were requested.
    fn print_stat(&mut self, indent: u32) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.print_stat(indent))
    }
    /// Returns the number of events that the program currently keeps.
    fn kept_events(&mut self) -> usize {
        self.inner().map_or(0, |inner| inner.kept_events())
    }
    /// Writes the output that the program has collected.
    fn flush(&mut self) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.flush())
    }
    /// Reports the end of the run. This is called exactly once, however the run ends.
    fn exit(&mut self) -> Flow {
        self.inner().map_or(Flow::Continue(()), |inner| inner.exit())
    }
}

/// The receiver of events. When a sink is entered, it acquires what its program needs, such as the interpreter's lock.
/// The run loop enters the sink once for a whole batch of events, and leaves it before it waits for events.
pub trait Sink {
    /// Called once, before the first batch. Live events are already enabled then.
    fn begin(&mut self) {}

    /// Enters the sink, calls `body`, and leaves the sink.
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver));

    /// Delivers the samples that the sink itself has held back. Called after each batch, when the run loop has left the sink.
    fn deliver_held(&mut self) -> Flow {
        Flow::Continue(())
    }

    /// Returns whether the program wants to count missing spans ([`Deliver::missing`]).
    fn counts_missing(&self) -> bool {
        false
    }

    /// Returns whether the program collects its output, so that [`Deliver::flush`] has to be called from time to time.
    fn collects_output(&self) -> bool {
        false
    }
}

/// A sink that drops all events.
pub struct Discard;

impl Deliver for Discard {
    fn sample(&mut self, _: usize, _: &[u8]) -> Flow {
        Flow::Continue(())
    }
}

impl Sink for Discard {
    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        body(self);
    }
}

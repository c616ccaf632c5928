//! The run loop: waits for the source, delivers to the sink, and attends to signals, intervals and limits.

use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    interval::Interval,
    pump::{Break, Pump},
    report::{self, LossReport},
};
use crate::{
    event::{Deliver, EventType, Sink, Stats, Stop},
    record::{Ended, Source, Wait},
    sys::{
        output,
        signals::{Pending, Signals},
        usage::Usage,
    },
};

/// How often the events' clock is compared with the wall's: clocks that drift by 50 ppm are then 3 ms apart at most.
const CALIBRATE_EVERY: Duration = Duration::from_secs(60);

/// Why the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The source has no more.
    Source(Ended),
    /// `-N` was reached.
    Limit,
    /// The program ended it.
    Program(Stop),
    /// This signal asked for it.
    Signal {
        /// Which one.
        number: i32,
        /// What became of the events that were recorded by then.
        rest: Rest,
    },
    /// The events or the command could not be started.
    NotStarted,
}

impl Ending {
    /// Whether everything that was recorded has been delivered.
    pub fn is_complete(self) -> bool {
        matches!(self, Ending::Source(_) | Ending::Signal { rest: Rest::Delivered, .. })
    }
}

/// What becomes of recorded events when a signal ends the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// They were delivered.
    Delivered,
    /// Another signal did not want to wait for that.
    Dropped,
}

/// What comes after the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// The program's end.
    Exit,
    /// Other processes' parts of the same recording.
    Part,
}

/// What the loop works with.
pub struct RunLoop<'a, S: Source> {
    /// Where records come from.
    pub source: S,
    /// The way of records to the program.
    pub pump: Pump,
    /// The selected events, for statistics.
    pub events: &'a [EventType],
    /// Counts.
    pub stats: Arc<Stats>,
    /// Signals that came.
    pub signals: &'a Signals,
    /// `-i`.
    pub interval: Option<Duration>,
    /// `--usage-self`.
    pub usage_every: Option<Duration>,
    /// Compares the events' clock with the wall's, from time to time.
    pub calibrate: &'a mut dyn FnMut(),
    /// What is said of losses, behind where they were.
    pub on_loss: &'static str,
    /// Opens the output anew when SIGUSR1 comes.
    pub reopen: &'a dyn Fn(),
}

impl<S: Source> RunLoop<'_, S> {
    /// Runs until something ends it; the program's `__exit__` is not called yet.
    pub fn run(&mut self, sink: &mut impl Sink) -> Ending {
        let start = Instant::now();
        self.stats.set_kernel_counts(self.source.losses());
        let mut interval = self.interval.map(|every| Interval::new(every, start));
        let mut usage_interval = self.usage_every.map(|every| Interval::new(every, start));
        let mut calibration = Interval::new(CALIBRATE_EVERY, start);
        let mut usage = Usage::default();
        let mut losses = LossReport::new(self.source.ring_cpus(), self.on_loss);
        // A flush is under way; the interval's callback follows it.
        let mut flushing = false;
        // A signal has stopped the source; what was recorded is still delivered.
        let mut signal = None;
        loop {
            let interval_at = interval.filter(|_| !flushing).map(|interval| interval.next());
            let others = [Some(calibration.next()), usage_interval.map(|interval| interval.next())];
            let until = interval_at.into_iter().chain(others.into_iter().flatten()).min();
            let flow = match self.source.wait(until) {
                Wait::Batch(batch) => self.deliver(&batch, sink, &mut signal, &mut usage),
                Wait::Flushed => {
                    flushing = false;
                    if signal.is_none() { self.on_interval(sink) } else { ControlFlow::Continue(()) }
                }
                Wait::Woken | Wait::Timeout => ControlFlow::Continue(()),
                Wait::Ended(ended) => {
                    losses.add(&self.pump.take_losses(), Instant::now());
                    return signal
                        .map_or(Ending::Source(ended), |number| Ending::Signal { number, rest: Rest::Delivered });
                }
            };
            let flow = match flow {
                ControlFlow::Continue(()) if self.signals.is_pending() => self.attend(sink, &mut signal, &mut usage),
                flow => flow,
            };
            if let ControlFlow::Break(why) = flow {
                self.source.stop();
                return match why {
                    Break::Limit => Ending::Limit,
                    Break::Stop(Stop::Interrupted) => self.interrupted(signal),
                    Break::Stop(stop) => Ending::Program(stop),
                    Break::Now => Ending::Signal { number: signal.unwrap_or(libc::SIGINT), rest: Rest::Dropped },
                };
            }
            let now = Instant::now();
            losses.add(&self.pump.take_losses(), now);
            if !flushing && signal.is_none() && interval.as_mut().is_some_and(|interval| interval.take(now)) {
                flushing = true;
                self.source.flush();
            }
            if calibration.take(now) {
                (self.calibrate)();
            }
            if usage_interval.as_mut().is_some_and(|interval| interval.take(now)) {
                output::write_line(&usage.line());
            }
        }
    }

    /// A callback was interrupted: by the second of the signals that ask for the end, or by a KeyboardInterrupt that the
    /// script raised itself.
    fn interrupted(&self, signal: Option<i32>) -> Ending {
        let Pending { interrupt, terminate, hangup, .. } = self.signals.take();
        let came = [(terminate, libc::SIGTERM), (hangup, libc::SIGHUP), (interrupt, libc::SIGINT)];
        let number = signal.or_else(|| came.into_iter().find(|&(count, _)| count != 0).map(|(_, number)| number));
        match number {
            Some(number) => Ending::Signal { number, rest: Rest::Dropped },
            None => Ending::Program(Stop::Interrupted),
        }
    }

    fn deliver(
        &mut self,
        batch: &crate::record::Batch,
        sink: &mut impl Sink,
        signal: &mut Option<i32>,
        usage: &mut Usage,
    ) -> ControlFlow<Break> {
        let Self { source, pump, events, stats, signals, reopen, .. } = self;
        let left = pump.left();
        let mut flow = ControlFlow::Continue(());
        sink.enter(&mut |program| {
            flow = pump.deliver(batch, program, |program| {
                if !signals.is_pending() {
                    return ControlFlow::Continue(());
                }
                let mut attention =
                    Attention { source: &mut *source, events, stats, reopen: *reopen, usage: &mut *usage };
                attention.to(signals.take(), program, signal)
            });
        });
        source.delivered(batch, if flow.is_break() { pump.reached(batch, left) } else { usize::MAX });
        flow
    }

    fn attend(&mut self, sink: &mut impl Sink, signal: &mut Option<i32>, usage: &mut Usage) -> ControlFlow<Break> {
        let Self { source, events, stats, signals, reopen, .. } = self;
        let mut flow = ControlFlow::Continue(());
        sink.enter(&mut |program| {
            let mut attention = Attention { source: &mut *source, events, stats, reopen: *reopen, usage: &mut *usage };
            flow = attention.to(signals.take(), program, signal);
        });
        flow
    }

    fn on_interval(&mut self, sink: &mut impl Sink) -> ControlFlow<Break> {
        self.stats.set_kernel_counts(self.source.losses());
        let mut flow = ControlFlow::Continue(());
        sink.enter(&mut |program| flow = program.interval().map_break(Break::Stop));
        flow
    }

    /// After the run: the losses that nothing has told of yet, then, if this is the end, `__exit__`. Gives the status that
    /// it asked for.
    pub fn finish(&mut self, ending: Ending, last: Last, sink: &mut impl Sink, now: u64) -> Option<Stop> {
        // When delivery ended early, what was recorded since is neither delivered nor lost.
        let complete = ending.is_complete();
        let kernel = self.source.losses();
        self.stats.set_kernel_counts(kernel.clone());
        let mut stop = None;
        sink.enter(&mut |program| {
            if complete {
                let totals = kernel.as_ref().map(|counts| counts.per_ring.as_slice());
                stop = self.pump.tell_the_rest(program, totals, now).break_value();
            }
            if last == Last::Exit {
                let at_exit = program.exit().break_value();
                stop = stop.or(at_exit.map(Break::Stop));
            }
        });
        let told = self.stats.has_losses_told() || self.stats.total_unattributed() + self.stats.total_throttled() != 0;
        // Those of parts are said of all parts together.
        if last == Last::Exit && (complete || told) {
            report::print_totals(&self.stats, &self.source);
        }
        match stop {
            Some(Break::Stop(stop)) => Some(stop),
            _ => None,
        }
    }
}

/// What is needed to attend to a signal in the midst of a batch.
struct Attention<'a, S: Source> {
    source: &'a mut S,
    events: &'a [EventType],
    stats: &'a Stats,
    reopen: &'a dyn Fn(),
    usage: &'a mut Usage,
}

impl<S: Source> Attention<'_, S> {
    fn to(&mut self, pending: Pending, program: &mut dyn Deliver, signal: &mut Option<i32>) -> ControlFlow<Break> {
        if pending.user1 != 0 {
            (self.reopen)();
        }
        if pending.user2 != 0 {
            self.stats.set_kernel_counts(self.source.losses());
            report::print_statistics(self.events, self.stats, self.source, self.usage, program.kept());
            program.print_stat(2).map_break(Break::Stop)?;
        }
        for (count, number) in pending.to_end() {
            // The first stops the events, and what was recorded is delivered; another one ends that too.
            if signal.replace(number).is_some() || count > 1 {
                return ControlFlow::Break(Break::Now);
            }
            self.source.stop();
        }
        ControlFlow::Continue(())
    }
}

//! The run loop: it waits for the source, delivers to the sink, and handles signals, intervals and limits.

use std::{
    ops::ControlFlow,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use perf_prof_events::event::{Deliver, EventType, Sink, Stats, Stop};
use perf_prof_format::record::{Ended, Source, Wait};
use perf_prof_system::{
    clock, output,
    signals::{Pending, Signals},
    usage::Usage,
};

use super::{
    flushing::Flushing,
    interval::Interval,
    kernel_tables::{self, KernelTables, Which},
    late_delivery::LateDelivery,
    losses::{self, LossReport},
    pump::{BreakReason, Pump},
    refresh::Refresh,
    span_report,
};

/// How often the clock of the events is compared with the time of day. If the clocks drift apart by 50 ppm, the times
/// of events are wrong by at most 3 ms.
const CALIBRATE_EVERY: Duration = Duration::from_secs(60);

/// The reason why the run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The source has no more records.
    Source(Ended),
    /// The limit of `-N` was reached.
    Limit,
    /// The time of `--duration` is over.
    Duration,
    /// The program ended the run.
    Program(Stop),
    /// A signal ended the run.
    Signal {
        /// The number of the signal.
        number: i32,
        /// What happened to the events that were already recorded.
        rest: PendingEvents,
    },
    /// The events or the command could not be started.
    NotStarted,
}

impl Ending {
    /// Returns how a run without events ended: by a signal, because the tasks exited, or because its time is over.
    pub fn of_tasks(signal: Option<i32>, have_exited: bool) -> Ending {
        match signal {
            Some(number) => Ending::Signal { number, rest: PendingEvents::Delivered },
            None if have_exited => Ending::Source(Ended::TasksExited),
            None => Ending::Duration,
        }
    }

    /// Returns whether all recorded events were delivered.
    pub fn is_complete(self) -> bool {
        matches!(self, Ending::Source(_) | Ending::Duration | Ending::Signal { rest: PendingEvents::Delivered, .. })
    }
}

/// What happened to the recorded events when a signal ended the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingEvents {
    /// The events were delivered.
    Delivered,
    /// The events were not delivered, because a second signal arrived.
    Dropped,
}

/// What happens after the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishAs {
    /// The program ends: `__exit__` is called.
    Program,
    /// The result is merged with the results of other processes, which replay other parts of the same recording. `__exit__`
    /// is not called here. This value also stands for a command whose live run did not start, because such a command has no
    /// result.
    Part,
    /// Like `Part`, for the last part. Derived events that other parts pass on to the next part end here.
    LastPart,
}

/// The run loop, with its source, its pump and its settings.
pub struct RunLoop<'a, S: Source> {
    /// The source of the records.
    pub source: S,
    /// Delivers the records to the program.
    pub pump: Pump,
    /// The selected events, for statistics.
    pub events: &'a [EventType],
    /// The counts of delivered and lost events.
    pub stats: Arc<Stats>,
    /// The tables of events that are added up in the kernel.
    pub tables: KernelTables,
    /// The requests of other threads for the tables; `None` if no other thread can ask for them.
    pub refresh: Option<&'a Refresh>,
    /// The signals that have arrived.
    pub signals: &'a Signals,
    /// The period of `__interval__` (`-i`).
    pub interval: Option<Duration>,
    /// The time after which the run ends (`--duration`).
    pub duration: Option<Duration>,
    /// How often perf-prof's own CPU and memory use is printed (`--usage-self`).
    pub usage_every: Option<Duration>,
    /// Compares the clock of the events with the time of day. The loop calls it periodically.
    pub calibrate: &'a mut dyn FnMut(),
    /// The end of each message about losses: the cause of the losses, and what the user can do.
    pub loss_advice: &'static str,
    /// The file that stdout and stderr are appended to, if there is one. The loop reopens it at SIGUSR1, for example
    /// after the file was renamed.
    pub output: Option<&'a Path>,
}

/// The state that the loop keeps from one turn to the next.
pub struct LoopState {
    interval: Option<Interval>,
    usage_interval: Option<Interval>,
    /// When the run ends (`--duration`). `None` if no duration was given, and after the end was reached. Records from
    /// before the end are still delivered.
    end: Option<Instant>,
    /// True after the end was reached.
    is_over: bool,
    calibration: Interval,
    /// When the loop next checks whether tables in the kernel need more space; `None` if there are no tables.
    check: Option<Interval>,
    /// When the loop next reads the tables in the kernel, in addition to the reads at intervals; `None` if it does not.
    reading: Option<Interval>,
    usage: Usage,
    losses: LossReport,
    /// When the program's output was last written; `None` before the first turn.
    output: Option<Flushing>,
    /// The work that follows the flush in progress; `None` if no flush is in progress.
    after_flush: Option<AfterFlush>,
    /// The signal that stopped the source. Records from before the signal are still delivered.
    signal: Option<i32>,
    late: LateDelivery,
}

/// The work that follows when all records up to a moment were delivered. The loop also reads the tables in the kernel
/// then.
#[derive(Clone, Copy, Debug)]
struct AfterFlush {
    /// Whether `__interval__` is called.
    is_interval: bool,
    /// The request of another thread that this work fulfills.
    request: Option<u64>,
}

impl<S: Source> RunLoop<'_, S> {
    /// Runs until something ends the run. Does not call the program's `__exit__`; [`RunLoop::finish`] does.
    pub fn run(&mut self, sink: &mut dyn Sink) -> Ending {
        let mut turns = self.start();
        sink.begin();
        self.refresh.inspect(|refresh| refresh.begin());
        loop {
            if let ControlFlow::Break(ending) = self.turn(&mut turns, sink, None) {
                self.refresh.inspect(|refresh| refresh.end());
                return ending;
            }
        }
    }

    /// Starts the timers of intervals, statistics and calibration. The caller passes the result to [`RunLoop::turn`]
    /// until the run ends.
    pub fn start(&mut self) -> LoopState {
        let now = Instant::now();
        self.stats.set_kernel_counts(self.source.losses());
        LoopState {
            interval: self.interval.map(|every| Interval::new(every, now)),
            usage_interval: self.usage_every.map(|every| Interval::new(every, now)),
            end: self.duration.and_then(|duration| now.checked_add(duration)),
            is_over: false,
            calibration: Interval::new(CALIBRATE_EVERY, now),
            check: (!self.tables.is_empty()).then(|| Interval::new(kernel_tables::CHECK_EVERY, now)),
            reading: self.tables.read_every().map(|every| Interval::new(every, now)),
            usage: Usage::default(),
            losses: LossReport::new(&self.source, self.loss_advice),
            output: None,
            after_flush: None,
            signal: None,
            late: LateDelivery::default(),
        }
    }

    /// Makes one turn of the loop: waits for the source, delivers at most one batch, handles signals, and does the
    /// periodic work that is due. Returns at the time `until` at the latest.
    pub fn turn(&mut self, turns: &mut LoopState, sink: &mut dyn Sink, until: Option<Instant>) -> ControlFlow<Ending> {
        let interval_at = turns.interval.filter(|_| turns.after_flush.is_none()).map(|interval| interval.next());
        let usage_at = turns.usage_interval.map(|interval| interval.next());
        let output = turns.output.get_or_insert_with(|| Flushing::new(sink.collects_output(), Instant::now()));
        let flush_at = output.next();
        let check_at = turns.check.map(|check| check.next());
        let next = [interval_at, usage_at, turns.end, until, flush_at, check_at]
            .into_iter()
            .flatten()
            .chain([turns.calibration.next()])
            .min();
        // If output is due, the wait returns at once. If it returns no records, the output is written.
        let wait = if output.is_due() { self.source.wait(Some(Instant::now())) } else { self.source.wait(next) };
        let flow = match wait {
            Wait::Batch(batch) => self.deliver(&batch, sink, turns),
            Wait::Flushed => match turns.after_flush.take() {
                Some(after) if turns.signal.is_none() => self.on_flushed(after, sink, turns),
                _ => ControlFlow::Continue(()),
            },
            Wait::Woken => ControlFlow::Continue(()),
            Wait::Timeout => self.flush_output(sink, turns),
            Wait::Ended(ended) => {
                turns.losses.add(&self.pump.take_recent_losses(), || self.source.lost_side_band(), Instant::now());
                turns.losses.say_which_rings_hold_all();
                let of_signal = turns.signal.map(|number| Ending::Signal { number, rest: PendingEvents::Delivered });
                let at_end = if turns.is_over { Ending::Duration } else { Ending::Source(ended) };
                return ControlFlow::Break(of_signal.unwrap_or(at_end));
            }
        };
        let flow = match flow {
            ControlFlow::Continue(()) if self.signals.is_pending() => self.attend(sink, turns),
            flow => flow,
        };
        if let ControlFlow::Break(why) = flow {
            self.source.stop();
            return ControlFlow::Break(match why {
                BreakReason::Limit | BreakReason::Stop(Stop::Limit) => Ending::Limit,
                BreakReason::Stop(Stop::Interrupted) => self.interrupted(turns.signal),
                BreakReason::Stop(stop) => Ending::Program(stop),
                BreakReason::Now => {
                    Ending::Signal { number: turns.signal.unwrap_or(libc::SIGINT), rest: PendingEvents::Dropped }
                }
            });
        }
        turns.late.say(turns.signal.is_some(), || self.source.backlog());
        self.attend_to_periods(turns, sink, Instant::now());
        ControlFlow::Continue(())
    }

    /// Does the periodic work that is due: reports losses, calibrates the clock, prints statistics, and starts flushes.
    /// A flush has to finish before `__interval__` is called, or before another thread gets the tables.
    fn attend_to_periods(&mut self, turns: &mut LoopState, sink: &mut dyn Sink, now: Instant) {
        turns.losses.add(&self.pump.take_recent_losses(), || self.source.lost_side_band(), now);
        losses::report_offline_cpus(&mut self.source);
        let may_flush = turns.after_flush.is_none() && turns.signal.is_none();
        let is_interval = may_flush && turns.interval.as_mut().is_some_and(|interval| interval.expired(now));
        let request = self.refresh.filter(|_| may_flush).and_then(Refresh::pending);
        if is_interval || request.is_some() {
            turns.after_flush = Some(AfterFlush { is_interval, request });
            // The flush delivers the side-band records that name the rows of this reading. For the rows of a later reading,
            // these records might be missing.
            if self.tables.has_chains() {
                self.tables.read(Which::All, &self.stats);
            }
            self.source.flush();
        }
        if turns.end.take_if(|end| now >= *end).is_some() {
            turns.is_over = true;
            self.source.stop();
        }
        if turns.calibration.expired(now) {
            (self.calibrate)();
        }
        if turns.after_flush.is_none() && turns.reading.as_mut().is_some_and(|reading| reading.expired(now)) {
            // Name the rows of the previous reading before the next reading. The side-band records for these rows may
            // arrive later than the rows, but should be here now.
            self.name_chains(sink);
            self.tables.read(Which::All, &self.stats);
        } else if turns.check.as_mut().is_some_and(|check| check.expired(now)) {
            self.tables.read(Which::Filling, &self.stats);
        }
        if turns.usage_interval.as_mut().is_some_and(|interval| interval.expired(now)) {
            output::write_line(&turns.usage.line());
        }
    }

    /// Returns how the run ended, after a callback was interrupted: by a second signal that requests the end, or by a
    /// KeyboardInterrupt that the script itself raised.
    fn interrupted(&self, signal: Option<i32>) -> Ending {
        let Pending { interrupt, terminate, hangup, .. } = self.signals.take_pending();
        let came = [(terminate, libc::SIGTERM), (hangup, libc::SIGHUP), (interrupt, libc::SIGINT)];
        let number = signal.or_else(|| came.into_iter().find(|&(count, _)| count != 0).map(|(_, number)| number));
        match number {
            Some(number) => Ending::Signal { number, rest: PendingEvents::Dropped },
            None => Ending::Program(Stop::Interrupted),
        }
    }

    fn deliver(
        &mut self,
        batch: &perf_prof_format::record::Batch,
        sink: &mut dyn Sink,
        turns: &mut LoopState,
    ) -> ControlFlow<BreakReason> {
        // Update the counts first: a function that gets a span must find the span in the counts.
        self.tables.pairs().count(&self.stats);
        let Self { source, pump, events, stats, signals, output: file, .. } = self;
        let LoopState { signal, usage, output, losses, .. } = turns;
        let left = pump.samples_left();
        let mut flow = ControlFlow::Continue(());
        sink.enter(&mut |program| {
            flow = pump.deliver(batch, program, |program| {
                if let Some(output) = output.as_mut() {
                    output.before_sample(program)?;
                }
                if !signals.is_pending() {
                    return ControlFlow::Continue(());
                }
                let mut attention =
                    LoopDelivery { source: &mut *source, events, stats, output: *file, usage: &mut *usage };
                attention.to(signals.take_pending(), program, signal)
            });
        });
        if pump.has_recent_losses() {
            losses.measure(batch);
        }
        if flow.is_continue() {
            flow = sink.deliver_held().map_break(BreakReason::Stop);
        }
        output.iter_mut().for_each(Flushing::called);
        source.delivered(batch, if flow.is_break() { pump.records_handled(batch, left) } else { usize::MAX });
        flow
    }

    fn attend(&mut self, sink: &mut dyn Sink, turns: &mut LoopState) -> ControlFlow<BreakReason> {
        self.tables.pairs().count(&self.stats);
        let Self { source, events, stats, signals, output: file, .. } = self;
        let LoopState { signal, usage, output, .. } = turns;
        let mut flow = ControlFlow::Continue(());
        sink.enter(&mut |program| {
            let mut attention = LoopDelivery { source: &mut *source, events, stats, output: *file, usage: &mut *usage };
            flow = attention.to(signals.take_pending(), program, signal);
        });
        output.iter_mut().for_each(Flushing::called);
        flow
    }

    fn on_flushed(
        &mut self,
        after: AfterFlush,
        sink: &mut dyn Sink,
        turns: &mut LoopState,
    ) -> ControlFlow<BreakReason> {
        self.stats.set_kernel_counts(self.source.losses());
        if !self.tables.has_chains() {
            let which = if after.is_interval { Which::All } else { Which::Requested };
            self.tables.read(which, &self.stats);
        }
        self.name_chains(sink);
        let now = self.pump.context().time_of_realtime(clock::realtime());
        sink.enter(&mut |program| program.delivered_until(now));
        if let (Some(refresh), Some(request)) = (self.refresh, after.request) {
            refresh.met(request);
        }
        let mut flow = ControlFlow::Continue(());
        if !after.is_interval {
            return flow;
        }
        sink.enter(&mut |program| flow = program.interval().map_break(BreakReason::Stop));
        turns.output.iter_mut().for_each(Flushing::called);
        flow
    }

    /// Names the call chains of tables in the kernel, and adds their rows to the tables of the program.
    fn name_chains(&mut self, sink: &mut dyn Sink) {
        if self.tables.has_unnamed() {
            let Self { tables, pump, .. } = self;
            sink.enter(&mut |_| tables.name_chains(pump.context()));
            tables.hand_over_named();
        }
    }

    /// Writes the output of the program. Called when there is nothing to deliver.
    fn flush_output(&mut self, sink: &mut dyn Sink, turns: &mut LoopState) -> ControlFlow<BreakReason> {
        let now = Instant::now();
        let mut flow = ControlFlow::Continue(());
        if let Some(output) =
            turns.output.as_mut().filter(|output| output.is_due() || output.next().is_some_and(|next| next <= now))
        {
            sink.enter(&mut |program| flow = output.flush(program));
        }
        flow
    }

    /// Reports the remaining losses to the program. Then, if `last` is [`FinishAs::Program`], calls `__exit__`. If one
    /// of these calls ended the program, returns how the program ended.
    pub fn finish(&mut self, ending: Ending, last: FinishAs, sink: &mut dyn Sink, end: EventsEnd) -> Option<Stop> {
        // If delivery ended early, the remaining records are neither delivered nor lost.
        let complete = ending.is_complete();
        let kernel = losses::read_at_end(&mut self.source, &self.stats, ending);
        self.tables.read(Which::Last, &self.stats);
        self.name_chains(sink);
        let mut stop = None;
        sink.enter(&mut |program| {
            // If delivery ended early, spans may have ended in the records that were not delivered.
            if complete && last != FinishAs::Part {
                program.events_ended(end.of_spans);
            }
            if complete {
                let totals = kernel.as_ref().map(|counts| counts.per_ring.as_slice());
                stop = self.pump.report_remaining(program, totals, end.of_losses).break_value();
            }
            if last == FinishAs::Program {
                let at_exit = program.exit().break_value();
                stop = stop.or(at_exit.map(BreakReason::Stop));
            }
        });
        let told = self.stats.has_reported_losses()
            || span_report::are_missing(&self.stats)
            || self.stats.total_unattributed() + self.stats.total_throttled() + self.stats.total_unwritten() != 0;
        // If this process replays only a part of a recording, another process prints the losses of all parts together.
        if last == FinishAs::Program && (complete || told) {
            losses::print_lost(&self.stats, &self.source.ring_cpus());
            span_report::print_missing(&self.stats, self.pump.context());
            losses::print_limited_and_late(&self.source);
        }
        match stop {
            Some(BreakReason::Stop(stop)) => Some(stop),
            _ => None,
        }
    }
}

/// When the events of a run ended, in ns.
#[derive(Clone, Copy, Debug)]
pub struct EventsEnd {
    /// The end of losses that no later record reports.
    pub of_losses: u64,
    /// The time until which spans last that have not ended.
    pub of_spans: u64,
}

impl EventsEnd {
    /// Returns the end of a run whose losses and spans end at the same time.
    pub fn at(time: u64) -> EventsEnd {
        EventsEnd { of_losses: time, of_spans: time }
    }
}

/// The fields of the run loop that handle a signal in the middle of a batch.
struct LoopDelivery<'a, S: Source> {
    source: &'a mut S,
    events: &'a [EventType],
    stats: &'a Stats,
    output: Option<&'a Path>,
    usage: &'a mut Usage,
}

impl<S: Source> LoopDelivery<'_, S> {
    fn reopen_output(&self) {
        // If the file cannot be reopened, the output still goes to the file that is already open.
        if let Some(Err(error)) = self.output.map(output::append_to) {
            output::say(format_args!(
                "cannot reopen the file of --output: {error}; the output still goes to the old file"
            ));
        }
    }

    fn to(
        &mut self,
        pending: Pending,
        program: &mut dyn Deliver,
        signal: &mut Option<i32>,
    ) -> ControlFlow<BreakReason> {
        if pending.user1 != 0 {
            // The output up to now belongs to the old file.
            program.flush().map_break(BreakReason::Stop)?;
            self.reopen_output();
        }
        if pending.user2 != 0 {
            self.stats.set_kernel_counts(self.source.losses());
            losses::print_statistics(self.events, self.stats, self.source, self.usage, program.kept_events());
            program.print_stat(2).map_break(BreakReason::Stop)?;
        }
        for (count, number) in pending.end_requests() {
            // After the first signal, the source stops, and recorded events are still delivered. A second signal ends
            // the delivery.
            if signal.replace(number).is_some() || count > 1 {
                return ControlFlow::Break(BreakReason::Now);
            }
            self.source.stop();
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use perf_prof_events::event::{Context, Flow};
    use perf_prof_format::{
        abi::*,
        record::{Batch, Chunk, EventIds, LossCounts, SampleLayout, TrailerLayout},
        tracefs::NoKernel,
    };

    use super::*;
    use crate::engine::pump::{LossWindow, PumpSettings};

    /// A source that returns these batches and then ends.
    struct Batches(VecDeque<Batch>);

    impl Source for Batches {
        fn wait(&mut self, _: Option<Instant>) -> Wait {
            self.0.pop_front().map_or(Wait::Ended(Ended::EndOfInput), Wait::Batch)
        }
        fn flush(&mut self) {}
        fn stop(&mut self) {
            self.0.clear();
        }
        fn losses(&mut self) -> Option<LossCounts> {
            None
        }
        fn ring_cpus(&self) -> Vec<Option<u32>> {
            vec![Some(0)]
        }
        fn late(&self) -> u64 {
            0
        }
        fn dropped_by_limit(&self) -> u64 {
            0
        }
        fn backlog(&self) -> usize {
            0
        }
    }

    /// A program that counts its samples, and a sink that counts how often it is entered.
    #[derive(Default)]
    struct Counter {
        samples: usize,
        entered: usize,
    }

    impl Deliver for Counter {
        fn sample(&mut self, _: usize, _: &[u8]) -> Flow {
            self.samples += 1;
            Flow::Continue(())
        }
    }

    impl Sink for Counter {
        fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
            self.entered += 1;
            body(self);
        }
    }

    #[test]
    fn a_turn_delivers_one_batch_and_returns() {
        // A sample: header, time and id.
        let sample = [9u64 | 24 << 48, 100, 50].map(u64::to_ne_bytes).concat();
        let batch = |samples: usize| Batch::Ring(Chunk::new(0, sample.repeat(samples), None));
        let layout = PERF_SAMPLE_TIME | PERF_SAMPLE_ID;
        let stats = Arc::new(Stats::new(1, 1));
        let signals = Signals::install().unwrap();
        let mut run_loop = RunLoop {
            source: Batches([batch(2), batch(3)].into()),
            pump: Pump::new(PumpSettings {
                ids: EventIds::new(&[(50, 0)]),
                layout: SampleLayout::new(layout, 0),
                trailer: TrailerLayout::new(layout),
                context: Arc::new(Context::new(Box::new(NoKernel), 0)),
                stats: stats.clone(),
                window: LossWindow::Zero,
                rings: 1,
                limit: None,
            }),
            events: &[],
            stats,
            tables: KernelTables::default(),
            refresh: None,
            signals: &signals,
            interval: None,
            duration: None,
            usage_every: None,
            calibrate: &mut || {},
            loss_advice: "",
            output: None,
        };
        let mut turns = run_loop.start();
        let mut sink = Counter::default();
        let mut seen = Vec::new();
        let ending = loop {
            match run_loop.turn(&mut turns, &mut sink, None) {
                ControlFlow::Continue(()) => seen.push((sink.entered, sink.samples)),
                ControlFlow::Break(ending) => break ending,
            }
        };
        assert_eq!((seen, ending), (vec![(1, 2), (2, 5)], Ending::Source(Ended::EndOfInput)));
    }
}

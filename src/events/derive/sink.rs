//! A sink that runs derivations: it passes input samples to the derivations, and derived samples to another sink.

use std::sync::Arc;

use super::{
    Derivation, Derived, PairSplitter,
    compat_calls::CompatCalls,
    outlet::{Held, Outlet},
    started::{Derivations, Started},
};
use crate::event::{Context, Deliver, EventType, Flow, Sink, Stats, Stop};

/// Where the samples of an event go: to an input of a derivation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Feed {
    /// The index of the derivation.
    derivation: usize,
    /// The index of the input in the derivation.
    input: usize,
}

/// The maximum size of derived samples that wait to be delivered, in bytes.
const HELD: usize = 1 << 20;

/// A sink that runs derivations and delivers to another sink. Without derivations, its only cost is a comparison for each
/// batch.
///
/// If all events are inputs of derivations, most batches yield no derived samples, but entering the other sink costs time.
/// So derived samples are held until the batch ends, and the other sink is entered only if there are any.
pub struct DerivingSink<'a> {
    sink: &'a mut dyn Sink,
    derivations: Derivations,
    /// For each event that the run opens or reads: the input that gets its samples. `None` if the samples go to the other
    /// sink, because the user selected the event itself.
    feeds: Vec<Option<Feed>>,
    held: Held,
    outlet: Outlet,
}

/// Whether there was a loss that the derivations do not know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losses {
    /// There was a loss that the derivations do not know of.
    Unreported,
    /// The derivations know of all losses.
    Reported,
}

impl<'a> DerivingSink<'a> {
    /// Creates the sink and starts the derived events. `types` contains all event types: those that the run opens or reads,
    /// then those of derived events.
    pub fn start(
        sink: &'a mut dyn Sink,
        types: &[EventType],
        derived: &[Derived],
        stats: &Stats,
        context: &Arc<Context>,
    ) -> Self {
        let captured = types.len() - derived.len();
        let started = derived.iter().enumerate().filter_map(|(at, derived)| {
            let event = captured + at;
            Some(((event, derived.start(event, types, stats, context)?), derived.inputs.clone()))
        });
        let mut sink = Self::with_derivations(sink, captured, started);
        for Started { event, compat, .. } in &mut sink.derivations.0 {
            *compat = derived.get(*event - captured).and_then(|derived| CompatCalls::of(derived, types, context));
        }
        sink.count_in(stats);
        sink.keep_missing();
        sink
    }

    /// Makes the derivations keep records of missing spans, if the other sink wants them.
    fn keep_missing(&mut self) {
        if self.sink.counts_missing() {
            self.derivations.each().for_each(|derivation| derivation.keep_missing());
        }
    }

    /// Sets `stats` as the place where delivered spans are counted.
    fn count_in(&mut self, stats: &Stats) {
        let first = self.outlet.first;
        self.outlet.counts = (first..).map_while(|event| stats.span(event).cloned()).collect();
    }

    /// Creates a sink with these derivations, each with the index of its event type and the indexes of its inputs.
    fn with_derivations(
        sink: &'a mut dyn Sink,
        captured: usize,
        started: impl Iterator<Item = ((usize, Box<dyn Derivation>), Vec<usize>)>,
    ) -> Self {
        let mut feeds = vec![None; captured];
        let mut derivations = Vec::new();
        for (derivation, (started, inputs)) in started.enumerate() {
            for (input, event) in inputs.into_iter().enumerate() {
                feeds[event] = Some(Feed { derivation, input });
            }
            let (event, derivation) = started;
            derivations.push(Started { event, derivation, pairs: None, compat: None });
        }
        let outlet = Outlet { left: u64::MAX, first: captured, counts: Vec::new() };
        Self { sink, derivations: Derivations(derivations), feeds, held: Held::default(), outlet }
    }

    /// Takes over the derivations of another sink for the same events. From now on, they count in `stats` and take names
    /// from `context`.
    pub fn continued(mut self, derivations: Derivations, stats: &Stats, context: &Arc<Context>) -> Self {
        self.derivations = derivations;
        self.count_in(stats);
        for Started { event, derivation, .. } in &mut self.derivations.0 {
            if let Some(counts) = stats.span(*event) {
                derivation.continue_in(counts.clone(), context);
            }
        }
        self.keep_missing();
        self
    }

    /// Makes some derived events take paired records as their input. Each splitter comes with the index of its derived
    /// event.
    pub fn with_pairs(
        mut self,
        pairs: impl IntoIterator<Item = (usize, PairSplitter)>,
        context: &Arc<Context>,
    ) -> Self {
        for (event, splitter) in pairs {
            if let Some(started) = self.derivations.0.iter_mut().find(|started| started.event == event) {
                (started.pairs, started.compat) = (Some((splitter, context.clone())), None);
            }
        }
        self
    }

    /// Makes the derivations deliver nothing.
    pub fn muted(mut self) -> Self {
        self.derivations.each().for_each(|derivation| derivation.mute());
        self
    }

    /// Returns the derivations, for a sink that continues them.
    pub fn into_derivations(self) -> Derivations {
        self.derivations
    }

    /// Ends the delivery after this many samples. Has no effect without derivations: then the pump of the run loop counts.
    pub fn with_limit(self, limit: Option<u64>) -> Self {
        let outlet = Outlet { left: limit.unwrap_or(u64::MAX), ..self.outlet };
        Self { outlet, ..self }
    }

    /// Ends the derivations and delivers their last samples. The program goes on. `losses` says whether a loss must be
    /// reported to the derivations first.
    pub fn end_derivations(&mut self, losses: Losses) -> Flow {
        if losses == Losses::Unreported {
            self.derivations.lost(0, 0);
        }
        self.finish_derivations();
        self.deliver_held_samples()
    }

    /// Ends the derivations and holds their last samples.
    fn finish_derivations(&mut self) {
        let Self { derivations, held, outlet, .. } = self;
        for Started { event: derived, derivation, .. } in derivations.0.iter_mut().filter(|_| outlet.left != 0) {
            let _ = derivation.finish(&mut |record| {
                held.hold(*derived, record);
                Flow::Continue(())
            });
        }
    }

    /// Delivers the held samples. Enters the other sink only if there are any.
    fn deliver_held_samples(&mut self) -> Flow {
        let mut flow = Flow::Continue(());
        if !self.held.samples.is_empty() {
            self.sink.enter(&mut |program| flow = self.held.deliver(program, &mut self.outlet));
        }
        flow
    }

    /// Enters the other sink, delivers the held samples and the records of missing spans, and then calls `call`.
    fn entered(&mut self, mut call: impl FnMut(&mut dyn Deliver) -> Flow) -> Flow {
        let mut flow = Flow::Continue(());
        self.sink.enter(&mut |program| {
            flow = self.held.deliver(program, &mut self.outlet).followed_by(|| {
                self.derivations.deliver_missing(program);
                call(program)
            });
        });
        flow
    }
}

/// Calls the next function, unless the delivery has been stopped.
trait Then {
    fn followed_by(self, next: impl FnOnce() -> Flow) -> Flow;
}

impl Then for Flow {
    fn followed_by(self, next: impl FnOnce() -> Flow) -> Flow {
        self?;
        next()
    }
}

impl Sink for DerivingSink<'_> {
    fn begin(&mut self) {
        self.sink.begin();
    }

    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        let Self { sink, derivations, feeds, outlet, .. } = self;
        if derivations.0.is_empty() {
            return sink.enter(body);
        }
        if feeds.iter().all(Option::is_some) {
            return body(self);
        }
        sink.enter(&mut |program| body(&mut Deriving { program, derivations, feeds, outlet: &mut *outlet }));
    }

    fn deliver_held(&mut self) -> Flow {
        self.deliver_held_samples()
    }

    fn collects_output(&self) -> bool {
        self.sink.collects_output()
    }
}

/// What the sink does outside of [`Sink::enter`]: samples of inputs do not need the other sink, but all other calls enter
/// it.
impl Deliver for DerivingSink<'_> {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let Self { derivations, feeds, held, outlet, .. } = self;
        let Some(Feed { derivation, input }) = feeds.get(event).copied().flatten() else { return Flow::Continue(()) };
        let started = &mut derivations.0[derivation];
        let derived = started.event;
        let flow = started.sample(input, record, &mut |record| {
            held.hold(derived, record);
            // At the limit, stop here. With further samples, the derivation would count further spans.
            if held.samples.len() as u64 >= outlet.left { Flow::Break(Stop::Limit) } else { Flow::Continue(()) }
        });
        if flow.is_break() || held.records.len() > HELD { self.deliver_held_samples() } else { flow }
    }

    fn loss_begins(&mut self) -> Flow {
        self.derivations.loss_begins();
        Flow::Continue(())
    }

    fn loss_is_over(&mut self, time: u64) -> Flow {
        self.derivations.lost(0, time);
        Flow::Continue(())
    }

    fn task_exited(&mut self, tid: i32, time: u64) {
        self.derivations.each().for_each(|derivation| derivation.task_exited(tid, time));
    }

    fn task_created(&mut self, tid: i32, time: u64) {
        self.derivations.each().for_each(|derivation| derivation.task_created(tid, time));
    }

    fn lost(&mut self, start: u64, end: u64) -> Flow {
        self.derivations.lost(start, end);
        self.entered(|program| program.lost(start, end))
    }

    fn unread(&mut self, start: u64, end: u64) -> Flow {
        self.entered(|program| program.unread(start, end))
    }

    fn other_record(&mut self, record: &[u8], time: u64) -> Flow {
        self.entered(|program| program.other_record(record, time))
    }

    fn interval(&mut self) -> Flow {
        self.entered(|program| program.interval())
    }

    fn print_stat(&mut self, indent: u32) -> Flow {
        self.entered(|program| program.print_stat(indent))
    }

    fn flush(&mut self) -> Flow {
        self.entered(|program| program.flush())
    }

    fn delivered_until(&mut self, time: u64) {
        self.derivations.each().for_each(|derivation| derivation.delivered_until(time));
    }

    fn events_ended(&mut self, time: u64) {
        self.derivations.each().for_each(|derivation| derivation.events_ended(time));
        self.sink.enter(&mut |program| program.events_ended(time));
    }

    fn kept_events(&mut self) -> usize {
        let mut kept = 0;
        self.sink.enter(&mut |program| kept = program.kept_events());
        kept
    }

    fn exit(&mut self) -> Flow {
        self.finish_derivations();
        let mut flow = Flow::Continue(());
        self.sink.enter(&mut |program| {
            let stopped = self.held.deliver(program, &mut self.outlet);
            self.derivations.deliver_missing(program);
            flow = program.exit();
            if flow.is_continue() {
                flow = stopped;
            }
        });
        flow
    }
}

/// What the sink does inside of [`Sink::enter`]: runs the derivations, and delivers to the entered program.
struct Deriving<'a> {
    program: &'a mut dyn Deliver,
    derivations: &'a mut Derivations,
    feeds: &'a [Option<Feed>],
    outlet: &'a mut Outlet,
}

impl Deliver for Deriving<'_> {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let Some(Feed { derivation, input }) = self.feeds.get(event).copied().flatten() else {
            return self.outlet.deliver(event, record, self.program);
        };
        let started = &mut self.derivations.0[derivation];
        let derived = started.event;
        started.sample(input, record, &mut |record| self.outlet.deliver(derived, record, self.program))
    }

    fn loss_begins(&mut self) -> Flow {
        self.derivations.loss_begins();
        self.program.loss_begins()
    }

    fn loss_is_over(&mut self, time: u64) -> Flow {
        self.derivations.lost(0, time);
        self.program.loss_is_over(time)
    }

    fn task_exited(&mut self, tid: i32, time: u64) {
        self.derivations.each().for_each(|derivation| derivation.task_exited(tid, time));
    }

    fn task_created(&mut self, tid: i32, time: u64) {
        self.derivations.each().for_each(|derivation| derivation.task_created(tid, time));
    }

    fn lost(&mut self, start: u64, end: u64) -> Flow {
        self.derivations.lost(start, end);
        self.derivations.deliver_missing(self.program);
        self.program.lost(start, end)
    }

    fn interval(&mut self) -> Flow {
        self.derivations.deliver_missing(self.program);
        self.program.interval()
    }

    fn inner(&mut self) -> Option<&mut dyn Deliver> {
        Some(self.program)
    }

    fn delivered_until(&mut self, time: u64) {
        self.derivations.each().for_each(|derivation| derivation.delivered_until(time));
    }

    fn events_ended(&mut self, time: u64) {
        self.derivations.each().for_each(|derivation| derivation.events_ended(time));
        self.program.events_ended(time);
    }

    fn exit(&mut self) -> Flow {
        let Self { program, derivations, outlet, .. } = self;
        let mut stopped = Flow::Continue(());
        for Started { event: derived, derivation, .. } in derivations.0.iter_mut() {
            if outlet.left == 0 {
                break;
            }
            stopped =
                stopped.followed_by(|| derivation.finish(&mut |record| outlet.deliver(*derived, record, *program)));
        }
        derivations.deliver_missing(*program);
        let flow = program.exit();
        if flow.is_continue() { stopped } else { flow }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use expect_test::{Expect, expect};

    use super::*;
    use crate::event::SpanCounts;

    /// Emits a record for each start and its end. At a loss, it forgets a start whose end has not come.
    #[derive(Default)]
    struct Pair(Option<u8>);

    impl Derivation for Pair {
        fn sample(&mut self, input: usize, record: &[u8], emit: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
            match (input, self.0.take()) {
                (0, _) => self.0 = Some(record[0]),
                (_, Some(start)) => return emit(&[start, record[0]]),
                (_, None) => {}
            }
            Flow::Continue(())
        }

        fn lost(&mut self, _: u64, _: u64) {
            self.0 = None;
        }

        fn mute(&mut self) {}

        fn continue_in(&mut self, _: Arc<SpanCounts>, _: &Arc<Context>) {}
    }

    /// Records its calls as text. Stops the delivery at the event with the index in the second field.
    struct Notes(String, Option<usize>);

    impl Deliver for Notes {
        fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
            self.0 += &format!("{event}:{record:?} ");
            if self.1 == Some(event) { Flow::Break(Stop::Exit(7)) } else { Flow::Continue(()) }
        }
        fn lost(&mut self, _: u64, _: u64) -> Flow {
            self.0 += "lost ";
            Flow::Continue(())
        }
    }

    impl Sink for Notes {
        fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
            self.0 += "enter ";
            body(self);
        }
    }

    /// Events 0 and 1 are inputs: the start and the end of a pair. With `captured` 3, event 2 is an event that the user
    /// selected. The last event is the derived pair.
    fn check(captured: usize, stop: Option<usize>, samples: &[Option<(usize, u8)>], expected: Expect) {
        let mut notes = Notes(String::new(), stop);
        let pair: Box<dyn Derivation> = Box::<Pair>::default();
        let mut sink = DerivingSink::with_derivations(&mut notes, captured, [((3, pair), vec![0, 1])].into_iter());
        let mut flow = Flow::Continue(());
        for sample in samples {
            sink.enter(&mut |program| {
                flow = match sample {
                    Some((event, byte)) => program.sample(*event, &[*byte]),
                    None => program.lost(0, 0),
                };
            });
            flow = flow.followed_by(|| sink.deliver_held());
            if flow.is_break() {
                break;
            }
        }
        notes.0 += &format!("{flow:?}");
        expected.assert_eq(&notes.0);
    }

    #[test]
    fn derived_samples_follow_the_sample_that_completes_them() {
        let samples = [Some((0, 10)), Some((2, 11)), Some((1, 12)), Some((1, 13))];
        check(3, None, &samples, expect!["enter enter 2:[11] enter 3:[10, 12] enter Continue(())"]);
    }

    #[test]
    fn a_loss_reaches_the_derivation_before_the_next_sample() {
        check(3, None, &[Some((0, 10)), None, Some((1, 12))], expect!["enter enter lost enter Continue(())"]);
    }

    #[test]
    fn a_sink_that_stops_at_a_derived_sample_ends_the_delivery() {
        let samples = [Some((0, 10)), Some((1, 12)), Some((1, 13))];
        check(2, Some(3), &samples, expect!["enter 3:[10, 12] Break(Exit(7))"]);
        check(3, Some(3), &samples, expect!["enter enter 3:[10, 12] Break(Exit(7))"]);
    }

    /// Notes until when events were delivered.
    struct Until(Arc<SpanCounts>);

    impl Derivation for Until {
        fn sample(&mut self, _: usize, _: &[u8], _: &mut dyn FnMut(&[u8]) -> Flow) -> Flow {
            Flow::Continue(())
        }
        fn lost(&mut self, _: u64, _: u64) {}
        fn mute(&mut self) {}
        fn continue_in(&mut self, _: Arc<SpanCounts>, _: &Arc<Context>) {}
        fn delivered_until(&mut self, time: u64) {
            self.0.add_opened(time);
        }
    }

    #[test]
    fn derivations_are_told_until_when_events_were_delivered() {
        for captured in [2, 3] {
            let (mut notes, counts) = (Notes(String::new(), None), Arc::new(SpanCounts::default()));
            let started: Box<dyn Derivation> = Box::new(Until(counts.clone()));
            let started = [((captured, started), vec![0, 1])].into_iter();
            let mut sink = DerivingSink::with_derivations(&mut notes, captured, started);
            sink.enter(&mut |program| program.delivered_until(7));
            assert_eq!(counts.opened(), 7, "{captured}");
        }
    }

    #[test]
    fn a_sink_is_entered_only_for_derived_samples_if_there_are_no_others() {
        check(
            2,
            None,
            &[Some((0, 10)), Some((1, 12)), Some((0, 13)), None, Some((1, 14))],
            expect!["enter 3:[10, 12] enter lost Continue(())"],
        );
    }
    /// The run loop delivers a whole batch. Spans beyond the limit must not be counted, although the batch contains their
    /// samples.
    #[test]
    fn a_limit_ends_the_delivery_and_the_counts_with_its_last_sample() {
        for captured in [2, 3] {
            let mut notes = Notes(String::new(), None);
            let pair: Box<dyn Derivation> = Box::<Pair>::default();
            let started = [((captured, pair), vec![0, 1])].into_iter();
            let mut sink = DerivingSink::with_derivations(&mut notes, captured, started).with_limit(Some(2));
            let counts = Arc::new(SpanCounts::default());
            sink.outlet.counts = vec![counts.clone()];
            let mut flows = Vec::new();
            sink.enter(&mut |program| {
                let samples = [(0, 10), (1, 11), (0, 12), (1, 13), (0, 14), (1, 15)];
                flows = samples.map(|(event, byte): (usize, u8)| program.sample(event, &[byte])).to_vec();
            });
            assert_eq!(flows.iter().position(|flow| flow.is_break()), Some(3), "{captured}");
            assert_eq!(flows[3], Flow::Break(Stop::Limit));
            drop(sink);
            assert_eq!(counts.delivered(), notes.0.matches(':').count() as u64, "{}", notes.0);
            assert_eq!(counts.delivered(), 2);
        }
    }
}

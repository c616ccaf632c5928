//! A sink that runs derivations. It passes the samples of input events to the derivations, and it passes the derived
//! samples to another sink.

use std::ops::Range;

use super::{Definition, Derivation};
use crate::event::{Deliver, Flow, Sink};

/// The input of a derivation that receives the samples of a captured event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Feed {
    /// The index of the derivation.
    derivation: usize,
    /// The index of the input in the derivation.
    input: usize,
}

/// A sink that runs derivations before it delivers to another sink. If there are no derivations, it costs one
/// comparison per batch.
pub struct DerivingSink<'a, S> {
    sink: &'a mut S,
    /// Each derivation, with the index of the event type of its derived samples.
    derivations: Vec<(usize, Box<dyn Derivation>)>,
    /// For each captured event, by the event's index: the input that receives its samples. `None` if the user selected the
    /// event itself; then its samples are delivered to the sink.
    feeds: Vec<Option<Feed>>,
}

impl<'a, S: Sink> DerivingSink<'a, S> {
    /// Creates a sink and starts its derived sources. The captured events have the event-type indices 0 to `captured` -
    /// 1; the derived sources get the next indices. Each source comes with the range of indices of its inputs.
    pub fn start<'d>(
        sink: &'a mut S,
        captured: usize,
        sources: impl Iterator<Item = (&'d Definition, Range<usize>)>,
    ) -> Self {
        let mut feeds = vec![None; captured];
        let mut derivations = Vec::new();
        for (derivation, (definition, inputs)) in sources.enumerate() {
            for (input, event) in inputs.enumerate() {
                feeds[event] = Some(Feed { derivation, input });
            }
            derivations.push((captured + derivation, (definition.start)()));
        }
        Self { sink, derivations, feeds }
    }
}

impl<S: Sink> Sink for DerivingSink<'_, S> {
    fn begin(&mut self) {
        self.sink.begin();
    }

    fn enter(&mut self, body: &mut dyn FnMut(&mut dyn Deliver)) {
        let Self { sink, derivations, feeds } = self;
        if derivations.is_empty() {
            return sink.enter(body);
        }
        sink.enter(&mut |program| body(&mut Deriving { program, derivations, feeds }));
    }

    fn collects_output(&self) -> bool {
        self.sink.collects_output()
    }
}

/// The sink during a delivery: the entered sink, and the derivations that run before it.
struct Deriving<'a> {
    program: &'a mut dyn Deliver,
    derivations: &'a mut [(usize, Box<dyn Derivation>)],
    feeds: &'a [Option<Feed>],
}

impl Deliver for Deriving<'_> {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let Some(Feed { derivation, input }) = self.feeds.get(event).copied().flatten() else {
            return self.program.sample(event, record);
        };
        let (derived, derivation) = &mut self.derivations[derivation];
        derivation.sample(input, record, &mut |record| self.program.sample(*derived, record))
    }

    fn lost(&mut self, start: u64, end: u64) -> Flow {
        self.derivations.iter_mut().for_each(|(_, derivation)| derivation.lost(start, end));
        self.program.lost(start, end)
    }

    fn other_record(&mut self, record: &[u8], time: u64) -> Flow {
        self.program.other_record(record, time)
    }

    fn interval(&mut self) -> Flow {
        self.program.interval()
    }

    fn print_stat(&mut self, indent: u32) -> Flow {
        self.program.print_stat(indent)
    }

    fn kept_events(&self) -> usize {
        self.program.kept_events()
    }

    fn flush(&mut self) -> Flow {
        self.program.flush()
    }

    fn exit(&mut self) -> Flow {
        self.program.exit()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::event::{Format, Stop};

    /// Emits the start and the end of a pair as one record. After a loss, forgets a start that has no end yet.
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
    }

    /// Writes down what is delivered, and stops the delivery at an event with this index.
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
            body(self);
        }
    }

    /// Events 0 and 1 are the inputs: the start and the end of a pair. Event 2 is not an input. Event 3 is the derived
    /// pair.
    fn check(stop: Option<usize>, samples: &[Option<(usize, u8)>], expected: Expect) {
        let pair = Definition {
            name: "pair",
            about: "a start and its end",
            inputs: &["a:start", "a:end"],
            format: || Format::source("pair"),
            start: || Box::<Pair>::default(),
        };
        let mut notes = Notes(String::new(), stop);
        let mut sink = DerivingSink::start(&mut notes, 3, [(&pair, 0..2)].into_iter());
        let mut flow = Flow::Continue(());
        for sample in samples {
            sink.enter(&mut |program| {
                flow = match sample {
                    Some((event, byte)) => program.sample(*event, &[*byte]),
                    None => program.lost(0, 0),
                };
            });
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
        check(None, &samples, expect!["2:[11] 3:[10, 12] Continue(())"]);
    }

    #[test]
    fn a_loss_reaches_the_derivation_before_the_next_sample() {
        check(None, &[Some((0, 10)), None, Some((1, 12))], expect!["lost Continue(())"]);
    }

    #[test]
    fn a_sink_that_stops_at_a_derived_sample_ends_the_delivery() {
        check(Some(3), &[Some((0, 10)), Some((1, 12)), Some((2, 13))], expect!["3:[10, 12] Break(Exit(7))"]);
    }
}

//! Where the events come from: the running kernel or a recording. The sinks of this room do not know which.

use std::{sync::Arc, time::Duration};

use anyhow::Result;

use crate::{
    commands::recording_view::OpenRecording,
    engine::{
        ExitStatus,
        exit_status::{Callbacks, exit_status},
    },
    event::{Context, EventType, Sink},
    live_run::{Delivered, LivePlan, SelectedEvents},
    plan::{Capture, Input, Verbosity},
    record::OtherRecords,
    spec::{EventKind, EventSpec, SpanEvents},
    symbol,
    sys::{blocked_signals::BlockedSignals, output, signals::Signals},
};

/// The events that a command shows.
#[derive(Clone, Debug)]
pub struct WatchPlan {
    /// The events. For live events also the target, and how they are captured.
    pub capture: Capture,
    /// Where the events come from.
    pub origin: Origin,
    /// The number of delivered events after which the run ends.
    pub limit: Option<u64>,
    /// How many messages are printed to stderr.
    pub verbosity: Verbosity,
}

/// Where events come from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// The running kernel.
    Live {
        /// The time after which the run ends.
        duration: Option<Duration>,
        /// How often the sink is told that an interval has passed.
        interval: Option<Duration>,
    },
    /// A recording.
    Recorded(Box<Input>),
}

/// Says if a command shows the time of day of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOfDay {
    Needed,
    NotNeeded,
}

/// What a sink has to know about the events before the first one.
pub struct Watched {
    /// The event types, in the order of their indices.
    pub events: Vec<EventType>,
    /// For each event type, whether its samples are delivered. Those of inputs of spans are not.
    pub is_delivered: Vec<bool>,
    /// Names of tasks and symbols, and the clock.
    pub context: Arc<Context>,
}

/// Delivers the events to the sink that `receive` creates. Returns the sink too.
pub fn deliver<S: Sink>(
    plan: &WatchPlan,
    time_of_day: TimeOfDay,
    receive: impl FnOnce(Watched) -> Result<S>,
) -> Result<(ExitStatus, S)> {
    let symbols = symbol::Options::default();
    if plan.capture.events.iter().any(wants_locks_of_programs) {
        output::say(
            "lock has waits for locks of the kernel, and none of the kind futex; scripts/lockstat.py --futex shows waits \
             for locks of programs",
        );
    }
    match &plan.origin {
        Origin::Recorded(input) => {
            let mut reading = OpenRecording::open_with_spans(input, &plan.capture.events, symbols, plan.verbosity)?;
            if time_of_day == TimeOfDay::Needed {
                reading = reading.with_time_of_day()?;
            }
            let (events, context) = (reading.types().to_vec(), reading.context.clone());
            let mut sink = receive(Watched { is_delivered: reading.is_delivered(), events, context })?;
            let outcome = reading.with_limit(plan.limit).run(&mut sink)?;
            Ok((outcome.status, sink))
        }
        &Origin::Live { duration, interval } => {
            // If the user presses Ctrl-C while the events are opened, the run ends as soon as it has started.
            let held = BlockedSignals::new()?;
            let prepared = SelectedEvents::select(&plan.capture)?.prepare(&plan.capture)?;
            let signals = Signals::install()?;
            drop(held);
            let live = LivePlan {
                capture: &plan.capture,
                recording: None,
                others: OtherRecords::NONE,
                interval,
                duration,
                limit: plan.limit,
                usage_every: None,
                verbosity: plan.verbosity,
                loss_advice: "they came faster than they could be shown; use a larger -m or --buffer, a filter or fewer \
                              events",
            };
            let events = prepared.open(live, |_| symbols, &signals)?;
            let (types, stats) = (events.event_types(), Arc::new(events.stats()));
            let is_delivered = (0..types.len()).map(|event| !events.is_input(event)).collect();
            let context = events.context().clone();
            let mut sink = receive(Watched { events: types.clone(), is_delivered, context })?;
            let Delivered { ending, at_exit, workload_status, started, capture, .. } =
                events.deliver(&mut sink, &types, &stats, &signals, &|| {});
            capture.close();
            started?;
            Ok((ExitStatus(exit_status(ending, at_exit, Callbacks::Returned, workload_status)), sink))
        }
    }
}

/// Returns whether the event is the source `lock`, and its selector names futexes, which the kernel's lock events leave
/// out.
fn wants_locks_of_programs(event: &EventSpec) -> bool {
    match &event.kind {
        EventKind::Span(span) => {
            matches!(&span.events, SpanEvents::Source { source, .. } if source == "lock")
                && event.selector.contains("futex")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::parse_events;

    #[test]
    fn a_selector_of_futexes_is_recognized() {
        let wants = |text: &str| parse_events(text).unwrap().iter().any(wants_locks_of_programs);
        assert!(wants("lock/kind=futex/") && wants(r#"lock/kind=="futex" && duration > 5/"#));
        assert!(!wants("lock/kind=mutex/") && !wants("syscall/name=futex/"));
    }
}

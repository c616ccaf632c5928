//! Delivers the events of the plan to the sink of a command, live or from a recording.

use std::sync::Arc;

use anyhow::Result;
use perf_prof_format::spec::{EventKind, EventSpec, SpanEvents};
use perf_prof_session::{
    engine::ExitStatus,
    plan::RunPlan,
    spine::{About, Chosen, Receiver},
};
use perf_prof_system::{blocked_signals::BlockedSignals, output};

/// What a command has to know about the times of a recording, besides the times of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFacts {
    /// Nothing.
    None,
    /// The time of day of events.
    TimeOfDay,
    /// When the recording starts and ends.
    Length,
}

/// Delivers the events to the receiver that `receive` creates, and returns the receiver at the end.
pub fn deliver<R: Receiver>(
    plan: &RunPlan,
    facts: TimeFacts,
    receive: impl FnOnce(&Arc<About>) -> Result<R>,
) -> Result<(ExitStatus, R)> {
    if plan.capture.events.iter().any(wants_locks_of_programs) {
        output::say(
            "`lock` shows only waits for locks of the kernel; for futexes, which are locks of programs, use \
             scripts/lockstat.py --futex",
        );
    }
    // During a live run, Ctrl-C while events are opened ends the run as soon as it has started. Opening a recording
    // that is a pipe blocks, so there Ctrl-C ends the process.
    let held = plan.live().map(|_| BlockedSignals::new()).transpose()?;
    let mut chosen = Chosen::select(plan)?;
    chosen.warn();
    if let Chosen::Recorded(recording) = &mut chosen {
        match facts {
            TimeFacts::None => {}
            TimeFacts::TimeOfDay => recording.find_time_of_day()?,
            TimeFacts::Length => drop(recording.times()?),
        }
    }
    let delivered = chosen.arm()?.deliver(held, receive)?;
    Ok((delivered.status(), delivered.sink))
}

/// Returns whether the selector asks the source `lock` for futexes, which the kernel's lock events do not include.
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
    use perf_prof_format::spec::parse_events;

    use super::*;

    #[test]
    fn a_selector_of_futexes_is_recognized() {
        let wants = |text: &str| parse_events(text).unwrap().iter().any(wants_locks_of_programs);
        assert!(wants("lock/kind=futex/") && wants(r#"lock/kind=="futex" && duration > 5/"#));
        assert!(!wants("lock/kind=mutex/") && !wants("syscall/name=futex/"));
    }
}

//! Tells a program when a ring has no space, and when records of a recording are missing.

use std::ops::ControlFlow;

use perf_prof_events::event::Deliver;
use perf_prof_format::record::{ReplayMarker, RingRoom};

use super::BreakReason;

/// Tells the program that a ring begins to lose records, or that it has space again.
#[cold]
pub(super) fn room_changed(room: RingRoom, time: u64, program: &mut dyn Deliver) -> ControlFlow<BreakReason> {
    let flow = match room {
        RingRoom::Used => program.loss_begins(),
        RingRoom::Left => program.loss_is_over(time),
    };
    flow.map_break(BreakReason::Stop)
}

/// Tells the program that a gap of a recording begins or ends.
#[cold]
pub(super) fn gap_changed(marker: ReplayMarker, program: &mut dyn Deliver) -> ControlFlow<BreakReason> {
    room_changed(marker.room, marker.time, program)?;
    let told = marker.unread.map_or(ControlFlow::Continue(()), |(start, end)| program.unread(start, end));
    told.map_break(BreakReason::Stop)
}

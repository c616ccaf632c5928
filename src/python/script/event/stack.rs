//! The stack of an event for flame graphs: the comm, and the frames of the callchain with their symbols.

use std::sync::Arc;

use perf_prof_events::event::Frame;
use pyo3::prelude::*;

use super::{
    access,
    methods::{event, is_event},
};

/// The comm of a task, and a callchain.
pub struct Stack {
    /// The comm (the task's name) at the event's time.
    pub task: String,
    /// The frames, innermost first.
    pub frames: Vec<Arc<Frame>>,
}

/// Returns the stack if the object is an event. If the event has no callchain, the stack contains no frames.
pub fn stack_of(object: &Bound<'_, PyAny>) -> Option<Stack> {
    if !is_event(object) {
        return None;
    }
    let this = event(object);
    let comm = access::comm(this);
    let task = match &comm {
        Some(comm) => String::from_utf8_lossy(comm).into_owned(),
        None => format!(":{}", this.sample().pid_tid().1),
    };
    Some(Stack { task, frames: access::resolved_frames(this) })
}

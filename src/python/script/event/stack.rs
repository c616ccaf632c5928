//! The stack of an event, for flame graphs: the comm, and the frames with their symbols.

use std::sync::Arc;

use perf_prof_events::event::Frame;
use pyo3::prelude::*;

use super::{
    access,
    methods::{event, is_event},
};

/// A task and its call chain.
pub struct Stack {
    /// The comm (the task's name) at the event's time.
    pub task: String,
    /// The frames, innermost first.
    pub frames: Vec<Arc<Frame>>,
}

/// Returns the stack of an object if it is an event. The stack of an event without a call chain has no frames.
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

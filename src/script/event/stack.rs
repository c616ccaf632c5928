//! An event's stack for who draws it: the task and the frames with their names.

use std::sync::Arc;

use pyo3::prelude::*;

use super::{
    access,
    methods::{event, is_event},
};
use crate::event::Frame;

/// Who was where.
pub struct Stack {
    /// The task's name, as known at the event's time.
    pub task: String,
    /// Innermost first.
    pub frames: Vec<Arc<Frame>>,
}

/// The stack of an object that is an event; without call chain it has no frames.
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
    Some(Stack { task, frames: access::resolve(this) })
}

//! The event objects: one Python class per event type, with descriptors that decode an attribute when it is read.
//!
//! The classes use CPython's C API and are not pyo3 classes, because they are created at run time. CPython finds a
//! descriptor of the event's own class through its type cache. A pyo3 class would have to use `__getattr__`, which is
//! called only after the normal look-up has failed, and takes six times as long.

mod access;
mod attributes;
mod base;
mod class;
mod convert;
mod detached;
mod event_class;
mod fast;
mod input;
mod made;
mod members;
mod methods;
mod object;
mod stack;

pub use base::{base_type, field_error};
pub use class::Class;
pub use convert::{string, text};
pub use detached::{class_of, detached_event, restore};
pub use event_class::EventClass;
pub use input::with_input;
pub use made::{Seen, kept_event, made, made_context, seen, unnamed_frames};
pub use object::{EventSlot, kept_events};
pub use stack::{Stack, stack_of};

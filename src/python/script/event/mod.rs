//! The event objects. Each event type has its own Python class, whose descriptors decode an attribute when it is read.
//!
//! The classes are created at run time, so they use CPython's C API instead of pyo3. CPython finds their descriptors
//! through its type cache. A pyo3 class would need `__getattr__`, which takes six times as long: CPython calls it only
//! after the normal look-up has failed.

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
mod perf_sample;
mod stack;

pub use base::{base_type, field_error};
pub use class::{Class, Interface};
pub use convert::{string, text};
pub use detached::{class_of, class_with, detached_event, restore};
pub use event_class::EventClass;
pub use input::with_input;
pub use made::{Seen, kept_event, made, made_context, seen, unnamed_frames};
pub use object::{EventSlot, kept_events};
pub use perf_sample::{Evsels, perf_sample_event};
pub use stack::{Stack, stack_of};

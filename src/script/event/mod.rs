//! The event object: one Python class per event type, whose attributes are decoded by descriptors when they are read.
//!
//! This is written against CPython's C API rather than with a pyo3 class, because the class is made at run time: an
//! attribute that is a descriptor of the event's own class is found through CPython's type cache, which costs a sixth of
//! what failing first and falling into `__getattr__` does.

mod access;
mod attributes;
mod base;
mod class;
mod convert;
mod detached;
mod fast;
mod members;
mod methods;
mod object;
mod stack;

pub use base::{base_type, field_error};
pub use class::Class;
pub use detached::{remember, restore};
pub use object::{EventSlot, kept};
pub use stack::{Stack, stack_of};

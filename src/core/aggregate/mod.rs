//! Aggregators: count and sum events by keys, in tables that are bounded. Does not know about Python or where events
//! come from.
//!
//! A [`Definition`] says what is added up. A [`Plan`] is the definition compiled for one event type: fields by offset and
//! width. [`Groups`] is the table.

mod definition;
mod distribution;
mod groups;
mod input;
mod key;
mod largest;
mod part;
mod plan;
mod plan_filter;
mod read;
mod report;
mod rows;
mod stack;
mod texts;

pub use definition::{Definition, DefinitionError, MAX_KEYS, MAX_LIMIT, Measure};
pub use distribution::{Buckets, Distribution, LinearError};
pub use groups::{Amount, Groups, Others};
pub use input::{Facts, Input, KeptFacts};
pub use key::{Key, KeyPart};
pub use largest::{Entry, Kept, Largest};
pub use plan::{Plan, PlanError};
pub use read::Memo;
pub(crate) use read::{Read, ReadError, ReadKind, names, resolve};
pub use report::{Align, Report};
pub use stack::label;
pub(crate) use texts::Texts;

#[cfg(test)]
mod tests;

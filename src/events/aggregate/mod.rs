//! Aggregators: count events and sum up values by keys, in tables of bounded size.
//!
//! A [`Definition`] says what is added up. A [`Plan`] is the definition compiled for one event type: it reads fields by
//! offset and width. [`Groups`] is the table.

mod definition;
mod distribution;
mod groups;
mod key;
mod largest;
mod memo;
pub mod metrics;
mod plan;
mod plan_filter;
mod report;
mod rows;
mod texts;

pub use definition::{Definition, DefinitionError, MAX_KEYS, MAX_LIMIT, Measure};
pub use distribution::{Buckets, Distribution, InOnePlace, LinearError, LinearRanges, Place};
pub use groups::{Amount, FoldReason, Groups, Order, Others};
pub use key::{Key, KeyPart};
pub use largest::{Entry, Kept, Largest};
pub use memo::Memo;
pub use plan::{Plan, PlanError};
pub use plan_filter::PlanFilter;
pub use report::{Align, Report, note_html, note_of_folded};
pub(crate) use texts::Texts;

#[cfg(test)]
mod tests;

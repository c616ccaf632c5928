//! Events as columns of Arrow arrays.
//!
//! A [`Plan`] says for each event type from which bytes of a record each column is read. [`Columns`] takes records in their
//! order and makes batches of them: `RecordBatch` of the crate `arrow-array`.

mod builder;
mod cell;
mod column_type;
mod groups;
mod numbers;
mod plan;
mod rows;
mod texts;
mod words;

pub use column_type::ColumnType;
pub use groups::of_groups;
pub use plan::{Plan, PlanError};
pub use rows::{BatchLimit, Columns, Row};

#[cfg(test)]
mod tests;

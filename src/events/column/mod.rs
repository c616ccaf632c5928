//! Events as columns: Arrow arrays.
//!
//! A [`Plan`] says how each column is read from the records of each event type. [`Columns`] collects records and makes
//! batches of them: `RecordBatch` of the crate `arrow-array`.

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

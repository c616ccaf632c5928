//! The columns of a recording, decoded by several threads at the same time. Each thread reads, orders and decodes one
//! part of the recording at a time. The batches are delivered in the order of the parts.

mod decode;
mod hand_over;
mod parts;
mod run;

pub use hand_over::{ColumnBatch, Next, PartError};
pub use parts::ColumnParts;
pub use run::ColumnRun;

#[cfg(test)]
mod tests;

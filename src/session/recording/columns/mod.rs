//! The columns of a recording, decoded by several threads side by side. Each of them reads, orders and decodes a part of
//! the recording at a time; the batches come out in the order of the parts.

mod decode;
mod hand_over;
mod parts;
mod run;

pub use hand_over::{ColumnBatch, Next, PartError};
pub use parts::ColumnParts;
pub use run::ColumnRun;

#[cfg(test)]
mod tests;

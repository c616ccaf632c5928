//! Indexes of recordings, plain or compressed: for each block of records, its position in the file and the times in it.
//! Also divides recordings into shards.

pub(crate) mod appended;
pub mod blocks;
pub mod compressed;
mod damage;
pub(crate) mod moved;
pub mod shards;
pub mod side_band;
pub mod trailer;

//! Puts blocks of records in time order: merges streams, reads them sequentially, and reads ahead.

pub mod block_stream;
pub mod gaps;
pub mod merge;
pub mod read_ahead;
pub mod rounds;
pub mod sequential;

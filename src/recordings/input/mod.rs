//! Input of recordings: files, directories, pipes, buffers, decompression.

pub mod block_pool;
pub mod decompress;
pub mod directory;
pub mod feed;
pub mod random_access;

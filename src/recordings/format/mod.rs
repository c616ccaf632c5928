//! The format of a recording: header, attrs, feature sections, byte orders, layouts of records. Reads no files.

pub mod attr;
pub mod bytes;
pub mod checksums;
pub mod features;
pub mod file_features;
pub mod first_records;
pub mod header;
pub mod interpreter_frames;
pub mod kernel_mapping;
pub mod layouts;
pub mod own_updates;
pub mod pipe_header;
pub mod swap;
pub mod tracing_data;
pub mod user_records;

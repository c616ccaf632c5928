//! The commands that show a recording: its events, its header, its samples as text or for other programs, or a report
//! on its samples.

pub mod evlist;
pub mod export;
pub mod header;
mod period;
mod pprof;
pub mod report;
pub mod script_template;
pub mod script_text;
mod task_names;

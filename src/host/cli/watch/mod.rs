//! The commands that show events without a script: their options, and the plans made from them.

mod options;
mod trace;

pub use trace::Trace;

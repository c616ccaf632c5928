//! The commands that show events without a script: their options and their plans.

mod hist;
mod options;
mod tally;
mod top;
mod trace;

pub use hist::Hist;
pub use top::Top;
pub use trace::Trace;

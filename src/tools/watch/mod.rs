//! The commands that answer questions about events without a script, live or from a recording: `trace`, `top` and
//! `hist`.

mod begun_before;
mod difference;
mod events;
pub mod hist;
mod key_json;
mod not_ended;
mod recorded_times;
mod screen;
mod short_chains;
mod span_text;
mod stack_width;
mod sum_table;
mod system_call;
mod tally;
pub mod top;
pub mod trace;

pub use crate::output::{Destination, Form};
pub use tally::{Earlier, Place, TallyPlan};

//! A run, from its plan to its outcome. Scripts, programs and commands take the same steps:
//!
//! ```text
//!   RunPlan ── select ──> Chosen ── arm ──> Armed ── open ──> Session ── run(&mut dyn Sink) ──> Outcome
//!                         (types)   (command   │    (rings, or the       (status, losses,
//!                                   forked,    │     part of the          events to close)
//!                                   rights     │     recording)
//!                                   given up)  └─ several processes: one Session for each part of a recording
//! ```
//!
//! The steps are separate, because other work happens between them. The command is forked and rights are given up
//! before there is any thread or interpreter. Signal handlers are installed after the interpreter has started, and
//! before the events are opened. But a pipe is opened before the handlers are installed: opening may block, and Ctrl-C
//! then has to end the process. The program is loaded between `open` and `run`.

mod about;
mod chosen;
mod command;
mod live;
mod opened;
mod outcome;
mod recording;
mod selected_times;
mod slice;

pub use about::{About, Available, EventAttr, MissingEvents, RecordingFacts, Trailers};
pub use chosen::{Armed, Chosen, check_destination};
pub use command::note_command;
pub use opened::{Receiver, Session};
pub use outcome::{Closing, Delivered, Outcome, Replayed, Totals};
pub use recording::ChosenRecording;
pub use selected_times::SelectedTimes;
pub use slice::Slice;

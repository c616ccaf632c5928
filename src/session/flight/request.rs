//! Requests for dumps, and their answers.

use std::path::PathBuf;

use crossbeam_channel::Sender;

use super::trigger_event::Trigger;

/// A request for a dump.
#[derive(Debug)]
pub struct Request {
    /// Why it is made.
    pub origin: Origin,
    /// Where the dump is written. `None` for a new file in the folder of the dumps.
    pub path: Option<PathBuf>,
    /// Gets the path of the dump when it is complete, or the reason why there is none.
    pub reply: Option<Sender<Result<PathBuf, String>>>,
}

/// What asks for a dump.
#[derive(Debug)]
pub enum Origin {
    /// An event of `--trigger`.
    Event(Trigger),
    /// Something else, such as a signal: the reason.
    Asked(String),
}

impl Request {
    /// Returns a request that needs no answer.
    pub fn asked(reason: &str) -> Request {
        Request { origin: Origin::Asked(reason.to_owned()), path: None, reply: None }
    }
}

//! Requests for dumps, and their answers.

use std::{os::fd::RawFd, path::PathBuf, sync::mpsc};

use crossbeam_channel::Sender;
use perf_prof_system::eventfd;

use super::trigger_event::Trigger;

/// A request for a dump.
#[derive(Debug)]
pub struct Request {
    /// Why it is made.
    pub origin: Origin,
    /// Where the dump is written. `None` for a new file in the folder of the dumps.
    pub path: Option<PathBuf>,
    /// Gets the path of the dump when it is complete, or the reason why there is none.
    pub reply: Option<mpsc::Sender<Result<PathBuf, String>>>,
}

/// What asks for a dump.
#[derive(Debug)]
pub enum Origin {
    /// An event of `--trigger`.
    Event(Trigger),
    /// Something else, such as a signal: the reason.
    Asked(String),
}

/// Asks a running flight recorder for dumps.
#[derive(Clone, Debug)]
pub struct Asking {
    pub(super) requests: Sender<Request>,
    /// The eventfd that wakes the recorder.
    pub(super) wake: RawFd,
}

impl Asking {
    /// Asks for a dump. The answer is its path when it is complete, or the reason why there is none. If the recorder has ended,
    /// there is no answer. The signals of the recorder must still exist.
    pub fn ask(&self, reason: &str, path: Option<PathBuf>) -> mpsc::Receiver<Result<PathBuf, String>> {
        let (reply, answer) = mpsc::channel();
        self.send(Request { path, reply: Some(reply), ..Request::asked(reason) });
        answer
    }

    /// Sends a request. If the recorder has ended, the request is dropped, and with it the place of the answer.
    pub(super) fn send(&self, request: Request) {
        let _ = self.requests.send(request);
        eventfd::signal(self.wake);
    }
}

impl Request {
    /// Returns a request that needs no answer.
    pub fn asked(reason: &str) -> Request {
        Request { origin: Origin::Asked(reason.to_owned()), path: None, reply: None }
    }
}

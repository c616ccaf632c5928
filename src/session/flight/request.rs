//! Requests for dumps, and their answers.

use std::{
    os::fd::RawFd,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use perf_prof_system::eventfd;

use super::trigger_event::Trigger;

/// The maximum number of events of `--trigger` that wait for the recorder. Each has a text of up to some KiB.
const EVENTS: usize = 1024;

/// The maximum number of requests that wait. Half of this number is left for signals, commands and programs.
const ALL: usize = 2 * EVENTS;

/// A request for a dump.
#[derive(Debug)]
pub struct Request {
    /// What asks for the dump.
    pub origin: Origin,
    /// The path of the dump. `None` for a new file in the folder of the dumps.
    pub path: Option<PathBuf>,
    /// Receives the path of the complete dump, or the reason why there is no dump.
    pub reply: Option<mpsc::Sender<Result<PathBuf, String>>>,
}

/// What asks for a dump.
#[derive(Debug)]
pub enum Origin {
    /// An event of `--trigger`.
    Event(Trigger),
    /// A signal, a command or a program. The text is the reason.
    Asked(String),
    /// Ends the present dump now, without the rest of `--after`. Asks for no dump.
    Cut,
}

/// Asks a running flight recorder for dumps.
#[derive(Clone, Debug)]
pub struct Asking {
    requests: Sender<Request>,
    /// The number of requests that were dropped because too many waited.
    missed: Arc<AtomicU64>,
    /// The eventfd that wakes the recorder.
    wake: RawFd,
}

/// The requests that wait for the recorder.
#[derive(Debug)]
pub struct Requests {
    waiting: Receiver<Request>,
    missed: Arc<AtomicU64>,
}

impl Requests {
    /// Returns how many requests wait.
    pub fn count(&self) -> usize {
        self.waiting.len()
    }

    /// Returns the request that has waited longest.
    pub fn next(&self) -> Option<Request> {
        self.waiting.try_recv().ok()
    }

    /// Returns the number of requests that were dropped because too many waited.
    pub fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }
}

impl Asking {
    /// Returns both ends of a queue of requests. `wake` is the eventfd that wakes the recorder.
    pub(super) fn new(wake: RawFd) -> (Asking, Requests) {
        // The channel is unbounded; `send` limits the number of requests. A bounded channel would keep requests after
        // the recorder has ended, and nobody would answer them.
        let ((requests, waiting), missed) = (unbounded(), Arc::default());
        (Asking { requests, missed: Arc::clone(&missed), wake }, Requests { waiting, missed })
    }

    /// Asks for a dump. The answer is the path of the complete dump, or the reason why there is no dump. After the
    /// recorder has ended, no answer comes. The caller must keep the eventfd of the recorder open.
    pub fn ask(&self, reason: &str, path: Option<PathBuf>) -> mpsc::Receiver<Result<PathBuf, String>> {
        let (reply, answer) = mpsc::channel();
        self.send(Request { path, reply: Some(reply), ..Request::asked(reason) });
        answer
    }

    /// Sends a request. If the recorder has ended, drops the request and its reply channel. If too many requests wait,
    /// only counts the request.
    pub(super) fn send(&self, request: Request) {
        let is_event = matches!(request.origin, Origin::Event(_));
        if self.requests.len() >= if is_event { EVENTS } else { ALL } {
            self.missed.fetch_add(1, Relaxed);
            request.reply.map(|reply| reply.send(Err("too many dumps are asked for at the same time".to_owned())));
        } else {
            let _ = self.requests.send(request);
        }
        eventfd::signal(self.wake);
    }
}

impl Request {
    /// Returns a request that needs no answer.
    pub fn asked(reason: &str) -> Request {
        Request { origin: Origin::Asked(reason.to_owned()), path: None, reply: None }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use perf_prof_system::eventfd::EventFd;

    use super::*;

    #[test]
    fn events_leave_room_for_others_and_those_without_room_are_counted() {
        let bell = EventFd::new().unwrap();
        let (asking, requests) = Asking::new(bell.as_raw_fd());
        let (reason, event) = (String::new(), String::new());
        let trigger = Trigger { reason, event, time: 0, task: (0, 0), cpu: 0 };
        (0..5000).for_each(|_| {
            asking.send(Request { origin: Origin::Event(trigger.clone()), path: None, reply: None });
        });
        assert_eq!((requests.count(), requests.missed()), (EVENTS, 5000 - EVENTS as u64));
        let answers: Vec<_> = (0..5000).map(|_| asking.ask("x", None)).collect();
        assert_eq!(requests.count(), ALL);
        assert!(answers[0].try_recv().is_err(), "it waits");
        assert!(matches!(answers[4999].try_recv(), Ok(Err(_))), "it is answered at once");
        assert!(requests.next().is_some_and(|request| matches!(request.origin, Origin::Event(_))), "oldest first");
        drop(requests);
        assert!(matches!(answers[0].try_recv(), Err(mpsc::TryRecvError::Disconnected)), "nobody will answer it");
        assert!(matches!(asking.ask("x", None).try_recv(), Err(mpsc::TryRecvError::Disconnected)));
    }
}

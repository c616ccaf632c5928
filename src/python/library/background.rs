//! Runs work in a separate thread, so that a program can wait for it without the GIL.

use std::{
    io,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use anyhow::Result;
use perf_prof_system::{
    mutex::Mutex,
    own_threads,
    signals::{EndRequests, Signals},
};
use pyo3::prelude::*;

use super::{errors::exception, messages};
pub use crate::script::LOOK_FOR_SIGNALS;

/// Work in another thread, until it ends by itself or the program requests its end.
pub struct Background<T> {
    requests: Arc<EndRequests>,
    result: Mutex<mpsc::Receiver<Result<T>>>,
}

impl<T: Send + 'static> Background<T> {
    /// Starts `work` in a new thread. `work` gets the program's requests to end it. It does not get the signals of the
    /// process.
    pub fn start(work: impl FnOnce(Signals) -> Result<T> + Send + 'static) -> Result<Background<T>> {
        messages::collect();
        let requests = Arc::new(EndRequests::new()?);
        let (sender, result) = mpsc::sync_channel(1);
        let signals = Signals::of_program(requests.clone());
        start_thread(
            || work(signals),
            move |result| {
                // The send fails if the program no longer waits for the result.
                let _ = sender.send(result);
            },
        )?;
        Ok(Background { requests, result: Mutex::new(result) })
    }

    /// Returns the object through which the program requests the end of the work.
    pub fn requests(&self) -> Arc<EndRequests> {
        self.requests.clone()
    }

    /// Waits until the work has ended. If a signal handler of the program raises an exception, also requests the end of
    /// the work.
    pub fn wait(&self, py: Python<'_>) -> PyResult<T>
    where
        T: Send,
    {
        let mut raised = None;
        loop {
            let result = py.detach(|| self.next());
            if let Some(result) = result {
                messages::warn(py)?;
                return match raised {
                    Some(error) => Err(error),
                    None => result.map_err(|error| exception(py, &error)),
                };
            }
            if let Err(error) = py.check_signals() {
                self.requests.end();
                raised.get_or_insert(error);
            }
        }
    }

    fn next(&self) -> Option<Result<T>> {
        match self.result.lock().recv_timeout(LOOK_FOR_SIGNALS) {
            Ok(result) => Some(result),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                Some(Err(Internal("the result was taken already".into()).into()))
            }
        }
    }
}

/// Starts a thread that calls `work`, and then `done` with the result. A panic of `work` becomes an error. The thread
/// blocks all signals, and its events are not traced.
pub fn start_thread<T>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
    done: impl FnOnce(Result<T>) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let body = move || {
        let result = panic::catch_unwind(AssertUnwindSafe(work));
        done(result.unwrap_or_else(|panic| Err(Internal::from_panic(&*panic).into())));
    };
    own_threads::spawn("perf_prof", body)
}

/// An error that only a defect of perf-prof can cause.
#[derive(Debug, thiserror::Error)]
#[error("internal error: {0}")]
pub struct Internal(pub String);

impl Internal {
    fn from_panic(panic: &(dyn std::any::Any + Send)) -> Internal {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Internal(text.unwrap_or("a panic without a message").to_owned())
    }
}

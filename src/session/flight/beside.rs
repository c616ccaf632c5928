//! A flight recorder beside a run. The recorder keeps the events of the run in a thread of its own. The receiver of the
//! run's events asks the recorder for dumps.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use anyhow::{Context as _, Result, anyhow};
use perf_prof_system::{
    output, own_threads,
    signals::{EndRequests, Signals},
};

use super::{
    FlightPlan,
    request::{Asking, Origin, Request},
    run::{choose, run_chosen},
};
use crate::{
    live::chosen::ChosenEvents,
    plan::{Capture, Target},
};

/// A flight recorder that has selected its events and does not run yet.
pub struct Prepared {
    plan: FlightPlan,
    chosen: ChosenEvents,
}

/// A running flight recorder that keeps the events of a run. Dropping this value ends the recorder and the present
/// dump.
#[derive(Debug)]
pub struct Beside {
    snapshots: Snapshots,
    thread: Option<JoinHandle<()>>,
}

/// Asks a flight recorder beside a run for dumps, from any thread.
#[derive(Clone, Debug)]
pub struct Snapshots {
    asking: Asking,
    // Keeps the eventfd open through which the recorder is asked.
    end: Arc<EndRequests>,
}

impl Prepared {
    /// Selects the events. The caller must call this before the run gives up rights to files.
    pub fn new(plan: &FlightPlan) -> Result<Prepared> {
        let mut chosen = choose(plan).context("--before")?;
        chosen.keep_files();
        Ok(Prepared { plan: plan.clone(), chosen })
    }

    /// Starts the recorder. `command` is the pid of the run's command, if the command is the target. Returns as soon as the
    /// rings keep the events.
    pub fn begin(self, command: Option<u32>) -> Result<Beside> {
        let Prepared { mut plan, chosen } = self;
        if let Some(pid) = command {
            follow(&mut plan.record.capture, pid);
        }
        let end = Arc::new(EndRequests::new()?);
        let of_program = Signals::of_program(Arc::clone(&end));
        let (tell, told) = mpsc::channel();
        let body = move || {
            let mut has_begun = false;
            let outcome = run_chosen(
                &plan,
                chosen,
                || Ok(of_program),
                |asking| {
                    has_begun = true;
                    // The run waits for this message. If the recorder cannot start, the run gets the error below
                    // instead.
                    let _ = tell.send(Ok(asking));
                },
            );
            match outcome {
                Err(error) if has_begun => output::say(format_args!(
                    "--before: {error:#}; the flight recorder has ended, so there are no more dumps"
                )),
                Err(error) => drop(tell.send(Err(error))),
                Ok(_) => {}
            }
        };
        let thread = own_threads::spawn("perf-prof-flight", body).context("--before")?;
        let begun =
            told.recv().unwrap_or_else(|_| Err(anyhow!("the thread of the flight recorder ended unexpectedly")));
        let asking = begun.context("--before")?;
        Ok(Beside { snapshots: Snapshots { asking, end }, thread: Some(thread) })
    }
}

impl Beside {
    /// Returns the object that asks for dumps.
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.snapshots.end.end();
        if let Some(thread) = self.thread.take() {
            // A panicked thread has already printed why.
            let _ = thread.join();
        }
    }
}

impl Snapshots {
    /// Asks for a dump, as [`Asking::ask`] does.
    pub fn ask(&self, reason: &str, path: Option<PathBuf>) -> mpsc::Receiver<Result<PathBuf, String>> {
        self.asking.ask(reason, path)
    }

    /// Ends the present dump now, without the rest of `--after`.
    pub fn cut(&self) {
        self.asking.send(Request { origin: Origin::Cut, path: None, reply: None });
    }
}

/// Makes the capture follow the command, which another capture has forked.
fn follow(capture: &mut Capture, pid: u32) {
    for target in [Some(&mut capture.target), capture.selected_tasks.as_mut()].into_iter().flatten() {
        if matches!(target, Target::Workload(_)) {
            *target = Target::Processes(vec![pid]);
        }
    }
}

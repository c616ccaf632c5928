//! A flight recorder beside a run: it keeps the events of the run in a thread of its own, and the receiver of the events asks
//! for dumps.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use anyhow::{Context as _, Result, anyhow};
use perf_prof_system::{
    output,
    own_threads::OwnThread,
    signals::{self, EndRequests, Signals},
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

/// A flight recorder with its events selected, which does not run yet.
pub struct Prepared {
    plan: FlightPlan,
    chosen: ChosenEvents,
}

/// A flight recorder that keeps the events of a run. Dropping it ends it, also during a dump, which then ends too.
#[derive(Debug)]
pub struct Beside {
    snapshots: Snapshots,
    thread: Option<JoinHandle<()>>,
}

/// Asks a flight recorder beside a run for dumps, from any thread.
#[derive(Clone, Debug)]
pub struct Snapshots {
    asking: Asking,
    // Keeps the eventfd open, through which the recorder is asked.
    end: Arc<EndRequests>,
}

impl Prepared {
    /// Selects the events. Must be called before the run gives up rights to files.
    pub fn new(plan: &FlightPlan) -> Result<Prepared> {
        let mut chosen = choose(plan).context("--before")?;
        chosen.keep_files();
        Ok(Prepared { plan: plan.clone(), chosen })
    }

    /// Starts the recorder. `command` is the process of the run's command, if the command is the target. Returns when the
    /// events are kept.
    pub fn begin(self, command: Option<u32>) -> Result<Beside> {
        let Prepared { mut plan, chosen } = self;
        if let Some(pid) = command {
            follow(&mut plan.record.capture, pid);
        }
        let end = Arc::new(EndRequests::new()?);
        let of_program = Signals::of_program(Arc::clone(&end));
        let (tell, told) = mpsc::channel();
        let body = move || {
            signals::block_in_this_thread();
            let _own = OwnThread::enter();
            let mut has_begun = false;
            let outcome = run_chosen(
                &plan,
                chosen,
                || Ok(of_program),
                |asking| {
                    has_begun = true;
                    // The run waits for this message. If it does not come, the run waits for the message below.
                    let _ = tell.send(Ok(asking));
                },
            );
            match outcome {
                Err(error) if has_begun => output::say(format_args!("--before: {error:#}; nothing is kept any more")),
                Err(error) => drop(tell.send(Err(error))),
                Ok(_) => {}
            }
        };
        let thread = thread::Builder::new().name("perf-prof-flight".to_owned()).spawn(body).context("--before")?;
        let begun = told.recv().unwrap_or_else(|_| Err(anyhow!("the thread of the flight recorder ended")));
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
            // A thread that panicked has printed why.
            let _ = thread.join();
        }
    }
}

impl Snapshots {
    /// Asks for a dump, as [`Asking::ask`] does.
    pub fn ask(&self, reason: &str, path: Option<PathBuf>) -> mpsc::Receiver<Result<PathBuf, String>> {
        self.asking.ask(reason, path)
    }

    /// Ends the present dump, without the rest of `--after`.
    pub fn cut(&self) {
        self.asking.send(Request { origin: Origin::Cut, path: None, reply: None });
    }
}

/// Lets the capture follow the process of a command that another capture has forked.
fn follow(capture: &mut Capture, pid: u32) {
    for target in [Some(&mut capture.target), capture.selected_tasks.as_mut()].into_iter().flatten() {
        if matches!(target, Target::Workload(_)) {
            *target = Target::Processes(vec![pid]);
        }
    }
}

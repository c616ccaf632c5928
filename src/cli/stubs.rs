//! `perf-prof stubs`: prints the types of events for type checkers and editors.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Context;
use clap::Args;
use perf_prof_events::{derive, event::EventType, template};
use perf_prof_format::spec::{EventSpec, SpecError};
use perf_prof_session::{
    engine::ExitStatus,
    live::{requests, select::Selection, unprivileged},
    plan::{Capture, ReadLimits},
    recording, selectors,
};
use perf_prof_system::{output, shell::shell_quote_all};

use super::{failure::Failure, values::owner};

const AFTER_HELP: &str = "\
Examples:
  perf-prof stubs 'sched:*' -o events.pyi
      write a class for each event of the system sched, for scripts in the same folder
  perf-prof stubs sched:sched_switch page-faults
      print the classes SchedSwitch and PageFaults
  perf-prof stubs -i perf.data -o events.pyi
      write a class for each event in a recording

A script imports the classes only while it is checked by mypy, pyright or an editor:

    from __future__ import annotations
    from typing import TYPE_CHECKING

    if TYPE_CHECKING:
        from events import SchedSwitch

    def sched__sched_switch(event: SchedSwitch) -> None:
        print(event.prev_comm, event.next_pid)";

/// The arguments of `stubs`.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Stubs {
    /// Events as for -e of `perf-prof python`, for example 'sched:*'; with -i and without -e, all events of the recording
    #[arg(value_name = "EVENT,...", required_unless_present = "input")]
    events: Vec<String>,
    /// The events of this recording instead of this kernel's: a file or a directory
    #[arg(short, long, value_name = "PATH")]
    input: Option<PathBuf>,
    /// Read the recording of another user too
    #[arg(short, long, requires = "input")]
    force: bool,
    /// Write to FILE instead of printing
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Stubs {
    /// Prints or writes the types.
    pub fn run(&self, argv: &[OsString]) -> Result<ExitStatus, Failure> {
        const READ_ON: &str = "`perf-prof stubs --help` explains the options, with examples";
        let wrong = |error: SpecError| Failure::Usage(error.to_string(), READ_ON.into());
        let mut events = Vec::new();
        for list in &self.events {
            events.extend(selectors::parse(list).map_err(wrong)?);
        }
        let types = match &self.input {
            Some(_) => self.types_in_recording(&events)?,
            None => types_of_kernel(events)?,
        };
        let words = ["perf-prof".into()].into_iter().chain(argv.iter().skip(1).cloned());
        let text = template::stubs(&types, &shell_quote_all(words));
        match &self.output {
            Some(path) => fs::write(path, text).with_context(|| format!("cannot write '{}'", path.display()))?,
            None => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()?;
            }
        }
        Ok(ExitStatus(0))
    }

    fn types_in_recording(&self, events: &[EventSpec]) -> anyhow::Result<Vec<EventType>> {
        let path = self.input.clone().unwrap_or_default();
        let recording = recording::open::open_header(&path, &ReadLimits { owner: owner(self.force), memory: None })?;
        recording.warnings.iter().for_each(|warning| output::say(format_args!("warning: {warning}")));
        let selected = recording::select::select(events, 0, &recording)?;
        Ok(derive::delivered(&selected.types, &selected.derived))
    }
}

/// Returns the event types that a live run of these events would have. Opens no events.
fn types_of_kernel(events: Vec<EventSpec>) -> anyhow::Result<Vec<EventType>> {
    let plan = Capture { events, ..Capture::default() };
    // No event is opened, so the same event may be selected several times.
    let Selection { events: selected, derived, .. } =
        perf_prof_session::live::select::resolve(&plan, &unprivileged::tracefs(&plan)?)?;
    let layouts = perf_prof_capture::Capture::layouts(&requests::requests(&plan, &selected)?);
    let captured = selected.iter().zip(&layouts).map(|(event, &layout)| event.event_type(layout));
    let types = derive::with_derived(captured.collect(), &derived)?;
    Ok(derive::delivered(&types, &derived))
}

//! Programs and maps in the kernel: loading, attaching, exchanging and reading tables.
//!
//! All programs and maps end when their descriptors are closed, so nothing stays in the kernel after this process.

mod chains;
mod open;
mod pairs;
mod selected;
mod strings;
mod table;
mod witnessed;

use std::os::fd::{AsFd, OwnedFd};

use perf_prof_format::abi::{PERF_TYPE_TRACEPOINT, bpf::ProgramType, perf_event_attr};
use perf_prof_system::{
    CallError,
    bpf::{LoadError, Program as Loaded},
    close_in_child::Slow,
    perf::{self, Attach},
};
use thiserror::Error;

pub use open::MostOpen;
pub use pairs::PairsInKernel;
pub use selected::{FirstTasks, ProcessEvents, SelectedTasks, TaskEvents};
pub use strings::{InterpretersInKernel, StringWriters};
pub use table::{Gaps, Reading, Room, TableInKernel};

use crate::{
    instruction::{Code, MapUse, Program},
    lower::Unsuited,
};

/// Why the kernel does not take a program or a map.
#[derive(Debug, Error)]
pub enum Refusal {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The programs that follow tasks cannot be made.
    #[error(transparent)]
    Unsuited(#[from] Unsuited),
    /// The format of a tracepoint cannot be read.
    #[error("{0}")]
    Tracefs(String),
    /// The verifier does not accept the program. That is a defect of perf-prof.
    #[error("the kernel's verifier refuses the program: {}", last_line(.0))]
    Verifier(String),
}

impl From<LoadError> for Refusal {
    fn from(LoadError { error, log }: LoadError) -> Refusal {
        if log.is_empty() { Refusal::Call(error) } else { Refusal::Verifier(log) }
    }
}

/// Returns the line of the verifier's log that says what is wrong: the last one before the statistics.
fn last_line(log: &str) -> &str {
    let is_count = |line: &&str| line.starts_with("processed ") || line.is_empty();
    log.lines().rev().find(|line| !is_count(line)).unwrap_or_default()
}

/// The tracepoint at which a program runs.
#[derive(Clone, Copy, Debug)]
pub struct Tracepoint<'a> {
    /// The name of the event. Tools such as `bpftool` show it as the name of the program.
    pub name: &'a str,
    /// Its number in tracefs.
    pub id: u32,
}

/// A program that runs at each event of a tracepoint, until this value is dropped.
#[derive(Debug)]
pub struct Attached {
    program: Loaded,
    /// Closing this descriptor detaches the program. `None` on kernels without links.
    link: Option<OwnedFd>,
    event: OwnedFd,
}

impl Attached {
    /// Attaches a program. Other users of the tracepoint still get all of its events.
    fn new(program: Loaded, tracepoint: Tracepoint<'_>) -> Result<Attached, CallError> {
        let mut attr = perf_event_attr { type_: PERF_TYPE_TRACEPOINT, ..perf_event_attr::default() };
        attr.config = tracepoint.id.into();
        // The program runs at a disabled event too. An enabled one would cost the traced programs more than the BPF program.
        attr.set_disabled(1);
        let event = perf::open(&attr, Attach::Thread(0, None))?;
        let link = program.attach_to_event(event.as_fd())?;
        Ok(Attached { program, link, event })
    }

    /// Returns how many events the program missed, because another BPF program or bpf(2) was active on the CPU.
    fn missed(&self) -> u64 {
        self.program.recursion_misses().unwrap_or(0)
    }

    /// Returns the descriptors that keep the program attached.
    fn into_slow(self) -> impl Iterator<Item = Slow> {
        self.link.map(Slow::Program).into_iter().chain([Slow::Event(self.event)])
    }
}

/// Loads a program for a tracepoint, with these descriptors of its maps.
fn load(
    program: &Program,
    tracepoint: Tracepoint<'_>,
    descriptor: impl FnMut(MapUse) -> u32,
) -> Result<Loaded, LoadError> {
    Loaded::load(tracepoint.name, ProgramType::Tracepoint, &program.with_maps(descriptor))
}

/// Returns whether the kernel lets this process load and attach programs. Tries it with the smallest program.
pub fn check() -> Result<(), Refusal> {
    let mut code = Code::new();
    code.exit(1);
    Loaded::load("check", ProgramType::Tracepoint, &code.program().instructions)?;
    Ok(())
}

//! Loads programs and maps into the kernel, attaches programs, and exchanges and reads tables.
//!
//! Programs and maps end when their file descriptors are closed, so nothing stays in the kernel when perf-prof exits.

mod chains;
mod known_rows;
mod open;
mod pairs;
mod selected;
mod slot;
mod strings;
mod table;
mod witnessed;

use std::{
    collections::BTreeSet,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use perf_prof_capture::HookedProbe;
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

/// Why the kernel refuses a program or a map.
#[derive(Debug, Error)]
pub enum Refusal {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The programs that update the map of selected tasks cannot be compiled.
    #[error(transparent)]
    Unsuited(#[from] Unsuited),
    /// The format of a tracepoint cannot be read.
    #[error("{0}")]
    Tracefs(String),
    /// The verifier refuses the program. This is a defect of perf-prof.
    #[error("the kernel's verifier refuses the program: {}", last_line(.0))]
    Verifier(String),
    /// The maps of the programs would take too much memory.
    #[error(
        "its maps would take {} KiB of memory, and {} KiB of --buffer are left for them; use a larger --buffer or fewer events",
        .needed >> 10,
        .left >> 10
    )]
    Memory {
        /// What the maps of the program would take, in bytes.
        needed: usize,
        /// What the maps of programs may still take.
        left: usize,
    },
}

impl From<LoadError> for Refusal {
    fn from(LoadError { error, log }: LoadError) -> Refusal {
        if log.is_empty() { Refusal::Call(error) } else { Refusal::Verifier(log) }
    }
}

/// Returns the line of the verifier's log that names the error: the last line before the statistics.
fn last_line(log: &str) -> &str {
    let is_count = |line: &&str| line.starts_with("processed ") || line.is_empty();
    log.lines().rev().find(|line| !is_count(line)).unwrap_or_default()
}

/// The tracepoint at which a program runs.
#[derive(Clone, Copy, Debug)]
pub struct Tracepoint<'a> {
    /// The name of the event. Tools such as `bpftool` show it as the program's name.
    pub name: &'a str,
    /// The id of the event in tracefs.
    pub id: u32,
}

/// When a program that writes samples runs.
#[derive(Clone, Copy, Debug)]
pub enum Occasion<'a> {
    /// At each event of a tracepoint.
    Tracepoint(Tracepoint<'a>),
    /// When the kernel takes a sample of another event, such as a timer. The event is opened on the CPUs that have outputs.
    Sample {
        /// The name of the event.
        name: &'a str,
        /// The attr, which says which event it is and when it is sampled.
        attr: &'a perf_event_attr,
    },
    /// When a probe is hit.
    Probe {
        /// The name of the event.
        name: &'a str,
        /// The open probe.
        hooked: &'a Arc<HookedProbe>,
    },
}

impl Occasion<'_> {
    fn load(self, program: &Program, descriptor: impl FnMut(MapUse) -> u32) -> Result<Loaded, LoadError> {
        match self {
            Occasion::Tracepoint(tracepoint) => load(program, tracepoint, descriptor),
            Occasion::Sample { name, .. } => Loaded::load(name, ProgramType::PerfEvent, &program.with_maps(descriptor)),
            Occasion::Probe { name, .. } => Loaded::load(name, ProgramType::Kprobe, &program.with_maps(descriptor)),
        }
    }

    fn attach(self, program: Loaded, cpus: &BTreeSet<u32>) -> Result<Attached, CallError> {
        match self {
            Occasion::Tracepoint(tracepoint) => Attached::new(program, tracepoint),
            Occasion::Sample { attr, .. } => Attached::to_samples(program, attr, cpus),
            Occasion::Probe { hooked, .. } => Attached::to_probe(program, hooked),
        }
    }
}

/// A program that runs at each event. Dropping this value detaches it.
#[derive(Debug)]
pub struct Attached {
    program: Loaded,
    events: Vec<AttachedTo>,
    _probe: Option<AttachedProbe>,
}

/// A probe to which a program is attached.
#[derive(Debug)]
struct AttachedProbe {
    /// The BPF link, as in [`AttachedTo`]. The link is dropped before `_hooked`: the kernel removes a probe only after the
    /// link is closed.
    _link: Option<OwnedFd>,
    _hooked: Arc<HookedProbe>,
}

/// An event to which a program is attached.
#[derive(Debug)]
struct AttachedTo {
    /// If this descriptor is closed, the kernel detaches the program. `None` on kernels without BPF links.
    link: Option<OwnedFd>,
    event: OwnedFd,
}

impl AttachedTo {
    fn new(program: &Loaded, event: OwnedFd) -> Result<AttachedTo, CallError> {
        Ok(AttachedTo { link: program.attach_to_event(event.as_fd())?, event })
    }
}

impl Attached {
    /// Attaches a program. Other users of the tracepoint still receive all of its events.
    fn new(program: Loaded, tracepoint: Tracepoint<'_>) -> Result<Attached, CallError> {
        let mut attr = perf_event_attr { type_: PERF_TYPE_TRACEPOINT, ..perf_event_attr::default() };
        attr.config = tracepoint.id.into();
        // The program also runs while the event is disabled. An enabled event would cost traced programs more than the BPF
        // program does.
        attr.set_disabled(1);
        let event = perf::open(&attr, Attach::Thread(0, None))?;
        let event = AttachedTo::new(&program, event)?;
        Ok(Attached { program, events: vec![event], _probe: None })
    }

    /// Attaches a program to an event that is sampled on these CPUs from now on.
    fn to_samples(program: Loaded, attr: &perf_event_attr, cpus: &BTreeSet<u32>) -> Result<Attached, CallError> {
        let attached = |&cpu: &u32| AttachedTo::new(&program, perf::open(attr, Attach::Cpu(cpu))?);
        let events = cpus.iter().map(attached).collect::<Result<_, _>>()?;
        Ok(Attached { program, events, _probe: None })
    }

    /// Attaches a program to a probe.
    fn to_probe(program: Loaded, hooked: &Arc<HookedProbe>) -> Result<Attached, CallError> {
        let link = hooked.event().map(|event| program.attach_to_event(event)).transpose()?.flatten();
        let attached = Some(AttachedProbe { _link: link, _hooked: Arc::clone(hooked) });
        Ok(Attached { program, events: Vec::new(), _probe: attached })
    }

    /// Returns how many events the program missed because another BPF program or bpf(2) was running on the CPU.
    fn missed(&self) -> u64 {
        self.program.recursion_misses().unwrap_or(0)
    }

    /// Returns the file descriptors that keep the program attached. The file descriptors of a probe are closed at once,
    /// because the probe's definition can be removed only afterwards.
    fn into_slow(self) -> impl Iterator<Item = Slow> {
        let of_event = |AttachedTo { link, event }| link.map(Slow::Program).into_iter().chain([Slow::Event(event)]);
        self.events.into_iter().flat_map(of_event)
    }
}

/// Loads a program for a tracepoint. `descriptor` returns the file descriptor of each map.
fn load(
    program: &Program,
    tracepoint: Tracepoint<'_>,
    descriptor: impl FnMut(MapUse) -> u32,
) -> Result<Loaded, LoadError> {
    Loaded::load(tracepoint.name, ProgramType::Tracepoint, &program.with_maps(descriptor))
}

/// Checks that the kernel lets this process load programs, by loading the smallest program.
pub fn check() -> Result<(), Refusal> {
    let mut code = Code::new();
    code.exit(1);
    Loaded::load("check", ProgramType::Tracepoint, &code.program().instructions)?;
    Ok(())
}

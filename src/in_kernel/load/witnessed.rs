//! The program of a span's event at a tracepoint, and its witness.

use std::{ffi::CString, os::fd::OwnedFd};

use perf_prof_format::abi::bpf::ProgramType;
use perf_prof_system::{CallError, bpf::Program as Loaded};

use super::{Attached, Refusal, Slow, Tracepoint, load};
use crate::{
    instruction::{MapUse, Program},
    lower::Unsuited,
    span::{MOST_INPUTS, witness_program},
};

/// The program of a span's event, and its witness.
#[derive(Debug)]
pub(super) struct Witnessed {
    state: State,
    witness: Loaded,
    name: CString,
    id: u32,
    /// The descriptor that keeps the witness attached.
    witnessing: Option<OwnedFd>,
}

#[derive(Debug)]
enum State {
    Loaded(Loaded),
    Attached(Attached),
    /// It could not be attached.
    Gone,
}

impl Witnessed {
    /// Loads the program of an event, which has this index among those of its span, and its witness.
    pub(super) fn load<F: FnMut(MapUse) -> u32>(
        input: usize,
        program: &Program,
        tracepoint: Tracepoint<'_>,
        descriptors: impl Fn() -> F,
    ) -> Result<Witnessed, Refusal> {
        if input >= MOST_INPUTS {
            return Err(Refusal::Unsuited(Unsuited::Spans("it is made of too many events")));
        }
        let loaded = load(program, tracepoint, descriptors())?;
        let words = witness_program(input).with_maps(descriptors());
        let witness = Loaded::load("witness", ProgramType::RawTracepoint, &words)?;
        let name = CString::new(tracepoint.name).map_err(|_| Refusal::Unsuited(Unsuited::NoTracepoint))?;
        Ok(Witnessed { state: State::Loaded(loaded), witness, name, id: tracepoint.id, witnessing: None })
    }

    /// Runs the program from now on.
    pub(super) fn attach(&mut self) -> Result<(), CallError> {
        self.state = match std::mem::replace(&mut self.state, State::Gone) {
            State::Loaded(program) => {
                let name = self.name.to_str().unwrap_or_default();
                State::Attached(Attached::new(program, Tracepoint { name, id: self.id })?)
            }
            state => state,
        };
        Ok(())
    }

    /// Runs the witness from now on.
    pub(super) fn attach_witness(&mut self) -> Result<(), CallError> {
        self.witnessing = Some(self.witness.attach_to_raw_tracepoint(&self.name)?);
        Ok(())
    }

    /// Returns how many events the witness itself missed, because it was already at work on the CPU.
    pub(super) fn missed(&self) -> u64 {
        self.witness.recursion_misses().unwrap_or(0)
    }

    /// Returns the descriptors that keep both attached.
    pub(super) fn into_slow(self) -> impl Iterator<Item = Slow> {
        let program = if let State::Attached(attached) = self.state { Some(attached.into_slow()) } else { None };
        self.witnessing.map(Slow::Program).into_iter().chain(program.into_iter().flatten())
    }
}

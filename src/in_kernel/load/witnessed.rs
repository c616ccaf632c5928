//! The program of a span's event, and the witness that notices events which the program missed.

use std::{ffi::CString, io::ErrorKind, os::fd::OwnedFd};

use perf_prof_format::abi::bpf::ProgramType;
use perf_prof_system::{CallError, bpf::Program as Loaded};

use super::{Attached, Refusal, Slow, Tracepoint, load};
use crate::{
    instruction::{MapUse, Program},
    lower::Unsuited,
    span::{MOST_INPUTS, witness_program},
};

/// The kernel makes the events `sys_enter_openat` and so on from the raw tracepoints `sys_enter` and `sys_exit`.
const NO_RAW_TRACEPOINT: &str = "one of its events has no raw tracepoint, as those of single system calls have none \
                                 (sys_enter_NAME, sys_exit_NAME); spans of `syscall` are counted in the kernel";

#[derive(Debug)]
pub(super) struct Witnessed {
    state: State,
    witness: Loaded,
    name: CString,
    id: u32,
    /// The file descriptor that keeps the witness attached.
    witnessing: Option<OwnedFd>,
}

#[derive(Debug)]
enum State {
    Loaded(Loaded),
    Attached(Attached),
    /// The program could not be attached.
    Gone,
}

impl Witnessed {
    /// Loads the program of an event and its witness. `input` is the index of the event in its span.
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

    pub(super) fn attach_witness(&mut self) -> Result<(), Refusal> {
        let attached = self.witness.attach_to_raw_tracepoint(&self.name);
        self.witnessing = Some(attached.map_err(|error| match error.source.kind() {
            ErrorKind::NotFound => Refusal::Unsuited(Unsuited::Spans(NO_RAW_TRACEPOINT)),
            _ => Refusal::Call(error),
        })?);
        Ok(())
    }

    /// Returns how many events the witness itself missed, because it was running on the CPU already.
    pub(super) fn missed(&self) -> u64 {
        self.witness.recursion_misses().unwrap_or(0)
    }

    /// Returns the file descriptors that keep the program and the witness attached.
    pub(super) fn into_slow(self) -> impl Iterator<Item = Slow> {
        let program = if let State::Attached(attached) = self.state { Some(attached.into_slow()) } else { None };
        self.witnessing.map(Slow::Program).into_iter().chain(program.into_iter().flatten())
    }
}

//! Pipes.

use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, pipe_with};

use super::call::{CallError, failed};

/// Creates a pipe. Returns the reading end and the writing end. exec closes both ends.
pub(super) fn new() -> Result<(OwnedFd, OwnedFd), CallError> {
    pipe_with(PipeFlags::CLOEXEC).map_err(failed("pipe2"))
}

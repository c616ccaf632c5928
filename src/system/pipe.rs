//! Pipes.

use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, pipe_with};

use super::call::{CallError, failed};

/// Creates a pipe. Returns the end for reading and the end for writing. Both are closed by exec.
pub(super) fn new() -> Result<(OwnedFd, OwnedFd), CallError> {
    pipe_with(PipeFlags::CLOEXEC).map_err(failed("pipe2"))
}

//! This process: a hook for its forks, and its immediate end. Does not know what the hook does.

/// Registers a function that every forked child calls before it runs anything else. It must be async-signal-safe.
pub fn in_forked_child(function: extern "C" fn()) {
    // SAFETY: `function` takes no arguments and exists as long as the process.
    unsafe {
        let function: unsafe extern "C" fn() = function;
        libc::pthread_atfork(None, None, Some(function));
    }
}

/// Ends the process at once. No buffers are flushed, and no destructors run.
pub fn exit_now(status: u8) -> ! {
    // SAFETY: the call has no preconditions.
    unsafe { libc::_exit(status.into()) }
}

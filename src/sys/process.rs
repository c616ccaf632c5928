//! This process: what happens when it forks, and its end.

/// Has `function` called in every forked child, before anything else runs in it. It must be async-signal-safe.
pub fn in_forked_child(function: extern "C" fn()) {
    // SAFETY: a plain function without arguments that lives as long as the process.
    unsafe {
        let function: unsafe extern "C" fn() = function;
        libc::pthread_atfork(None, None, Some(function));
    }
}

/// Ends the process at once: nothing is flushed, no destructor runs.
pub fn exit_now(status: u8) -> ! {
    // SAFETY: always callable.
    unsafe { libc::_exit(status.into()) }
}

//! This process: a hook for forked children, its user, and its immediate end. Also sends signals to other processes.

use std::{io, os::unix::process::CommandExt, process::Command};

/// Registers a function that every forked child calls before anything else. The function must be async-signal-safe.
pub fn in_forked_child(function: extern "C" fn()) {
    // SAFETY: `function` takes no arguments and exists as long as the process.
    unsafe {
        let function: unsafe extern "C" fn() = function;
        libc::pthread_atfork(None, None, Some(function));
    }
}

/// Returns the effective user id, with whose rights this process opens files.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Ends the process at once. No buffers are flushed, and no destructors run.
pub fn exit_now(status: u8) -> ! {
    // SAFETY: the call has no preconditions.
    unsafe { libc::_exit(status.into()) }
}

/// Sends a signal to a process. Nothing happens if there is no such process.
pub fn send_signal(pid: u32, signal: i32) {
    // SAFETY: the call takes only numbers.
    unsafe { libc::kill(pid as i32, signal) };
}

/// Makes the kernel send SIGTERM to `command` when the thread that starts it ends, for whatever reason. The kernel does
/// not do this for programs that are set-user-ID or have file capabilities (PR_SET_PDEATHSIG in prctl(2)).
pub fn end_with_this_thread(command: &mut Command) {
    let parent = std::process::id();
    let prepare = move || if die_with(parent, libc::SIGTERM) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) };
    // SAFETY: between fork and exec, the function makes only async-signal-safe calls.
    unsafe { command.pre_exec(prepare) };
}

/// In a forked child: makes the kernel send `signal` to this process when the thread that forked it ends. `parent` is
/// the id of the process that contains this thread. Returns false if `parent` has ended already. Async-signal-safe.
pub fn die_with(parent: u32, signal: i32) -> bool {
    // SAFETY: the calls take only numbers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, signal);
        libc::getppid() as u32 == parent
    }
}

//! Ends the command that a run started, and returns its exit status.

use std::{
    os::unix::process::ExitStatusExt,
    thread,
    time::{Duration, Instant},
};

use perf_prof_system::{output, own_threads, workload::Workload};

/// Waits up to half a second for the command to exit. If `signal` is set, first sends this signal to the command.
/// Returns the exit status of the command, or 128 plus the signal number if a signal killed the command. Returns `None`
/// if the command is still running.
pub fn end_workload(mut workload: Workload, signal: Option<i32>) -> Option<u8> {
    const PATIENCE: Duration = Duration::from_millis(500);
    if let Some(signal) = signal {
        workload.signal(signal);
    }
    let begun = Instant::now();
    loop {
        match workload.try_wait() {
            Ok(Some(status)) => {
                let of_signal = status.signal().map(|signal| 128 + signal);
                return status.code().or(of_signal).map(|status| status as u8);
            }
            Ok(None) => {}
            // The script has already read the exit status. For example, `os.wait()` waits for any child.
            Err(_) => return None,
        }
        if begun.elapsed() > PATIENCE {
            let why = if signal.is_some() { "did not exit after the signal and " } else { "" };
            output::say(format_args!("the command (pid {}) {why}is still running", workload.pid()));
            reap_later(workload);
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits in a thread until the command has exited, if it outlives its run. The program may continue for long after the
/// run, and no other code waits for the command.
fn reap_later(mut workload: Workload) {
    let wait = move || {
        // An error means that the program has already waited for the command.
        let _ = workload.wait();
    };
    // If the thread cannot be started, the command stays a zombie until the program ends.
    let _ = own_threads::spawn("perf_prof", wait);
}

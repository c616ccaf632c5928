//! Computes the exit status of the process from how the run ended.

use perf_prof_events::event::Stop;
use perf_prof_format::record::Ended;

use super::run_loop::Ending;

/// Says whether a callback of the program raised an exception.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Callbacks {
    /// No callback raised an exception, or the program has no callbacks.
    #[default]
    Returned,
    /// At least one callback raised an exception, and the run went on.
    Raised,
}

impl Callbacks {
    /// Returns `Raised` if a callback raised an exception according to `self` or `other`.
    pub fn and(self, other: Callbacks) -> Callbacks {
        if self == Callbacks::Raised { self } else { other }
    }
}

/// Returns the exit status of the process. `at_exit` says how the script's `__exit__` ended. The first of these
/// statuses that exists is the result:
///
/// * the status with which `__exit__` exited
/// * the status of the run, if the script or a signal ended the run with a status other than 0, or if the run failed
/// * 1, if `__exit__` failed
/// * `own`: the status of the command that exited, or of the replay that was read to its end
///
/// If a callback raised an exception, the result is never 0, and never the status of the command.
pub fn exit_status(ending: Ending, at_exit: Option<Stop>, callbacks: Callbacks, own: Option<u8>) -> u8 {
    let own = if callbacks == Callbacks::Raised { Some(1) } else { own };
    let of_stop = |stop: Stop| match stop {
        Stop::Exit(status) => status,
        Stop::Failed => 1,
        Stop::Interrupted | Stop::ClosedPipe | Stop::Limit => 0,
    };
    let run = match ending {
        Ending::Program(stop) => of_stop(stop),
        Ending::Signal { number: libc::SIGINT, .. } => 0,
        Ending::Signal { number, .. } => 128 + number as u8,
        Ending::NotStarted => 1,
        Ending::Limit | Ending::Duration | Ending::Source(_) => 0,
    };
    let status = match (at_exit, run) {
        (Some(Stop::Exit(status)), _) => status,
        (Some(stop), 0) => of_stop(stop),
        (None, 0) if matches!(ending, Ending::Source(Ended::TasksExited | Ended::EndOfInput)) => own.unwrap_or(0),
        (_, run) => run,
    };
    if status == 0 && callbacks == Callbacks::Raised { 1 } else { status }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::run_loop::PendingEvents;

    #[test]
    fn the_status_is_the_scripts_then_the_runs_then_the_commands() {
        let exited = Ending::Source(Ended::TasksExited);
        let signal = |number| Ending::Signal { number, rest: PendingEvents::Delivered };
        let rows = [
            (exited, None, Some(3), 3),
            (exited, Some(Stop::Exit(0)), Some(3), 0),
            (exited, Some(Stop::Exit(5)), Some(3), 5),
            (exited, Some(Stop::Failed), Some(3), 1),
            (exited, None, None, 0),
            (Ending::Limit, None, Some(143), 0),
            (Ending::Duration, None, Some(143), 0),
            (signal(libc::SIGINT), None, Some(130), 0),
            (signal(libc::SIGTERM), None, None, 143),
            (signal(libc::SIGHUP), None, None, 129),
            (signal(libc::SIGTERM), Some(Stop::Exit(5)), None, 5),
            (Ending::Program(Stop::Exit(7)), None, Some(3), 7),
            (Ending::Program(Stop::Failed), None, None, 1),
            (Ending::Program(Stop::Failed), Some(Stop::Exit(4)), None, 4),
            (Ending::Program(Stop::ClosedPipe), None, None, 0),
            (Ending::NotStarted, None, None, 1),
        ];
        for (ending, at_exit, workload, expected) in rows {
            let status = exit_status(ending, at_exit, Callbacks::Returned, workload);
            assert_eq!(status, expected, "{ending:?} {at_exit:?} {workload:?}");
        }
    }

    #[test]
    fn a_run_in_which_a_callback_raised_never_ends_with_0_or_the_commands_status() {
        let exited = Ending::Source(Ended::TasksExited);
        let signal = |number| Ending::Signal { number, rest: PendingEvents::Delivered };
        let rows = [
            (exited, None, Some(0), 1),
            (exited, None, Some(3), 1),
            (exited, Some(Stop::Exit(5)), None, 5),
            (Ending::Limit, None, None, 1),
            (signal(libc::SIGINT), None, None, 1),
            (signal(libc::SIGTERM), None, None, 143),
            (Ending::Program(Stop::Exit(0)), None, None, 1),
            (Ending::Program(Stop::Exit(7)), None, None, 7),
        ];
        for (ending, at_exit, workload, expected) in rows {
            let status = exit_status(ending, at_exit, Callbacks::Raised, workload);
            assert_eq!(status, expected, "{ending:?} {at_exit:?} {workload:?}");
        }
    }
}

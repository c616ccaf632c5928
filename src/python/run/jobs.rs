//! Replays a recording in several processes (`--jobs`). Each process has its own interpreter and replays a part of the
//! recording. At the end, the script merges the results of all processes.

use std::{
    fs::File,
    io::{self, Seek, Write},
    mem,
    ops::ControlFlow,
    process, thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use perf_prof_events::event::Stop;
use perf_prof_format::record::Ended;
use perf_prof_session::{
    dividing::{Part, Results},
    engine::{ExitStatus, exit_status::exit_status, losses, run_loop::Ending, span_report},
    plan::{Jobs, Verbosity},
    recording::{carried::Carried, empty_result::SelectionSource},
    spine::{About, Armed, ChosenRecording, Slice},
};
use perf_prof_system::{
    blocked_signals::BlockedSignals,
    output,
    signals::Signals,
    worker::{Stdout, Worker, memory_file},
};

use super::{
    script_run::{ScriptRun, Task},
    shard::{self, Merging, Shard},
};
use crate::script::{Fork, Program, ScriptError};

/// The interval in which perf-prof checks whether workers have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The part of a recording that a worker replays, and the files for the worker's output and errors.
struct Job {
    shard: Shard,
    /// A file for the error message, if the worker has no result. The file is in memory, because a full disk may be the
    /// reason of the error. Only the message of the first worker that fails is printed: all workers often fail for the
    /// same reason.
    failure: File,
    /// A file for the output of the worker. It is printed after the output of all previous parts. `None` for the first
    /// part, because its worker prints directly.
    stdout: Option<File>,
}

impl Job {
    fn new(part: Part) -> Result<Job> {
        let stdout = if part.is_first() { None } else { Some(shard::file()?) };
        Ok(Job { shard: Shard::new(part)?, failure: memory_file()?, stdout })
    }

    /// Prints why the worker has no result. `status` is the exit status of the worker. Returns the exit status for this
    /// process.
    fn print_failure(&mut self, status: process::ExitStatus) -> Result<u8> {
        self.failure.rewind()?;
        let why = io::read_to_string(&self.failure)?;
        if !why.is_empty() {
            output::say(why);
        } else if status.code().is_none() {
            let Part { number, count, .. } = self.shard.part;
            output::say(format_args!("the process that replayed part {} of {count} was killed: {status}", number + 1));
        }
        Ok(status.code().map_or(1, |code| code as u8))
    }
}

/// Divides the recording, replays each part in a separate process, and lets the script merge the results.
pub(super) fn run(run: &ScriptRun<'_>, jobs: &Jobs, mut recording: ChosenRecording) -> Result<ExitStatus> {
    let mut jobs = recording.divide(jobs)?.into_iter().map(Job::new).collect::<Result<Vec<Job>>>()?;
    if run.plan.run.verbosity >= Verbosity::Verbose {
        let has_spans = !recording.selected().derived.is_empty();
        let advance = if has_spans {
            "; all parts except the last are read in advance for spans that continue in the next part"
        } else {
            ""
        };
        let name = &recording.recording().name;
        output::say(format_args!("{} processes, each with a part of {name}{advance}", jobs.len()));
    }
    let mut own = Own { recording: Some(recording), held: Some(BlockedSignals::new()?), carried: Carried::default() };
    let mut workers = fork_workers(run, &jobs, &mut own)?;
    // There are fewer workers than parts if a worker has failed or a signal has ended the run.
    jobs.truncate(workers.len());
    let signals = Signals::install()?;
    drop(own.held);
    let WorkersEnded { failed, signal } = wait(&mut workers, &mut jobs, &signals)?;
    drop(signals);
    let (None, Some(recording)) = (failed, own.recording) else { return Ok(ExitStatus(failed.unwrap_or(1))) };
    let ExitStatus(status) = merge_results(run, jobs, recording)?;
    // Users usually end a run with SIGINT, so SIGINT does not change the exit status.
    let of_signal = signal.filter(|&signal| signal != libc::SIGINT).map_or(0, |signal| 128 + signal as u8);
    Ok(ExitStatus(if status == 0 { of_signal } else { status }))
}

/// The state that each worker inherits from the process that forks it.
struct Own {
    recording: Option<ChosenRecording>,
    /// Blocks signals: in this process until all workers are forked, and in a worker until its signal handlers are
    /// installed.
    held: Option<BlockedSignals>,
    /// The state of derived events at the end of the parts that were read in advance.
    carried: Carried,
}

/// Forks a worker for each part. Stops earlier if a worker has failed or a signal has arrived, and returns the workers
/// so far.
fn fork_workers(run: &ScriptRun<'_>, jobs: &[Job], own: &mut Own) -> Result<Vec<Worker>> {
    let mut workers: Vec<Worker> = Vec::new();
    for (number, job) in jobs.iter().enumerate() {
        let before = number.checked_sub(1).and_then(|before| jobs.get(before));
        if let (Some(before), Own { recording: Some(recording), held: Some(held), carried }) = (before, &mut *own) {
            let check = &mut || go_on(held, &mut workers);
            if recording.read_in_advance(&before.shard.part, carried, check)?.is_break() {
                break;
            }
        }
        let stdout = job.stdout.as_ref().map_or(Stdout::Inherited, Stdout::File);
        // No thread and no interpreter has been started yet, so a worker can start its own interpreter. If perf-prof
        // runs as a package in an interpreter, a worker has a copy of this interpreter.
        let mut body = || match (own.recording.take(), own.held.take()) {
            (Some(recording), Some(held)) => in_worker(run, job, recording, held, mem::take(&mut own.carried)),
            _ => 1,
        };
        let fork = Fork::prepare();
        let worker = Worker::fork(stdout, || {
            fork.in_child();
            body()
        });
        fork.in_parent();
        workers.push(worker?);
    }
    Ok(workers)
}

/// Merges the results of all workers in this process.
fn merge_results(run: &ScriptRun<'_>, jobs: Vec<Job>, recording: ChosenRecording) -> Result<ExitStatus> {
    let plan = &run.plan.run;
    // The first worker has already printed the messages about the script.
    let merge = ScriptRun { plan: &run.plan.quiet(), ..*run };
    let mut merging = Merging::new(jobs.into_iter().map(|job| job.shard).collect());
    let armed = Armed::Recorded(Box::new(recording.quiet()));
    let ended = merge.run(armed, Slice::Merge, Task::Merge(&mut merging), BlockedSignals::new()?);
    if let (Some(Results { sample_counts, unnamed_frames, .. }), Some(input)) = (&merging.results, plan.input()) {
        losses::print_unnamed_frames(unnamed_frames, plan.verbosity);
        sample_counts.report(input, &plan.capture.events, SelectionSource::UserAndScript(plan.verbosity));
    }
    ended
}

/// Stops reading in advance if a worker has failed or a signal has arrived. [`wait`] then finds the reason.
fn go_on(held: &BlockedSignals, workers: &mut [Worker]) -> ControlFlow<()> {
    let has_failed =
        |worker: &mut Worker| worker.try_wait().map_or(true, |ended| ended.is_some_and(|it| !it.success()));
    if held.is_pending() || workers.iter_mut().any(has_failed) {
        return ControlFlow::Break(());
    }
    ControlFlow::Continue(())
}

/// Replays a part of the recording in the worker process. Returns the exit status of the worker.
fn in_worker(run: &ScriptRun<'_>, job: &Job, recording: ChosenRecording, held: BlockedSignals, carried: Carried) -> u8 {
    let (plan, recording) = match job.stdout {
        Some(_) => (run.plan.quiet(), recording.quiet()),
        None => (run.plan.clone(), recording),
    };
    let run = ScriptRun { plan: &plan, ..*run };
    let slice = Slice::Part(job.shard.part.clone(), Box::new(carried));
    match run.run(Armed::Recorded(Box::new(recording)), slice, Task::Part(&job.shard), held) {
        Ok(ExitStatus(status)) => status,
        Err(error) => {
            // If this write fails, the exit status still shows that the part has failed.
            let _ = write!(&job.failure, "{error:#}");
            1
        }
    }
}

/// How the workers ended.
struct WorkersEnded {
    /// The exit status of the first worker that failed.
    failed: Option<u8>,
    /// The first signal that requested the end of the run.
    signal: Option<i32>,
}

/// Waits for all workers, and prints their output in the order of their parts. Forwards a signal that requests the end
/// of the run to all workers. If a worker fails, returns at once; the caller then ends the other workers.
fn wait(workers: &mut [Worker], jobs: &mut [Job], signals: &Signals) -> Result<WorkersEnded> {
    let (mut turn, mut first) = (0, None);
    while turn < workers.len() {
        if signals.is_pending() {
            for (_, signal) in signals.take_pending().end_requests() {
                if first.is_none() {
                    first = Some(signal);
                    output::say(
                        "interrupted: the following results are for the parts that each process had read so far",
                    );
                }
                workers.iter().for_each(|worker| worker.signal(signal));
            }
        }
        for (worker, job) in workers.iter_mut().zip(&mut *jobs) {
            if let Some(status) = worker.try_wait()?
                && !status.success()
            {
                return Ok(WorkersEnded { failed: Some(job.print_failure(status)?), signal: first });
            }
        }
        if workers[turn].try_wait()?.is_none() {
            thread::sleep(POLL_INTERVAL);
            continue;
        }
        if let Some(printed) = &mut jobs[turn].stdout {
            printed.rewind()?;
            match io::copy(printed, &mut io::stdout().lock()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(WorkersEnded { failed: Some(0), signal: first });
                }
                copied => copied.context("cannot write the output")?,
            };
        }
        turn += 1;
    }
    Ok(WorkersEnded { failed: None, signal: first })
}

/// Merges the results of all parts in the interpreter of this process, and then ends the script.
pub(super) fn merge(merging: &mut Merging, mut program: Program, about: &About) -> Result<ExitStatus> {
    let merged = program.merge(merging.read(about)?);
    let stop = if merged.is_ok() { merging.end(&mut program) } else { None };
    let callbacks = merging.callbacks(&program);
    program.clear();
    losses::print_lost(&about.stats, &about.ring_cpus);
    span_report::print_missing(&about.stats, &about.context);
    let stop = match merged {
        Ok(()) => stop,
        Err(ScriptError::Exited(status)) => Some(Stop::Exit(status)),
        Err(error) => return Err(error.into()),
    };
    // The exit status is that of a run to the end of the input, because each worker has read its part to the end.
    let own = merging.results.as_ref().map(|results| results.sample_counts.status());
    Ok(ExitStatus(exit_status(Ending::Source(Ended::EndOfInput), stop, callbacks, own)))
}

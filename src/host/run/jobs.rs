//! Replays a recording in several processes (`--jobs`). Each process has its own interpreter and replays a part of the
//! recording. At the end, the script merges the results of all processes.

use std::{
    fs::File,
    io::{self, Read, Seek, Write},
    mem,
    ops::ControlFlow,
    process, thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use perf_prof_core::{
    abi::{PERF_SAMPLE_CPU, PERF_SAMPLE_READ},
    engine::{
        ExitStatus,
        exit_status::{Callbacks, exit_status},
        losses,
        run_loop::Ending,
        sample_routes::{MAX_INTERVALS, Span},
    },
    event::{Context, Sink, Stats, Stop},
    perfdata::{Recording, Selection, index::shards},
    plan::{Jobs, SplitBy, Verbosity},
    record::{Ended, LossCounts},
    recording::{
        carried::Carried,
        clock,
        empty_result::{ReadExtent, SampleCounts, SelectionSource},
        replay::ReplayOutcome,
        select::Selected,
    },
    spec::CpuSet,
    symbol::UnnamedFrames,
    sys::{
        blocked_signals::BlockedSignals,
        output,
        signals::Signals,
        worker::{Stdout, Worker, memory_file, nameless_file},
    },
};

use super::{
    plan::ScriptPlan,
    replay::{Part, ReplayWork},
    spans,
};
use crate::script::{self, Fork, Program, Run, ScriptError};

/// The time between two checks whether workers have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The part of a recording that one worker replays, and the files that contain the results of the worker.
pub(super) struct Shard {
    /// The index of the shard and the number of shards, as the script sees them.
    script_shard: script::Shard,
    /// The first and the last time of the shard, in ns.
    time: (u64, u64),
    /// The CPUs of the shard; `None` means all CPUs.
    cpus: Option<CpuSet>,
    result: File,
    /// The error message, if there is no result. It is stored in memory: the reason may be that the disk is full. Only
    /// the message of the first worker that fails is printed, because all workers often fail for the same reason.
    failure: File,
    /// The frames without names. Empty until the result of the worker was read.
    unnamed_frames: UnnamedFrames,
    /// How many samples were delivered or left out. `None` until the result of the worker was read.
    sample_counts: Option<SampleCounts>,
    /// A file with the output of the worker. It is printed after the output of all previous shards. `None` for the
    /// first shard, because its worker prints directly.
    stdout: Option<File>,
    merged_by: MergedBy,
}

/// The process that merges the results of the parts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergedBy {
    /// The one that divided the recording, and knows its times.
    ParentProcess,
    /// One that has not opened the recording.
    OtherProgram,
}

/// The result of a shard, except for the counts of delivered and lost events.
struct ShardResult {
    /// The pickled return value of the script's `__partial__()`.
    partial: Vec<u8>,
    /// The time of the last sample, in ns.
    last: u64,
    /// The number of lost samples of each event, as stored at the end of the recording.
    lost: Vec<u64>,
    /// Says whether a callback raised an exception in the worker.
    callbacks: Callbacks,
}

impl Shard {
    /// Returns whether this is the first shard. Only the worker of the first shard prints messages about the whole
    /// recording.
    pub fn is_first(&self) -> bool {
        self.script_shard.number == 0
    }

    /// Returns whether this is the last shard.
    pub fn is_last(&self) -> bool {
        self.script_shard.number + 1 == self.script_shard.count
    }

    /// Makes this process the worker of the shard.
    pub fn enter(&self) {
        self.script_shard.set_for_process();
    }

    /// Writes the result to a file that another process reads.
    pub fn with_result(self, result: File) -> Shard {
        Shard { result, merged_by: MergedBy::OtherProgram, ..self }
    }

    /// Limits `span` to the times of the shard. Each interval ends in exactly one shard.
    pub fn part_of(&self, span: Span) -> Span {
        let (first, last) = self.time;
        Span { intervals_after: span.intervals_after.max(first), end: span.end.min(last.saturating_add(1)), ..span }
    }

    /// Limits a selection to the times and CPUs of the shard.
    pub fn select(&self, selection: &mut Selection) {
        let (first, last) = self.time;
        if selection.times.is_empty() {
            selection.times.push(self.time);
        }
        let both = selection.times.iter().map(|&(from, to)| (from.max(first), to.min(last)));
        let both: Vec<_> = both.filter(|(from, to)| from <= to).collect();
        // An empty list would select all times. The range from `u64::MAX` to 0 selects no samples.
        selection.times = if both.is_empty() { vec![(u64::MAX, 0)] } else { both };
        if let Some(own) = &self.cpus {
            let asked = selection.cpus.take();
            selection.cpus =
                Some(own.iter().filter(|&cpu| asked.as_ref().is_none_or(|cpus| cpus.contains(cpu))).collect());
        }
    }

    /// Writes the result of the shard: first the counts, then the frames without names, then the script's partial
    /// result.
    pub fn write_result(
        &self,
        stats: &Stats,
        delivered: &ReplayOutcome,
        callbacks: Callbacks,
        unnamed_frames: &UnnamedFrames,
        context: &Context,
        partial: &[u8],
    ) -> io::Result<()> {
        let &ReplayOutcome { ref lost, last, sample_counts, .. } = delivered;
        // The loss counts at the end of the recording have no time. If the recording is divided by time, each count is
        // in only one shard. If the recording is divided by CPU, all shards have the same counts, and only the first
        // shard reports them.
        let lost =
            if self.cpus.is_none() || self.script_shard.number == 0 { lost.clone() } else { vec![0; lost.len()] };
        let mut result = &self.result;
        let unnamed_frames = unnamed_frames.text();
        let SampleCounts { delivered, unknown_ids, guests, reach } = sample_counts;
        let sample_counts = vec![delivered, unknown_ids, guests, u64::from(reach == ReadExtent::End)];
        let all_lost = stats.total_lost().max(lost.iter().sum());
        // To find the time of day may take a while, and prints a message if the recording does not say it.
        let reached = match self.merged_by {
            MergedBy::ParentProcess => 0,
            MergedBy::OtherProgram => context.reached().unwrap_or(0),
        };
        let last = vec![last, u64::from(callbacks == Callbacks::Raised), all_lost, reached as u64];
        for words in [stats.counts(), lost, sample_counts, last, vec![unnamed_frames.len() as u64]] {
            result.write_all(&(words.len() as u64).to_ne_bytes())?;
            words.iter().try_for_each(|word| result.write_all(&word.to_ne_bytes()))?;
        }
        result.write_all(unnamed_frames.as_bytes())?;
        result.write_all(partial)
    }

    /// Prints the reason why the worker has no result. Returns the exit status for this process.
    fn print_failure(&mut self, status: process::ExitStatus) -> Result<u8> {
        self.failure.rewind()?;
        let why = io::read_to_string(&self.failure)?;
        if !why.is_empty() {
            output::say(why);
        } else if status.code().is_none() {
            let (number, count) = (self.script_shard.number + 1, self.script_shard.count);
            output::say(format_args!("the process that replayed part {number} of {count} was killed: {status}"));
        }
        Ok(status.code().map_or(1, |code| code as u8))
    }

    /// Reads the result of the shard. Adds the counts to `stats`, and returns the other parts of the result.
    fn read_result(&mut self, stats: &Stats) -> io::Result<ShardResult> {
        let mut bytes = Vec::new();
        self.result.rewind()?;
        self.result.read_to_end(&mut bytes)?;
        let mut at = 0;
        let mut word = || -> io::Result<u64> {
            let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map(|b| u64::from_ne_bytes(*b));
            at += 8;
            Ok(word.ok_or(io::ErrorKind::UnexpectedEof)?)
        };
        let mut words = || -> io::Result<Vec<u64>> { (0..word()?).map(|_| word()).collect() };
        let (counts, lost, found) = (words()?, words()?, words()?);
        let (ended, size) = (words()?, words()?.into_iter().sum::<u64>());
        let (last, raised) = match ended[..] {
            [last, raised, ..] => (last, raised != 0),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let callbacks = if raised { Callbacks::Raised } else { Callbacks::Returned };
        stats.add(&counts);
        if let [delivered, unknown_ids, guests, to_the_end] = found[..] {
            let reach = if to_the_end == 1 { ReadExtent::End } else { ReadExtent::Short };
            self.sample_counts = Some(SampleCounts { delivered, unknown_ids, guests, reach });
        }
        let mut rest = bytes.split_off(at);
        let partial = rest.split_off(rest.len().min(size as usize));
        self.unnamed_frames.add_text(&String::from_utf8_lossy(&rest));
        Ok(ShardResult { lost, last, callbacks, partial })
    }
}

/// Divides the recording, replays each part in a separate process, and lets the script merge the results.
pub(super) fn run(
    work: &ReplayWork<'_>,
    jobs: &Jobs,
    mut recording: Recording,
    selected: Selected,
) -> Result<ExitStatus> {
    let ReplayWork { plan, input, .. } = *work;
    let times = clock::times(input, &mut recording)?;
    let span = clock::span(&times, &mut recording)?;
    let mut shards = plan_shards(jobs, (&mut recording, &selected), span, plan.interval)?;
    if plan.verbosity >= Verbosity::Verbose {
        let advance = if selected.derived.is_empty() { "" } else { "; spans are read in advance, up to the last part" };
        output::say(format_args!("{} processes, each with a part of {}{advance}", shards.len(), recording.name));
    }
    let mut held = Some(BlockedSignals::new()?);
    let mut recorded = Some((recording, selected));
    let mut carried = Carried::default();
    let mut workers: Vec<Worker> = Vec::new();
    for (number, shard) in shards.iter().enumerate() {
        if let (Some(before), Some((recording, selected)), Some(held)) =
            (number.checked_sub(1).and_then(|before| shards.get(before)), &mut recorded, &held)
            && spans::read(work, (recording, selected), before, &mut carried, &mut || go_on(held, &mut workers))?
                .is_break()
        {
            break;
        }
        let stdout = shard.stdout.as_ref().map_or(Stdout::Inherited, Stdout::File);
        // No thread and no interpreter has been started yet, so each worker can start its own interpreter, or copies the
        // one that runs perf-prof. Each worker has its own copy of `recorded`, because it is a forked process. Signals are also blocked in the worker, until
        // its signal handlers are installed.
        let mut body = || match (recorded.take(), held.take()) {
            (Some((recording, selected)), Some(held)) => {
                in_worker(work, recording, selected, held, Part::Shard(shard, mem::take(&mut carried)))
            }
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
    // If there are fewer workers than parts, a worker has failed or the run was interrupted.
    shards.truncate(workers.len());
    let signals = Signals::install()?;
    drop(held);
    let WorkersEnded { failed, signal } = wait(&mut workers, &mut shards, &signals)?;
    drop(signals);
    match (failed, recorded) {
        (None, Some((recording, selected))) => {
            // The first worker has already printed the messages about the script.
            let quiet = ScriptPlan { verbosity: Verbosity::Quiet, ..plan.clone() };
            let merge = ReplayWork { plan: &quiet, ..*work };
            let ended = merge.run_part(recording, selected, BlockedSignals::new()?, Part::Merge(&mut shards));
            let mut unnamed_frames = UnnamedFrames::default();
            shards.iter().for_each(|shard| unnamed_frames.add_text(&shard.unnamed_frames.text()));
            losses::print_unnamed_frames(&unnamed_frames, plan.verbosity);
            if let Some(found) = sum_sample_counts(&shards) {
                found.report(input, &plan.capture.events, SelectionSource::UserAndScript(plan.verbosity));
            }
            // SIGINT is the usual way to end a run, so it changes nothing.
            let of_signal = signal.filter(|&signal| signal != libc::SIGINT).map_or(0, |signal| 128 + signal as u8);
            ended.map(|ExitStatus(status)| ExitStatus(if status == 0 { of_signal } else { status }))
        }
        (status, _) => Ok(ExitStatus(status.unwrap_or(1))),
    }
}

/// Returns whether to go on with reading in advance. If not, [`wait`] finds the reason.
fn go_on(held: &BlockedSignals, workers: &mut [Worker]) -> ControlFlow<()> {
    let has_failed =
        |worker: &mut Worker| worker.try_wait().map_or(true, |ended| ended.is_some_and(|it| !it.success()));
    if held.is_pending() || workers.iter_mut().any(has_failed) {
        return ControlFlow::Break(());
    }
    ControlFlow::Continue(())
}

/// Plans the parts of a recording.
pub(super) fn plan_shards(
    jobs: &Jobs,
    (recording, selected): (&mut Recording, &Selected),
    span: Option<Span>,
    interval: Option<Duration>,
) -> Result<Vec<Shard>> {
    let lacking = |member: u64| {
        let events = recording.events.iter().zip(&selected.routes);
        let members = events.filter(|(_, routes)| !routes.is_empty()).map(|(event, _)| event.attr.format.sample_type);
        members.map(|members| members & member == 0).collect::<Vec<_>>()
    };
    if let (Some(every), Some(span)) = (interval, span)
        && span.intervals(every) > MAX_INTERVALS
    {
        // With this many intervals, a replay without --jobs reports only one interval if there is a long time without
        // samples. A part does not know whether this time continues in other parts. So the parts together would report
        // different intervals than a replay without --jobs.
        bail!(
            "--jobs: {} has {} intervals of {every:?}, too many to call __interval__() for each one; use a longer -i, \
             or remove --jobs",
            recording.name,
            span.intervals(every)
        );
    }
    let parts: Vec<((u64, u64), Option<CpuSet>)> = match jobs.split {
        SplitBy::Time => {
            if lacking(PERF_SAMPLE_READ).contains(&false) {
                bail!(
                    "--jobs: the samples of {} contain counter values, and a count is the difference to the previous \
                     sample, which may be in another part; use `--split cpu`",
                    recording.name
                );
            }
            let indexes = recording.unpacked_index()?;
            // The span is unknown only if there are no samples.
            let mut borders =
                span.map_or_else(Vec::new, |span| shards::by_time(&indexes, (span.start, span.end), jobs.count));
            if let (Some(every), Some(span)) = (interval, span) {
                borders = shards::aligned(&borders, span.start, every);
            }
            shards::between(&borders).into_iter().map(|time| (time, None)).collect()
        }
        SplitBy::Cpu => {
            if let Some(derived) = selected.derived.first() {
                bail!(
                    "--split cpu cannot be used with {}: a span may begin on one CPU and end on another; remove \
                     --split cpu",
                    derived.span.name()
                );
            }
            if lacking(PERF_SAMPLE_CPU).contains(&true) {
                bail!("--split cpu: not all samples of {} contain their CPU; remove --split cpu", recording.name);
            }
            let available = recording.features.cpus.map_or(jobs.count, |(available, _)| available as usize);
            let sets = shards::by_cpu(jobs.count.min(available));
            sets.into_iter().map(|cpus| ((0, u64::MAX), Some(cpus))).collect()
        }
    };
    let file = || nameless_file().with_context(|| format!("cannot create files in {}", std::env::temp_dir().display()));
    let count = parts.len();
    let split = if jobs.split == SplitBy::Cpu { "cpu" } else { "time" };
    let shard = |(number, (time, cpus))| -> Result<Shard> {
        let stdout = if number == 0 { None } else { Some(file()?) };
        Ok(Shard {
            script_shard: script::Shard { number, count, split },
            time,
            cpus,
            result: file()?,
            failure: memory_file()?,
            unnamed_frames: UnnamedFrames::default(),
            sample_counts: None,
            stdout,
            merged_by: MergedBy::ParentProcess,
        })
    };
    parts.into_iter().enumerate().map(shard).collect()
}

/// Replays a part of the recording in the worker process. Returns the exit status of the worker.
fn in_worker(
    work: &ReplayWork<'_>,
    recording: Recording,
    selected: Selected,
    held: BlockedSignals,
    part: Part<'_>,
) -> u8 {
    let Part::Shard(shard, _) = &part else { return 1 };
    let shard = *shard;
    let verbosity = if shard.stdout.is_some() { Verbosity::Quiet } else { work.plan.verbosity };
    let plan = ScriptPlan { verbosity, ..work.plan.clone() };
    let work = ReplayWork { plan: &plan, ..*work };
    match work.run_part(recording, selected, held, part) {
        Ok(ExitStatus(status)) => status,
        Err(error) => {
            // If this write fails, the exit status still shows that the part failed.
            let _ = write!(&shard.failure, "{error:#}");
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

/// Waits for all workers and prints their output in the order of their parts. If a signal requests the end of the run,
/// sends this signal to all workers. If a worker fails, returns at once; the caller then ends the other workers.
fn wait(workers: &mut [Worker], shards: &mut [Shard], signals: &Signals) -> Result<WorkersEnded> {
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
        for (worker, shard) in workers.iter_mut().zip(&mut *shards) {
            if let Some(status) = worker.try_wait()?
                && !status.success()
            {
                return Ok(WorkersEnded { failed: Some(shard.print_failure(status)?), signal: first });
            }
        }
        if workers[turn].try_wait()?.is_none() {
            thread::sleep(POLL_INTERVAL);
            continue;
        }
        if let Some(printed) = &mut shards[turn].stdout {
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

/// Returns how many samples were delivered or left out in all parts together. Called after the results of all parts
/// were read.
fn sum_sample_counts(shards: &[Shard]) -> Option<SampleCounts> {
    let all = SampleCounts::sum(shards.iter().map(|shard| shard.sample_counts))?;
    // If a sample belongs to no event, its CPU is unknown. So if the recording is divided by CPU, each part has counted
    // all of these samples.
    let of_each = shards.iter().filter(|shard| shard.cpus.is_some()).filter_map(|shard| shard.sample_counts);
    let unknown_ids = of_each.map(|sample_counts| sample_counts.unknown_ids).max().unwrap_or(all.unknown_ids);
    Some(SampleCounts { unknown_ids, ..all })
}

/// The results of all shards together.
pub(super) struct Merging {
    /// The time of the last sample, in ns.
    pub last: u64,
    /// The number of lost samples that no shard has reported.
    pub untold: u64,
    /// Says whether a callback raised an exception in a worker.
    pub callbacks: Callbacks,
    /// The partial results of the script, pickled, in the order of the shards.
    pub partials: Vec<Vec<u8>>,
}

/// Reads the results of all shards, and adds their counts to those of the run.
pub(super) fn read_results(shards: &mut [Shard], run: &Run) -> Result<Merging> {
    let left: io::Result<Vec<ShardResult>> = shards.iter_mut().map(|shard| shard.read_result(&run.stats)).collect();
    let left = left.context("cannot read the result of a part")?;
    let last = left.iter().map(|left| left.last).max().unwrap_or(0);
    let untold = count_losses(&left, run);
    let has_raised = left.iter().any(|left| left.callbacks == Callbacks::Raised);
    run.context.note_reached(last);
    let callbacks = if has_raised { Callbacks::Raised } else { Callbacks::Returned };
    Ok(Merging { last, untold, callbacks, partials: left.into_iter().map(|left| left.partial).collect() })
}

/// Merges the results of all shards in the interpreter of this process, and then ends the script.
pub(super) fn merge(shards: &mut [Shard], mut program: Program, run: &Run) -> Result<u8> {
    let Merging { last, untold, callbacks, partials } = read_results(shards, run)?;
    let found = sum_sample_counts(shards);
    let merged = program.merge(partials);
    let mut stop = None;
    if merged.is_ok() {
        program.enter(&mut |program| {
            let told = if untold == 0 { None } else { program.lost(0, last).break_value() };
            stop = told.or(program.exit().break_value());
        });
    }
    let callbacks = if callbacks == Callbacks::Raised { callbacks } else { program.callbacks() };
    program.clear();
    losses::print_lost(&run.stats);
    let stop = match merged {
        Ok(()) => stop,
        Err(ScriptError::Exited(status)) => Some(Stop::Exit(status)),
        Err(error) => return Err(error.into()),
    };
    // All parts were read to their ends.
    let own = found.map(|found| found.status());
    Ok(exit_status(Ending::Source(Ended::EndOfInput), stop, callbacks, own))
}

/// Adds the lost samples to the counts of the run. perf stored the numbers of lost samples at the end of the recording.
/// Returns how many of these lost samples were not reported by any shard.
fn count_losses(left: &[ShardResult], run: &Run) -> u64 {
    if left.iter().all(|left| left.lost.is_empty()) {
        return 0;
    }
    let mut per_event = vec![0; run.events.len()];
    for left in left {
        per_event.iter_mut().zip(&left.lost).for_each(|(sum, lost)| *sum += lost);
    }
    let counted: u64 = per_event.iter().sum();
    let rings = run.ring_cpus.len();
    let untold = counted.saturating_sub(run.stats.total_lost());
    run.stats.count_lost(rings.saturating_sub(1), untold);
    run.stats.set_kernel_counts(Some(LossCounts { per_event, per_ring: vec![0; rings], samples_per_ring: Vec::new() }));
    untold
}

//! A recording replayed by several processes, each with an interpreter of its own and a part of the recording; the script
//! puts their results together.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Seek, Write},
    process, thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::{
    ExitStatus,
    delivery::Delivered,
    found::{Asked, Found, Reach},
    plan::{Input, Jobs, Plan, SplitBy, Verbosity},
    reading,
    recorded::Selected,
    replay::{self, Part},
    replayed::{MOST_INTERVALS, Span},
    report,
};
use crate::{
    abi::{PERF_SAMPLE_CPU, PERF_SAMPLE_READ},
    event::{Sink, Stats, Stop},
    perfdata::{Recording, Selection, shards},
    record::LossCounts,
    script::{self, Program, Run, ScriptError},
    spec::CpuSet,
    symbol::Nameless,
    sys::{
        hold::Held,
        output,
        signals::Signals,
        worker::{Stdout, Worker, nameless_file},
    },
};

/// How often workers are looked at.
const LOOK: Duration = Duration::from_millis(10);

/// What one worker replays, and where it leaves what came of it.
pub(super) struct Shard {
    /// What the script is told of it.
    place: script::Shard,
    /// First and last nanosecond.
    time: (u64, u64),
    /// Its CPUs; `None` for all.
    cpus: Option<CpuSet>,
    result: File,
    /// Why there is none. What all workers meet is said once.
    failure: File,
    /// What had no names, once the result was taken up.
    nameless: Nameless,
    /// What became of its samples, once the result was taken up.
    found: Option<Found>,
    /// What it prints waits here for its turn; `None` of the first, whose turn it is from the beginning.
    stdout: Option<File>,
}

/// What is left of a shard beside its counts.
struct Left {
    /// What the script made, pickled.
    partial: Vec<u8>,
    /// The time of its last sample.
    last: u64,
    /// Lost samples of each event, as the recording's end has them.
    lost: Vec<u64>,
}

impl Shard {
    /// Whether it is the first one: what is to be said of the whole, its process says.
    pub fn is_first(&self) -> bool {
        self.place.number == 0
    }

    /// This process does the shard, from now on.
    pub fn enter(&self) {
        self.place.enter();
    }

    /// Its part of the times that are replayed: each interval ends in one shard.
    pub fn part_of(&self, span: Span) -> Span {
        let (first, last) = self.time;
        Span { after: span.after.max(first), end: span.end.min(last.saturating_add(1)), ..span }
    }

    /// Leaves of a selection what lies in the shard.
    pub fn select(&self, selection: &mut Selection) {
        let (first, last) = self.time;
        if selection.times.is_empty() {
            selection.times.push(self.time);
        }
        let both = selection.times.iter().map(|&(from, to)| (from.max(first), to.min(last)));
        let both: Vec<_> = both.filter(|(from, to)| from <= to).collect();
        // No range would be all times: this one has none.
        selection.times = if both.is_empty() { vec![(u64::MAX, 0)] } else { both };
        if let Some(own) = &self.cpus {
            let asked = selection.cpus.take();
            selection.cpus =
                Some(own.iter().filter(|&cpu| asked.as_ref().is_none_or(|cpus| cpus.contains(cpu))).collect());
        }
    }

    /// Leaves a result: the counts, then what the script made.
    pub fn leave(&self, stats: &Stats, delivered: &Delivered, nameless: &Nameless, partial: &[u8]) -> io::Result<()> {
        let &Delivered { ref lost, last, found, .. } = delivered;
        // Of what stands at the recording's end without a time, each shard of times has its own, and all shards of CPUs the
        // same.
        let lost = if self.cpus.is_none() || self.place.number == 0 { lost.clone() } else { vec![0; lost.len()] };
        let mut result = &self.result;
        let nameless = nameless.text();
        let found = vec![found.delivered, found.strangers, u64::from(found.reach == Reach::End)];
        for words in [stats.counts(), lost, found, vec![last], vec![nameless.len() as u64]] {
            result.write_all(&(words.len() as u64).to_ne_bytes())?;
            words.iter().try_for_each(|word| result.write_all(&word.to_ne_bytes()))?;
        }
        result.write_all(nameless.as_bytes())?;
        result.write_all(partial)
    }

    /// Says why there is no result; gives the status to exit with.
    fn say_failure(&mut self, status: process::ExitStatus) -> Result<u8> {
        self.failure.rewind()?;
        let why = io::read_to_string(&self.failure)?;
        if !why.is_empty() {
            output::say(why);
        } else if status.code().is_none() {
            let (number, count) = (self.place.number + 1, self.place.count);
            output::say(format_args!("the process with part {number} of {count} did not end by itself: {status}"));
        }
        Ok(status.code().map_or(1, |code| code as u8))
    }

    /// Takes it up: adds the counts, gives the rest.
    fn take(&mut self, stats: &Stats) -> io::Result<Left> {
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
        let (last, size) = (words()?, words()?.into_iter().sum::<u64>());
        stats.add(&counts);
        if let [delivered, strangers, to_the_end] = found[..] {
            let reach = if to_the_end == 1 { Reach::End } else { Reach::Short };
            self.found = Some(Found { delivered, strangers, reach });
        }
        let mut rest = bytes.split_off(at);
        let partial = rest.split_off(rest.len().min(size as usize));
        self.nameless.add_text(&String::from_utf8_lossy(&rest));
        Ok(Left { lost, last: last.into_iter().sum(), partial })
    }
}

/// Divides the recording, has each part replayed by a process of its own, and has the script merge what they give.
pub(super) fn run(
    plan: &Plan,
    input: &Input,
    jobs: &Jobs,
    (mut recording, selected): (Recording, Selected),
    script: (&OsStr, &[OsString]),
) -> Result<ExitStatus> {
    let times = reading::times(input, &mut recording)?;
    let span = replay::span(&times, &mut recording)?;
    let mut shards = divide(jobs, (&mut recording, &selected), span, plan.interval)?;
    if plan.verbosity >= Verbosity::Verbose {
        output::say(format_args!("{} processes, each with a part of {}", shards.len(), recording.name));
    }
    let mut held = Some(Held::new()?);
    let mut recorded = Some((recording, selected));
    let mut workers = Vec::new();
    for shard in &shards {
        let stdout = shard.stdout.as_ref().map_or(Stdout::Ours, Stdout::File);
        // No thread was started yet: the interpreter is each worker's own. What a worker takes is its copy; what is held
        // back here is so there too, until it lets go of it.
        let work = || recorded.take().zip(held.take()).map_or(1, |taken| work(plan, input, taken, script, shard));
        workers.push(Worker::fork(stdout, work)?);
    }
    let signals = Signals::install()?;
    drop(held);
    let failed = wait(&mut workers, &mut shards, &signals)?;
    drop(signals);
    match (failed, recorded) {
        (None, Some(recorded)) => {
            // The first worker has said what there is to say of the script.
            let quiet = Plan { verbosity: Verbosity::Quiet, ..plan.clone() };
            let ended = replay::part(&quiet, input, recorded, script, Held::new()?, Part::Merge(&mut shards));
            let mut nameless = Nameless::default();
            shards.iter().for_each(|shard| nameless.add_text(&shard.nameless.text()));
            report::print_nameless(&nameless, plan.verbosity);
            if let Some(found) = found(&shards) {
                found.say(input, &plan.capture.events, Asked::ByScript(plan.verbosity));
            }
            ended
        }
        (status, _) => Ok(ExitStatus(status.unwrap_or(1))),
    }
}

fn divide(
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
        && span.intervals(every) > MOST_INTERVALS
    {
        bail!(
            "--jobs: {} has {} intervals of {every:?}, too many to call each; parts cannot tell which of them silences \
             have in common. A longer -i, or no --jobs",
            recording.name,
            span.intervals(every)
        );
    }
    let parts: Vec<((u64, u64), Option<CpuSet>)> = match jobs.split {
        SplitBy::Time => {
            if lacking(PERF_SAMPLE_READ).contains(&false) {
                bail!(
                    "--jobs: the samples of {} hold counters, and what was counted is told by the sample before, which may be \
                     in another part; `--split cpu` keeps them together",
                    recording.name
                );
            }
            let indexes = recording.unpacked_index()?;
            // Without a span there is no sample.
            let mut borders =
                span.map_or_else(Vec::new, |span| shards::by_time(&indexes, (span.begin, span.end), jobs.count));
            if let (Some(every), Some(span)) = (interval, span) {
                borders = shards::aligned(&borders, span.begin, every);
            }
            shards::between(&borders).into_iter().map(|time| (time, None)).collect()
        }
        SplitBy::Cpu => {
            if lacking(PERF_SAMPLE_CPU).contains(&true) {
                bail!("--split cpu: not all samples of {} say their CPU; leave it out", recording.name);
            }
            let available = recording.features.cpus.map_or(jobs.count, |(available, _)| available as usize);
            let sets = shards::by_cpu(jobs.count.min(available));
            sets.into_iter().map(|cpus| ((0, u64::MAX), Some(cpus))).collect()
        }
    };
    let file = || nameless_file().with_context(|| format!("cannot write to {}", std::env::temp_dir().display()));
    let count = parts.len();
    let split = if jobs.split == SplitBy::Cpu { "cpu" } else { "time" };
    let shard = |(number, (time, cpus))| -> Result<Shard> {
        let stdout = if number == 0 { None } else { Some(file()?) };
        Ok(Shard {
            place: script::Shard { number, count, split },
            time,
            cpus,
            result: file()?,
            failure: file()?,
            nameless: Nameless::default(),
            found: None,
            stdout,
        })
    };
    parts.into_iter().enumerate().map(shard).collect()
}

/// A worker's work, in the worker.
fn work(
    plan: &Plan,
    input: &Input,
    (recorded, held): ((Recording, Selected), Held),
    script: (&OsStr, &[OsString]),
    shard: &Shard,
) -> u8 {
    let plan =
        Plan { verbosity: if shard.stdout.is_some() { Verbosity::Quiet } else { plan.verbosity }, ..plan.clone() };
    match replay::part(&plan, input, recorded, script, held, Part::Shard(shard)) {
        Ok(ExitStatus(status)) => status,
        Err(error) => {
            // Without it the status says that it failed.
            let _ = write!(&shard.failure, "{error:#}");
            1
        }
    }
}

/// Waits for all workers, and hands their output on in the order of their parts. A signal that asks for the end goes to
/// them. The status of the first that failed, with which the others are ended.
fn wait(workers: &mut [Worker], shards: &mut [Shard], signals: &Signals) -> Result<Option<u8>> {
    let (mut turn, mut said) = (0, false);
    while turn < workers.len() {
        if signals.is_pending() {
            for (_, signal) in signals.take().to_end() {
                if !std::mem::replace(&mut said, true) {
                    output::say("interrupted: what follows is of what each process had read by then");
                }
                workers.iter().for_each(|worker| worker.signal(signal));
            }
        }
        for (worker, shard) in workers.iter_mut().zip(&mut *shards) {
            if let Some(status) = worker.try_wait()?
                && !status.success()
            {
                return shard.say_failure(status).map(Some);
            }
        }
        if workers[turn].try_wait()?.is_none() {
            thread::sleep(LOOK);
            continue;
        }
        if let Some(printed) = &mut shards[turn].stdout {
            printed.rewind()?;
            match io::copy(printed, &mut io::stdout().lock()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Some(0)),
                copied => copied.context("cannot write the output")?,
            };
        }
        turn += 1;
    }
    Ok(None)
}

/// What became of the samples of all parts, once all results were taken up.
fn found(shards: &[Shard]) -> Option<Found> {
    let all = Found::of_all(shards.iter().map(|shard| shard.found))?;
    // Which CPU a sample of no event was taken on nobody knows: each part of CPUs has met them all.
    let of_each = shards.iter().filter(|shard| shard.cpus.is_some()).filter_map(|shard| shard.found);
    let strangers = of_each.map(|found| found.strangers).max().unwrap_or(all.strangers);
    Some(Found { strangers, ..all })
}

/// Puts the results together, in an interpreter of this process, and ends the script.
pub(super) fn merge(shards: &mut [Shard], mut program: Program, run: &Run) -> Result<u8> {
    let stats = &run.stats;
    let left: io::Result<Vec<Left>> = shards.iter_mut().map(|shard| shard.take(stats)).collect();
    let left = left.context("cannot read what a part left")?;
    let last = left.iter().map(|left| left.last).max().unwrap_or(0);
    let found = found(shards);
    let untold = count_losses(&left, run);
    run.context.come_to(last);
    let merged = program.merge(left.into_iter().map(|left| left.partial));
    let mut stop = None;
    if merged.is_ok() {
        program.enter(&mut |program| {
            let told = if untold == 0 { None } else { program.lost(0, last).break_value() };
            stop = told.or(program.exit().break_value());
        });
    }
    program.clear();
    report::print_lost(stats);
    match (merged, stop) {
        (Ok(()), Some(Stop::Exit(status))) | (Err(ScriptError::Exited(status)), _) => Ok(status),
        (Ok(()), Some(Stop::Failed)) => Ok(1),
        (Ok(()), Some(Stop::Interrupted | Stop::ClosedPipe)) => Ok(0),
        (Ok(()), None) => Ok(found.map_or(0, |found| found.status())),
        (Err(error), _) => Err(error.into()),
    }
}

/// Puts in what the recording's end says of lost samples. How many of them no shard has told of.
fn count_losses(left: &[Left], run: &Run) -> u64 {
    let mut per_event = vec![0; run.events.len()];
    for left in left {
        per_event.iter_mut().zip(&left.lost).for_each(|(sum, lost)| *sum += lost);
    }
    let counted: u64 = per_event.iter().sum();
    if counted == 0 {
        return 0;
    }
    let rings = run.ring_cpus.len();
    let untold = counted.saturating_sub(run.stats.total_lost());
    run.stats.lost(rings.saturating_sub(1), untold);
    run.stats.set_kernel_counts(Some(LossCounts { per_event, per_ring: vec![0; rings], samples_per_ring: Vec::new() }));
    untold
}

//! A recording replayed by several processes, each with an interpreter of its own and a part of the recording; the script
//! puts their results together.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Seek, Write},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};

use super::{
    ExitStatus,
    plan::{Input, Jobs, Plan, SplitBy, Verbosity},
    recorded::Selected,
    replay::{self, Part},
    report,
};
use crate::{
    event::{Sink, Stats, Stop},
    perfdata::{Recording, Selection, shards},
    script::{Program, ScriptError},
    spec::CpuSet,
    sys::{
        hold::Held,
        output,
        signals::{Pending, Signals},
        worker::{Stdout, Worker, nameless_file},
    },
};

/// How often workers are looked at.
const LOOK: Duration = Duration::from_millis(10);

/// What one worker replays, and where it leaves what came of it.
pub(super) struct Shard {
    /// First and last nanosecond.
    time: (u64, u64),
    /// Its CPUs; `None` for all.
    cpus: Option<CpuSet>,
    result: File,
    /// What it prints waits here for its turn; `None` of the first, whose turn it is from the beginning.
    stdout: Option<File>,
}

impl Shard {
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
    pub fn leave(&self, stats: &Stats, partial: &[u8]) -> io::Result<()> {
        let counts = stats.counts();
        let mut result = &self.result;
        result.write_all(&(counts.len() as u64).to_ne_bytes())?;
        counts.iter().try_for_each(|count| result.write_all(&count.to_ne_bytes()))?;
        result.write_all(partial)
    }

    /// Takes it up: adds the counts, gives the rest.
    fn take(&mut self, stats: &Stats) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.result.rewind()?;
        self.result.read_to_end(&mut bytes)?;
        let word = |at: usize| {
            let word = bytes.get(8 * at..).and_then(|bytes| bytes.first_chunk()).map(|b| u64::from_ne_bytes(*b));
            word.ok_or(io::ErrorKind::UnexpectedEof)
        };
        let count = word(0)? as usize;
        let counts: Vec<u64> = (1..=count).map(word).collect::<Result<_, _>>()?;
        stats.add(&counts);
        Ok(bytes.split_off(8 * (count + 1)))
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
    let mut shards = divide(jobs, &mut recording)?;
    if plan.verbosity >= Verbosity::Verbose {
        output::say(format_args!("{} processes, each with a part of {}", shards.len(), recording.name));
    }
    let held = Held::new()?;
    let mut recorded = Some((recording, selected));
    let mut workers = Vec::new();
    for shard in &shards {
        let stdout = shard.stdout.as_ref().map_or(Stdout::Ours, Stdout::File);
        // No thread was started yet: the interpreter is each worker's own. What a worker takes is its copy.
        let work = || recorded.take().map_or(1, |recorded| work(plan, input, recorded, script, shard));
        workers.push(Worker::fork(stdout, work)?);
    }
    let signals = Signals::install()?;
    drop(held);
    let failed = wait(&mut workers, &mut shards, &signals)?;
    drop(signals);
    match (failed, recorded) {
        (None, Some(recorded)) => {
            // The first worker has said what there is to say of the script.
            let plan = Plan { verbosity: Verbosity::Quiet, ..plan.clone() };
            replay::part(&plan, input, recorded, script, Part::Merge(&mut shards))
        }
        (status, _) => Ok(ExitStatus(status.unwrap_or(1))),
    }
}

fn divide(jobs: &Jobs, recording: &mut Recording) -> Result<Vec<Shard>> {
    let indexes: Vec<_> = recording.index()?.into_iter().flatten().collect();
    let of_times = |times: Vec<(u64, u64)>| times.into_iter().map(|time| (time, None)).collect();
    let parts: Vec<((u64, u64), Option<CpuSet>)> = match jobs.split {
        SplitBy::Time if indexes.is_empty() => match recording.times()? {
            // Compressed: nobody knows where its samples lie before it is unpacked.
            Some(times) => of_times(shards::evenly(times, jobs.count)),
            None => {
                bail!("--jobs: {} does not say when it begins and ends; `--split cpu` needs not know", recording.name)
            }
        },
        SplitBy::Time => of_times(shards::by_time(&indexes, jobs.count)),
        SplitBy::Cpu => {
            let (available, _) = recording.features.cpus.unwrap_or((1, 1));
            let sets = shards::by_cpu(&(0..available.max(1)).collect(), jobs.count);
            sets.into_iter().map(|cpus| ((0, u64::MAX), Some(cpus))).collect()
        }
    };
    let file = || nameless_file().with_context(|| format!("cannot write to {}", std::env::temp_dir().display()));
    let shard = |(number, (time, cpus))| -> Result<Shard> {
        let stdout = if number == 0 { None } else { Some(file()?) };
        Ok(Shard { time, cpus, result: file()?, stdout })
    };
    parts.into_iter().enumerate().map(shard).collect()
}

/// A worker's work, in the worker.
fn work(
    plan: &Plan,
    input: &Input,
    recorded: (Recording, Selected),
    script: (&OsStr, &[OsString]),
    shard: &Shard,
) -> u8 {
    let plan =
        Plan { verbosity: if shard.stdout.is_some() { Verbosity::Quiet } else { plan.verbosity }, ..plan.clone() };
    match replay::part(&plan, input, recorded, script, Part::Shard(shard)) {
        Ok(ExitStatus(status)) => status,
        Err(error) => {
            output::say(format_args!("{error:#}"));
            1
        }
    }
}

/// Waits for all workers, and hands their output on in the order of their parts. A signal that asks for the end goes to
/// them. The status of the first that failed, with which the others are ended.
fn wait(workers: &mut [Worker], shards: &mut [Shard], signals: &Signals) -> Result<Option<u8>> {
    let mut turn = 0;
    while turn < workers.len() {
        if signals.is_pending() {
            let Pending { interrupt, terminate, hangup, .. } = signals.take();
            for (count, signal) in [(interrupt, libc::SIGINT), (terminate, libc::SIGTERM), (hangup, libc::SIGHUP)] {
                if count != 0 {
                    workers.iter().for_each(|worker| worker.signal(signal));
                }
            }
        }
        for worker in workers.iter_mut() {
            if let Some(status) = worker.try_wait()?
                && !status.success()
            {
                return Ok(Some(status.code().map_or(1, |code| code as u8)));
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

/// Puts the results together, in an interpreter of this process, and ends the script.
pub(super) fn merge(shards: &mut [Shard], mut program: Program, stats: &Stats) -> Result<u8> {
    let partials: io::Result<Vec<Vec<u8>>> = shards.iter_mut().map(|shard| shard.take(stats)).collect();
    let merged = program.merge(&partials.context("cannot read what a part left")?);
    let mut stop = None;
    if merged.is_ok() {
        program.enter(&mut |program| stop = program.exit().break_value());
    }
    program.clear();
    report::print_lost(stats);
    match (merged, stop) {
        (Ok(()), Some(Stop::Exit(status))) | (Err(ScriptError::Exited(status)), _) => Ok(status),
        (Ok(()), Some(Stop::Failed)) => Ok(1),
        (Ok(()), _) => Ok(0),
        (Err(error), _) => Err(error.into()),
    }
}

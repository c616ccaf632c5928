//! From plan to run of a recording, and from its end to a status.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::UNIX_EPOCH,
};

use anyhow::{Context as _, Result};

use super::{
    ExitStatus,
    delivery::{Delivery, Warnings},
    found::Asked,
    jobs::{self, Shard},
    lacking::Lacking,
    opened,
    plan::{Input, Module, Plan, Verbosity},
    program,
    reading::times,
    recorded::{self, Selected},
    recorded_kernel::RecordedKernel,
    replayed::{Intervals, Replayed, Span, Told},
    report,
    run_loop::Last,
    status::status,
};
use crate::{
    event::{Context, Processes, Stats},
    perfdata::{Recording, Selection},
    record::Source as _,
    script::{Choice, Interpreter, Run, ScriptError, interrupt},
    symbol::Recorded,
    sys::{hold::Held, output, signals::Signals},
};

/// Carries a plan out on a recording.
pub(super) fn run(plan: &Plan, input: &Input) -> Result<ExitStatus> {
    if let Some(path) = &plan.output {
        output::append_to(path).with_context(|| format!("cannot append to '{}'", path.display()))?;
    }
    // A pipe may keep us waiting here, and is left with Ctrl-C.
    let recording = opened::open(&input.path)?;
    // What is wrong with the recording may be why it lacks an event.
    let selected = recorded::select(&plan.capture.events, plan.own_events, &recording).inspect_err(|_| {
        recording.warnings.iter().for_each(|warning| output::say(format_args!("warning: {warning}")))
    })?;
    let Module::Script { module, args } = &plan.module else {
        return program::print_template(plan, &selected.types);
    };
    recorded::sides(&plan.capture.callchain)?;
    if plan.verbosity > Verbosity::Quiet {
        for missing in selected.missing_chains(&plan.capture.callchain, &recording) {
            output::say(format_args!("warning: {missing}"));
        }
    }
    match &input.jobs {
        Some(jobs) => jobs::run(plan, input, jobs, (recording, selected), (module, args)),
        None => part(plan, input, (recording, selected), (module, args), Held::new()?, Part::Whole),
    }
}

/// What of a recording this process does.
pub(super) enum Part<'a> {
    /// All of it.
    Whole,
    /// The replay of a shard, whose result is left in it.
    Shard(&'a Shard),
    /// No replay: what came of the shards is put together.
    Merge(&'a mut [Shard]),
}

/// Does a part of the work on a recording, in an interpreter of its own. Signals are held back until it has handlers.
pub(super) fn part(
    plan: &Plan,
    input: &Input,
    recording: (Recording, Selected),
    script: (&OsStr, &[OsString]),
    held: Held,
    part: Part<'_>,
) -> Result<ExitStatus> {
    let choice = Choice::make(plan.python.as_deref())?;
    let interpreter = Interpreter::start(&choice)?;
    // However it ends, the interpreter is ended too: it flushes, and joins the script's threads.
    let result = with_interpreter(plan, input, recording, script, held, part);
    let flushed = program::end(interpreter);
    Ok(ExitStatus(flushed.status(result?)))
}

fn with_interpreter(
    plan: &Plan,
    input: &Input,
    (mut recording, selected): (Recording, Selected),
    script: (&OsStr, &[OsString]),
    held: Held,
    part: Part<'_>,
) -> Result<u8> {
    // After the interpreter, which sets a handler of its own for SIGINT.
    let signals = Signals::install()?;
    signals.on_second_interrupt(interrupt);
    drop(held);
    let times = times(input, &mut recording)?;
    let mut selection = Selection {
        attrs: selected.attrs(&recording),
        cpus: input.cpus.clone(),
        pids: input.pids.clone(),
        tids: input.tids.clone(),
        times,
    };
    let wanted = plan.interval.is_some() || input.jobs.is_some();
    let mut span = if wanted { span(&selection.times, &mut recording)? } else { None };
    let mut told = Told::of(selection.cpus.as_ref());
    if let Part::Shard(shard) = &part {
        shard.enter();
        shard.select(&mut selection);
        span = span.map(|span| shard.part_of(span));
        told = if told == Told::Here { Told::WithAllParts } else { told };
    }
    let offset = realtime_offset(&mut recording, &input.path)?;
    let recorded = binaries(&mut recording, &input.path)?;
    let kernel = RecordedKernel::new(&recording, &recorded);
    let sides = recorded::sides(&plan.capture.callchain)?;
    let mut context = Context::new(Box::new(kernel), offset.unwrap_or(0)).with_sides(sides);
    if offset.is_none() && input.path.as_os_str() != "-" {
        let path = input.path.clone();
        context = context.with_offset_found_by(move || unpacked_offset(&path).unwrap_or(0));
    }
    let context = Arc::new(context.with_symbol_options(plan.symbols, Processes::Recorded(recorded)));
    span.inspect(|span| context.come_to(span.after));
    let layouts = recording.layouts().clone();
    let Selected { types, routes, lacking, .. } = selected;
    let warnings = match &part {
        Part::Whole => Warnings::Said,
        Part::Shard(shard) if shard.is_first() => Warnings::Said,
        Part::Shard(_) | Part::Merge(_) => Warnings::SaidElsewhere,
    };
    let (recording_name, damage) = (recording.name.clone(), recording.warnings.clone());
    let lacking = Lacking { names: lacking, recording: recording_name, damage, warnings };
    let formats = recording.events.iter().filter_map(|event| event.format.clone()).collect::<Vec<_>>();
    let machine = recording.features.arch.clone();
    let mut replay = recording.replay(selection)?;
    replay.set_wake(signals.wake_fd());
    let rings = replay.ring_cpus();
    let stats = Arc::new(Stats::new(types.len(), rings.len()));
    let run = Run { events: types, context: context.clone(), stats: stats.clone(), ring_cpus: rings, machine };
    let run = Arc::new(run);
    let names = || formats.iter().map(|format| (format.system.clone(), format.name.clone())).collect();
    let mut program = match program::load(plan, run.clone(), script, &names, Some(&lacking)) {
        Ok(program) => program,
        Err(ScriptError::Exited(status)) => return Ok(status),
        Err(error) => return Err(error.into()),
    };
    if input.jobs.is_some()
        && let Err(error) = program.takes_part()
    {
        program.clear();
        return Err(error.into());
    }
    if let Part::Merge(shards) = part {
        return jobs::merge(shards, program, &run);
    }
    if let Part::Whole = part {
        // Parts have each other's CPUs.
        replay.read_ahead();
    }
    let intervals = plan.interval.map(|every| Intervals::new(every, span));
    let last = if let Part::Shard(_) = part { Last::Part } else { Last::Exit };
    let reopen = || program::reopen_output(plan);
    let delivery = Delivery {
        replay,
        replayed: Replayed::new(layouts, routes, intervals, told),
        events: &run.events,
        context,
        stats,
        signals: &signals,
        limit: plan.exit_n,
        usage_every: plan.usage_self,
        reopen: &reopen,
        last,
        verbosity: plan.verbosity,
        warnings,
    };
    let mut delivered = delivery.run(&mut program);
    report::print_endings(run.context.endings(), plan.verbosity);
    let nameless = run.context.with_symbols(|symbols| symbols.nameless_frames().clone());
    if let Part::Shard(shard) = part {
        let partial = program.partial();
        program.clear();
        shard.leave(&run.stats, &delivered, &nameless, &partial?).context("cannot keep what __partial__() returned")?;
    } else {
        report::print_nameless(&nameless, plan.verbosity);
        program.clear();
        delivered.found.say(input, &plan.capture.events, Asked::ByScript(plan.verbosity));
    }
    delivered.check()?;
    // Of a part nothing but its failure is told here.
    let own = if last == Last::Exit { delivered.found.status() } else { 0 };
    Ok(status(delivered.ending, delivered.at_exit, Some(own)))
}

/// The times that are replayed, of those that are selected; `None` where nobody knows yet.
pub(super) fn span(times: &[(u64, u64)], recording: &mut Recording) -> Result<Option<Span>> {
    let Some((first, last)) = recording.times()? else { return Ok(None) };
    let begin = times.iter().map(|&(from, _)| from).min().unwrap_or(0).max(first);
    let end = times.iter().map(|&(_, to)| to).max().unwrap_or(u64::MAX).min(last);
    Ok(Some(Span { begin, last: end, after: begin, end }))
}

/// What to add to the records' times to get nanoseconds since the Unix epoch. Exact where the recording says how its
/// clock was related to the time of day (`perf record -k`); else the file's last change was the last sample's time, which
/// is right to a second or so. `None` where nobody knows that time yet.
pub(super) fn realtime_offset(recording: &mut Recording, path: &Path) -> Result<Option<i64>> {
    if let Some(clock) = recording.features.clock {
        return Ok(Some((clock.wall as i64).wrapping_sub(clock.time as i64)));
    }
    Ok(recording.known_times()?.map(|(_, last)| offset_by_file(path, last)))
}

/// The same of a compressed recording that does not say when it ended.
fn unpacked_offset(path: &Path) -> Option<i64> {
    let (_, last) = Recording::open(path).ok()?.times().ok()??;
    Some(offset_by_file(path, last))
}

fn offset_by_file(path: &Path, last: u64) -> i64 {
    let changed = fs::metadata(data_file(path)).map_or(0, |file| file.mtime() * 1_000_000_000 + file.mtime_nsec());
    changed.wrapping_sub(last as i64)
}

/// The file that a recording begins with: it may be a directory.
pub(super) fn data_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("data") } else { path.to_owned() }
}

/// When a recording of this machine began, or some time before that, in ns since the Unix epoch. A file tells if it is
/// the one that the recorder wrote, which created it before the first sample and wrote to it after the last: of a copy the two
/// times are closer together, if they are in that order.
fn begin(recording: &mut Recording, path: &Path) -> Result<Option<i64>> {
    let ours = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if recording.features.hostname.as_deref() != Some(ours.trim_end()) {
        return Ok(None);
    }
    let times = recording.known_times()?;
    if let Some(clock) = recording.features.clock {
        // perf compares the clocks before the first sample, others perhaps after.
        let first = times.map_or(clock.time, |(first, _)| first.min(clock.time));
        return Ok(Some((clock.wall as i64).wrapping_sub(clock.time.wrapping_sub(first) as i64)));
    }
    let (Some((first, last)), Ok(file)) = (times, fs::metadata(data_file(path))) else { return Ok(None) };
    let (Ok(created), Ok(changed)) = (file.created(), file.modified()) else { return Ok(None) };
    let written = changed.duration_since(created).unwrap_or_default();
    let since = created.duration_since(UNIX_EPOCH).unwrap_or_default();
    let is_original = last.checked_sub(first).is_some_and(|span| written.as_nanos() >= u128::from(span));
    Ok(is_original.then_some(since.as_nanos() as i64))
}

/// What the recording says of its binaries, and where perf keeps copies of such.
pub(super) fn binaries(recording: &mut Recording, path: &Path) -> Result<Recorded> {
    let begin = begin(recording, path)?;
    let ids = recording.features.build_ids.iter();
    let build_ids = ids.map(|id| (PathBuf::from(&id.path), Arc::from(&*id.id))).collect();
    let cache = env::var_os("PERF_BUILDID_DIR").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".debug")));
    Ok(Recorded { build_ids, cache, begin })
}

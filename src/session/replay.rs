//! From plan to run of a recording, and from its end to a status.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, IsTerminal},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use anyhow::{Context as _, Result};
use indicatif::ProgressBar;

use super::{
    ExitStatus,
    jobs::{self, Shard},
    plan::{Input, Module, Plan, Verbosity},
    program,
    pump::{LossWindow, Pump},
    reading::times,
    recorded::{self, Selected},
    recorded_kernel::RecordedKernel,
    replayed::Replayed,
    report,
    run_loop::{Last, RunLoop},
    status::status,
};
use crate::{
    event::{Context, Processes, Stats},
    perfdata::{Recording, Replay, Selection},
    record::{EventIds, LossCounts, SampleLayout, Source, TrailerLayout, Wait},
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
    let recording = Recording::open(&input.path)?;
    let selected = recorded::select(&plan.events, &recording)?;
    let Module::Script { module, args } = &plan.module else {
        return program::print_template(plan, &selected.types);
    };
    if let Some(missing) =
        selected.missing_chains(plan.callchain.every_event).filter(|_| plan.verbosity > Verbosity::Quiet)
    {
        output::say(format_args!("warning: {missing}"));
    }
    match &input.jobs {
        Some(jobs) => jobs::run(plan, input, jobs, (recording, selected), (module, args)),
        None => part(plan, input, (recording, selected), (module, args), Part::Whole),
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

/// Does a part of the work on a recording, in an interpreter of its own.
pub(super) fn part(
    plan: &Plan,
    input: &Input,
    recording: (Recording, Selected),
    script: (&OsStr, &[OsString]),
    part: Part<'_>,
) -> Result<ExitStatus> {
    let choice = Choice::make(plan.python.as_deref())?;
    let held = Held::new()?;
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
    if let Part::Shard(shard) = &part {
        shard.select(&mut selection);
    }
    let offset = realtime_offset(&mut recording, &input.path)?;
    let recorded = binaries(&recording);
    let kernel = RecordedKernel::new(&recording, &recorded);
    let context = Context::new(Box::new(kernel), offset);
    let context = Arc::new(context.with_symbol_options(plan.symbols, Processes::Recorded(recorded)));
    let layouts = recording.layouts().clone();
    let Selected { types, routes, .. } = selected;
    let names: Vec<(String, String)> = recording
        .events
        .iter()
        .filter_map(|event| event.format.as_ref().map(|format| (format.system.clone(), format.name.clone())))
        .collect();
    let mut replay = recording.replay(selection)?;
    replay.set_wake(signals.wake_fd());
    let rings = replay.ring_cpus();
    let stats = Arc::new(Stats::new(types.len(), rings.len()));
    let run = Run { events: types, context: context.clone(), stats: stats.clone(), ring_cpus: rings };
    let run = Arc::new(run);
    let mut program = match program::load(plan, run.clone(), script, &|| names.clone()) {
        Ok(program) => program,
        Err(ScriptError::Exited(status)) => return Ok(status),
        Err(error) => return Err(error.into()),
    };
    if input.jobs.is_some() {
        program.takes_part()?;
    }
    if let Part::Merge(shards) = part {
        return jobs::merge(shards, program, &stats);
    }
    let replayed = Replayed::new(layouts, routes, plan.interval);
    let pump = Pump::new(
        EventIds::new(&[]),
        (SampleLayout::new(0, 0), TrailerLayout::new(0)),
        context,
        stats.clone(),
        LossWindow::Times,
        run.ring_cpus.len(),
        plan.exit_n,
    );
    let reopen = || program::reopen_output(plan);
    let mut run_loop = RunLoop {
        source: Replaying::new(replay, plan.verbosity),
        pump: pump.of_recording(replayed),
        events: &run.events,
        stats,
        signals: &signals,
        interval: None,
        usage_every: plan.usage_self,
        calibrate: &mut || {},
        on_loss: "they were lost when it was recorded",
        reopen: &reopen,
    };
    let ending = run_loop.run(&mut program);
    let (last, strangers) = run_loop.pump.replayed().map_or((0, 0), |replayed| (replayed.last(), replayed.strangers()));
    let after = if let Part::Shard(_) = part { Last::Part } else { Last::Exit };
    let at_exit = run_loop.finish(ending, after, &mut program, last);
    report::print_endings(run.context.endings(), plan.verbosity);
    if let Part::Shard(shard) = part {
        let partial = program.partial();
        program.clear();
        shard.leave(&run.stats, &partial?).context("cannot keep what __partial__() returned")?;
    } else {
        program.clear();
    }
    if strangers != 0 {
        output::say(format_args!("{strangers} samples were left out: the recording has no event with their ids"));
    }
    if let Some(failure) = run_loop.source.replay.take_failure() {
        return Err(failure.into());
    }
    Ok(status(ending, at_exit, None))
}

/// What to add to the records' times to get nanoseconds since the Unix epoch. Exact where the recording says how its
/// clock was related to the time of day (`perf record -k`); else the file's last change was the last sample's time, which
/// is right to a second or so.
pub(super) fn realtime_offset(recording: &mut Recording, path: &Path) -> Result<i64> {
    if let Some(clock) = recording.features.clock {
        return Ok((clock.wall as i64).wrapping_sub(clock.time as i64));
    }
    let Some((_, last)) = recording.times()? else { return Ok(0) };
    let file = if path.is_dir() { path.join("data") } else { path.to_owned() };
    let changed = fs::metadata(file).map_or(0, |file| file.mtime() * 1_000_000_000 + file.mtime_nsec());
    Ok(changed.wrapping_sub(last as i64))
}

/// What the recording says of its binaries, and where perf keeps copies of such.
pub(super) fn binaries(recording: &Recording) -> Recorded {
    let ids = recording.features.build_ids.iter();
    let build_ids = ids.map(|id| (PathBuf::from(&id.path), Arc::from(&*id.id))).collect();
    let cache = env::var_os("PERF_BUILDID_DIR").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".debug")));
    Recorded { build_ids, cache }
}

/// A replay that says what goes wrong, and on a terminal how far it is.
pub(super) struct Replaying {
    pub replay: Replay,
    verbosity: Verbosity,
    bar: Option<ProgressBar>,
}

impl Replaying {
    pub fn new(replay: Replay, verbosity: Verbosity) -> Self {
        let total = replay.progress().total;
        let wanted = verbosity > Verbosity::Quiet && total != 0 && io::stderr().is_terminal();
        Self { replay, verbosity, bar: wanted.then(|| ProgressBar::new(total)) }
    }

    fn show_progress(&mut self, wait: &Wait) {
        let Some(bar) = &self.bar else { return };
        bar.set_position(self.replay.progress().done);
        if matches!(wait, Wait::Ended(_)) {
            bar.finish_and_clear();
        }
    }
}

impl Source for Replaying {
    fn wait(&mut self, until: Option<Instant>) -> Wait {
        let wait = self.replay.wait(until);
        self.show_progress(&wait);
        for warning in self.replay.take_warnings() {
            if self.verbosity > Verbosity::Quiet {
                output::say(format_args!("warning: {warning}"));
            }
        }
        wait
    }

    fn flush(&mut self) {
        self.replay.flush();
    }

    fn stop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.replay.stop();
    }

    fn losses(&mut self) -> Option<LossCounts> {
        self.replay.losses()
    }

    fn ring_cpus(&self) -> Vec<Option<u32>> {
        self.replay.ring_cpus()
    }

    fn late(&self) -> u64 {
        self.replay.late()
    }

    fn limited(&self) -> u64 {
        self.replay.limited()
    }

    fn backlog(&self) -> usize {
        self.replay.backlog()
    }
}

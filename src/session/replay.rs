//! From plan to run of a recording, and from its end to a status.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    time::Instant,
};

use anyhow::{Context as _, Result, bail};

use super::{
    ExitStatus,
    names::RunningKernel,
    plan::{Input, Module, Plan, Verbosity},
    program,
    pump::{LossWindow, Pump},
    recorded::{self, Selected},
    replayed::Replayed,
    report,
    run_loop::RunLoop,
    status::status,
};
use crate::{
    event::{Context, Processes, Stats},
    perfdata::{Recording, Replay, Selection},
    record::{EventIds, LossCounts, SampleLayout, Source, TrailerLayout, Wait},
    script::{Choice, Interpreter, Run, ScriptError, interrupt},
    sys::{hold::Held, output, signals::Signals, tracefs::Tracefs},
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
    let choice = Choice::make(plan.python.as_deref())?;
    let held = Held::new()?;
    let interpreter = Interpreter::start(&choice)?;
    // However it ends, the interpreter is ended too: it flushes, and joins the script's threads.
    let result = with_interpreter(plan, input, recording, selected, (module, args), held);
    let flushed = program::end(interpreter);
    Ok(ExitStatus(flushed.status(result?)))
}

fn with_interpreter(
    plan: &Plan,
    input: &Input,
    mut recording: Recording,
    selected: Selected,
    script: (&OsStr, &[OsString]),
    held: Held,
) -> Result<u8> {
    // After the interpreter, which sets a handler of its own for SIGINT.
    let signals = Signals::install()?;
    signals.on_second_interrupt(interrupt);
    drop(held);
    let times = match &input.times {
        Some(times) if times.has_shares() => match recording.times()? {
            Some((first, last)) => times.of(first, last),
            None => {
                bail!("--time: {} does not say when it begins and ends, so there are no shares of it", recording.name)
            }
        },
        Some(times) => times.of(0, u64::MAX),
        None => Vec::new(),
    };
    let selection = Selection {
        attrs: selected.attrs(&recording),
        cpus: input.cpus.clone(),
        pids: input.pids.clone(),
        tids: input.tids.clone(),
        times,
    };
    let offset = realtime_offset(&mut recording, &input.path)?;
    let kernel = RunningKernel::new(Tracefs::find()?);
    let context =
        Arc::new(Context::new(Box::new(kernel), offset).with_symbol_options(plan.symbols, Processes::Recorded));
    let layouts = recording.layouts().clone();
    let Selected { types, routes } = selected;
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
        source: Replaying { replay, verbosity: plan.verbosity },
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
    let at_exit = run_loop.finish(ending, &mut program, last);
    report::print_endings(run.context.endings(), plan.verbosity);
    program.clear();
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
fn realtime_offset(recording: &mut Recording, path: &Path) -> Result<i64> {
    if let Some(clock) = recording.features.clock {
        return Ok((clock.wall as i64).wrapping_sub(clock.time as i64));
    }
    let Some((_, last)) = recording.times()? else { return Ok(0) };
    let file = if path.is_dir() { path.join("data") } else { path.to_owned() };
    let changed = fs::metadata(file).map_or(0, |file| file.mtime() * 1_000_000_000 + file.mtime_nsec());
    Ok(changed.wrapping_sub(last as i64))
}

/// A replay that says what goes wrong.
struct Replaying {
    replay: Replay,
    verbosity: Verbosity,
}

impl Source for Replaying {
    fn wait(&mut self, until: Option<Instant>) -> Wait {
        let wait = self.replay.wait(until);
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

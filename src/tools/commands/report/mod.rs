//! `perf-prof report`: shows where the samples of a recording were taken, as a table (with or without callers) or as a
//! flame graph. Only sums are kept in memory, and no samples.

mod difference;
mod flame;
mod json;
mod table;

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use serde_json::json;

pub use flame::FlamePlan;
use perf_prof_events::{
    event::{
        AddedSample, AlwaysEntered, CallerSums, Context, Deliver, EventType, Flow, GroupKey, Origin, Provenance,
        Sample, Shares, Stop, cgroup_text, frame_label, frames, frames_without_inlined, has_callchain,
        sampled_function,
    },
    picture::{Label, Roots, Stacks, grouped, note_of_cut_chains},
};
use perf_prof_format::{control_characters::in_json, spec::EventSpec};
use perf_prof_session::{
    engine::ExitStatus,
    plan::{Input, InterpreterFrameUse, RunPlan, Verbosity},
    spine::ChosenRecording,
};
use perf_prof_system::{
    output,
    output_path::{self, ExistingFile},
    terminal::ShownOnStdout,
};

use super::{
    period::PeriodUnit,
    pprof::{self, SampledEvents, SampledProfile},
    script_text::names,
    task_names::TaskNames,
};

/// The plan of a report: the recording, and how its samples are added up.
#[derive(Clone, Debug)]
pub struct ReportPlan {
    /// The recording, and the part of it that is read.
    pub input: Input,
    /// The events whose samples are added up. An empty list means all events.
    pub events: Vec<EventSpec>,
    /// The keys by which samples are grouped.
    pub by: Vec<GroupKey>,
    /// How callers are shown.
    pub callers: CallerSums,
    /// Whether call chains have the frames of Python functions. `None` if the user did not specify this.
    pub python: Option<InterpreterFrameUse>,
    /// The recording for a comparison; `None` if the user wants no comparison.
    pub before: Option<Before>,
    /// The flame graph to write, if any.
    pub flame: Option<FlamePlan>,
    /// The path of the pprof profile to write, if any.
    pub pprof: Option<PathBuf>,
    /// The format of the table.
    pub form: Form,
    /// How many messages about problems with the recording are printed.
    pub verbosity: Verbosity,
}

/// An earlier recording, or an earlier part of the same recording.
#[derive(Clone, Debug)]
pub struct Before {
    /// The recording, and the part of it that is read.
    pub input: Input,
    /// What messages call the earlier recording or part.
    pub name: String,
}

/// The format of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Text for people.
    #[default]
    Text,
    /// JSON for programs.
    Json,
}

/// Adds up the samples and prints the report.
pub fn run(plan: &ReportPlan) -> Result<ExitStatus> {
    if let Some(flame) = &plan.flame {
        output_path::check(&flame.path, ExistingFile::Overwritten)?;
    }
    if let Some(path) = &plan.pprof {
        output_path::check(path, ExistingFile::Overwritten)?;
    }
    let reading = Reading::open(plan, &plan.input)?;
    let compared = plan.before.as_ref().map(|before| Reading::open(plan, &before.input)).transpose()?;
    // Both flame graphs get the same outermost frames, because they are compared.
    let has_many = |reading: &Reading| reading.names.len() > 1;
    let differ =
        |compared: &Reading| has_many(compared) || difference::shares_no_event(&reading.names, &compared.names);
    let roots = if has_many(&reading) || compared.as_ref().is_some_and(differ) { Roots::Events } else { Roots::Tasks };
    if let (Some(compared), Some(before)) = (&compared, &plan.before) {
        difference::warn_of_other_events(before, &reading.names, &compared.names);
    }
    let before = compared.map(|compared| compared.add_up(plan, roots)).transpose()?;
    let mut after = reading.add_up(plan, roots)?;
    if let Some(path) = &plan.pprof {
        after.write_profile(path, plan.verbosity).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(flame) = &plan.flame {
        flame.write(&after, plan.before.as_ref().zip(before.as_ref()))?;
        if plan.verbosity > Verbosity::Quiet {
            output::say(format_args!("the flame graph is in {}", flame.path.display()));
        }
    }
    show(plan, before.as_ref(), &after).context("cannot write the output")?;
    Ok(after.status)
}

/// Prints the report, or the difference between two.
fn show(plan: &ReportPlan, before: Option<&Added>, after: &Added) -> Result<()> {
    let (sums, names) = (&after.sums, &after.names);
    let mut out = ShownOnStdout::new(BufWriter::new(io::stdout().lock()));
    match (plan.form, plan.before.as_ref().zip(before)) {
        (form, Some((of, before))) => difference::print(plan, of, before, after, form, &mut out)?,
        (Form::Text, None) => {
            after.missing.print_head(&mut out)?;
            // Events without samples are not shown if any event has samples. A pattern may have matched many events
            // that never happened.
            let any = sums.shares.iter().any(|shares| shares.samples() > 0);
            let shown = names.iter().zip(&sums.shares).filter(|(_, shares)| !any || shares.samples() > 0);
            for (name, shares) in shown {
                table::print(plan, name, shares, output::terminal_width(), &mut out)?;
            }
        }
        (Form::Json, None) => {
            let events = names.iter().zip(&after.units).zip(&sums.shares);
            let events: Vec<_> =
                events.map(|((name, unit), shares)| json::of_event(plan, name, unit, shares)).collect();
            let json = serde_json::to_string_pretty(
                &json!({ "partial": after.missing.any(), "lost": after.missing.lost, "events": events }),
            )?;
            writeln!(out, "{}", in_json(&json))?;
        }
    }
    Ok(out.flush()?)
}

/// An open recording, and the names of its events.
struct Reading {
    recording: ChosenRecording,
    /// The name of each event.
    names: Vec<String>,
    /// What the periods of each event count.
    units: Vec<PeriodUnit>,
}

/// The samples of a recording, added up.
struct Added {
    /// The name of each event.
    names: Vec<String>,
    units: Vec<PeriodUnit>,
    sums: Sums,
    status: ExitStatus,
    missing: Missing,
}

/// Which samples are missing.
#[derive(Clone, Copy)]
struct Missing {
    /// The number of lost samples.
    lost: u64,
    /// Whether the recording is damaged or cut off.
    damaged: bool,
}

impl Added {
    /// Writes the samples as a profile of pprof.
    fn write_profile(&mut self, path: &Path, verbosity: Verbosity) -> Result<()> {
        let Some(profile) = self.sums.profile.take() else { return Ok(()) };
        let partial = self.missing.reasons().join("; ");
        let mut to = BufWriter::new(File::create(path)?);
        let partial = Some(&*partial).filter(|partial| !partial.is_empty());
        profile.write(&self.sums.provenance, partial, &self.sums.context, pprof::packing(path), &mut to)?;
        to.flush()?;
        if verbosity > Verbosity::Quiet {
            output::say(format_args!("the profile is in {}", path.display()));
        }
        Ok(())
    }
}

impl Missing {
    /// Returns why samples are missing, as texts.
    fn reasons(self) -> Vec<String> {
        let lost = (self.lost != 0).then(|| format!("{} events lost", grouped(self.lost)));
        lost.into_iter().chain(self.damaged.then(|| CANNOT_BE_READ.to_owned())).collect()
    }

    fn any(self) -> bool {
        self.lost != 0 || self.damaged
    }

    /// Prints the lines before the first table.
    fn print_head(self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "# Total Lost Samples: {}", self.lost)?;
        if self.damaged {
            writeln!(out, "# Partial: {CANNOT_BE_READ}")?;
        }
        writeln!(out, "#")
    }
}

/// The reason that is printed for a damaged recording.
const CANNOT_BE_READ: &str = "a part of the recording cannot be read";

impl Reading {
    fn open(plan: &ReportPlan, input: &Input) -> Result<Reading> {
        let mut run = RunPlan::of_recording(input, &plan.events, plan.verbosity);
        run.capture.callchain.python = plan.python;
        if plan.pprof.is_some() {
            run.symbols = pprof::symbols();
        }
        let mut recording = ChosenRecording::select(&run, input)?;
        recording.warn();
        recording.refuse_spans()?;
        if plan.by.contains(&GroupKey::Cgroup) {
            recording.require_cgroups("--sort cgroup")?;
        }
        recording.prepare()?;
        if plan.pprof.is_some() {
            recording.look_for_time_of_day()?;
        }
        let all = names(&recording);
        let names = recording.selected().attr_of_each_type().into_iter().map(|attr| all[attr].clone()).collect();
        let units = PeriodUnit::of_events(&recording, &all);
        Ok(Reading { recording, names, units })
    }

    fn add_up(self, plan: &ReportPlan, roots: Roots) -> Result<Added> {
        let Reading { recording, names, units } = self;
        let events = SampledEvents::of(&recording);
        let delivered = recording.deliver(|about| {
            let budget = about.context.budget();
            Ok(Sums {
                types: about.events.clone(),
                context: about.context.clone(),
                provenance: about.stats.provenance(),
                shares: names.iter().map(|_| Shares::new(&plan.by, plan.callers, budget)).collect(),
                stacks: plan.flame.is_some().then(|| Stacks::within(budget)),
                profile: plan.pprof.is_some().then(|| SampledProfile::new(&events, budget)),
                has_chains: vec![false; names.len()],
                cut_stacks: 0,
                has_cgroups: plan.by.contains(&GroupKey::Cgroup),
                roots,
                names: names.clone(),
                task_names: TaskNames::default(),
                failed: None,
            })
        })?;
        let damaged = delivered.outcome.replayed.as_ref().is_some_and(|replayed| replayed.lacks_records);
        let (status, missing) = (delivered.status(), Missing { lost: delivered.outcome.lost, damaged });
        let mut sums = delivered.sink;
        if let Some(error) = sums.failed.take() {
            return Err(error);
        }
        sums.rename_tasks();
        if let Some(note) = note_of_cut_chains(sums.cut_stacks) {
            output::say(format_args!("in the flame graph, {note}; a larger --buffer keeps more"));
        }
        Ok(Added { names, units, sums, status, missing })
    }
}

/// A sink that adds up samples.
struct Sums {
    types: Vec<EventType>,
    context: Arc<Context>,
    provenance: Provenance,
    shares: Vec<Shares>,
    stacks: Option<Stacks>,
    profile: Option<SampledProfile>,
    /// Whether the keys include the cgroup.
    has_cgroups: bool,
    /// For each event, whether its samples have call chains.
    has_chains: Vec<bool>,
    /// The number of samples whose call chains did not fit into `stacks`.
    cut_stacks: u64,
    /// The outermost frames of the flame graph.
    roots: Roots,
    /// The names of the events.
    names: Vec<String>,
    task_names: TaskNames,
    failed: Option<anyhow::Error>,
}

impl Sums {
    /// Gives tasks without a comm the comms that were reported later.
    fn rename_tasks(&mut self) {
        let later = self.task_names.later(&self.context);
        if !later.is_empty() {
            self.shares.iter_mut().for_each(|shares| shares.rename_tasks(&later));
        }
    }
}

impl AlwaysEntered for Sums {}

impl Deliver for Sums {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let Some(of_type) = self.types.get(event) else { return ControlFlow::Continue(()) };
        let sample = Sample { event: of_type, record };
        let (pid, tid) = sample.pid_tid();
        let comm = self.task_names.of(&sample, &self.context);
        let mut chain = frames(&sample, &self.context);
        let place = sampled_function(&sample, &chain, &self.context);
        if let Some(profile) = &mut self.profile {
            let only = if chain.is_empty() { place.as_slice() } else { &[] };
            profile.add(event, &sample, if only.is_empty() { &chain } else { only }, &self.context);
            // The pprof profile contains inlined functions, and the table does not.
            chain.retain(|frame| !matches!(frame.origin, Origin::Inlined { .. }));
        }
        let place = place.as_deref().or_else(|| chain.first().map(|frame| &**frame));
        let period = sample.period();
        let cgroup = if self.has_cgroups { cgroup_text(&sample, &self.context) } else { None };
        let cgroup = String::from_utf8_lossy(cgroup.as_deref().unwrap_or_default());
        let (ids, cpu) = ((pid, tid), sample.cpu());
        let added = AddedSample { period, comm: &comm, ids, cpu, cgroup: &cgroup, place, chain: &chain };
        self.shares[event].add(&added);
        self.has_chains[event] |= has_callchain(&sample);
        let Some(stacks) = &mut self.stacks else { return ControlFlow::Continue(()) };
        let mut at = stacks.root();
        let whole = chain.iter().rev().map(|frame| &**frame);
        let frames = whole.chain(place.filter(|_| chain.is_empty())).map(frame_label);
        let event = self.names.get(event).filter(|_| self.roots == Roots::Events);
        let roots = event.into_iter().chain([&comm]).map(|name| Label::Name(name));
        for label in roots.chain(frames) {
            let Some(next) = stacks.child_with_room(at, label) else {
                self.cut_stacks += 1;
                break;
            };
            at = next;
        }
        stacks.note_length(at, frames_without_inlined(&chain), period);
        match stacks.add_weight(at, period) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error.into());
                ControlFlow::Break(Stop::Failed)
            }
        }
    }
}

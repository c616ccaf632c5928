//! The draft of a run: the options as the user gave them. Command lines and keyword arguments fill it.
//! [`Draft::checked`] turns it into a plan if the options fit together.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use perf_prof_events::derive::source::{Coverage, check_coverage};
use perf_prof_format::{
    record::OtherRecords,
    spec::{EventSpec, Rate, RingSize, TimeRanges},
};
use perf_prof_symbols::symbol;
use perf_prof_system::compat;

use super::{
    Callchain, Capture, Clock, DeliveryOrder, Face, InKernel, Input, Jobs, LivePlan, Names, Naming, Origin, OwnThreads,
    Owner, PlanError, ReadLimits, RecordingOutput, RunOption, RunPlan, Selection, SpansOf, SplitBy, Switch, Target,
    TaskSelection, Verbosity, live_target, selection::AllCpus,
};

/// The options of a run as the user gave them. Each value is valid, but nothing has checked whether the options fit
/// together.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// The events, in the order in which they were requested.
    pub events: Vec<EventSpec>,
    /// See [`RunPlan::own_events`].
    pub own_events: usize,
    /// The target of live events, or the samples of a recording.
    pub selection: Selection,
    /// The call chains of all events.
    pub callchain: Callchain,
    /// The number of events for each sample, for events other than tracepoints.
    pub period: Option<Rate>,
    /// The number of samples per second, for events other than tracepoints.
    pub frequency: Option<Rate>,
    /// The size of each ring.
    pub ring_size: Option<RingSize>,
    /// The maximum memory, in bytes, for events that wait to be delivered.
    pub buffer: Option<usize>,
    /// How full a ring has to be, in percent, before its reader is woken.
    pub watermark: Option<u8>,
    /// The clock that gives the times of live events.
    pub clock: Clock,
    /// The order in which live events are delivered.
    pub order: DeliveryOrder,
    /// The maximum number of samples per second and ring.
    pub sampling_limit: Option<u32>,
    /// On if each live sample holds the cgroup of its task.
    pub cgroups: Switch,
    /// Says if the events of perf-prof's own threads are delivered.
    pub own_threads: OwnThreads,
    /// Where live events are added up, if the receiver needs only sums.
    pub in_kernel: InKernel,
    /// The recording to write while the events are delivered.
    pub recording: Option<RecordingOutput>,
    /// The time after which a live run ends.
    pub duration: Option<Duration>,

    /// The recording to read. `None` for live events.
    pub input: Option<PathBuf>,
    /// The owners of recordings that may be read.
    pub owner: Owner,
    /// The time ranges of the recording that are read.
    pub times: Option<TimeRanges>,
    /// On if the samples of virtual machines are read too.
    pub guests: Switch,
    /// The number of processes that replay the recording. If `processes` is set too, this is the number of parts.
    pub jobs: Option<usize>,
    /// How the recording is divided between the processes.
    pub split: Option<SplitBy>,
    /// See [`Input::processes`]. If it is set, this process replays one part.
    pub processes: Option<usize>,

    /// The records other than samples that the sink receives.
    pub others: OtherRecords,
    /// How addresses in processes are resolved to names.
    pub symbols: symbol::Options,
    /// The time between two calls of [`perf_prof_events::event::Deliver::interval`].
    pub interval: Option<Duration>,
    /// The number of delivered samples after which the run ends.
    pub limit: Option<u64>,
    /// How often this process's own CPU and memory use is printed.
    pub usage_every: Option<Duration>,
    /// The file that stdout and stderr are appended to.
    pub output: Option<PathBuf>,
    /// Who receives the events.
    pub face: Face,
    /// How many messages are printed to stderr.
    pub verbosity: Verbosity,
}

/// What live events are attached to, and which tasks are selected.
#[derive(Default)]
struct LiveTarget {
    target: Target,
    /// The selected tasks, if the target contains more tasks than these.
    selected_tasks: Option<Target>,
    spans_of: SpansOf,
}

impl Draft {
    /// Returns the plan. Fails if two options do not fit together.
    pub fn checked(self) -> Result<RunPlan, PlanError> {
        let callchain = self.callchain();
        let (origin, LiveTarget { target, selected_tasks, spans_of }) = match &self.input {
            Some(path) => (Origin::Recorded(Box::new(self.recorded(path.clone())?)), LiveTarget::default()),
            None if self.times.is_some() => return Err(PlanError::TimeWithoutInput),
            None => {
                let target = self.target()?;
                let live = LivePlan { recording: self.recording, duration: self.duration };
                (Origin::Live(live), target)
            }
        };
        // To select tasks by their cgroups, the samples have to contain cgroups.
        let selects_cgroups = matches!(selected_tasks, Some(Target::Cgroups { .. }));
        let capture = Capture {
            target,
            selected_tasks,
            spans_of,
            cgroups: if selects_cgroups { Switch::On } else { self.cgroups },
            callchain,
            events: self.events,
            rate: rate(self.period, self.frequency)?,
            ring_size: self.ring_size,
            buffer: self.buffer,
            watermark: self.watermark,
            clock: self.clock,
            order: self.order,
            sampling_limit: self.sampling_limit,
            own_threads: self.own_threads,
            in_kernel: self.in_kernel,
            ..Capture::default()
        };
        Ok(RunPlan {
            capture,
            own_events: self.own_events,
            origin,
            others: self.others,
            symbols: self.symbols,
            naming: Naming::Own,
            interval: self.interval,
            limit: self.limit,
            usage_every: self.usage_every,
            output: self.output,
            face: self.face,
            verbosity: self.verbosity,
        })
    }

    /// Returns the call chains. `-g` selects kernel frames and user frames, as in `perf-prof record`. A replay shows
    /// the frames that were recorded. With `--no-kernel-callchain`, `-g` samples no frames: the C implementation adds
    /// user frames only together with kernel frames.
    fn callchain(&self) -> Callchain {
        let Callchain { every_event, user, kernel, .. } = self.callchain;
        let has_both = every_event == Switch::On && kernel != Some(Switch::Off) && self.input.is_none();
        let both = (has_both && !compat::is_on()).then_some(Switch::On);
        Callchain { user: user.or(both), ..self.callchain }
    }

    /// Returns the target of live events. With `-a`, the run delivers the events and spans of all tasks. Without `-a`,
    /// sources may still need the events of all tasks. Then the run delivers only the spans of the selected tasks.
    fn target(&self) -> Result<LiveTarget, PlanError> {
        let (target, selected_tasks) = self.selection.clone().target_and_selected_tasks()?;
        self.selection.refuse_some_cpus()?;
        self.selection.refuse_idle_tasks()?;
        if selected_tasks.is_some() {
            check_coverage(&self.events, Coverage::All)?;
            return Ok(LiveTarget { target, selected_tasks, spans_of: SpansOf::AllTasks });
        }
        let (target, selected_tasks) = live_target(&self.events, target)?;
        Ok(LiveTarget { target, selected_tasks, spans_of: SpansOf::SelectedTasks })
    }

    /// Returns the recording, and the selection of its samples.
    fn recorded(&self, path: PathBuf) -> Result<Input, PlanError> {
        if let Some(option) = self.live_option() {
            return Err(PlanError::LiveOptionWithInput(option));
        }
        self.selection.refuse_some_cpus()?;
        let Selection { all_cpus, cpus, pids, tids, cgroups, command, .. } = self.selection.clone();
        if !command.is_empty() {
            return Err(PlanError::CommandWithInput(command));
        }
        let input = Input {
            limits: ReadLimits { owner: self.owner, memory: self.buffer },
            cpus,
            pids,
            tids,
            cgroups,
            tasks: TaskSelection::ForScript,
            names: Names::default(),
            max_stack: None,
            times: self.times.clone(),
            guests: self.guests,
            jobs: self.jobs(&path)?,
            part: None,
            processes: self.processes,
            path,
        };
        if all_cpus == AllCpus::BesideTasks {
            check_coverage(&self.events, Coverage::of(&input.cpus))?;
            return Ok(input);
        }
        Ok(input.selecting(&self.events)?)
    }

    /// Returns the first option that only live events can have.
    fn live_option(&self) -> Option<RunOption> {
        let selection = &self.selection;
        let given = [
            (RunOption::AllCpus, selection.all_cpus == AllCpus::Target),
            (RunOption::RingSize, self.ring_size.is_some()),
            (RunOption::Frequency, self.frequency.is_some()),
            (RunOption::Period, self.period.is_some()),
            (RunOption::AllCgroups, self.cgroups == Switch::On),
            (RunOption::Exec, selection.exec.is_some()),
            (RunOption::Watermark, self.watermark.is_some()),
            (RunOption::SamplingLimit, self.sampling_limit.is_some()),
            (RunOption::Monotonic, self.clock == Clock::Monotonic),
            (RunOption::Duration, self.duration.is_some()),
            (RunOption::Recording, self.recording.is_some()),
            (RunOption::InKernel, self.in_kernel == InKernel::Always),
        ];
        given.into_iter().find_map(|(option, given)| given.then_some(option))
    }

    fn jobs(&self, path: &Path) -> Result<Option<Jobs>, PlanError> {
        let split = self.split.unwrap_or_default();
        match self.jobs {
            Some(count) if self.processes.is_some() => Ok(Some(Jobs { count, split })),
            None if self.split.is_some() => Err(PlanError::SplitWithoutJobs),
            None | Some(0 | 1) => Ok(None),
            Some(_) if path.as_os_str() == "-" => Err(PlanError::JobsOfPipe),
            Some(_) if self.limit.is_some() => Err(PlanError::JobsWithLimit),
            Some(count) => Ok(Some(Jobs { count, split })),
        }
    }
}

/// Returns the rate of samples. Fails if both a period and a frequency are given.
pub fn rate(period: Option<Rate>, frequency: Option<Rate>) -> Result<Option<Rate>, PlanError> {
    match (period, frequency) {
        (Some(_), Some(_)) => Err(PlanError::PeriodAndFrequency),
        (period, frequency) => Ok(period.or(frequency)),
    }
}

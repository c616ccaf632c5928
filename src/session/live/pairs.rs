//! Decides for which system calls BPF programs pair begin and end in the kernel although the run needs their samples.
//! Starts these programs. A program writes one record for each call that passes the filters. The tracepoints are then not
//! opened, so the decision comes before the events are opened.

use anyhow::{Context as _, Result};
use perf_prof_capture::{Callchain, Capture, EventRequest, Frames, Writer};
use perf_prof_events::{
    derive::{Derived, PairChain, PairSplitter, ProgramFrames},
    event::EventType,
};
use perf_prof_format::{
    abi::{PERF_SAMPLE_REGS_USER, PERF_SAMPLE_STACK_USER},
    tracefs::Filter,
};
use perf_prof_in_kernel::{
    load::{MostOpen, PairsInKernel, Refusal, SelectedTasks},
    select::{Own, Selection},
    span::{KernelFrames, SelectedCalls, pair_programs},
    strings::KernelTypes,
};
use perf_prof_system::{close_in_child, memory, tracefs::Tracefs};

use super::{
    chosen::event_types,
    in_kernel::check_event,
    kernel_target::{self, KernelTarget, Reason},
    requests,
    select::{Selected, is_of_calls},
    sharing::union_of_chains,
};
use crate::{
    engine::call_pairs::{CallPairs, PairedSpan},
    plan::{CgroupsOfEvents, InKernel, OwnThreads, RunPlan, Switch},
    selectors::Stacks,
};

/// The events of a run, before they are opened.
pub struct UnopenedEvents<'a> {
    /// The plan of the run.
    pub plan: &'a RunPlan,
    /// The events that this kernel has.
    pub tracefs: &'a Tracefs,
    /// The derived events.
    pub derived: &'a [Derived],
    /// The number of opened events that the run receives. Only the event about moves between cgroups comes after them.
    pub received: usize,
    /// The pid of the command that is the target.
    pub workload: Option<u32>,
}

/// The spans of system calls of a run: those that can be paired in the kernel, and the other spans.
#[derive(Default)]
pub struct PreparedPairs {
    /// The tasks of the target, if a span needs them.
    selected: Option<SelectedTasks>,
    pairs: Vec<PreparedPair>,
    kept: Vec<(usize, Reason)>,
}

/// A span whose programs run, and write nothing yet.
struct PreparedPair {
    event: usize,
    /// The indices of the events that begin and end the span.
    inputs: [usize; 2],
    /// The call chains of these events.
    chains: [Option<Callchain>; 2],
    in_kernel: PairsInKernel,
}

impl UnopenedEvents<'_> {
    /// Attaches the programs of the spans that can be paired in the kernel. Changes the requests of the spans' events, so
    /// that a program writes the samples. Once the events are open, only a program can write these samples. So the programs
    /// are attached before the events are opened.
    pub fn prepare_pairs(&self, selected: &mut [Selected]) -> Result<PreparedPairs> {
        let mut prepared = PreparedPairs::default();
        if self.plan.capture.in_kernel == InKernel::Never
            || !self.derived.iter().any(|derived| is_of_calls(derived.span.spec()))
        {
            return Ok(prepared);
        }
        let before = selected.to_vec();
        // Samples that a program writes have fewer members.
        let mut of_calls = self.derived.iter().filter(|derived| is_of_calls(derived.span.spec()));
        of_calls.clone().flat_map(|derived| &derived.inputs).for_each(|&input| selected[input].leave_out_abi());
        let asked = requests::requests(&self.plan.capture, selected)?;
        of_calls.try_for_each(|derived| write_as_pairs(selected, &derived.inputs, &asked))?;
        let requests = requests::requests(&self.plan.capture, selected)?;
        let layouts = Capture::layouts(&requests);
        let types = event_types(&selected[..self.received], self.derived, |event| layouts[event])?;
        for (at, derived) in self.derived.iter().enumerate().filter(|(_, derived)| is_of_calls(derived.span.spec())) {
            let event = self.received + at;
            let events = (&types[..], &requests[..], &*selected, &asked[..]);
            match self.prepared(derived, event, events, &mut prepared.selected) {
                Ok(pair) => prepared.pairs.push(pair),
                Err(reason) => {
                    derived.inputs.iter().for_each(|&input| selected[input] = before[input].clone());
                    prepared.kept.push((event, reason));
                }
            }
        }
        Ok(prepared)
    }

    /// Attaches the programs of a span, which has the event type `at`. `asked` are the requests for the events if the kernel
    /// writes their samples. `tasks` are the tasks of the target; `None` if they were not
    /// selected yet.
    fn prepared(
        &self,
        Derived { span, inputs }: &Derived,
        at: usize,
        (types, requests, selected, asked): (&[EventType], &[EventRequest], &[Selected], &[EventRequest]),
        tasks: &mut Option<SelectedTasks>,
    ) -> Result<PreparedPair, Reason> {
        self.check_run()?;
        let event = &types[at];
        let &[enter, exit] = inputs.as_slice() else { return Err("it is made of several events".into()) };
        let mut filters = [None, None];
        for (input, filter) in [enter, exit].into_iter().zip(&mut filters) {
            check_event(&selected[input], &requests[input])?;
            let Some(format) = types[input].format.tracepoint() else { return Err("it is no tracepoint".into()) };
            let text = requests[input].filter.as_ref();
            *filter = text.map(|text| Filter::parse(text, format)).transpose()?;
        }
        if PairSplitter::new(&types[enter], &types[exit]).is_none() {
            return Err("its samples have more than a program can write".into());
        }
        let chains = [&asked[enter], &asked[exit]].map(chain_of_pair);
        let chains = match chains {
            [Ok(of_begin), Ok(of_end)] => [of_begin, of_end],
            [Err(reason), _] | [_, Err(reason)] => return Err(reason),
        };
        let target = requests::target(&self.plan.capture, self.workload)?;
        let target = KernelTarget { capture: &self.plan.capture, tracefs: self.tracefs, target: &target };
        let selection = self.selection(&target, &types[enter], &requests[enter])?;
        let [of_enter, of_exit] = &filters;
        let has_kernel = chains.iter().flatten().any(|chain| chain.kernel == Frames::Sampled);
        let kernel_frames = if has_kernel { KernelFrames::Noted } else { KernelFrames::NotNeeded };
        let of_span = SelectedCalls { span, event, filters: [of_enter.as_ref(), of_exit.as_ref()], kernel_frames };
        let format = &types[enter].format;
        let paths = kernel_target::path_types(format.tracepoint().into_iter());
        let iterator = kernel_target::iterator([format].into_iter());
        let types = KernelTypes { paths: paths.as_ref(), iterator, registers: None };
        let refused = |refusal: Refusal| kernel_target::refused(event, "paired", &refusal, self.plan.verbosity);
        let tasks = match tasks {
            Some(tasks) => tasks,
            None => tasks.insert(target.selected_tasks().map_err(refused)?),
        };
        let buffer = requests::buffer(&self.plan.capture, memory::available());
        let most = MostOpen { spans: span.spec().max_open, bytes: buffer.share() / self.derived.len().max(1) };
        let load =
            |types: KernelTypes<'_>| PairsInKernel::load(&pair_programs(of_span, &selection, types)?, tasks, most);
        let mut in_kernel = kernel_target::load_with_types(types, load).map_err(refused)?;
        in_kernel.attach().map_err(|error| refused(error.into()))?;
        Ok(PreparedPair { event: at, inputs: [enter, exit], chains, in_kernel })
    }

    /// Returns which calls are paired. If the programs can recognize perf-prof's own threads, they leave these threads
    /// out, so that perf-prof's writes make no new records. Otherwise the reader leaves them out.
    fn selection(
        &self,
        target: &KernelTarget<'_>,
        enter: &EventType,
        request: &EventRequest,
    ) -> Result<Selection, Reason> {
        let Some(format) = enter.format.tracepoint() else { return Err("it is no tracepoint".into()) };
        let own = match requests::own_threads(&self.plan.capture) {
            OwnThreads::LeftOut => target.own(format, request)?,
            OwnThreads::StartedLeftOut | OwnThreads::Included => Own::NOTHING,
        };
        Ok(Selection { own, ..target.selection(Some(format), request)? })
    }

    /// Fails with the reason if this run needs the samples of both events.
    fn check_run(&self) -> Result<(), Reason> {
        let capture = &self.plan.capture;
        let reasons = [
            (self.plan.live().is_some_and(|live| live.recording.is_some()), "it is recorded"),
            (capture.sampling_limit.is_some(), "the number of samples is limited"),
            (capture.cgroups_of_events != CgroupsOfEvents::All, "each event has its own cgroups"),
            (capture.cgroups == Switch::On, "its samples have cgroups"),
        ];
        reasons.into_iter().find(|(applies, _)| *applies).map_or(Ok(()), |(_, reason)| Err(reason.into()))
    }
}

impl PreparedPairs {
    /// Removes and returns the spans of system calls that cannot be paired in the kernel, each with the reason.
    pub fn take_kept(&mut self) -> Vec<(usize, Reason)> {
        std::mem::take(&mut self.kept)
    }

    /// Returns the indices of the spans that are ready to be paired.
    pub fn events(&self) -> impl Iterator<Item = usize> {
        self.pairs.iter().map(|pair| pair.event)
    }

    /// Gives up the spans for which `is_paired` returns false, because the kernel adds them up.
    pub fn retain(&mut self, is_paired: impl Fn(usize) -> bool) {
        self.pairs.retain(|pair| is_paired(pair.event));
    }

    /// Lets the programs write to the events, which are open in `capture`. `types` are the types of the events.
    pub fn start(self, types: &[EventType], capture: &Capture) -> Result<CallPairs> {
        let mut spans = Vec::new();
        for PreparedPair { event, inputs: [enter, exit], chains, in_kernel } in self.pairs {
            let name = || types[event].shown_name();
            let written = in_kernel.write_to(capture.outputs(exit));
            written
                .with_context(|| format!("{}: the programs that pair its calls cannot write to its ring", name()))?;
            let splitter = PairSplitter::new(&types[enter], &types[exit]);
            let splitter = splitter.with_context(|| format!("{}: its samples cannot be paired", name()))?;
            let [of_begin, of_end] = chains;
            let [in_begin, in_end] = in_kernel.kernel_frames();
            let splitter = splitter.with_chains([pair_chain(of_begin, in_begin), pair_chain(of_end, in_end)]);
            spans.push(PairedSpan { event, in_kernel, splitter });
        }
        let mut selected = self.selected.unwrap_or_default();
        if spans.is_empty() {
            // Closing the tracepoints that follow tasks takes 40 ms each.
            close_in_child::close(std::mem::take(&mut selected).into_slow());
        }
        Ok(CallPairs { selected, spans })
    }
}

/// Lets a program write the samples of a span's two events as one record. Its call chain has the frames of the program that
/// both samples have. `asked` are the requests for the events if the kernel writes their samples.
fn write_as_pairs(selected: &mut [Selected], inputs: &[usize], asked: &[EventRequest]) -> Result<()> {
    let &[enter, exit] = inputs else { return Ok(()) };
    let chain = union_of_chains(asked[enter].callchain, asked[exit].callchain);
    for (input, writer) in [(enter, Writer::Nobody), (exit, Writer::Program)] {
        selected[input].request.writer = writer;
        if let Some(Callchain { user, .. }) = chain {
            selected[input].stacks = Stacks { asked: true, user: Some(user), kernel: Some(Frames::Excluded) };
        }
    }
    selected[exit].spec.attrs.max_stack = chain.and_then(|chain| chain.max_stack);
    // The frames of an interpreter follow the fields of the begin.
    if selected[exit].format.has_interpreter_frames() && !selected[enter].format.has_interpreter_frames() {
        selected[enter].add_interpreter_frames()?;
    }
    Ok(())
}

/// Returns the call chain of one of a span's events. Fails if its samples have copies of registers or of the stack for
/// something else than a call chain.
fn chain_of_pair(request: &EventRequest) -> Result<Option<Callchain>, Reason> {
    let has_copies = request.samples.sample_type & (PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER) != 0;
    match request.callchain {
        Some(Callchain { user: Frames::Sampled, .. }) => Ok(request.callchain),
        _ if has_copies => Err("its samples have registers".into()),
        chain => Ok(chain),
    }
}

fn pair_chain(chain: Option<Callchain>, in_kernel: Vec<u64>) -> PairChain {
    let Some(Callchain { kernel, user, .. }) = chain else { return PairChain::default() };
    PairChain {
        kernel: if kernel == Frames::Sampled { in_kernel } else { Vec::new() },
        program: if user == Frames::Sampled { ProgramFrames::Present } else { ProgramFrames::LeftOut },
    }
}

//! Starts the BPF programs that write the records of events with strings. The events are already open.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Result, anyhow};
use perf_prof_capture::{Capture, EventRequest, HookedProbe, Writer};
use perf_prof_events::{
    derive::source::{add_strings, has_strings},
    event::Format,
};
use perf_prof_format::{
    abi::PERF_TYPE_TRACEPOINT,
    spec::{EventKind, EventSpec},
    tracefs::Filter,
};
use perf_prof_in_kernel::{
    load::{self, Occasion, StringWriters, Tracepoint},
    strings::{KernelTypes, frames_program, probe_program, string_program},
};
use perf_prof_system::{
    memory, output,
    probe_definition::{ProbeDefinition, ProbedPlace},
    procfs,
};

use super::{
    kernel_target::{self, KernelTarget, Reason},
    requests,
    select::Selected,
};
use crate::plan;

/// Requests the strings of the sources that can have them, if BPF programs can read strings here.
pub fn add_where_possible(capture: &mut plan::Capture) {
    // BPF programs know only cgroups of version 2. In a PID namespace, they see other task ids than processes do.
    let is_possible = |capture: &plan::Capture| {
        !matches!(capture.target, plan::Target::Cgroups { .. })
            && procfs::is_in_first_pid_namespace()
            && load::check().is_ok()
    };
    let has_strings = |event: &EventSpec| matches!(&event.kind, EventKind::Span(span) if has_strings(span));
    if capture.events.iter().any(has_strings) && is_possible(capture) {
        for event in &mut capture.events {
            if let EventKind::Span(span) = &mut event.kind {
                add_strings(span);
            }
        }
    }
}

/// Starts the programs that write the records of events with strings. `capture` contains the open events. The programs
/// write no record before the events are enabled.
pub fn start(
    target: &KernelTarget<'_>,
    events: &[Selected],
    requests: &[EventRequest],
    capture: &Capture,
) -> Result<StringWriters> {
    let of_program = |&at: &usize| {
        // If the samples of an event have another writer, its program is not started here.
        let is_own = events[at].request.writer == Writer::Kernel && requests[at].writer == Writer::Program;
        is_own && capture.outputs(at).next().is_some()
    };
    let written: Vec<usize> = (0..requests.len()).filter(of_program).collect();
    let Some(&first) = written.first() else { return Ok(StringWriters::default()) };
    let failed = |at: usize, Reason(reason): Reason| {
        anyhow!(
            "{}: {} a BPF program, which cannot be started, because {reason}",
            events[at].request.name,
            if events[at].format.has_interpreter_frames() { "Python frames need" } else { "str= needs" }
        )
    };
    let selected = target.selected_tasks();
    let most = requests::buffer(target.capture, memory::available()).share();
    let mut writers =
        StringWriters::new(selected.map_err(|error| failed(first, kernel_target::reason(&error).into()))?, most);
    let formats = || written.iter().map(|&at| &events[at].format);
    let types = kernel_target::path_types(formats().filter_map(Format::tracepoint));
    let iterator = kernel_target::iterator(formats());
    for &at in &written {
        let event = (&events[at], &requests[at], at);
        let registers = events[at].format.tracepoint().and_then(|format| kernel_target::event_registers(format));
        let types = KernelTypes { paths: types.as_ref(), iterator, registers };
        add(&mut writers, target, event, (capture, types)).map_err(|reason| failed(at, reason))?;
    }
    Ok(writers)
}

fn add(
    writers: &mut StringWriters,
    target: &KernelTarget<'_>,
    (event, request, at): (&Selected, &EventRequest, usize),
    (capture, types): (&Capture, KernelTypes<'_>),
) -> Result<(), Reason> {
    if let Some(definition) = &request.definition {
        return add_at_probe(writers, target, (event, request, at), (capture, types), definition);
    }
    let ty = event.event_type(capture.layout(at));
    let format = ty.format.tracepoint();
    let filter = request.filter.as_ref().zip(format).map(|(text, format)| Filter::parse(text, format)).transpose()?;
    // The reader leaves out perf-prof's own samples, as it does for all events.
    let selection = target.selection(format.map(Arc::as_ref), request)?;
    let (attr, name) = (request.occasion(), ty.format.name());
    let occasion = match format {
        Some(format) => Occasion::Tracepoint(Tracepoint { name: &format.name, id: format.id }),
        None => Occasion::Sample { name: &name, attr: &attr },
    };
    let loaded = kernel_target::load_with_types(types, |types| {
        let program = match format {
            Some(_) => string_program(&ty, filter.as_ref(), &selection, types)?,
            None => frames_program(&selection, types)?,
        };
        writers.add(at, occasion, &program, capture.outputs(at))
    });
    loaded.map_err(|refusal| kernel_target::reason(&refusal).into())
}

/// Starts the programs of a probe. A static probe has its arguments in other registers at each of its places.
fn add_at_probe(
    writers: &mut StringWriters,
    target: &KernelTarget<'_>,
    (event, request, at): (&Selected, &EventRequest, usize),
    (capture, types): (&Capture, KernelTypes<'_>),
    definition: &ProbeDefinition,
) -> Result<(), Reason> {
    let mut ty = event.event_type(capture.layout(at));
    let attr = &capture.attrs()[at].attr;
    if let (Format::Tracepoint(format), PERF_TYPE_TRACEPOINT) = (&mut ty.format, attr.type_) {
        // In a recording, the id in a sample's raw data says to which event the sample belongs.
        Arc::make_mut(format).id = attr.config as u32;
    }
    let format = ty.format.tracepoint();
    let filter = request.filter.as_ref().zip(format).map(|(text, format)| Filter::parse(text, format)).transpose()?;
    let selection = target.selection(format.map(Arc::as_ref), request)?;
    let mut of_arguments: BTreeMap<&[String], Vec<ProbedPlace>> = BTreeMap::new();
    for place in &definition.places {
        of_arguments.entry(&place.arguments).or_default().push(place.clone());
    }
    let name = ty.format.name();
    for places in of_arguments.into_values() {
        let definition = ProbeDefinition { places, ..definition.clone() };
        let hooked = Arc::new(HookedProbe::open(target.target, request, &definition)?);
        let loaded = kernel_target::load_with_types(types, |types| {
            let program = probe_program(&ty, &definition, filter.as_ref(), (&selection, types))?;
            writers.add(at, Occasion::Probe { name: &name, hooked: &hooked }, &program, capture.outputs(at))
        });
        loaded.map_err(|refusal| Reason(kernel_target::reason(&refusal)))?;
    }
    Ok(())
}

/// Reports how many events have no record, because the kernel could not run their programs.
pub fn report_missed(writers: &StringWriters) {
    let missed = writers.missed().into_values().max().unwrap_or(0);
    if missed != 0 {
        output::say(format_args!(
            "warning: at most {missed} events whose samples a BPF program writes are missing: they happened while another BPF \
             program was running on their CPU"
        ));
    }
}

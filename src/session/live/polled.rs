//! Events that a program opens and polls itself, for `perf.evlist`: the attrs of selectors, and the meaning of samples.

use std::sync::Arc;

use anyhow::{Result, bail};
use perf_prof_capture::PolledEvent;
use perf_prof_events::event::{Context, EventType, Format, Processes};
use perf_prof_format::{
    record::{SampleFormat, SampleLayout},
    spec::EventSpec,
    tracefs::EventFormat,
};
use perf_prof_symbols::{running_kernel::RunningKernel, symbol::Options};
use perf_prof_system::{
    clock::{Calibration, Clock},
    perf,
    tracefs::Tracefs,
};

use super::{select, unprivileged};
use crate::plan::Capture;

/// A selected event.
pub struct PolledSelection {
    /// The name that is shown.
    pub name: String,
    /// The bytes of the attr. It contains only what the selector says. The program adds the members of samples.
    pub attr: Vec<u8>,
    /// The filter of a tracepoint.
    pub filter: Option<String>,
    /// The system and the name of a tracepoint.
    pub tracepoint: Option<(String, String)>,
}

/// Resolves selectors. Fails for derived events, and for probes that would have to be defined.
pub fn resolve(events: Vec<EventSpec>) -> Result<Vec<PolledSelection>> {
    let capture = Capture { events, ..Capture::default() };
    let tracefs = unprivileged::tracefs(&capture)?;
    let selection = select::resolve(&capture, &tracefs)?;
    let mut found = Vec::new();
    for selected in selection.without_derived()? {
        let request = &selected.request;
        if request.definition.is_some() {
            bail!("{}: perf.evlist cannot define probes; use perf_prof.trace() for it", request.name);
        }
        let tracepoint = selected.format.tracepoint().map(|of| (of.system.to_string(), of.name.clone()));
        let mut attr = PolledEvent::plain_attr(request);
        if tracepoint.is_none() && !has_rate(&selected.spec) {
            // Until `config()`, such an event only counts. Some PMUs refuse to open events with a rate.
            attr.set_freq(0);
            attr.__bindgen_anon_1.sample_period = 0;
        }
        let (name, filter) = (request.name.clone(), selected.spec.filter.clone());
        found.push(PolledSelection { name, attr: perf::attr_bytes(&attr).to_vec(), filter, tracepoint });
    }
    Ok(found)
}

/// Returns whether a selector says how often its event is sampled. The rate is an attribute, or a term of the PMU.
fn has_rate(spec: &EventSpec) -> bool {
    spec.attrs.rate.is_some() || ["period=", "freq="].iter().any(|term| spec.selector.contains(term))
}

/// Returns the type of an event with this attr. `tracepoint` is the system and the name of a tracepoint.
pub fn event_type(name: &str, attr: &[u8], tracepoint: Option<(&str, &str)>) -> Result<EventType> {
    let attr = perf::attr_of_bytes(attr);
    let format = match tracepoint {
        Some((system, name)) => {
            let text = Tracefs::find()?.format(system, name)?;
            Format::Tracepoint(Arc::new(EventFormat::parse(system, &text)?))
        }
        None => Format::other(name),
    };
    let samples = SampleFormat {
        sample_type: attr.sample_type,
        read_format: attr.read_format,
        branch_sample_type: attr.branch_sample_type,
        regs_user: attr.sample_regs_user,
        regs_intr: attr.sample_regs_intr,
        period: perf::sample_period(&attr),
    };
    Ok(EventType { alias: None, format, layout: SampleLayout::from_format(samples), max_stack: None })
}

/// Returns a context for the events: names come from the running kernel and processes.
pub fn context() -> Result<Context> {
    let offset = Calibration::new(Clock::Perf)?.realtime_offset()?;
    let kernel = RunningKernel::new(Tracefs::find().unwrap_or_else(|_| Tracefs::at_usual_place()));
    Ok(Context::new(Box::new(kernel), offset).with_symbol_options(Options::default(), Processes::Ignored))
}

//! Events with a name in perf, and events that are described by the terms of a PMU.

use perf_prof_capture::{Config, PerfEvent, Sampling};
use perf_prof_format::{
    abi::*,
    spec::{NamedEvent, Rate, Term, named_event, number, similar_names, terms},
};

use super::{FREQUENCY, Machine, Source, SourceError, add_registers, options, pmu, system_calls::call_with_options};

/// A perf event that is a separate source in the C implementation.
const PAGE_FAULTS: &str = "page-faults";

/// Terms that every event accepts.
const OWN_TERMS: [&str; 3] = ["period", "freq", "name"];

/// Returns the source with this name. `option` is the text of the selector's first section.
pub(super) fn source(name: &str, option: Option<&str>, machine: &dyn Machine) -> Result<Source, SourceError> {
    if let Some(NamedEvent { kind, config }) = named_event(name) {
        let default = if is_frequent(kind, config) { FREQUENCY } else { Sampling::Period(1) };
        let event = PerfEvent { kind, config, ..PerfEvent::default() };
        let mut source = Source::new(name, event, default);
        source.request.samples.sample_type = members(kind, config);
        let option = option.unwrap_or_default();
        let has_options = options::are_in(option);
        match has_options {
            true => {
                if let Some(word) = options::apply(&mut source, name, option)? {
                    return Err(options::unknown(name, word));
                }
            }
            false => take_own_terms(&mut source, option)?,
        }
        if name == PAGE_FAULTS && (has_options || machine.has_c_members()) {
            add_registers(&mut source)?;
        }
        return Ok(source);
    }
    let Some(found) = machine.pmu(name)? else {
        return Err(call_with_options(name, option).unwrap_or_else(|| match option {
            Some(_) => SourceError::NoPmu { name: name.to_owned(), pmus: machine.pmus() },
            None => SourceError::Unknown { name: name.to_owned() },
        }));
    };
    let mut own = Vec::new();
    let mut of_pmu = Vec::new();
    for term in terms(option.unwrap_or_default()) {
        let list = if OWN_TERMS.contains(&term.name.as_str()) { &mut own } else { &mut of_pmu };
        list.push(term);
    }
    let configs = pmu::configs(&found, &of_pmu, &OWN_TERMS)?;
    let [config, config1, config2, config3] = configs;
    let event =
        PerfEvent { kind: found.kind, config, config1: Config::Number(config1), config2, config3, breakpoint: 0 };
    let mut source = Source::new(name, event, FREQUENCY);
    source.request.cpus = found.cpus;
    own.iter().try_for_each(|term| take_own_term(&mut source, term))?;
    Ok(source)
}

/// Returns whether the event happens so often that sampling each occurrence would be too much.
fn is_frequent(kind: u32, config: u64) -> bool {
    kind != PERF_TYPE_SOFTWARE || NamedEvent { kind, config }.is_clock()
}

/// Returns the members that samples of the event need to be useful.
fn members(kind: u32, config: u64) -> u64 {
    match (kind, config) {
        (
            PERF_TYPE_SOFTWARE,
            PERF_COUNT_SW_PAGE_FAULTS
            | PERF_COUNT_SW_PAGE_FAULTS_MIN
            | PERF_COUNT_SW_PAGE_FAULTS_MAJ
            | PERF_COUNT_SW_ALIGNMENT_FAULTS,
        ) => PERF_SAMPLE_ADDR,
        (PERF_TYPE_SOFTWARE, PERF_COUNT_SW_BPF_OUTPUT) => PERF_SAMPLE_RAW,
        _ => 0,
    }
}

/// Applies the terms in `text` to an event that accepts only [`OWN_TERMS`].
pub(super) fn take_own_terms(source: &mut Source, text: &str) -> Result<(), SourceError> {
    terms(text).iter().try_for_each(|term| take_own_term(source, term))
}

fn take_own_term(source: &mut Source, term: &Term) -> Result<(), SourceError> {
    let Term { name, value } = term;
    let text = value.clone().unwrap_or_default();
    let event = source.request.name.clone();
    let wrong = |why: &str| {
        let (term, value) = (name.clone(), text.clone());
        Err(SourceError::Value { event: event.clone(), term, value, why: why.to_owned() })
    };
    match name.as_str() {
        "period" => match Rate::period(&text) {
            Some(rate) => source.rate = Some(rate),
            None => return wrong(": it has to be a number above 0"),
        },
        "freq" => match Rate::frequency(&text) {
            Some(rate) => source.rate = Some(rate),
            None => return wrong(": it has to be a number above 0, or max"),
        },
        "name" if text.is_empty() => return wrong(": it has to be a name"),
        "name" => source.request.name = text,
        _ => {
            let near = similar_names(name, OWN_TERMS);
            let known = OWN_TERMS.map(str::to_owned).to_vec();
            return Err(SourceError::Term { event, term: name.clone(), near, known });
        }
    }
    Ok(())
}

/// Returns the value of a term as a number. A term without a value has the value 1.
pub(super) fn value(event: &str, term: &Term) -> Result<u64, SourceError> {
    let Some(text) = &term.value else { return Ok(1) };
    number(text).ok_or_else(|| SourceError::Value {
        event: event.to_owned(),
        term: term.name.clone(),
        value: text.clone(),
        why: ": it has to be a number such as 12 or 0x1f".to_owned(),
    })
}

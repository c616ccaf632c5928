//! Spans: events that consist of a begin event and an end event with the same key. This module does not know where samples
//! come from.
//!
//! A run opens or reads the begin and end events of a span besides the events that the user selected.
//! [`super::DerivingSink`] is between the pump of the run loop and the sink, and passes their samples to the engine of the
//! span. For each open span, the engine keeps the record of the begin in a table. If all events of a run are inputs of
//! spans, keys, `min=` and the filter are evaluated without the GIL. The sink is entered after the batch, if spans have
//! passed. Otherwise the sink is entered once per batch, as without spans, to keep the order of all events.
//!
//! A source such as `offcpu` is a span with a definition instead of two selected events. The definition contains a list of
//! rules, and functions that compute the fields. By a rule, a sample begins, ends, notes or drops the open span with its
//! key. Notes are samples between the begin and the end, such as the wakeup of a sleeping task. The table keeps them after
//! the record of the begin. The functions are called once for each span that is long enough. A filter over fields is applied
//! to the finished record. If events of a source happen in other tasks too, `-p` traces the whole machine, and selects spans
//! by their task.
//!
//! A loss drops all open spans: each of them may have ended, or begun again, among the lost events. The kernel reports a
//! loss late, when there is room in the ring again. Until then, events of other CPUs could end the spans. So the pump tells
//! the engine as soon as a ring starts to lose events, and no span ends until the loss is over. In a live run, the reader
//! sees that a ring is full. In a recording, the reader marks where the loss began, if the run has spans. A recording that
//! can only be read from front to back contains no marks.

mod engine;
mod error;
mod flushes;
mod key;
mod missing;
mod overdue;
mod rules;
mod runs;
mod scheduler;
mod table;
mod verdicts;

use std::sync::Arc;

use perf_prof_format::{
    spec::{FetchBase, ProbeArgument, SpanSpec, SpanStack, glob_matches},
    tracefs::{EventFormat, Field, Filter},
    value::ValueType,
};

use perf_prof_system::own_threads;

use self::error::name;
pub use self::{
    error::SpanError,
    flushes::{FlushChange, WAIT},
    key::{KeyPlan, Part as KeyPart},
    rules::{Action, Belongs, Change, FieldCondition, Keep, OpenCondition, Presence, SpanRule},
};
use super::{
    Derivation,
    source::{self, SourceDefinition},
};
use crate::event::{Context, EventType, Format, SPAN_SYSTEM, SpanCounts, SpanField, SpanFormat, SpanPart, SpanTask};

/// A selected span, without anything that depends on how its inputs are opened.
#[derive(Clone, Debug)]
pub struct Span {
    spec: SpanSpec,
    alias: Option<String>,
    inputs: Vec<Input>,
    definition: Option<&'static SourceDefinition>,
    fields: Vec<SpanField>,
    filters: Option<Filters>,
    /// The text of the conditions that a span must meet to be delivered, as the user typed them.
    conditions: String,
    /// Whether the user gave the option `str`, but the events of the span contain no strings.
    lacks_strings: bool,
    /// The names and patterns of the tasks whose spans are delivered. Empty if spans of all tasks are delivered, or if
    /// `filters` compares the names.
    comms: Vec<String>,
    /// All names and patterns of tasks that the user selected, even if `filters` compares them.
    task_names: Vec<String>,
}

/// The filter of a span.
#[derive(Clone, Debug)]
pub enum Filters {
    /// A filter for each pair of a begin event and an end event, at the index `begin * inputs + end`.
    OfPairs(Vec<Option<Filter>>),
    /// A filter over the fields of the span, applied to the record of the span.
    OfSpan(Filter),
}

/// An event that begins, ends or changes spans.
#[derive(Clone, Debug)]
struct Input {
    /// What its samples do, in this order.
    steps: Vec<Step>,
}

/// What a sample does to the open span with its key.
#[derive(Clone, Debug)]
pub struct Step {
    /// What the sample does.
    pub action: Action,
    /// The key.
    pub key: KeyPlan,
    /// Alternative keys. Of the open spans with `key` or one of these keys, the span that began last is meant.
    pub other_keys: Vec<KeyPlan>,
    /// If set, the step applies only to samples that pass this filter.
    pub when: Option<Filter>,
    /// If set, the open span with the key must meet this condition.
    pub after: Option<OpenCondition>,
    /// If set, several spans with the key may be open at once, and this function says which of them a sample can belong to.
    pub belongs: Option<Belongs>,
}

impl Step {
    fn new(rule: &SpanRule, format: &EventFormat) -> Result<Step, SpanError> {
        let plan = |key: &Vec<String>| KeyPlan::new(key.iter().map(String::as_str), format);
        let key = plan(&rule.key)?;
        let other_keys = rule.other_keys.iter().map(plan).collect::<Result<_, _>>()?;
        let wrong = |text: &str, error| SpanError::Filter {
            filter: text.to_owned(),
            error: Box::new(error),
            begin: name(format),
            end: name(format),
        };
        let when = rule.when.map(|text| Filter::parse(text, format).map_err(|error| wrong(text, error)));
        let SpanRule { action, after, belongs, .. } = *rule;
        Ok(Step { action, key, other_keys, when: when.transpose()?, after, belongs })
    }
}

impl Span {
    /// Prepares a span with these inputs. Each input comes with the indexes of its rules in [`SpanRule::all`].
    pub fn new(
        spec: &SpanSpec,
        filter: Option<&str>,
        alias: Option<String>,
        inputs: &[(Format, Vec<usize>)],
    ) -> Result<Span, SpanError> {
        const MEMBERS: [&str; 4] = ["duration", "open", "begin", "end"];
        let arguments = argument_names(spec);
        let mut names = spec.key.iter().map(|field| &field.begin).chain(&arguments);
        if let Some(name) = names.find(|name| MEMBERS.contains(&name.as_str())) {
            return Err(SpanError::Name(name.clone()));
        }
        let rules = SpanRule::all(spec)?;
        let format = |of: &Format| of.tracepoint().cloned().ok_or_else(|| SpanError::NotTracepoint(of.name()));
        let formats: Vec<(Arc<EventFormat>, &[usize])> =
            inputs.iter().map(|(of, own)| Ok((format(of)?, own.as_slice()))).collect::<Result<_, SpanError>>()?;
        let input = |(format, own): &(Arc<EventFormat>, &[usize])| {
            let is_for = |rule: &&SpanRule| rule.only_if.is_none_or(|condition| condition.is_met(format));
            let own = own.iter().filter_map(|&rule| rules.get(rule)).filter(is_for);
            let mut steps = own.map(|rule| Step::new(rule, format)).collect::<Result<Vec<_>, SpanError>>()?;
            if !spec.is_source() {
                // If an event both begins and ends spans, its sample ends the open span before it begins a new one.
                steps.sort_by_key(|step| step.action.begins());
            }
            Ok(Input { steps })
        };
        let prepared: Vec<Input> = formats.iter().map(input).collect::<Result<_, SpanError>>()?;
        let plans: Vec<&KeyPlan> = prepared.iter().flat_map(|input| &input.steps).map(|step| &step.key).collect();
        plans.windows(2).try_for_each(|plans| plans[0].check_same_types(plans[1]))?;
        let definition = source::source_of(spec)?;
        let (fields, filters) = match definition {
            Some(definition) => {
                let mut fields = definition.span_fields();
                if source::asks_for_strings(spec) || has_strings(&formats) {
                    fields.extend(definition.string_fields());
                }
                add_argument_fields(&arguments, &formats, &prepared, &mut fields);
                let filter = definition.filter(spec, filter, &fields)?;
                (fields, filter.map(Filters::OfSpan))
            }
            None => {
                let mut fields = key_fields(spec, &prepared);
                add_argument_fields(&arguments, &formats, &prepared, &mut fields);
                let filter = filter.map(|text| self::filters(text, &formats, &prepared)).transpose()?;
                (fields, filter.map(Filters::OfPairs))
            }
        };
        let comms = definition.map(|definition| definition.comms(spec)).unwrap_or_default();
        let named = spec.options.iter().filter(|option| option.name == "comm").flat_map(|option| option.values.clone());
        let task_names = if definition.is_some() { named.collect() } else { Vec::new() };
        let conditions = spec.conditions().into_iter().chain(filter.map(str::to_owned)).collect::<Vec<_>>().join(", ");
        let lacks_strings = source::asks_for_strings(spec) && !has_strings(&formats);
        Ok(Span {
            spec: spec.clone(),
            alias,
            inputs: prepared,
            definition,
            fields,
            filters,
            conditions,
            comms,
            lacks_strings,
            task_names,
        })
    }

    /// Makes all samples with a key belong to one span, because the caller knows that they do.
    pub fn of_one_span(mut self) -> Span {
        self.inputs.iter_mut().flat_map(|input| &mut input.steps).for_each(|step| step.belongs = None);
        self
    }

    /// Returns the event type of the span. `inputs` are the event types of its inputs.
    pub fn event_type(&self, inputs: &[EventType]) -> Result<EventType, SpanError> {
        let chain = if self.spec.stack == SpanStack::End { SpanPart::End } else { SpanPart::Begin };
        let task = self.definition.map_or(SpanTask::OfEnd, |definition| definition.task);
        let system = self.definition.map_or(SPAN_SYSTEM, |definition| definition.system);
        let name = (system, self.spec.name.as_str());
        let format = SpanFormat::new(name, inputs.to_vec(), chain, task, self.fields.clone())?
            .with_conditions(&self.conditions, self.spec.at_end);
        let strings = self.definition.into_iter().flat_map(SourceDefinition::string_fields).map(|field| field.name);
        let is_missing = |name: &String| self.fields.iter().all(|field| field.name != *name);
        let format = format.with_strings(strings.filter(is_missing).collect());
        let layout = format.layout();
        Ok(EventType { alias: self.alias.clone(), format: Format::Span(Arc::new(format)), layout, max_stack: None })
    }

    /// Returns what the user selected.
    pub fn spec(&self) -> &SpanSpec {
        &self.spec
    }

    /// Returns the steps of each input.
    pub fn steps(&self) -> impl Iterator<Item = &[Step]> {
        self.inputs.iter().map(|input| input.steps.as_slice())
    }

    /// Returns the filter; `None` if the span has none.
    pub fn filters(&self) -> Option<&Filters> {
        self.filters.as_ref()
    }

    /// Returns whether spans are selected by the name of their task, and not by a filter over a field with the name.
    pub fn selects_comms(&self) -> bool {
        !self.comms.is_empty()
    }

    /// Returns whether the user gave the option `str`, but the events of the span contain no strings.
    pub fn lacks_strings(&self) -> bool {
        self.lacks_strings
    }

    /// Returns whether the spans of this task are delivered: the task is selected, and is not a thread of perf-prof, whose
    /// events are left out.
    fn delivers_spans_of(&self, context: &Context, task: i32) -> bool {
        let is_own = || !context.is_recording() && own_threads::list().binary_search(&(task as u32)).is_ok();
        let is_left_out = || !self.interrupts() && (context.is_left_out(task) || is_own());
        !self.selects_tasks() || context.selects_spans_of(task) && !is_left_out()
    }

    /// Returns whether the spans are interrupts, which do not belong to the task that they interrupt.
    fn interrupts(&self) -> bool {
        self.definition.is_some_and(|definition| matches!(definition.task, SpanTask::Interrupted))
    }

    /// Returns whether a missing span of this task would have been delivered. `comm` returns the task's name.
    pub fn may_lack_spans(&self, context: &Context, task: i32, comm: impl FnOnce() -> Option<Vec<u8>>) -> bool {
        let names = &self.task_names;
        let is_named = || comm().is_none_or(|comm| matches_any(names, &comm));
        self.delivers_spans_of(context, task) && (names.is_empty() || is_named())
    }

    /// Returns the selector without its filter.
    pub fn name(&self) -> String {
        self.spec.to_string()
    }

    /// Returns whether spans are delivered only for selected tasks, although events of all tasks arrive. This holds for
    /// sources. A program that selected two events gets all spans, and can select tasks itself.
    fn selects_tasks(&self) -> bool {
        self.definition.is_some()
    }

    /// Starts to make spans. `event` is the result of [`Span::event_type`].
    pub fn start(
        &self,
        event: &EventType,
        counts: Arc<SpanCounts>,
        context: Arc<Context>,
    ) -> Option<Box<dyn Derivation>> {
        let Format::Span(format) = &event.format else { return None };
        Some(Box::new(engine::Engine::new(self.clone(), format.clone(), event.layout, counts, context)))
    }
}

fn matches_any(names: &[String], comm: &[u8]) -> bool {
    names.iter().any(|name| glob_matches(name, &String::from_utf8_lossy(comm)))
}

fn has_strings(formats: &[(Arc<EventFormat>, &[usize])]) -> bool {
    formats.iter().any(|(format, _)| !format.strings().is_empty())
}

/// Returns the fields of a span of selected events: the parts of its key.
fn key_fields(spec: &SpanSpec, inputs: &[Input]) -> Vec<SpanField> {
    let fields_of = |input: &Input| -> Vec<_> {
        let begin = input.steps.iter().find(|step| step.action.begins());
        begin.map_or_else(|| vec![None; spec.key.len()], |step| step.key.fields().map(Option::<&_>::cloned).collect())
    };
    let of_inputs: Vec<Vec<_>> = inputs.iter().map(fields_of).collect();
    let field = |at: usize, name: &str| SpanField::of_begin(name, of_inputs.iter().map(|of| of[at].clone()).collect());
    let own = spec.key.iter().enumerate().filter(|(_, key)| !key.begin.starts_with('_'));
    own.map(|(at, key)| field(at, &key.begin)).collect()
}

/// Returns the names of the arguments that the user gave to the probes that begin the span.
fn argument_names(spec: &SpanSpec) -> Vec<String> {
    let of_base = |base| match base {
        FetchBase::Parameter(name) => name,
        FetchBase::Argument(number) => format!("arg{number}"),
        FetchBase::ReturnValue | FetchBase::Kernel(_) => String::new(),
    };
    let name = |argument: &ProbeArgument| argument.name.clone().unwrap_or_else(|| of_base(argument.base()));
    spec.arguments.begin.iter().map(name).collect()
}

/// Adds a field for each argument of the probes that begin the span. If the span already has a field with the name of an
/// argument, adds no field: only the begin event then has the argument.
fn add_argument_fields(
    names: &[String],
    formats: &[(Arc<EventFormat>, &[usize])],
    inputs: &[Input],
    fields: &mut Vec<SpanField>,
) {
    for name in names {
        let of_input = |((format, _), input): (&(Arc<EventFormat>, &[usize]), &Input)| {
            let begins = input.steps.iter().any(|step| step.action.begins());
            format.field(name).filter(|field| begins && field.kind.value_type() != ValueType::Bytes).cloned()
        };
        let of_inputs: Vec<Option<Field>> = formats.iter().zip(inputs).map(of_input).collect();
        if of_inputs.iter().any(Option::is_some) && fields.iter().all(|field| field.name != *name) {
            fields.push(SpanField::of_begin(name, of_inputs));
        }
    }
}

/// Parses the filter for each pair of a begin event and an end event.
fn filters(
    text: &str,
    formats: &[(Arc<EventFormat>, &[usize])],
    inputs: &[Input],
) -> Result<Vec<Option<Filter>>, SpanError> {
    let mut filters = Vec::new();
    let does = |input: &Input, is: fn(Action) -> bool| input.steps.iter().any(|step| is(step.action));
    for ((begin, _), of_begin) in formats.iter().zip(inputs) {
        for ((end, _), of_end) in formats.iter().zip(inputs) {
            let wrong = |error| SpanError::Filter {
                filter: text.to_owned(),
                error: Box::new(error),
                end: name(end),
                begin: name(begin),
            };
            let is_pair = does(of_begin, Action::begins) && does(of_end, Action::ends);
            filters.push(is_pair.then(|| Filter::parse_for_span(text, end, begin).map_err(wrong)).transpose()?);
        }
    }
    Ok(filters)
}

#[cfg(test)]
mod tests;

//! Spans: an event that is made of one that begins it and one that ends it, with the same key. Does not know where the
//! samples come from.

mod engine;
mod key;
mod table;

use std::sync::Arc;

use thiserror::Error;

use self::key::KeyPlan;
use super::Derivation;
use crate::{
    event::{EventType, Format, SpanCounts, SpanFormat, SpanKey, SpanPart},
    spec::{SpanSpec, SpanStack, similar_names},
    tracefs::{EventFormat, Filter, FilterError, FormatError},
};

/// Which events of a span an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It begins spans.
    Begin,
    /// It ends spans.
    End,
    /// It does both: it ends one span, and then begins the next one.
    Both,
}

impl Role {
    fn begins(self) -> bool {
        self != Role::End
    }

    fn ends(self) -> bool {
        self != Role::Begin
    }

    /// Returns whether the samples of this input have call chains, if the span has this setting.
    pub fn has_chain(self, stack: SpanStack) -> bool {
        match stack {
            SpanStack::Inherit => false,
            SpanStack::Begin => self.begins(),
            SpanStack::End => self.ends(),
            SpanStack::Both => true,
        }
    }
}

/// What is wrong with a span.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpanError {
    /// An event does not have a field of the key.
    #[error("{event} has no field `{field}`, which is in the key of the span{}", near_names(.near))]
    NoField {
        /// The event.
        event: String,
        /// The field.
        field: String,
        /// Fields with a similar name.
        near: Vec<String>,
    },
    /// A field of the key is an array.
    #[error("the field `{0}` is an array, so it cannot be in the key of a span")]
    Array(String),
    /// The same part of the key is a number in one event and text in another.
    #[error("`{0}` and `{1}` cannot be the same part of a span's key: one is a number, the other is text")]
    Types(String, String),
    /// A field of the key has the name of a member of spans.
    #[error("`{0}` is a member of all spans, so it cannot be in the key")]
    Name(String),
    /// The filter.
    #[error("the filter `{filter}`: {error}\nthe fields: duration, those of {end}, and those of {begin} as begin.NAME")]
    Filter {
        /// The filter's text.
        filter: String,
        /// What is wrong with it.
        error: Box<FilterError>,
        /// The event that ends the span.
        end: String,
        /// The event that begins the span.
        begin: String,
    },
    /// An input that is not a tracepoint.
    #[error("{0} is not a tracepoint, so it cannot begin or end a span")]
    NotTracepoint(String),
    /// The format of the span.
    #[error(transparent)]
    Format(#[from] FormatError),
}

fn near_names(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

impl SpanError {
    fn no_field(field: &str, format: &EventFormat) -> SpanError {
        let names = format.fields().iter().map(|field| field.name.as_str());
        let near = similar_names(field, names).into_iter().map(str::to_owned).collect();
        SpanError::NoField { event: name(format), field: field.to_owned(), near }
    }
}

fn name(format: &EventFormat) -> String {
    format!("{}:{}", format.system, format.name)
}

/// A span that was selected, with everything that does not depend on how its inputs are opened.
#[derive(Clone, Debug)]
pub struct Span {
    spec: SpanSpec,
    alias: Option<String>,
    inputs: Vec<Input>,
    key: Vec<SpanKey>,
    /// For each input that begins spans and each that ends them: the filter of these spans, at index
    /// `begin * inputs + end`.
    filters: Option<Vec<Option<Filter>>>,
}

#[derive(Clone, Debug)]
struct Input {
    role: Role,
    /// The keys of the spans that this input begins and ends.
    begin: Option<KeyPlan>,
    end: Option<KeyPlan>,
}

impl Span {
    /// Prepares a span with these inputs.
    pub fn new(
        spec: &SpanSpec,
        filter: Option<&str>,
        alias: Option<String>,
        inputs: &[(Format, Role)],
    ) -> Result<Span, SpanError> {
        const MEMBERS: [&str; 4] = ["duration", "open", "begin", "end"];
        if let Some(field) = spec.key.iter().find(|field| MEMBERS.contains(&field.begin.as_str())) {
            return Err(SpanError::Name(field.begin.clone()));
        }
        let format = |of: &Format| of.tracepoint().cloned().ok_or_else(|| SpanError::NotTracepoint(of.name()));
        let formats: Vec<(Arc<EventFormat>, Role)> =
            inputs.iter().map(|(of, role)| Ok((format(of)?, *role))).collect::<Result<_, SpanError>>()?;
        let begin_key = |format: &EventFormat| KeyPlan::new(spec.key.iter().map(|key| key.begin.as_str()), format);
        let end_key = |format: &EventFormat| KeyPlan::new(spec.key.iter().map(|key| key.end.as_str()), format);
        let input = |(format, role): &(Arc<EventFormat>, Role)| {
            let begin = role.begins().then(|| begin_key(format)).transpose()?;
            let end = role.ends().then(|| end_key(format)).transpose()?;
            Ok(Input { role: *role, begin, end })
        };
        let prepared: Vec<Input> = formats.iter().map(input).collect::<Result<_, SpanError>>()?;
        let plans: Vec<&KeyPlan> = prepared.iter().flat_map(|input| [&input.begin, &input.end]).flatten().collect();
        plans.windows(2).try_for_each(|plans| plans[0].check_same_types(plans[1]))?;
        let filters = filter.map(|text| filters(text, &formats)).transpose()?;
        let fields_of = |input: &Input| -> Vec<_> {
            let none = || vec![None; spec.key.len()];
            input.begin.as_ref().map_or_else(none, |plan| plan.fields().map(Option::<&_>::cloned).collect())
        };
        let fields: Vec<Vec<_>> = prepared.iter().map(fields_of).collect();
        let key = spec.key.iter().enumerate().map(|(at, key)| SpanKey {
            name: key.begin.clone(),
            fields: fields.iter().map(|fields| fields[at].clone()).collect(),
        });
        let key = key.filter(|key| !key.name.starts_with('_')).collect();
        Ok(Span { spec: spec.clone(), alias, inputs: prepared, key, filters })
    }

    /// Returns the event type of the span. `inputs` are the event types of its inputs.
    pub fn event_type(&self, inputs: &[EventType]) -> Result<EventType, SpanError> {
        let chain = if self.spec.stack == SpanStack::End { SpanPart::End } else { SpanPart::Begin };
        let format = SpanFormat::new(&self.spec.name, inputs.to_vec(), chain, self.key.clone())?;
        let layout = format.layout();
        Ok(EventType { alias: self.alias.clone(), format: Format::Span(Arc::new(format)), layout, max_stack: None })
    }

    /// Returns the text of the selector up to the filter.
    pub fn name(&self) -> String {
        self.spec.to_string()
    }

    /// Starts to make spans. `event` is the event type that [`Span::event_type`] returned.
    pub fn start(&self, event: &EventType, counts: Arc<SpanCounts>) -> Option<Box<dyn Derivation>> {
        let Format::Span(format) = &event.format else { return None };
        Some(Box::new(engine::Engine::new(self.clone(), format.clone(), event.layout, counts)))
    }
}

/// Parses the filter for all pairs of events.
fn filters(text: &str, inputs: &[(Arc<EventFormat>, Role)]) -> Result<Vec<Option<Filter>>, SpanError> {
    let mut filters = Vec::new();
    for (begin, of_begin) in inputs {
        for (end, of_end) in inputs {
            let wrong = |error| SpanError::Filter {
                filter: text.to_owned(),
                error: Box::new(error),
                end: name(end),
                begin: name(begin),
            };
            let is_pair = of_begin.begins() && of_end.ends();
            filters.push(is_pair.then(|| Filter::parse_for_span(text, end, begin).map_err(wrong)).transpose()?);
        }
    }
    Ok(filters)
}

#[cfg(test)]
mod tests;

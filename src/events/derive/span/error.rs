//! What is wrong with a selected span.

use perf_prof_format::{
    spec::{did_you_mean, similar_names},
    tracefs::{EventFormat, FilterError, FormatError},
};
use thiserror::Error;

/// What is wrong with a span.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpanError {
    /// An event does not have a field of the key.
    #[error("{event} has no field `{field}`, which is in the key of the span{}", did_you_mean(.near))]
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
    /// A field of the key, or an argument of a probe, has the name of a member of spans.
    #[error("`{0}` is a member of all spans, so it cannot be in the key")]
    Name(String),
    /// The filter is wrong.
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
    /// The filter of a source is wrong.
    #[error("the filter `{filter}`: {error}\nthe fields of {source_name}: {fields}")]
    SourceFilter {
        /// The filter's text.
        filter: String,
        /// What is wrong with it.
        error: Box<FilterError>,
        /// The name of the source.
        source_name: String,
        /// Its fields.
        fields: String,
    },
    /// A source does not have an option.
    #[error("{source_name} has no option `{option}`{}\nits options: min=TIME, {known}", did_you_mean(.near))]
    Option {
        /// The name of the source.
        source_name: String,
        /// The option.
        option: String,
        /// Options with a similar name.
        near: Vec<String>,
        /// All options.
        known: String,
    },
    /// A value of an option that is not a number.
    #[error("{option}={value}: `{option}` of {source_name} has to be a number")]
    OptionValue {
        /// The name of the source.
        source_name: String,
        /// The option.
        option: String,
        /// The value.
        value: String,
    },
    /// A value that the field of a source never has.
    #[error("`{field}` of {source_name} is never `{value}`{}{known}", did_you_mean(.near))]
    UnknownValue {
        /// The name of the source.
        source_name: String,
        /// The field.
        field: String,
        /// The value, which may be a pattern.
        value: String,
        /// Values with a similar name.
        near: Vec<String>,
        /// A line with all values, if there are few.
        known: String,
    },
    /// A source that is not defined.
    #[error("there is no source `{0}`")]
    Source(String),
    /// An input that is not a tracepoint.
    #[error("{0} is not a tracepoint, so it cannot begin or end a span")]
    NotTracepoint(String),
    /// The format of the span cannot be made.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl SpanError {
    pub(super) fn no_field(field: &str, format: &EventFormat) -> SpanError {
        let names = format.fields().iter().map(|field| field.name.as_str());
        let near = similar_names(field, names);
        SpanError::NoField { event: name(format), field: field.to_owned(), near }
    }
}

pub(super) fn name(format: &EventFormat) -> String {
    format!("{}:{}", format.system, format.name)
}

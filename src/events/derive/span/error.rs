//! The errors of selected spans.

use perf_prof_format::{
    spec::{attribute_meant_by, did_you_mean, similar_names},
    tracefs::{EventFormat, FilterError, FormatError},
};
use thiserror::Error;

/// Why a selected span is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpanError {
    /// The key names a field that the event lacks.
    #[error("{event} has no field `{field}`, which is in the key of the span{}", did_you_mean(.near))]
    NoField {
        /// The name of the event.
        event: String,
        /// The name of the field.
        field: String,
        /// Fields with a similar name.
        near: Vec<String>,
    },
    /// The key names a field that is an array.
    #[error("the field `{0}` is an array, so it cannot be in the key of a span")]
    Array(String),
    /// A part of the key is a number in one event and text in another event.
    #[error("`{0}` and `{1}` cannot be the same part of a span's key: one is a number, the other is text")]
    Types(String, String),
    /// A field of the key, or an argument of a probe, has the same name as a member of all spans.
    #[error("all spans have a field `{0}`, so no field of the key and no argument of the probe can have this name")]
    Name(String),
    /// The filter of a span of selected events is not valid.
    #[error("the filter `{filter}`: {error}\n{}", attribute_or_fields(.filter, .begin, .end))]
    Filter {
        /// The filter's text.
        filter: String,
        /// Why it is not valid.
        error: Box<FilterError>,
        /// The name of the event that ends the span.
        end: String,
        /// The name of the event that begins the span.
        begin: String,
    },
    /// The filter of a source is not valid.
    #[error("the filter `{filter}`: {error}\nthe fields of {source_name}: {fields}")]
    SourceFilter {
        /// The filter's text.
        filter: String,
        /// Why it is not valid.
        error: Box<FilterError>,
        /// The name of the source.
        source_name: String,
        /// The names of its fields.
        fields: String,
    },
    /// The spans of the source have a field only with the option `str`.
    #[error(
        "{source_name} has `{field}` only with the option `str`: write `{source_name}/{written}/`; a recording contains it only if it \
             was recorded with `str`"
    )]
    NeedsStrings {
        /// The name of the source.
        source_name: String,
        /// The name of the field.
        field: String,
        /// What the user has to write after the name of the source.
        written: String,
    },
    /// The source has no such option.
    #[error("{source_name} has no option `{option}`{}\nits options: min=TIME, {known}", did_you_mean(.near))]
    Option {
        /// The name of the source.
        source_name: String,
        /// The name of the option.
        option: String,
        /// Options with a similar name.
        near: Vec<String>,
        /// The names of all options.
        known: String,
    },
    /// The value of an option has to be a number.
    #[error("{option}={value}: `{option}` of {source_name} has to be a number")]
    OptionValue {
        /// The name of the source.
        source_name: String,
        /// The name of the option.
        option: String,
        /// The value.
        value: String,
    },
    /// The field of a source can never contain this value.
    #[error("`{field}` of {source_name} is never `{value}`{}{known}", did_you_mean(.near))]
    UnknownValue {
        /// The name of the source.
        source_name: String,
        /// The name of the field.
        field: String,
        /// The value, which may be a pattern.
        value: String,
        /// Values with a similar name.
        near: Vec<String>,
        /// A line with all values; empty if there are many.
        known: String,
    },
    /// There is no such source.
    #[error("there is no source `{0}`")]
    Source(String),
    /// An input is not a tracepoint.
    #[error("{0} is not a tracepoint, so it cannot begin or end a span")]
    NotTracepoint(String),
    /// The fields of the span do not form a valid format.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Says which fields a filter can have, or if it is an attribute, that attributes come after the filter.
fn attribute_or_fields(filter: &str, begin: &str, end: &str) -> String {
    const OF_SPANS: [&str; 5] = ["key", "min", "max-open", "nested", "open"];
    let (name, value) = filter.split_once('=').unwrap_or((filter, ""));
    // `name==value` compares a field with a value, so no attribute is meant.
    let of_spans = OF_SPANS.into_iter().find(|attribute| *attribute == name.trim() && !value.starts_with('='));
    match of_spans.or_else(|| attribute_meant_by(filter)) {
        Some(attribute) => format!(
            "the first section is the filter, which may be empty; attributes come after it: span:NAME={begin}..{end}//{attribute}/"
        ),
        None => format!("the fields: duration, those of {end}, and those of {begin} as begin.NAME"),
    }
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

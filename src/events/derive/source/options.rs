//! The options of a source: the filters that they stand for.

use perf_prof_format::spec::{SpanOption, is_glob, similar_names};

use super::{
    STRINGS,
    definition::{COMM, SourceDefinition},
};
use crate::{
    derive::span::SpanError,
    event::{SpanField, SpanFieldKind},
};

impl SourceDefinition {
    /// Returns the filter that an option stands for; `None` if it stands for none. `fields` are the fields of the spans.
    pub(super) fn option(&self, option: &SpanOption, fields: &[SpanField]) -> Result<Option<String>, SpanError> {
        let SpanOption { name, values } = option;
        if let (Some(flag), true) = (self.flags.iter().find(|flag| flag.name == name), values.is_empty()) {
            return Ok((!flag.filter.is_empty()).then(|| format!("({})", flag.filter)));
        }
        let is_own = |field: &&SpanField| field.name == *name && (self.has_field(name) || self.has_string_field(name));
        let field = fields.iter().find(is_own).filter(|_| !values.is_empty());
        let Some(field) = field else {
            if self.has_string_field(name) && !values.is_empty() {
                return Err(self.needs_strings(name.clone(), format!("{STRINGS}, {name}={}", values.join("|"))));
            }
            let flags = self.flags.iter().map(|flag| flag.name.to_owned());
            let of_fields = self.fields.iter().map(|field| format!("{}=VALUE|VALUE", field.name));
            let of_task = (!self.has_name_of_task()).then(|| format!("{COMM}=VALUE|VALUE"));
            let known: Vec<String> = flags.chain(of_fields).chain(of_task).collect();
            let names = self.flags.iter().map(|flag| flag.name).chain(self.fields.iter().map(|field| field.name));
            let names = names.chain([COMM]);
            let near = similar_names(name, names);
            let known = known.join(", ");
            return Err(SpanError::Option { source_name: self.name.to_owned(), option: name.clone(), near, known });
        };
        let of_value = |value: &String| match field.kind {
            SpanFieldKind::Text | SpanFieldKind::UserText if is_glob(value) => Ok(format!("{name} ~ \"{value}\"")),
            SpanFieldKind::Text | SpanFieldKind::UserText => Ok(format!("{name} == \"{value}\"")),
            _ if is_number(value) => Ok(format!("{name} == {value}")),
            _ => Err(SpanError::OptionValue {
                source_name: self.name.to_owned(),
                option: name.clone(),
                value: value.clone(),
            }),
        };
        let comparisons: Vec<String> = values.iter().map(of_value).collect::<Result<_, _>>()?;
        Ok(Some(format!("({})", comparisons.join(" || "))))
    }

    fn has_field(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name == name)
    }

    /// Returns whether the option `str` adds a field with this name.
    pub(super) fn has_string_field(&self, name: &str) -> bool {
        self.string_fields().any(|field| field.name == name)
    }

    /// Returns the error that the spans have a field only with the option `str`. `written` is what the user has to write after the
    /// name of the source.
    pub(super) fn needs_strings(&self, field: String, written: String) -> SpanError {
        SpanError::NeedsStrings { source_name: self.name.to_owned(), field, written }
    }
}

/// Returns whether a filter would read this text as a number.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16).is_ok());
    digits.unwrap_or_else(|| text.parse::<i64>().is_ok())
}

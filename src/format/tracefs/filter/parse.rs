//! Parser for the text of a filter. Does not evaluate filters.

use super::{Comparison, Data, FilterError, Node, TextComparison};
use crate::{
    tracefs::{EventFormat, Field, FieldKind, UNKNOWN_NUMBER, print_fmt::ctype::IntType},
    value::ValueType,
};

/// The deepest allowed nesting of parentheses and `!`. The text of [`FilterError::TooDeep`] states the same number.
const DEEPEST: usize = 64;

/// The comparison operators. The first operator that matches is used, so `<=` comes before `<`, and `>=` before `>`.
const OPERATORS: [&str; 8] = ["==", "!=", "<=", ">=", "<", ">", "&", "~"];

/// The events whose fields a filter compares.
#[derive(Clone, Copy)]
pub(super) enum Scope<'a> {
    /// The samples of an event.
    Event(&'a EventFormat),
    /// The samples that end and begin a span, and the span's duration.
    Pair { end: &'a EventFormat, begin: &'a EventFormat },
    /// The record of a span, and the samples that end and begin the span.
    Span { span: &'a EventFormat, end: &'a EventFormat, begin: &'a EventFormat },
}

impl<'a> Scope<'a> {
    /// Returns a field by a name that is valid only in filters of spans.
    fn field_of_span(self, name: &str) -> Option<(Data, &'a Field)> {
        let (Scope::Pair { end, begin } | Scope::Span { end, begin, .. }) = self else { return None };
        if let Some(name) = name.strip_prefix("begin.") {
            return begin.field(name).map(|field| (Data::Begin, field));
        }
        let Scope::Span { span, .. } = self else { return None };
        match name.strip_prefix("end.") {
            Some(name) => end.field(name).map(|field| (Data::Sample, field)),
            None => span.fields().iter().find(|field| field.name == name).map(|field| (Data::Span, field)),
        }
    }

    /// Returns the event whose fields need no prefix such as `begin.`: the event that ends a span, or the only event.
    fn last(self) -> &'a EventFormat {
        let (Scope::Event(last) | Scope::Pair { end: last, .. } | Scope::Span { end: last, .. }) = self;
        last
    }
}

/// Parses a filter for these events.
pub(super) fn filter(text: &str, scope: Scope<'_>) -> Result<Node, FilterError> {
    let mut parser = Parser { rest: text.trim(), scope };
    let node = parser.any(0)?;
    match parser.rest {
        "" => Ok(node),
        rest if rest.starts_with('|') => Err(parser.expected("`||` and a whole comparison, or `NAME=VALUE|VALUE`,")),
        _ => Err(parser.expected("`&&` or `||`")),
    }
}

struct Parser<'a> {
    rest: &'a str,
    scope: Scope<'a>,
}

impl<'a> Parser<'a> {
    fn expected(&self, expected: &'static str) -> FilterError {
        FilterError::Expected { expected, rest: self.rest.to_owned() }
    }

    /// If the rest of the text starts with `token`, consumes the token and returns true. Otherwise returns false.
    fn consume(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    /// Parses comparisons joined by `||` and `&&`; `&&` binds more tightly.
    fn any(&mut self, depth: usize) -> Result<Node, FilterError> {
        let mut nodes = vec![self.all(depth)?];
        while self.consume("||") {
            nodes.push(self.all(depth)?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Any(nodes) })
    }

    fn all(&mut self, depth: usize) -> Result<Node, FilterError> {
        let mut nodes = vec![self.one(depth)?];
        while self.consume("&&") {
            nodes.push(self.one(depth)?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::All(nodes) })
    }

    fn one(&mut self, depth: usize) -> Result<Node, FilterError> {
        if depth > DEEPEST {
            return Err(FilterError::TooDeep);
        }
        if self.consume("!") {
            return Ok(Node::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.consume("(") {
            let node = self.any(depth + 1)?;
            return if self.consume(")") { Ok(node) } else { Err(self.expected("`)`")) };
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Node, FilterError> {
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let name = self.word(is_name);
        if name.is_empty() {
            return Err(self.expected("a field's name"));
        }
        let Some(operator) = OPERATORS.into_iter().find(|operator| self.consume(operator)) else {
            let is_assignment = self.rest.starts_with('=');
            let operator = if is_assignment { "`==`" } else { "an operator (== != < <= > >= & ~)" };
            return Err(self.expected(operator));
        };
        let (value, quoted) = self.value()?;
        if let (Scope::Pair { .. }, "duration") = (self.scope, name) {
            let duration = NumberAt { name, ty: IntType::new(8, false), offset: 0, unknown: None };
            return compare_number(Data::Span, &duration, operator, value, quoted);
        }
        if let Some((data, field)) = self.scope.field_of_span(name) {
            return compare_field(data, field, operator, value, quoted);
        }
        // As in the kernel, the event's own fields are searched first, then the fields that all events have.
        if let Some(field) = self.scope.last().fields().iter().find(|field| field.name == name) {
            return compare_field(Data::Sample, field, operator, value, quoted);
        }
        match name {
            "cpu" | "CPU" => {
                let wrong = |kind| FilterError::Value { field: name.to_owned(), value: value.to_owned(), kind };
                let value = unsigned(value).ok_or_else(|| wrong("a number"))?;
                let comparison = number_comparison(name, operator)?;
                return Ok(Node::Cpu { comparison, value });
            }
            "comm" | "COMM" => {
                let why = "a sample does not contain the thread's name";
                return Err(FilterError::NotRecorded { field: name.to_owned(), why });
            }
            _ => {}
        }
        match self.scope.last().common_fields().iter().find(|field| field.name == name) {
            Some(field) => compare_field(Data::Sample, field, operator, value, quoted),
            None => Err(FilterError::Field { field: name.to_owned() }),
        }
    }

    fn word(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c: char| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    /// Parses a value. Returns the value without its quotes, and whether it had quotes.
    fn value(&mut self) -> Result<(&'a str, bool), FilterError> {
        for quote in ['"', '\''] {
            if let Some(inner) = self.rest.strip_prefix(quote) {
                let Some((value, rest)) = inner.split_once(quote) else {
                    return Err(self.expected("a value with a closing quote"));
                };
                self.rest = rest.trim_start();
                return Ok((value, true));
            }
        }
        let value = self.word(|c| !c.is_whitespace() && !"()&|".contains(c));
        if value.is_empty() { Err(self.expected("a value")) } else { Ok((value, false)) }
    }
}

fn compare_field(data: Data, field: &Field, operator: &str, value: &str, quoted: bool) -> Result<Node, FilterError> {
    let name = || field.name.clone();
    match field.kind.value_type() {
        ValueType::Str => {
            let comparison = match operator {
                "==" => TextComparison::Equal,
                "!=" => TextComparison::NotEqual,
                "~" => TextComparison::Matches,
                _ => return Err(FilterError::Operator { field: name(), operator: operator.to_owned(), kind: "text" }),
            };
            let Some(extent) = field.extent() else { return Err(FilterError::Field { field: name() }) };
            Ok(Node::Text { data, extent, comparison, value: value.to_owned() })
        }
        ValueType::Int if field.kind.is_address() && field.type_text.contains("char") && quoted => {
            Err(FilterError::NotRecorded {
                field: name(),
                why: "it holds the address of a string, and the string itself is not in the sample",
            })
        }
        ValueType::Int | ValueType::Bool => {
            let ty = IntType::new(field.size as u8, field.signed);
            let unknown = (field.kind == FieldKind::NumberIfKnown).then_some(UNKNOWN_NUMBER);
            let number = NumberAt { name: &field.name, ty, offset: field.offset, unknown };
            compare_number(data, &number, operator, value, quoted)
        }
        ValueType::Bytes | ValueType::Words => Err(FilterError::NotRecorded { field: name(), why: "it is an array" }),
    }
}

/// A number in the data.
struct NumberAt<'a> {
    name: &'a str,
    ty: IntType,
    offset: usize,
    unknown: Option<u64>,
}

/// Returns the node that compares a number in the data with `value`.
fn compare_number(
    data: Data,
    &NumberAt { name, ty, offset, unknown }: &NumberAt<'_>,
    operator: &str,
    value: &str,
    quoted: bool,
) -> Result<Node, FilterError> {
    let comparison = number_comparison(name, operator)?;
    let wrong = || FilterError::Value {
        field: name.to_owned(),
        value: value.to_owned(),
        kind: "a number (no quotes; a minus sign only for signed fields)",
    };
    let number = match (quoted, ty.signed) {
        (true, _) => None,
        (false, true) => signed(value),
        (false, false) => unsigned(value),
    };
    Ok(Node::Number { data, ty, offset, comparison, value: number.ok_or_else(wrong)?, unknown })
}

fn number_comparison(field: &str, operator: &str) -> Result<Comparison, FilterError> {
    Ok(match operator {
        "==" => Comparison::Equal,
        "!=" => Comparison::NotEqual,
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::Greater,
        ">=" => Comparison::GreaterOrEqual,
        "&" => Comparison::Bits,
        _ => {
            let (field, operator) = (field.to_owned(), operator.to_owned());
            return Err(FilterError::Operator { field, operator, kind: "a number" });
        }
    })
}

/// Parses an unsigned number by the rules of `kstrtoull`: decimal, hexadecimal after `0x`, octal after `0`.
fn unsigned(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    if digits.starts_with('+') { None } else { u64::from_str_radix(digits, radix).ok() }
}

/// Parses a number that may have a minus sign, by the rules of `kstrtoull` for the digits. Returns the number in two's
/// complement.
fn signed(text: &str) -> Option<u64> {
    match text.strip_prefix('-') {
        Some(digits) => unsigned(digits).filter(|&number| number <= 1 << 63).map(u64::wrapping_neg),
        None => unsigned(text).filter(|&number| number < 1 << 63),
    }
}

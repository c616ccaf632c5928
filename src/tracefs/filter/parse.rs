//! The text of a filter to its parts.

use super::{Comparison, FilterError, Node, TextComparison};
use crate::tracefs::{ElementType, EventFormat, Field, FieldKind, print_fmt::ctype::IntType};

/// Parentheses in one another, at most.
const DEEPEST: usize = 64;

/// Longer operators first.
const OPERATORS: [&str; 8] = ["==", "!=", "<=", ">=", "<", ">", "&", "~"];

pub(super) fn filter(text: &str, format: &EventFormat) -> Result<Node, FilterError> {
    let mut parser = Parser { rest: text.trim(), format };
    let node = parser.any(0)?;
    match parser.rest {
        "" => Ok(node),
        _ => Err(parser.expected("`&&` or `||`")),
    }
}

struct Parser<'a> {
    rest: &'a str,
    format: &'a EventFormat,
}

impl<'a> Parser<'a> {
    fn expected(&self, expected: &'static str) -> FilterError {
        FilterError::Expected { expected, rest: self.rest.to_owned() }
    }

    /// Takes `token` if it comes next.
    fn takes(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    /// `&&` binds closer than `||`.
    fn any(&mut self, depth: usize) -> Result<Node, FilterError> {
        let mut nodes = vec![self.all(depth)?];
        while self.takes("||") {
            nodes.push(self.all(depth)?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Any(nodes) })
    }

    fn all(&mut self, depth: usize) -> Result<Node, FilterError> {
        let mut nodes = vec![self.one(depth)?];
        while self.takes("&&") {
            nodes.push(self.one(depth)?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::All(nodes) })
    }

    fn one(&mut self, depth: usize) -> Result<Node, FilterError> {
        if depth > DEEPEST {
            return Err(FilterError::TooDeep);
        }
        if self.takes("!") {
            return Ok(Node::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.takes("(") {
            let node = self.any(depth + 1)?;
            return if self.takes(")") { Ok(node) } else { Err(self.expected("`)`")) };
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Node, FilterError> {
        let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let name = self.word(is_name);
        if name.is_empty() {
            return Err(self.expected("a field's name"));
        }
        let Some(operator) = OPERATORS.into_iter().find(|operator| self.takes(operator)) else {
            return Err(self.expected("an operator (== != < <= > >= & ~)"));
        };
        let (value, quoted) = self.value()?;
        // As in the kernel: the event's own fields, then what every event has.
        if let Some(field) = self.format.fields().iter().find(|field| field.name == name) {
            return of_field(field, operator, value, quoted);
        }
        match name {
            "cpu" | "CPU" => {
                let wrong = |kind| FilterError::Value { field: name.to_owned(), value: value.to_owned(), kind };
                let value = unsigned(value).ok_or_else(|| wrong("a number"))?;
                let comparison = number_comparison(name, operator)?;
                return Ok(Node::Cpu { comparison, value });
            }
            "comm" | "COMM" => {
                let why = "the task's name is no part of the sample";
                return Err(FilterError::NotRecorded { field: name.to_owned(), why });
            }
            _ => {}
        }
        match self.format.common_fields().iter().find(|field| field.name == name) {
            Some(field) => of_field(field, operator, value, quoted),
            None => Err(FilterError::Field { field: name.to_owned() }),
        }
    }

    fn word(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c: char| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    /// A value, and whether it stood in quotes.
    fn value(&mut self) -> Result<(&'a str, bool), FilterError> {
        for quote in ['"', '\''] {
            if let Some(inner) = self.rest.strip_prefix(quote) {
                let Some((value, rest)) = inner.split_once(quote) else { return Err(self.expected("a closing quote")) };
                self.rest = rest.trim_start();
                return Ok((value, true));
            }
        }
        let value = self.word(|c| !c.is_whitespace() && !"()&|".contains(c));
        if value.is_empty() { Err(self.expected("a value")) } else { Ok((value, false)) }
    }
}

fn of_field(field: &Field, operator: &str, value: &str, quoted: bool) -> Result<Node, FilterError> {
    let name = || field.name.clone();
    match field.kind {
        FieldKind::Array(ElementType::Char)
        | FieldKind::DataLoc(ElementType::Char)
        | FieldKind::RelLoc(ElementType::Char) => {
            let comparison = match operator {
                "==" => TextComparison::Equal,
                "!=" => TextComparison::NotEqual,
                "~" => TextComparison::Matches,
                _ => return Err(FilterError::Operator { field: name(), operator: operator.to_owned(), kind: "text" }),
            };
            let Some(extent) = field.extent() else { return Err(FilterError::Field { field: name() }) };
            Ok(Node::Text { extent, comparison, value: value.to_owned() })
        }
        FieldKind::Pointer if field.type_text.contains("char") && quoted => Err(FilterError::NotRecorded {
            field: name(),
            why: "it is the address of a text, which has not been copied",
        }),
        FieldKind::Int { .. } | FieldKind::Bool | FieldKind::Pointer => {
            let comparison = number_comparison(&field.name, operator)?;
            let wrong = || FilterError::Value { field: name(), value: value.to_owned(), kind: "a number" };
            let number = match (quoted, field.signed) {
                (true, _) => None,
                (false, true) => signed(value),
                (false, false) => unsigned(value),
            };
            let ty = IntType::new(field.size as u8, field.signed);
            Ok(Node::Number { ty, offset: field.offset, comparison, value: number.ok_or_else(wrong)? })
        }
        FieldKind::Array(_) | FieldKind::DataLoc(_) | FieldKind::RelLoc(_) => {
            Err(FilterError::NotRecorded { field: name(), why: "it is an array" })
        }
    }
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
            return Err(FilterError::Operator { field, operator, kind: "numbers" });
        }
    })
}

/// A number as `kstrtoull` reads it: decimal, `0x` hexadecimal, `0` octal.
fn unsigned(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    if digits.starts_with('+') { None } else { u64::from_str_radix(digits, radix).ok() }
}

/// The same with a sign, as two's complement.
fn signed(text: &str) -> Option<u64> {
    match text.strip_prefix('-') {
        Some(digits) => unsigned(digits).filter(|&number| number <= 1 << 63).map(u64::wrapping_neg),
        None => unsigned(text).filter(|&number| number < 1 << 63),
    }
}

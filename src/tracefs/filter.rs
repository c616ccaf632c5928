//! The kernel's trace filters, for samples that were recorded before: `pid > 1000 && (comm ~ "my*" || !(prio & 0x8))`.
//!
//! Grammar and meaning are those of `kernel/trace/trace_events_filter.c`. Knows nothing of where samples come from.

mod parse;

use thiserror::Error;

use super::{EventFormat, field::Extent, field::up_to_nul, print_fmt::ctype::IntType};
use crate::spec::glob_matches;

/// A filter for the samples of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Node);

/// A part of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    /// A field against a number; of a signed type, both are.
    Number {
        ty: IntType,
        offset: usize,
        comparison: Comparison,
        value: u64,
    },
    /// A field that holds text.
    Text {
        extent: Extent,
        comparison: TextComparison,
        value: String,
    },
    /// The CPU that the sample was taken on.
    Cpu {
        comparison: Comparison,
        value: u64,
    },
}

/// How numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// Some of these bits are set.
    Bits,
}

/// How texts are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextComparison {
    Equal,
    NotEqual,
    Matches,
}

/// What is wrong with a filter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    /// There is no such field.
    #[error("no field `{field}`")]
    Field {
        /// As typed.
        field: String,
    },
    /// Something else was expected.
    #[error("{expected} is expected {}", before(.rest))]
    Expected {
        /// What.
        expected: &'static str,
        /// What stands there.
        rest: String,
    },
    /// The operator does not fit the field.
    #[error("`{operator}` does not compare {kind}, which `{field}` is")]
    Operator {
        /// The field.
        field: String,
        /// The operator.
        operator: String,
        /// What the field holds.
        kind: &'static str,
    },
    /// The value does not fit the field.
    #[error("`{value}` is not {kind}, which `{field}` is")]
    Value {
        /// The field.
        field: String,
        /// The value.
        value: String,
        /// What the field holds.
        kind: &'static str,
    },
    /// What the kernel compares with is not in a recording.
    #[error("`{field}` cannot be compared in a recording: {why}")]
    NotRecorded {
        /// The field.
        field: String,
        /// Why not.
        why: &'static str,
    },
    /// Too many parentheses.
    #[error("too many parentheses in one another")]
    TooDeep,
}

fn before(rest: &str) -> String {
    if rest.is_empty() { "at the end".to_owned() } else { format!("before `{rest}`") }
}

impl Filter {
    /// Parses a filter for samples of this event.
    pub fn parse(text: &str, format: &EventFormat) -> Result<Filter, FilterError> {
        parse::filter(text, format).map(Filter)
    }

    /// Whether a sample with this raw data, taken on this CPU, passes. One that ends before a field that is asked for does
    /// not.
    #[inline]
    pub fn passes(&self, raw: &[u8], cpu: Option<u32>) -> bool {
        self.0.holds(raw, cpu).unwrap_or(false)
    }
}

impl Node {
    fn holds(&self, raw: &[u8], cpu: Option<u32>) -> Option<bool> {
        match self {
            Node::All(nodes) => {
                for node in nodes {
                    if !node.holds(raw, cpu)? {
                        return Some(false);
                    }
                }
                Some(true)
            }
            Node::Any(nodes) => {
                for node in nodes {
                    if node.holds(raw, cpu)? {
                        return Some(true);
                    }
                }
                Some(false)
            }
            Node::Not(node) => node.holds(raw, cpu).map(|holds| !holds),
            Node::Number { ty, offset, comparison, value } => {
                Some(comparison.holds(ty.load(raw, *offset)?, *value, ty.signed))
            }
            Node::Cpu { comparison, value } => Some(comparison.holds(cpu?.into(), *value, false)),
            Node::Text { extent, comparison, value } => {
                let text = up_to_nul(extent.bytes(raw)?);
                Some(match comparison {
                    TextComparison::Equal => text == value.as_bytes(),
                    TextComparison::NotEqual => text != value.as_bytes(),
                    TextComparison::Matches => glob_matches(value, &String::from_utf8_lossy(text)),
                })
            }
        }
    }
}

impl Comparison {
    #[inline]
    fn holds(self, left: u64, right: u64, signed: bool) -> bool {
        // With the top bit turned, signed numbers compare as unsigned ones do.
        let turn = if signed { 1 << 63 } else { 0 };
        let order = (left ^ turn).cmp(&(right ^ turn));
        match self {
            Comparison::Equal => order.is_eq(),
            Comparison::NotEqual => order.is_ne(),
            Comparison::Less => order.is_lt(),
            Comparison::LessOrEqual => order.is_le(),
            Comparison::Greater => order.is_gt(),
            Comparison::GreaterOrEqual => order.is_ge(),
            Comparison::Bits => left & right != 0,
        }
    }
}

#[cfg(test)]
mod tests;

//! The kernel's trace filters, applied to recorded samples: `pid > 1000 && (comm ~ "my*" || !(prio & 0x8))`.
//!
//! The filters have the same grammar and meaning as in `kernel/trace/trace_events_filter.c`.

mod parse;

use thiserror::Error;

use self::parse::Scope;
use super::{EventFormat, Extent, field::up_to_nul, print_fmt::ctype::IntType};
use crate::spec::glob_matches;

/// A filter for the samples of one event, or for spans. A span has two samples: the sample that begins it and the
/// sample that ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Node);

/// A node of a filter's expression tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// All of these nodes hold.
    All(Vec<Node>),
    /// At least one of these nodes holds.
    Any(Vec<Node>),
    /// This node does not hold.
    Not(Box<Node>),
    /// Compares a field with a number. If `ty` is signed, the field and the number are compared as signed numbers.
    Number {
        /// The data that contains the field.
        data: Data,
        /// The field's type.
        ty: IntType,
        /// The field's offset in the data.
        offset: usize,
        /// How the field is compared with the number.
        comparison: Comparison,
        /// The number, in two's complement.
        value: u64,
        /// The number that the field contains if its value is not known. For a field with this number, neither the
        /// comparison nor its opposite holds.
        unknown: Option<u64>,
    },
    /// Compares a text field with a string.
    Text {
        /// The data that contains the field.
        data: Data,
        /// The position of the text in the data.
        extent: Extent,
        /// How the text is compared with the string.
        comparison: TextComparison,
        /// The string or pattern.
        value: String,
    },
    /// Compares the number of the CPU on which the sample was taken.
    Cpu {
        /// How the CPU is compared with the number.
        comparison: Comparison,
        /// The number.
        value: u64,
    },
}

/// The data that a comparison reads. The number of the variant is an index into the parameter `data` of `Node::holds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// The raw data of the sample. For a span, it is the raw data of the sample that ends the span.
    Sample,
    /// The raw data of the sample that begins the span.
    Begin,
    /// The data of the span itself: its duration (8 bytes), or the raw data of the span's record.
    Span,
}

/// A comparison of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// At least one of the given bits is set.
    Bits,
}

/// A comparison of a text with a string or a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextComparison {
    /// The text is the string.
    Equal,
    /// The text is not the string.
    NotEqual,
    /// The text matches the pattern.
    Matches,
}

/// An error in the text of a filter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    /// The event does not have the field.
    #[error("the event has no field `{field}`")]
    Field {
        /// The field's name as the user typed it.
        field: String,
    },
    /// The next part of the text is not what the grammar expects there.
    #[error("expected {expected} {}", position(.rest))]
    Expected {
        /// A description of the text that the grammar allows there.
        expected: &'static str,
        /// The text from the unexpected part to the end of the filter.
        rest: String,
    },
    /// The operator cannot be used with the field.
    #[error("`{operator}` cannot be used with `{field}`, which holds {kind}")]
    Operator {
        /// The field.
        field: String,
        /// The operator.
        operator: String,
        /// The type of the field's value.
        kind: &'static str,
    },
    /// The value cannot be compared with the field.
    #[error("`{value}` is not a valid value for the field `{field}`: give {kind}")]
    Value {
        /// The field.
        field: String,
        /// The value.
        value: String,
        /// The type of the field's value.
        kind: &'static str,
    },
    /// The field cannot be used in a filter on recorded samples.
    #[error("`{field}` cannot be used in a filter on a recording: {why}")]
    NotRecorded {
        /// The field.
        field: String,
        /// The reason.
        why: &'static str,
    },
    /// The expression is nested too deep.
    #[error("parentheses and `!` are nested more than 64 levels deep")]
    TooDeep,
}

fn position(rest: &str) -> String {
    if rest.is_empty() { "at the end of the filter".to_owned() } else { format!("at `{rest}`") }
}

impl Filter {
    /// Parses a filter for samples of the event that `format` describes.
    pub fn parse(text: &str, format: &EventFormat) -> Result<Filter, FilterError> {
        parse::filter(text, Scope::Event(format)).map(Filter)
    }

    /// Parses a filter for spans that end with the event `end` and begin with the event `begin`. In the filter,
    /// `duration` is the duration of the span in ns, and `begin.NAME` is a field of the event that begins the span. All
    /// other names are fields of the event that ends the span.
    pub fn parse_for_span(text: &str, end: &EventFormat, begin: &EventFormat) -> Result<Filter, FilterError> {
        parse::filter(text, Scope::Pair { end, begin }).map(Filter)
    }

    /// Parses a filter for records of spans that end with the event `end` and begin with the event `begin`. A name is
    /// looked up first among the span's own fields, and then among the fields of the event that ends the span.
    /// `begin.NAME` and `end.NAME` are fields of the two events.
    pub fn parse_for_span_record(
        text: &str,
        span: &EventFormat,
        end: &EventFormat,
        begin: &EventFormat,
    ) -> Result<Filter, FilterError> {
        parse::filter(text, Scope::Span { span, end, begin }).map(Filter)
    }

    /// Returns whether the record of a span passes the filter. `span` is the raw data of the record, `end` and `begin`
    /// are the raw data of the span's samples, and `cpu` is the CPU on which the span ended.
    pub fn passes_span_record(&self, span: &[u8], end: &[u8], begin: &[u8], cpu: Option<u32>) -> bool {
        self.0.holds(&[end, begin, span], cpu).unwrap_or(false)
    }

    /// Returns whether a span passes the filter. `end` and `begin` are the raw data of the span's samples, and `cpu` is
    /// the CPU on which the span ended.
    pub fn passes_span(&self, end: &[u8], begin: &[u8], duration: u64, cpu: Option<u32>) -> bool {
        self.0.holds(&[end, begin, &duration.to_ne_bytes()], cpu).unwrap_or(false)
    }

    /// Returns whether a sample passes the filter. `raw` is the sample's raw data, and `cpu` is the CPU on which the
    /// sample was taken. If the result depends on a field whose value is not known, or that the raw data does not
    /// contain because it ends too early, the sample does not pass.
    #[inline]
    pub fn passes(&self, raw: &[u8], cpu: Option<u32>) -> bool {
        self.0.holds(&[raw, &[], &[]], cpu).unwrap_or(false)
    }

    /// Returns false if the fields that are known show that the sample with this raw data does not pass. `is_known` returns
    /// whether the value of the field at an offset is known.
    pub fn may_pass(&self, raw: &[u8], is_known: &dyn Fn(usize) -> bool) -> bool {
        self.0.holds_if_known(raw, is_known).unwrap_or(true)
    }

    /// Returns whether the filter reads a field that starts at this offset of the sample's raw data.
    pub fn reads(&self, offset: usize) -> bool {
        self.0.reads(offset)
    }

    /// Returns the filter as a tree.
    pub fn node(&self) -> &Node {
        &self.0
    }

    /// Returns the texts and patterns with which the filter compares text fields of the sample's raw data, each with
    /// the offset of its field.
    pub fn texts(&self) -> Vec<(usize, &str)> {
        let mut texts = Vec::new();
        self.0.add_texts(&mut texts);
        texts
    }

    /// Returns the offset of the field in the sample's raw data, if the filter reads one field and nothing else.
    pub fn only_place(&self) -> Option<usize> {
        self.0.only_place()
    }
}

/// Joins the results of several nodes. `decisive` is the result that decides alone: false for "and", true for "or".
/// Returns `decisive` if one of the nodes has this result. Otherwise returns `None` if a node has no result, because
/// its field has no value. Otherwise returns the opposite of `decisive`.
fn joined(nodes: &[Node], decisive: bool, holds: impl Fn(&Node) -> Option<bool>) -> Option<bool> {
    let mut answer = Some(!decisive);
    for node in nodes {
        match holds(node) {
            Some(holds) if holds == decisive => return Some(decisive),
            Some(_) => {}
            None => answer = None,
        }
    }
    answer
}

impl Node {
    fn reads(&self, place: usize) -> bool {
        match self {
            Node::All(nodes) | Node::Any(nodes) => nodes.iter().any(|node| node.reads(place)),
            Node::Not(node) => node.reads(place),
            Node::Number { data, offset, .. } => *data == Data::Sample && *offset == place,
            Node::Text { data, extent, .. } => *data == Data::Sample && extent.offset() == place,
            Node::Cpu { .. } => false,
        }
    }

    fn add_texts<'a>(&'a self, texts: &mut Vec<(usize, &'a str)>) {
        match self {
            Node::All(nodes) | Node::Any(nodes) => nodes.iter().for_each(|node| node.add_texts(texts)),
            Node::Not(node) => node.add_texts(texts),
            Node::Text { data: Data::Sample, extent, value, .. } => texts.push((extent.offset(), value)),
            Node::Text { .. } | Node::Number { .. } | Node::Cpu { .. } => {}
        }
    }

    fn only_place(&self) -> Option<usize> {
        match self {
            Node::All(nodes) | Node::Any(nodes) => {
                let mut places = nodes.iter().map(Node::only_place);
                let first = places.next()??;
                places.all(|place| place == Some(first)).then_some(first)
            }
            Node::Not(node) => node.only_place(),
            Node::Number { data: Data::Sample, offset, .. } => Some(*offset),
            Node::Text { data: Data::Sample, extent, .. } => Some(extent.offset()),
            Node::Number { .. } | Node::Text { .. } | Node::Cpu { .. } => None,
        }
    }

    fn holds(&self, data: &[&[u8]; 3], cpu: Option<u32>) -> Option<bool> {
        match self {
            Node::All(nodes) => joined(nodes, false, |node| node.holds(data, cpu)),
            Node::Any(nodes) => joined(nodes, true, |node| node.holds(data, cpu)),
            Node::Not(node) => node.holds(data, cpu).map(|holds| !holds),
            Node::Number { data: of, ty, offset, comparison, value, unknown } => {
                let number = ty.load(data[*of as usize], *offset).filter(|number| Some(*number) != *unknown)?;
                Some(comparison.holds(number, *value, ty.signed))
            }
            Node::Cpu { comparison, value } => Some(comparison.holds(cpu?.into(), *value, false)),
            Node::Text { data: of, extent, comparison, value } => {
                let text = up_to_nul(extent.bytes(data[*of as usize])?);
                Some(match comparison {
                    TextComparison::Equal => text == value.as_bytes(),
                    TextComparison::NotEqual => text != value.as_bytes(),
                    TextComparison::Matches => glob_matches(value, &String::from_utf8_lossy(text)),
                })
            }
        }
    }

    /// Like `holds`, but a comparison with a field that is not known has no result.
    fn holds_if_known(&self, raw: &[u8], is_known: &dyn Fn(usize) -> bool) -> Option<bool> {
        let place = match self {
            Node::All(nodes) => return joined(nodes, false, |node| node.holds_if_known(raw, is_known)),
            Node::Any(nodes) => return joined(nodes, true, |node| node.holds_if_known(raw, is_known)),
            Node::Not(node) => return node.holds_if_known(raw, is_known).map(|holds| !holds),
            Node::Number { data: Data::Sample, offset, .. } => *offset,
            Node::Text { data: Data::Sample, extent, .. } => extent.offset(),
            Node::Number { .. } | Node::Text { .. } | Node::Cpu { .. } => return None,
        };
        if is_known(place) { self.holds(&[raw, &[], &[]], None) } else { None }
    }
}

impl Comparison {
    #[inline]
    fn holds(self, left: u64, right: u64, signed: bool) -> bool {
        // If the top bit of signed numbers is inverted, they can be compared as unsigned numbers.
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

//! Makes tests of the filters of selectors and aggregators.

use perf_prof_format::tracefs::{Extent, FilterData, FilterNode, IntType, TextComparison};

use super::{
    Unsuited,
    read::{Reader, fixed},
};
use crate::expression::{CONTEXT, Glob, Number, Sign, Test, Text, TextTest};
use crate::instruction::{Place, Register};

/// Makes expressions of the values that a filter compares.
pub(super) trait Compared {
    /// Returns the number at an offset of the data.
    fn number(&mut self, data: FilterData, offset: usize, ty: IntType) -> Result<Number, Unsuited>;

    /// Returns the test of the text at a place in the data.
    fn text(&mut self, data: FilterData, extent: Extent, test: (TextComparison, &str)) -> Result<Test, Unsuited>;
}

/// Reads from the record of one event.
impl Compared for Reader<'_> {
    fn number(&mut self, data: FilterData, offset: usize, ty: IntType) -> Result<Number, Unsuited> {
        if data == FilterData::Sample { self.field(offset, ty) } else { Err(Unsuited::TwoEvents) }
    }

    fn text(&mut self, data: FilterData, extent: Extent, test: (TextComparison, &str)) -> Result<Test, Unsuited> {
        match (data, fixed(Some(extent))) {
            (FilterData::Sample, Some(text)) => text_test(text, test),
            (FilterData::Sample, None) => {
                let field = self.format.fields().iter().find(|field| field.offset == extent.offset());
                Err(Unsuited::Length(field.map(|field| field.name.clone()).unwrap_or_default()))
            }
            _ => Err(Unsuited::TwoEvents),
        }
    }
}

/// Returns the test that a node of a filter stands for.
pub(super) fn test(node: &FilterNode, of: &mut dyn Compared) -> Result<Test, Unsuited> {
    let mut all = |nodes: &[FilterNode]| nodes.iter().map(|node| test(node, of)).collect::<Result<Vec<_>, _>>();
    match node {
        FilterNode::All(nodes) => Ok(Test::All(all(nodes)?)),
        FilterNode::Any(nodes) => Ok(Test::Any(all(nodes)?)),
        FilterNode::Not(node) => Ok(Test::Not(Box::new(test(node, of)?))),
        FilterNode::Number { unknown: Some(_), .. } => Err(Unsuited::UnknownNumber),
        FilterNode::Number { data, ty, offset, comparison, value, unknown: None } => {
            let sign = if ty.signed { Sign::Signed } else { Sign::Unsigned };
            let number = of.number(*data, *offset, *ty)?;
            Ok(Test::Number { number, sign, comparison: *comparison, value: *value })
        }
        &FilterNode::Cpu { comparison, value } => {
            Ok(Test::Number { number: Number::Cpu, sign: Sign::Unsigned, comparison, value })
        }
        FilterNode::Text { data, extent, comparison, value } => of.text(*data, *extent, (*comparison, value)),
    }
}

pub(super) fn text_test(text: Text, (comparison, value): (TextComparison, &str)) -> Result<Test, Unsuited> {
    let (array, size): (Place, usize) = match text {
        Text::Field { offset, size } => (CONTEXT.at(offset), size),
        Text::Kept { offset, size } => (Register::Frame.at(offset), size),
        Text::Comm => return Err(Unsuited::Member("_comm".to_owned())),
    };
    let equal = || {
        // A value that is longer than the field, or contains a NUL, is never equal to the field.
        let is_possible = value.len() <= size && !value.contains('\0');
        let test = TextTest::Equal(value.as_bytes().to_vec());
        if is_possible { Test::Text { array, size, test } } else { Test::Any(Vec::new()) }
    };
    match comparison {
        TextComparison::Equal => Ok(equal()),
        TextComparison::NotEqual => Ok(Test::Not(Box::new(equal()))),
        TextComparison::Matches if !value.contains(['*', '?', '[']) && value.is_ascii() => Ok(equal()),
        TextComparison::Matches => {
            let glob = Glob::parse(value).ok_or_else(|| Unsuited::Pattern(value.to_owned()))?;
            Ok(Test::Text { array, size, test: TextTest::Matches(glob) })
        }
    }
}

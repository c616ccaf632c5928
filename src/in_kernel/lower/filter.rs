//! The filters of selectors and of aggregators.

use perf_prof_format::tracefs::{Extent, FilterData, FilterNode, TextComparison};

use super::{
    Unsuited,
    read::{Reader, fixed},
};
use crate::expression::{Glob, Number, Sign, Test, Text, TextTest};

/// Returns the test that a node of a filter makes.
pub(super) fn test(node: &FilterNode, reader: &Reader<'_>) -> Result<Test, Unsuited> {
    let all = |nodes: &[FilterNode]| nodes.iter().map(|node| test(node, reader)).collect::<Result<Vec<_>, _>>();
    match node {
        FilterNode::All(nodes) => Ok(Test::All(all(nodes)?)),
        FilterNode::Any(nodes) => Ok(Test::Any(all(nodes)?)),
        FilterNode::Not(node) => Ok(Test::Not(Box::new(test(node, reader)?))),
        FilterNode::Number { data: FilterData::Sample, ty, offset, comparison, value } => {
            let (number, sign) = (reader.field(*offset, *ty)?, if ty.signed { Sign::Signed } else { Sign::Unsigned });
            Ok(Test::Number { number, sign, comparison: *comparison, value: *value })
        }
        &FilterNode::Cpu { comparison, value } => {
            Ok(Test::Number { number: Number::Cpu, sign: Sign::Unsigned, comparison, value })
        }
        FilterNode::Text { data: FilterData::Sample, extent, comparison, value } => {
            text(*extent, *comparison, value, reader)
        }
        FilterNode::Number { .. } | FilterNode::Text { .. } => Err(Unsuited::TwoEvents),
    }
}

fn text(extent: Extent, comparison: TextComparison, value: &str, reader: &Reader<'_>) -> Result<Test, Unsuited> {
    let Some(Text::Field { offset, size }) = fixed(Some(extent)) else {
        let field = reader.format.fields().iter().find(|field| field.offset == extent.offset());
        return Err(Unsuited::Length(field.map(|field| field.name.clone()).unwrap_or_default()));
    };
    let equal = || {
        // No text in a record is longer than its field, or has a NUL.
        let is_possible = value.len() <= size && !value.contains('\0');
        let test = TextTest::Equal(value.as_bytes().to_vec());
        if is_possible { Test::Text { offset, size, test } } else { Test::Any(Vec::new()) }
    };
    match comparison {
        TextComparison::Equal => Ok(equal()),
        TextComparison::NotEqual => Ok(Test::Not(Box::new(equal()))),
        TextComparison::Matches if !value.contains(['*', '?', '[']) && value.is_ascii() => Ok(equal()),
        TextComparison::Matches => {
            let glob = Glob::parse(value).ok_or_else(|| Unsuited::Pattern(value.to_owned()))?;
            Ok(Test::Text { offset, size, test: TextTest::Matches(glob) })
        }
    }
}

//! The table of an aggregator as Arrow columns: first the parts of the key, then the amounts.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, Decimal128Array, DictionaryArray, Int64Array, RecordBatch, RecordBatchOptions,
    UInt64Array, types::Int32Type,
};
use arrow_schema::{ArrowError, Field, Schema};

use crate::aggregate::{Amount, Groups, Key, KeyPart};

/// The columns with percentiles of a distribution.
const PERCENTILES: [(&str, f64); 3] = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0)];

/// The number of decimal digits that the largest sums have.
const DIGITS: u8 = 38;

/// Returns the rows of a table as a batch of columns.
pub fn of_groups(groups: &Groups) -> Result<RecordBatch, ArrowError> {
    let rows: Vec<(Key, Amount)> = groups.iter().collect();
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    for (at, name) in groups.definition().keys.iter().enumerate() {
        columns.push((name.clone(), key(&rows, at)?));
    }
    let amounts = || rows.iter().map(|(_, amount)| amount);
    let is_distribution = matches!(groups.total(), Amount::Distribution(_));
    if is_distribution {
        let buckets = groups.buckets();
        let of = |value: &dyn Fn(&crate::aggregate::Distribution) -> Option<i128>| {
            integers(amounts().map(|amount| match amount {
                Amount::Distribution(distribution) => value(distribution),
                Amount::Sum(_) => None,
            }))
        };
        columns.push(("count".to_owned(), of(&|distribution| Some(distribution.count.into()))?));
        columns.push(("sum".to_owned(), of(&|distribution| Some(distribution.sum))?));
        columns.push(("min".to_owned(), of(&|distribution| distribution.min)?));
        columns.push(("max".to_owned(), of(&|distribution| distribution.max)?));
        for (name, percent) in PERCENTILES {
            columns.push((name.to_owned(), of(&|distribution| distribution.percentile(percent, buckets))?));
        }
    } else {
        let name = if groups.definition().value.is_some() { "sum" } else { "count" };
        columns.push((name.to_owned(), integers(amounts().map(|amount| Some(amount.weight())))?));
    }
    // Rename a column of amounts if a part of the key has the same name.
    let keys = groups.definition().keys.len();
    for at in keys..columns.len() {
        while columns[..keys].iter().any(|(name, _)| *name == columns[at].0) {
            columns[at].0.insert(0, '_');
        }
    }
    let field = |(name, array): &(String, ArrayRef)| Field::new(name, array.data_type().clone(), true);
    let schema = Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(schema, columns.into_iter().map(|(_, array)| array).collect(), &options)
}

/// Returns the column of one part of the key: numbers, bytes or text. If the values are of different kinds, all become
/// text.
fn key(rows: &[(Key, Amount)], at: usize) -> Result<ArrayRef, ArrowError> {
    let parts = || rows.iter().map(|(key, _)| key.get(at).unwrap_or(&KeyPart::Missing));
    let all = |is: fn(&KeyPart) -> bool| parts().all(|part| is(part) || *part == KeyPart::Missing);
    if all(|part| matches!(part, KeyPart::Number(_))) && parts().any(|part| *part != KeyPart::Missing) {
        return integers(parts().map(|part| if let KeyPart::Number(number) = part { Some(*number) } else { None }));
    }
    if all(|part| matches!(part, KeyPart::Bytes(_))) && parts().any(|part| *part != KeyPart::Missing) {
        let bytes = parts().map(|part| if let KeyPart::Bytes(bytes) = part { Some(bytes) } else { None });
        return Ok(Arc::new(BinaryArray::from_iter(bytes)));
    }
    let texts: Vec<Option<String>> = parts()
        .map(|part| match part {
            KeyPart::Missing => None,
            KeyPart::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            other => Some(other.text().into_owned()),
        })
        .collect();
    Ok(Arc::new(texts.iter().map(Option::as_deref).collect::<DictionaryArray<Int32Type>>()))
}

/// Returns a column of integers, in the smallest type that fits all of them.
fn integers(numbers: impl Iterator<Item = Option<i128>> + Clone) -> Result<ArrayRef, ArrowError> {
    if let Ok(numbers) = narrow::<i64>(numbers.clone()) {
        return Ok(Arc::new(Int64Array::from(numbers)));
    }
    if let Ok(numbers) = narrow::<u64>(numbers.clone()) {
        return Ok(Arc::new(UInt64Array::from(numbers)));
    }
    Ok(Arc::new(numbers.collect::<Decimal128Array>().with_precision_and_scale(DIGITS, 0)?))
}

fn narrow<T: TryFrom<i128>>(numbers: impl Iterator<Item = Option<i128>>) -> Result<Vec<Option<T>>, T::Error> {
    numbers.map(|number| number.map(T::try_from).transpose()).collect()
}

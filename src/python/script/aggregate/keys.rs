//! Converts keys and amounts of aggregators to Python objects, and Python objects to keys and amounts.

use perf_prof_events::aggregate::{Amount, Buckets, Distribution, Key, KeyPart};
use perf_prof_format::value;
use pyo3::{
    exceptions::{PyKeyError, PyTypeError, PyValueError},
    prelude::*,
    types::{PyBytes, PyInt, PyString, PyTuple},
};

use super::{super::event, distribution::PyDistribution};

/// Returns a key as a Python object: its part if there is only one part, otherwise a tuple of its parts.
pub fn key_object<'py>(py: Python<'py>, key: &[KeyPart]) -> PyResult<Bound<'py, PyAny>> {
    if let [only] = key {
        return part_object(py, only);
    }
    let parts = key.iter().map(|part| part_object(py, part)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(py, parts)?.into_any())
}

fn part_object<'py>(py: Python<'py>, part: &KeyPart) -> PyResult<Bound<'py, PyAny>> {
    match part {
        KeyPart::Number(number) => Ok(number.into_pyobject(py)?.into_any()),
        KeyPart::Text(text) => event::text(py, text),
        KeyPart::Bytes(bytes) => Ok(PyBytes::new(py, bytes).into_any()),
        KeyPart::Words(bytes) => Ok(PyTuple::new(py, value::words(bytes).collect::<Vec<u64>>())?.into_any()),
        KeyPart::Missing => Ok(py.None().into_bound(py)),
    }
}

/// Returns the key for a Python object; `None` if no table can contain this key. `names` are the names of the parts.
pub fn key_from(object: &Bound<'_, PyAny>, names: &[String]) -> PyResult<Option<Key>> {
    if names.len() == 1 {
        return Ok(part_from(object)?.map(|part| vec![part]));
    }
    let parts = object.cast::<PyTuple>().ok().filter(|parts| parts.len() == names.len());
    let Some(parts) = parts else {
        let names = names.join(", ");
        return Err(PyKeyError::new_err(format!("a key of this table is a tuple with one item for each of ({names})")));
    };
    parts.iter().map(|part| part_from(&part)).collect()
}

fn part_from(object: &Bound<'_, PyAny>) -> PyResult<Option<KeyPart>> {
    if let Ok(number) = object.cast::<PyInt>() {
        let number = number.extract::<i128>().ok();
        let fits = |number: &i128| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(number);
        return Ok(number.filter(fits).map(KeyPart::Number));
    }
    if let Ok(text) = object.cast::<PyString>() {
        let encoded = match text.to_str() {
            Ok(text) => text.as_bytes().into(),
            // The str contains lone surrogates, which stand for bytes that are not UTF-8 (PEP 383). This encoding
            // returns the original bytes.
            Err(_) => text.call_method1("encode", ("utf-8", "surrogateescape"))?.extract::<Vec<u8>>()?.into(),
        };
        return Ok(Some(KeyPart::Text(encoded)));
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(KeyPart::Bytes(bytes.as_bytes().into())));
    }
    if let Ok(words) = object.cast::<PyTuple>() {
        let words: Vec<u64> = words.extract()?;
        return Ok(Some(KeyPart::Words(words.iter().flat_map(|word| word.to_ne_bytes()).collect())));
    }
    Ok(object.is_none().then_some(KeyPart::Missing))
}

/// Returns an amount as a Python object. For a distribution, `unit` is the unit or the name of its values.
pub fn amount_object<'py>(
    py: Python<'py>,
    amount: Amount,
    buckets: Buckets,
    unit: &str,
) -> PyResult<Bound<'py, PyAny>> {
    match amount {
        Amount::Sum(sum) => Ok(sum.into_pyobject(py)?.into_any()),
        Amount::Distribution(of) => Ok(Bound::new(py, PyDistribution::new(of, buckets, unit))?.into_any()),
    }
}

/// A distribution in a pickle: count, events without a value, sum, min, max, below, above, and each range with its count.
type DistributionParts = (u64, u64, i128, Option<i128>, Option<i128>, u64, u64, Vec<(u32, u64)>);

/// Returns an amount in the form that a pickle contains.
pub fn amount_parts<'py>(py: Python<'py>, amount: &Amount) -> PyResult<Bound<'py, PyAny>> {
    match amount {
        Amount::Sum(sum) => Ok(sum.into_pyobject(py)?.into_any()),
        Amount::Distribution(of) => {
            let ranges: Vec<(u32, u64)> = of.ranges().collect();
            let parts: DistributionParts =
                (of.count, of.without_value, of.sum, of.min, of.max, of.below, of.above, ranges);
            Ok(parts.into_pyobject(py)?.into_any())
        }
    }
}

/// Returns the amount for the form that a pickle contains.
pub fn amount_from(parts: &Bound<'_, PyAny>) -> PyResult<Amount> {
    if let Ok(sum) = parts.extract::<i128>() {
        return Ok(Amount::Sum(sum));
    }
    let (count, without_value, sum, min, max, below, above, ranges): DistributionParts = parts.extract()?;
    let mut of = Distribution::default();
    (of.count, of.without_value, of.sum, of.min, of.max) = (count, without_value, sum, min, max);
    (of.below, of.above) = (below, above);
    for (range, count) in ranges {
        // Without this check, a damaged pickle could make the process use much memory.
        if range > Buckets::MAX_RANGE {
            return Err(PyValueError::new_err(
                "the pickle of this distribution is damaged: it contains a range that does not exist",
            ));
        }
        of.add_to_range(range, count);
    }
    Ok(Amount::Distribution(of))
}

/// Parses the argument `by`: None, a name, or several names.
pub fn names(by: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<String>> {
    names_of("by", by)
}

/// Parses an argument that contains names: None, a name, or several names.
pub fn names_of(argument: &str, by: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<String>> {
    let Some(by) = by.filter(|by| !by.is_none()) else { return Ok(Vec::new()) };
    if let Ok(name) = by.extract::<String>() {
        return Ok(vec![name]);
    }
    let wrong = |_| PyTypeError::new_err(format!("{argument} is the name of a field, or a tuple or list of names"));
    by.extract::<Vec<String>>().map_err(wrong)
}

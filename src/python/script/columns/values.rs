//! The values of columns as Python objects: for rows, and for numpy if a column has no buffer.

use arrow_array::{
    Array, ArrayRef, RecordBatch,
    cast::AsArray,
    types::{
        Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type, UInt16Type,
        UInt32Type, UInt64Type,
    },
};
use arrow_schema::{DataType, TimeUnit};
use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBytes, PyDict, PyList},
};

/// Returns a value of a column: int, bool, str, bytes, a list, or None if the value is missing.
fn value<'py>(py: Python<'py>, array: &dyn Array, at: usize) -> PyResult<Bound<'py, PyAny>> {
    macro_rules! number {
        ($type:ty) => {
            Ok(array.as_primitive::<$type>().value(at).into_pyobject(py)?.into_any())
        };
    }
    if array.is_null(at) {
        return Ok(py.None().into_bound(py));
    }
    match array.data_type() {
        DataType::Boolean => Ok(array.as_boolean().value(at).into_pyobject(py)?.to_owned().into_any()),
        DataType::Int8 => number!(Int8Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Decimal128(..) => number!(Decimal128Type),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => number!(TimestampNanosecondType),
        DataType::Utf8 => Ok(array.as_string::<i32>().value(at).into_pyobject(py)?.into_any()),
        DataType::Binary => Ok(PyBytes::new(py, array.as_binary::<i32>().value(at)).into_any()),
        DataType::List(_) => Ok(list(py, &array.as_list::<i32>().value(at))?.into_any()),
        DataType::Dictionary(key, _) if **key == DataType::Int32 => {
            let texts = array.as_dictionary::<Int32Type>();
            value(py, texts.values(), texts.keys().value(at) as usize)
        }
        other => Err(PyTypeError::new_err(format!(
            "values of the Arrow type {other} have no Python type; read them through Arrow, for example with pyarrow"
        ))),
    }
}

/// Returns all values.
pub fn list<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for at in 0..array.len() {
        list.append(value(py, array, at)?)?;
    }
    Ok(list)
}

/// Returns all values as a numpy array with one dimension. If values are missing, they are None, and the array contains
/// objects.
pub fn numpy_array<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    dtype: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    let is_bool = *array.data_type() == DataType::Boolean && array.null_count() == 0;
    let made = numpy.call_method1("empty", (array.len(), if is_bool { "bool" } else { "object" }))?;
    // If the values are lists of the same length, numpy would add a second dimension. So the items are set one by one.
    for at in 0..array.len() {
        made.set_item(at, value(py, array, at)?)?;
    }
    match dtype {
        Some(dtype) => made.call_method1("astype", (dtype,)),
        None => Ok(made),
    }
}

/// The rows of a table. Each row is a dict from the names of the columns to the values of an event.
#[pyclass(module = "perf_prof._native")]
pub struct Rows {
    batches: Vec<RecordBatch>,
    batch: usize,
    row: usize,
}

impl Rows {
    pub fn new(batches: Vec<RecordBatch>) -> Rows {
        Rows { batches, batch: 0, row: 0 }
    }

    /// Returns the next rows, at most `count`.
    pub fn take<'py>(&mut self, py: Python<'py>, count: usize) -> PyResult<Vec<Bound<'py, PyDict>>> {
        std::iter::from_fn(|| self.__next__(py).transpose()).take(count).collect()
    }
}

#[pymethods]
impl Rows {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        while let Some(batch) = self.batches.get(self.batch) {
            if self.row < batch.num_rows() {
                let row = PyDict::new(py);
                for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
                    row.set_item(field.name(), value(py, column, self.row)?)?;
                }
                self.row += 1;
                return Ok(Some(row));
            }
            (self.batch, self.row) = (self.batch + 1, 0);
        }
        Ok(None)
    }
}

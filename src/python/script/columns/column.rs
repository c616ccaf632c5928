//! The Python class `perf_prof.Column`: one column of a batch.

use std::{
    ffi::{CStr, c_int, c_void},
    ptr,
};

use arrow_array::{
    Array, ArrayRef,
    cast::AsArray,
    types::{
        ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type, UInt16Type,
        UInt32Type, UInt64Type,
    },
};
use arrow_schema::{DataType, FieldRef, TimeUnit};
use pyo3::{
    exceptions::{PyBufferError, PyValueError},
    ffi,
    prelude::*,
    types::{PyCapsule, PyList},
};

use super::{
    capsules::{ArrayCapsules, array_capsules, field_capsule},
    values,
};

/// A column of a batch or of a table. numpy.asarray(column) does not copy the numbers of a column without nulls; of other
/// columns it makes an array of objects, with None for missing values. pyarrow.array(column), polars.Series(column) and
/// others read all columns.
#[pyclass(module = "perf_prof", frozen)]
pub struct Column {
    field: FieldRef,
    array: ArrayRef,
    /// The number of rows, and the distance between two rows in bytes. numpy's views point to these arrays.
    shape: [isize; 1],
    strides: [isize; 1],
}

/// The memory of a column of numbers: its address, the size of a number in bytes, and the format of a number as in the
/// module `struct`.
struct Numbers {
    start: *const c_void,
    size: usize,
    format: &'static CStr,
}

impl Column {
    pub fn new(field: FieldRef, array: ArrayRef) -> Column {
        let shape = [array.len() as isize];
        let strides = [numbers(&array).map_or(0, |numbers| numbers.size as isize)];
        Column { field, array, shape, strides }
    }
}

fn numbers(array: &ArrayRef) -> Option<Numbers> {
    fn of<T: ArrowPrimitiveType>(array: &ArrayRef, format: &'static CStr) -> Option<Numbers> {
        let start = array.as_primitive_opt::<T>()?.values().as_ptr().cast();
        Some(Numbers { start, size: size_of::<T::Native>(), format })
    }
    match array.data_type() {
        DataType::Int8 => of::<Int8Type>(array, c"b"),
        DataType::UInt8 => of::<UInt8Type>(array, c"B"),
        DataType::Int16 => of::<Int16Type>(array, c"h"),
        DataType::UInt16 => of::<UInt16Type>(array, c"H"),
        DataType::Int32 => of::<Int32Type>(array, c"i"),
        DataType::UInt32 => of::<UInt32Type>(array, c"I"),
        DataType::Int64 => of::<Int64Type>(array, c"q"),
        DataType::UInt64 => of::<UInt64Type>(array, c"Q"),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => of::<TimestampNanosecondType>(array, c"q"),
        _ => None,
    }
}

#[pymethods]
impl Column {
    /// the name of the column
    #[getter]
    fn name(&self) -> &str {
        self.field.name()
    }

    /// the type of its values, as Arrow names it
    #[getter]
    fn r#type(&self) -> String {
        self.field.data_type().to_string()
    }

    /// the number of values that are missing
    #[getter]
    fn null_count(&self) -> usize {
        self.array.null_count()
    }

    fn __len__(&self) -> usize {
        self.array.len()
    }

    /// Returns the values as a list: int, bool, str, bytes, lists of them, and None for missing values.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        values::list(py, &self.array)
    }

    /// numpy calls this if the column has no buffer of numbers.
    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            let text = format!("the column {:?} has no buffer of numbers: numpy has to copy it", self.field.name());
            return Err(PyValueError::new_err(text));
        }
        values::numpy_array(py, &self.array, dtype)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        field_capsule(py, &self.field)
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<ArrayCapsules<'py>> {
        // The Arrow protocol allows a producer with a single schema to ignore the requested schema.
        let _ = requested_schema;
        array_capsules(py, &self.array, field_capsule(py, &self.field)?)
    }

    fn __repr__(&self) -> String {
        format!("<perf_prof.Column {:?} of {}, {} rows>", self.field.name(), self.field.data_type(), self.array.len())
    }

    /// # Safety
    /// Python calls it with a view to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let refused = |text: String| Err(PyBufferError::new_err(text));
        if view.is_null() {
            return refused("Python passed no buffer to fill".to_owned());
        }
        let this = slf.get();
        let name = this.field.name();
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return refused(format!("the column {name:?} is read-only"));
        }
        let Some(Numbers { start, size, format }) = numbers(&this.array) else {
            let ty = this.field.data_type();
            return refused(format!(
                "the column {name:?} has no buffer of numbers: its type is {ty}; read it through Arrow, for example with pyarrow"
            ));
        };
        if this.array.null_count() > 0 {
            let missing = this.array.null_count();
            return refused(format!(
                "{missing} values of the column {name:?} are missing; read it through Arrow, for example with pyarrow"
            ));
        }
        let asked = |flag: c_int| flags & flag == flag;
        // SAFETY: Python passes a view that may be written. The view holds a reference to the column, so the array, the
        // shape and the strides live as long as the view. They never change, and nothing writes to a read-only view.
        unsafe {
            (*view).buf = start.cast_mut();
            (*view).len = (this.array.len() * size) as isize;
            (*view).readonly = 1;
            (*view).itemsize = size as isize;
            (*view).format = if asked(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { ptr::null_mut() };
            (*view).ndim = 1;
            (*view).shape = if asked(ffi::PyBUF_ND) { this.shape.as_ptr().cast_mut() } else { ptr::null_mut() };
            (*view).strides =
                if asked(ffi::PyBUF_STRIDES) { this.strides.as_ptr().cast_mut() } else { ptr::null_mut() };
            (*view).suboffsets = ptr::null_mut();
            (*view).internal = ptr::null_mut();
            (*view).obj = slf.into_ptr();
        }
        Ok(())
    }
}

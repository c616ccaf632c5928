//! Structures of Arrow's C data interface in Python capsules, for Arrow's PyCapsule interface:
//! <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>. If no library takes the structure,
//! the capsule frees it.

use arrow_array::{Array, RecordBatchReader, ffi, ffi_stream::FFI_ArrowArrayStream};
use arrow_schema::{ArrowError, Field, Schema, ffi::FFI_ArrowSchema};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyCapsule};

/// The two capsules of `__arrow_c_array__`: the schema and the array.
pub type ArrayCapsules<'py> = (Bound<'py, PyCapsule>, Bound<'py, PyCapsule>);

/// Returns the exception for an Arrow error.
pub fn error(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Returns the capsule that `__arrow_c_schema__` returns for a table.
pub fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    capsule_of(py, FFI_ArrowSchema::try_from(schema))
}

/// Returns the capsule that `__arrow_c_schema__` returns for a column.
pub fn field_capsule<'py>(py: Python<'py>, field: &Field) -> PyResult<Bound<'py, PyCapsule>> {
    capsule_of(py, FFI_ArrowSchema::try_from(field))
}

fn capsule_of(py: Python<'_>, schema: Result<FFI_ArrowSchema, ArrowError>) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, schema.map_err(error)?, c"arrow_schema")
}

/// Returns the capsules that `__arrow_c_array__` returns. The caller provides the capsule of the schema, because it
/// contains the name of the column; the array does not contain it.
pub fn array_capsules<'py>(
    py: Python<'py>,
    array: &dyn Array,
    schema: Bound<'py, PyCapsule>,
) -> PyResult<ArrayCapsules<'py>> {
    let (array, _) = ffi::to_ffi(&array.to_data()).map_err(error)?;
    Ok((schema, PyCapsule::new_with_value(py, array, c"arrow_array")?))
}

/// Returns the capsule that `__arrow_c_stream__` returns.
pub fn stream_capsule<'py>(
    py: Python<'py>,
    batches: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(batches), c"arrow_array_stream")
}

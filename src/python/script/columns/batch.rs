//! The Python classes `perf_prof.Batch` and `perf_prof.Table`.

use arrow_array::{RecordBatch, RecordBatchIterator, StructArray};
use arrow_schema::{Field, Schema, SchemaRef};
use arrow_select::concat::{concat, concat_batches};
use perf_prof_events::aggregate::{Align, Report};
use pyo3::{
    exceptions::PyKeyError,
    prelude::*,
    types::{PyCapsule, PyDict, PyList},
};

use super::{
    capsules::{ArrayCapsules, array_capsules, error, schema_capsule, stream_capsule},
    column::Column,
    values::Rows,
};

/// Some rows of a table: one row for each event, one column for each name. pyarrow.record_batch(batch),
/// polars.DataFrame(batch) and others read it without a copy; batch["NAME"] is a Column.
#[pyclass(module = "perf_prof", frozen)]
pub struct Batch {
    rows: RecordBatch,
}

/// A table with one row for each event. It consists of batches. polars.DataFrame(table), pyarrow.table(table), duckdb and
/// others read it without a copy.
#[pyclass(module = "perf_prof", frozen)]
pub struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Batch {
    /// Creates a batch.
    pub fn new(rows: RecordBatch) -> Batch {
        Batch { rows }
    }
}

impl Table {
    /// Creates a table. All batches have the columns of `schema`.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Table {
        Table { schema, batches }
    }

    /// Returns the capsule that describes the names and types of the columns.
    pub fn schema_capsule<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.schema)
    }

    fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// The maximum number of rows that a notebook shows.
const SHOWN: usize = 20;

/// Returns the first rows as an HTML table.
fn html(py: Python<'_>, schema: &Schema, batches: &[RecordBatch]) -> PyResult<String> {
    let is_number = |field: &Field| field.data_type().is_numeric();
    let side = |field: &Field| if is_number(field) { Align::Right } else { Align::Left };
    let columns = schema.fields().iter().map(|field| (field.name().clone(), side(field))).collect();
    let all: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let text = |value: Bound<'_, PyAny>| PyResult::Ok(value.str()?.to_string_lossy().into_owned());
    let rows = Rows::new(batches.to_vec()).take(py, SHOWN)?.into_iter();
    let rows = rows.map(|row| row.values().iter().map(text).collect::<PyResult<_>>()).collect::<PyResult<_>>()?;
    let notes = if all > SHOWN { vec![format!("the first {SHOWN} of {all} rows")] } else { Vec::new() };
    Ok(Report { columns, rows, notes }.html())
}

fn names(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

/// Returns a dict from the names of the columns to their types.
fn types<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyDict>> {
    let types = PyDict::new(py);
    for field in schema.fields() {
        types.set_item(field.name(), field.data_type().to_string())?;
    }
    Ok(types)
}

fn index(schema: &Schema, name: &str) -> PyResult<usize> {
    schema.fields().iter().position(|field| field.name() == name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))
}

fn stream(py: Python<'_>, schema: SchemaRef, batches: Vec<RecordBatch>) -> PyResult<Bound<'_, PyCapsule>> {
    stream_capsule(py, Box::new(RecordBatchIterator::new(batches.into_iter().map(Ok), schema)))
}

/// Returns the capsule that `__arrow_c_stream__` returns for these rows.
pub fn rows_capsule(py: Python<'_>, rows: RecordBatch) -> PyResult<Bound<'_, PyCapsule>> {
    stream(py, rows.schema(), vec![rows])
}

#[pymethods]
impl Batch {
    fn __len__(&self) -> usize {
        self.rows.num_rows()
    }

    /// The rows, each a dict from the name of a column to its value. This is slow: an object is made for each value.
    fn __iter__(&self) -> Rows {
        Rows::new(vec![self.rows.clone()])
    }

    fn __getitem__(&self, name: &str) -> PyResult<Column> {
        let at = index(self.rows.schema_ref(), name)?;
        Ok(Column::new(self.rows.schema_ref().fields()[at].clone(), self.rows.column(at).clone()))
    }

    /// the names of the columns
    #[getter]
    fn column_names(&self) -> Vec<String> {
        names(self.rows.schema_ref())
    }

    /// the types of the columns by their names, as Arrow names them
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        types(py, self.rows.schema_ref())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.rows.schema_ref())
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<ArrayCapsules<'py>> {
        // The Arrow protocol allows a producer with a single schema to ignore the requested schema.
        let _ = requested_schema;
        array_capsules(py, &StructArray::from(self.rows.clone()), self.__arrow_c_schema__(py)?)
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        stream(py, self.rows.schema(), vec![self.rows.clone()])
    }

    /// Jupyter shows this in a notebook: the first rows.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        html(py, self.rows.schema_ref(), std::slice::from_ref(&self.rows))
    }

    fn __repr__(&self) -> String {
        format!("<perf_prof.Batch of {} rows: {}>", self.rows.num_rows(), self.column_names().join(", "))
    }
}

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.rows()
    }

    /// The rows, each a dict from the name of a column to its value. This is slow: an object is made for each value.
    fn __iter__(&self) -> Rows {
        Rows::new(self.batches.clone())
    }

    /// Copies the column if the table has several batches.
    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Column> {
        let at = index(&self.schema, name)?;
        let field = self.schema.fields()[at].clone();
        let parts: Vec<&dyn arrow_array::Array> = self.batches.iter().map(|rows| &**rows.column(at)).collect();
        let array = match parts.as_slice() {
            [] => arrow_array::new_empty_array(field.data_type()),
            [_] => self.batches[0].column(at).clone(),
            parts => py.detach(|| concat(parts)).map_err(error)?,
        };
        Ok(Column::new(field, array))
    }

    /// the names of the columns
    #[getter]
    fn column_names(&self) -> Vec<String> {
        names(&self.schema)
    }

    /// the types of the columns by their names, as Arrow names them
    #[getter]
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        types(py, &self.schema)
    }

    /// the batches that the table is made of
    #[getter]
    fn batches<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let batches: Vec<Batch> = self.batches.iter().cloned().map(Batch::new).collect();
        PyList::new(py, batches.into_iter().map(|batch| Bound::new(py, batch)).collect::<PyResult<Vec<_>>>()?)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.schema)
    }

    /// Copies the rows if the table has several batches.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<ArrayCapsules<'py>> {
        let _ = requested_schema;
        let rows = match self.batches.as_slice() {
            [rows] => rows.clone(),
            batches => py.detach(|| concat_batches(&self.schema, batches)).map_err(error)?,
        };
        array_capsules(py, &StructArray::from(rows), self.__arrow_c_schema__(py)?)
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        stream(py, self.schema.clone(), self.batches.clone())
    }

    /// Jupyter shows this in a notebook: the first rows.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        html(py, &self.schema, &self.batches)
    }

    fn __repr__(&self) -> String {
        format!("<perf_prof.Table of {} rows: {}>", self.rows(), self.column_names().join(", "))
    }
}

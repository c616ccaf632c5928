//! The Python classes `EventFormat` and `FieldFormat`, and the functions that return them.

use std::sync::Arc;

use perf_prof_events::{
    aggregate::{Align, Report},
    template,
};
use perf_prof_format::tracefs::{self, Field};
use pyo3::{
    prelude::*,
    types::{PyTuple, PyType},
};

use super::{errors, formats::FormatsFrom};

/// A field of an event.
#[pyclass(frozen, get_all, module = "perf_prof")]
pub struct FieldFormat {
    /// The field's name.
    name: String,
    /// The type in C, such as 'char[16]'.
    #[pyo3(name = "type")]
    c_type: String,
    /// The type of the field's values in Python: int, bool, str or bytes.
    python_type: Py<PyType>,
    /// The size in the event's data, in bytes. It is 0 for an array that extends to the end of the data.
    size: usize,
    /// True if the field can be negative.
    signed: bool,
    /// The place in the event's data, in bytes from its start.
    offset: usize,
}

#[pymethods]
impl FieldFormat {
    fn __repr__(&self) -> String {
        format!("<FieldFormat {}: {}>", self.name, self.c_type)
    }
}

impl FieldFormat {
    fn new(py: Python<'_>, field: &Field) -> PyResult<FieldFormat> {
        let python_type = py.import("builtins")?.getattr(template::python_type(field))?.cast_into::<PyType>()?;
        Ok(FieldFormat {
            name: field.name.clone(),
            c_type: field.c_type(),
            python_type: python_type.unbind(),
            size: field.size,
            signed: field.number().is_some_and(|ty| ty.signed),
            offset: field.offset,
        })
    }
}

/// The format of a tracepoint: its name, its fields, and how the kernel prints it.
#[pyclass(frozen, module = "perf_prof")]
pub struct EventFormat(Arc<tracefs::EventFormat>);

#[pymethods]
impl EventFormat {
    /// The event's name without its system, such as 'sched_switch'.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The event's system, such as 'sched'.
    #[getter]
    fn system(&self) -> &str {
        &self.0.system
    }

    /// The event's number in its kernel.
    #[getter]
    fn id(&self) -> u32 {
        self.0.id
    }

    /// The event's own fields, as a tuple of FieldFormat.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        fields(py, self.0.fields())
    }

    /// The fields that all tracepoints have, such as common_pid, as a tuple of FieldFormat.
    #[getter]
    fn common_fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        fields(py, self.0.common_fields())
    }

    /// The format with which the kernel prints the event.
    #[getter]
    fn print_format(&self) -> &str {
        self.0.print_fmt_text()
    }

    /// Jupyter shows this in a notebook: a table of the fields.
    fn _repr_html_(&self) -> String {
        let columns =
            [("field", Align::Left), ("type", Align::Left), ("in Python", Align::Left), ("bytes", Align::Right)];
        let row = |field: &Field| {
            vec![field.name.clone(), field.c_type(), template::python_type(field).to_owned(), field.size.to_string()]
        };
        let rows = self.0.fields().iter().map(row).collect();
        let notes = vec![format!("{}:{}, printed as {}", self.0.system, self.0.name, self.0.print_fmt_text())];
        Report { columns: columns.map(|(name, side)| (name.to_owned(), side)).into(), rows, notes }.html()
    }

    fn __repr__(&self) -> String {
        format!("<EventFormat {}:{}>", self.0.system, self.0.name)
    }
}

fn fields<'py>(py: Python<'py>, fields: &[Field]) -> PyResult<Bound<'py, PyTuple>> {
    let fields = fields.iter().map(|field| FieldFormat::new(py, field)?.into_pyobject(py));
    PyTuple::new(py, fields.collect::<PyResult<Vec<_>>>()?)
}

/// Returns the place that the argument `formats` names; `default` if the argument is missing.
pub fn formats_from(formats: Option<&Bound<'_, PyAny>>, default: FormatsFrom) -> PyResult<FormatsFrom> {
    let Some(formats) = formats else { return Ok(default) };
    Ok(match formats.extract::<&str>() {
        Ok("kernel") => FormatsFrom::Kernel,
        Ok("shipped") => FormatsFrom::Shipped,
        _ => FormatsFrom::Recording(formats.extract()?),
    })
}

/// Returns the formats of the tracepoints that match pattern, sorted by name. A pattern is 'system:name',
/// and both parts may have wildcards: 'sched:*'. A pattern without ':' is compared with the names in all systems.
///
/// formats says where the formats come from: 'kernel' (the default) for this kernel, 'shipped' for those that
/// perf_prof brings, or the path of a recording. Raises AccessError, which is a PermissionError, if this kernel's
/// formats cannot be read.
#[pyfunction]
#[pyo3(signature = (pattern = "*:*", *, formats = None))]
pub fn events(py: Python<'_>, pattern: &str, formats: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<EventFormat>> {
    let from = formats_from(formats, FormatsFrom::Kernel)?;
    let (system, name) = pattern.split_once(':').unwrap_or(("*", pattern));
    let found = py.detach(|| from.tracepoints(system, name)).map_err(|error| errors::of_formats(py, &error))?;
    Ok(found.into_iter().map(EventFormat).collect())
}

/// Returns the format of the tracepoint name, which is written as 'system:name'.
///
/// formats says where the format comes from, as in events(). Raises SelectorError, which is a ValueError, with similar
/// names if there is no such tracepoint.
#[pyfunction]
#[pyo3(signature = (name, *, formats = None))]
pub fn event(py: Python<'_>, name: &str, formats: Option<&Bound<'_, PyAny>>) -> PyResult<EventFormat> {
    let from = formats_from(formats, FormatsFrom::Kernel)?;
    let found = match name.split_once(':') {
        Some((system, event)) => from.tracepoint(system, event),
        None => Ok(None),
    };
    match found {
        Ok(Some(format)) => Ok(EventFormat(format)),
        Ok(None) => Err(errors::of_formats(py, &from.unknown(name))),
        Err(error) => Err(errors::of_formats(py, &error)),
    }
}

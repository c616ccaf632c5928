//! `perf_prof.Log2Hist`: how values are spread over the powers of two.

use std::collections::HashMap;

use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyDict, PyFloat, PyType},
};

use crate::picture::{Log2Histogram, printable};

/// A histogram of powers of two. name says what the values are, 'usecs' for instance.
///
/// For several of them: collections.defaultdict(Log2Hist). len() is the number of values.
#[pyclass(module = "perf_prof")]
pub struct Log2Hist {
    name: String,
    counts: Log2Histogram,
}

#[pymethods]
impl Log2Hist {
    #[new]
    #[pyo3(signature = (name="usecs"))]
    fn new(name: &str) -> Log2Hist {
        Log2Hist { name: printable(name).into_owned(), counts: Log2Histogram::default() }
    }

    /// Counts a value n times. What is behind the decimal point does not matter; all that is negative is one row.
    #[pyo3(signature = (value, n=1))]
    fn add(&mut self, value: &Bound<'_, PyAny>, n: u64) -> PyResult<()> {
        match size(value)? {
            Some(value) => self.counts.add(value, n),
            None => self.counts.add_negative(n),
        }
        Ok(())
    }

    /// Counts each of these values, or all that another Log2Hist has counted.
    #[pyo3(signature = (values))]
    fn update(this: &Bound<'_, Log2Hist>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(other) = values.cast::<Log2Hist>() {
            let counts = other.borrow().counts.clone();
            this.borrow_mut().counts.merge(&counts);
            return Ok(());
        }
        // Iterating may run Python, and that may use this histogram.
        for value in values.try_iter()? {
            this.borrow_mut().add(&value?, 1)?;
        }
        Ok(())
    }

    /// Writes the histogram to a file, or to sys.stdout.
    #[pyo3(signature = (file=None))]
    fn print(&self, py: Python<'_>, file: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let stdout = || py.import("sys")?.getattr("stdout");
        let file = file.map_or_else(stdout, |file| Ok(file.clone()))?;
        if !file.is_none() {
            file.call_method1("write", (self.text() + "\n",))?;
        }
        Ok(())
    }

    /// The counts by each row's smallest value: {0: 3, 2: 1, 4: 7}; -1 stands for all that was negative.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (low, count) in self.counts.rows() {
            match low {
                Some(low) => dict.set_item(low, count)?,
                None => dict.set_item(-1, count)?,
            }
        }
        Ok(dict)
    }

    /// Forgets all values.
    fn clear(&mut self) {
        self.counts = Log2Histogram::default();
    }

    fn __len__(&self) -> usize {
        // CPython has no larger length.
        self.counts.count().min(isize::MAX as u64) as usize
    }

    /// A copy or pickle has the name and the counts.
    fn __reduce__<'py>(this: &Bound<'py, Log2Hist>) -> PyResult<(Bound<'py, PyType>, (String,), Bound<'py, PyDict>)> {
        let hist = this.borrow();
        Ok((this.get_type(), (hist.name.clone(),), hist.to_dict(this.py())?))
    }

    fn __setstate__(&mut self, counts: HashMap<i128, u64>) {
        for (low, count) in counts {
            match u64::try_from(low) {
                Ok(low) => self.counts.add(low, count),
                Err(_) => self.counts.add_negative(count),
            }
        }
    }

    fn __str__(&self) -> String {
        self.text()
    }
}

impl Log2Hist {
    fn text(&self) -> String {
        self.counts.text(&self.name)
    }
}

/// The number without its fraction; `None` below zero. What is too large counts as the largest.
fn size(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if let Ok(float) = value.cast::<PyFloat>() {
        let float = float.value();
        return match float {
            _ if float.is_nan() => Err(PyValueError::new_err("a value that is not a number is in no row")),
            _ if float < 0.0 => Ok(None),
            // Saturates.
            _ => Ok(Some(float as u64)),
        };
    }
    match value.extract::<u64>() {
        Ok(value) => Ok(Some(value)),
        Err(error) if !error.is_instance_of::<pyo3::exceptions::PyOverflowError>(value.py()) => Err(error),
        Err(_) if value.lt(0)? => Ok(None),
        Err(_) => Ok(Some(u64::MAX)),
    }
}

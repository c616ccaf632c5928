//! The Python class `perf_prof.Log2Hist`: a histogram with a row for each power of two.

use std::collections::HashMap;

use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyDict, PyFloat, PyType},
};

use perf_prof_events::picture::{Log2Histogram, printable};

use super::printing::write_to;

/// A histogram with a row for each power of two: 0 to 1, 2 to 3, 4 to 7, and so on. name is the heading of the
/// values: their unit, for example 'usecs'.
///
/// For several histograms, use collections.defaultdict(Log2Hist). len() is the number of values. A
/// notebook shows a table with bars. It counts numbers and not events, so it does not say what missing() says.
#[pyclass(module = "perf_prof")]
pub struct Log2Hist {
    name: String,
    counts: Log2Histogram,
}

#[pymethods]
impl Log2Hist {
    #[new]
    #[pyo3(signature = (name="value"))]
    fn new(name: &str) -> Log2Hist {
        Log2Hist { name: printable(name).into_owned(), counts: Log2Histogram::default() }
    }

    /// Counts a value n times. Digits after the decimal point are ignored. All negative values are counted in one
    /// row.
    #[pyo3(signature = (value, n=1))]
    fn add(&mut self, value: &Bound<'_, PyAny>, n: u64) -> PyResult<()> {
        match whole_number(value)? {
            Some(value) => self.counts.add(value, n),
            None => self.counts.add_negative(n),
        }
        Ok(())
    }

    /// Counts each value of an iterable, or adds the counts of another Log2Hist.
    #[pyo3(signature = (values))]
    fn update(this: &Bound<'_, Log2Hist>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(other) = values.cast::<Log2Hist>() {
            let counts = other.borrow().counts.clone();
            this.borrow_mut().counts.merge(&counts);
            return Ok(());
        }
        // The iterator may run Python code that uses this histogram. So the histogram is borrowed only while a value is
        // added.
        for value in values.try_iter()? {
            this.borrow_mut().add(&value?, 1)?;
        }
        Ok(())
    }

    /// Writes the histogram to a file, or to sys.stdout.
    #[pyo3(signature = (file=None))]
    fn print(&self, py: Python<'_>, file: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        write_to(py, file, self.text())
    }

    /// Returns the count of each row by its smallest value: {0: 3, 2: 1, 4: 7}. Negative values have the key -1.
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

    /// Removes all values.
    fn clear(&mut self) {
        self.counts = Log2Histogram::default();
    }

    fn __repr__(&self) -> String {
        format!("<perf_prof.Log2Hist {:?}: {} values>", self.name, self.counts.count())
    }

    fn __len__(&self) -> usize {
        // CPython's lengths are signed, so isize::MAX is the largest possible length.
        self.counts.count().min(isize::MAX as u64) as usize
    }

    /// A copy or a pickle contains the name and the counts.
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

    /// Jupyter shows this in a notebook.
    fn _repr_html_(&self) -> String {
        self.counts.html(&self.name)
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

/// Returns the number without its fraction, at most `u64::MAX`; `None` if the number is negative.
pub(super) fn whole_number(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if let Ok(float) = value.cast::<PyFloat>() {
        let float = float.value();
        return match float {
            _ if float.is_nan() => Err(PyValueError::new_err("nan is not a number; it cannot be counted")),
            _ if float < 0.0 => Ok(None),
            // The cast saturates at `u64::MAX`.
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

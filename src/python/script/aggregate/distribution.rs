//! The Python class `perf_prof.Distribution`: the values of one key of a `Hist`.

use perf_prof_events::aggregate::{Buckets, Distribution};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyDict};

use super::super::printing::write_to;

/// The distribution of the values of one key of a Hist, at the time when this object was made.
///
/// count, sum, min, max and mean are numbers in the unit of the field. min, max and mean are None if there are no
/// values. Printed text and tables are in the unit of the Hist. len() is count. A notebook shows a table with bars.
#[pyclass(name = "Distribution", module = "perf_prof", frozen)]
pub struct PyDistribution {
    of: Distribution,
    buckets: Buckets,
    unit: String,
}

impl PyDistribution {
    /// Creates the object. `unit` is the unit or the name of the values.
    pub fn new(of: Distribution, buckets: Buckets, unit: &str) -> PyDistribution {
        PyDistribution { of, buckets, unit: unit.to_owned() }
    }
}

#[pymethods]
impl PyDistribution {
    /// The number of values.
    #[getter]
    fn count(&self) -> u64 {
        self.of.count
    }

    /// The sum of the values.
    #[getter]
    fn sum(&self) -> i128 {
        self.of.sum
    }

    /// The smallest value.
    #[getter]
    fn min(&self) -> Option<i128> {
        self.of.min
    }

    /// The largest value.
    #[getter]
    fn max(&self) -> Option<i128> {
        self.of.max
    }

    /// The sum divided by the count.
    #[getter]
    fn mean(&self) -> Option<f64> {
        (self.of.count != 0).then(|| self.of.sum as f64 / self.of.count as f64)
    }

    /// Returns the value that percent (0 to 100) of all values do not exceed, or None if there are no values.
    ///
    /// It is estimated within the range of values that are counted together: with powers of two, it is at most an
    /// eighth away from the value.
    fn percentile(&self, percent: f64) -> PyResult<Option<i128>> {
        if !(0.0..=100.0).contains(&percent) {
            return Err(PyValueError::new_err(format!("{percent} is not a percentage from 0 to 100")));
        }
        Ok(self.of.percentile(percent, self.buckets))
    }

    /// Returns {'count', 'sum', 'min', 'max', 'rows'}. rows has the count of each row by its smallest value; values
    /// below the first row have the key None.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (dict, rows) = (PyDict::new(py), PyDict::new(py));
        for (low, count) in self.of.rows(self.buckets) {
            rows.set_item(low, count)?;
        }
        dict.set_item("count", self.of.count)?;
        dict.set_item("sum", self.of.sum)?;
        dict.set_item("min", self.of.min)?;
        dict.set_item("max", self.of.max)?;
        dict.set_item("rows", rows)?;
        Ok(dict)
    }

    /// Writes the rows with bars to a file, or to sys.stdout.
    #[pyo3(signature = (file=None))]
    fn print(&self, py: Python<'_>, file: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        write_to(py, file, self.__str__())
    }

    fn __len__(&self) -> usize {
        // CPython's lengths are signed, so isize::MAX is the largest possible length.
        self.of.count.min(isize::MAX as u64) as usize
    }

    fn __str__(&self) -> String {
        self.of.text(&self.unit, self.buckets)
    }

    fn __repr__(&self) -> String {
        let Distribution { count, sum, .. } = self.of;
        format!("<perf_prof.Distribution of {count} values with the sum {sum}>")
    }

    /// Jupyter shows this in a notebook.
    fn _repr_html_(&self) -> String {
        self.of.html(&self.unit, self.buckets)
    }
}

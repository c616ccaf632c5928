//! The Python class `perf_prof.Heatmap`: counts values over time, and draws them as a heat map.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use perf_prof_events::{
    event::Stats,
    picture::{
        DrawError, HeatMapStyle, draw_heat_map,
        heat_map::{Cell, HeatMap, highest, lowest},
    },
};
use perf_prof_system::output_path::{self, ExistingFile};
use pyo3::{
    exceptions::{PyOSError, PyValueError},
    prelude::*,
    types::{PyList, PyTuple, PyType},
};

use super::{
    histogram::whole_number,
    module::run,
    pictures::{missing_in_run, not_saved, os_error, provenance, svg_text},
};

/// Counts of values over time, for example of latencies. save() draws them as a heat map (SVG, for a browser).
///
/// The values are on a logarithmic scale with four rows for each power of two. So several levels of values are
/// visible, and single slow requests among millions of fast ones. Times are in nanoseconds, as event._time; there
/// are up to 512 columns. unit is the unit of the values: ns, us, ms, s, or a word such as bytes. value is the title
/// of their axis. The text below the title has subtitle, the number of values, the duration of the run, the host and the date.
/// For values of a longer time than the run, such as those of a log, it shows neither its duration nor its date.
/// len() is the number of values. A notebook shows the picture.
#[pyclass(module = "perf_prof")]
pub struct Heatmap {
    counts: HeatMap,
    style: HeatMapStyle,
    /// The counts of the last run in which values were added.
    fed: Option<Arc<Stats>>,
    /// What is added to the time of an event to get the time of day, in ns. `None` if it is not known.
    offset: Option<i64>,
}

/// The arguments of `Heatmap()` in this order: title, unit, subtitle, value.
type ConstructorArguments = (Option<String>, String, Option<String>, Option<String>);

/// A heat map in a pickle: cells (column, row, count), first and last time, number of negative values.
type State = (Vec<(u64, u8, u64)>, Option<(u64, u64)>, u64);

#[pymethods]
impl Heatmap {
    #[new]
    #[pyo3(signature = (title=None, unit="ns", subtitle=None, value=None))]
    fn new(title: Option<String>, unit: &str, subtitle: Option<String>, value: Option<String>) -> Heatmap {
        let style = HeatMapStyle { title, value, subtitle, unit: unit.to_owned(), ..HeatMapStyle::default() };
        Heatmap { counts: HeatMap::default(), style, fed: None, offset: None }
    }

    /// Counts a value n times at a time in ns. Digits after the decimal point are ignored. Values below zero are counted,
    /// but not drawn.
    #[pyo3(signature = (time, value, n=1))]
    fn add(&mut self, time: u64, value: &Bound<'_, PyAny>, n: u64) -> PyResult<()> {
        if let Some(run) = run() {
            self.fed = Some(Arc::clone(&run.stats));
            self.offset = self.offset.or_else(|| run.context.realtime_unseen(0));
        }
        match whole_number(value)? {
            Some(value) => self.counts.add(time, value, n),
            None => self.counts.add_below_zero(n),
        }
        Ok(())
    }

    /// Adds the counts of another Heatmap.
    #[pyo3(signature = (other))]
    fn update(slf: &Bound<'_, Self>, other: &Bound<'_, Heatmap>) {
        // `slf` and `other` may be the same object, so they are not borrowed at the same time.
        let (other, fed, offset) = (other.borrow().counts.clone(), other.borrow().fed.clone(), other.borrow().offset);
        let mut this = slf.borrow_mut();
        this.offset = this.offset.or(offset);
        this.fed = fed.or_else(|| this.fed.take());
        this.counts.merge(&other);
    }

    /// The number of ns for which a column stands.
    #[getter]
    fn column_width(&self) -> u64 {
        self.counts.column_width()
    }

    /// Returns the counts as a list of (time, low, high, count), in order: the time at which the column starts, the
    /// smallest and the largest value of the row.
    fn cells<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let width = self.counts.column_width();
        let rows =
            self.counts.cells().map(|Cell { column, row, count }| (column * width, lowest(row), highest(row), count));
        PyList::new(py, rows.map(|row| PyTuple::new(py, [row.0, row.1, row.2, row.3])).collect::<PyResult<Vec<_>>>()?)
    }

    /// Removes all values.
    fn clear(&mut self) {
        self.counts = HeatMap::default();
    }

    /// Checks that save(path) can write the file. Call it before the run: after a failed save(), the counts are lost.
    ///
    /// Raises ValueError if path does not end in .svg, and OSError if no file can be created or overwritten there.
    #[staticmethod]
    fn check(path: PathBuf) -> PyResult<()> {
        check_name(&path)?;
        output_path::check(&path, ExistingFile::Overwritten).map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// Writes the picture. Raises ValueError if path does not end in .svg or if there are no values, and OSError if the
    /// file cannot be written.
    #[pyo3(signature = (path))]
    fn save(&self, path: PathBuf) -> PyResult<()> {
        check_name(&path)?;
        let picture = self.picture().map_err(|error| not_saved(error, &path, "no values were added"))?;
        fs::write(&path, picture).map_err(|error| os_error(&error, &path))
    }

    /// Jupyter shows this in a notebook. Without values there is no picture.
    fn _repr_svg_(&self) -> PyResult<Option<String>> {
        svg_text(self.picture())
    }

    fn __repr__(&self) -> String {
        format!("<perf_prof.Heatmap: {} values in {}>", self.counts.count(), self.style.unit)
    }

    fn __len__(&self) -> usize {
        // CPython's lengths are signed, so isize::MAX is the largest possible length.
        self.counts.count().min(isize::MAX as u64) as usize
    }

    /// Supports copy and pickle.
    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyType>, ConstructorArguments, State) {
        let Heatmap { counts, style, .. } = &*slf.borrow();
        let made = (style.title.clone(), style.unit.clone(), style.subtitle.clone(), style.value.clone());
        let cells = counts.cells().map(|Cell { column, row, count }| (column, row, count)).collect();
        (slf.get_type().unbind(), made, (cells, counts.times(), counts.below_zero()))
    }

    fn __setstate__(&mut self, state: State) -> PyResult<()> {
        let (cells, times, below_zero) = state;
        let cells: Vec<Cell> = cells.into_iter().map(|(column, row, count)| Cell { column, row, count }).collect();
        let counts = HeatMap::restored(&cells, times.filter(|(first, last)| first <= last), below_zero);
        self.counts = counts.ok_or_else(|| PyValueError::new_err("the pickle of this Heatmap is damaged"))?;
        Ok(())
    }
}

fn check_name(path: &Path) -> PyResult<()> {
    if path.extension().is_some_and(|ending| ending == "svg") {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("{}: the name of a heat map must end in .svg", path.display())))
}

impl Heatmap {
    fn picture(&self) -> Result<Vec<u8>, DrawError> {
        let mut svg = Vec::new();
        let partial = missing_in_run(self.fed.as_deref(), &self.style.unit);
        let from = provenance(self.fed.as_deref());
        let offset = self.offset.or_else(|| run()?.context.realtime_unseen(0));
        let first = self.counts.times().and_then(|(first, _)| from.moment(offset?.saturating_add_unsigned(first)));
        // Values of other times than those of the run, such as times in a log, were not measured within its duration, nor on its date.
        let length = self.counts.times().map_or(0, |(first, last)| last - first);
        let (within, place) = match from.is_shorter_than(length) {
            true => (String::new(), from.host.clone()),
            false => (from.within(), from.place()),
        };
        let style = HeatMapStyle { partial, within, place, first, command: from.command, ..self.style.clone() };
        draw_heat_map(&self.counts, &style, &mut svg).map(|()| svg)
    }
}

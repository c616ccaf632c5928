//! Replays parts of several recordings in other processes, perhaps on other machines. The Python file `_engines.py` of
//! the package starts these processes and merges their results.

use std::{env, ffi::OsString, path::PathBuf, sync::Arc};

use perf_prof_events::event::Stats;
use perf_prof_session::{
    dividing::{PartResult, Results},
    engine::exit_status::Callbacks,
    plan::SplitBy,
    spine::About,
};
use perf_prof_system::output::counted;
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyDict, PyList},
};

use super::{
    error::ScriptError,
    event::made_context,
    failure,
    host::{Module, flush},
    merge::add_aggregators,
    module::{clear_run, set_run},
    running,
};

/// A script and its recordings, for [`replay_by_engine`].
pub struct RecordingsOfScript<'a> {
    /// The name or path of the script, as typed.
    pub module: &'a OsString,
    /// The arguments of the script.
    pub args: &'a [OsString],
    /// The paths of the recordings.
    pub paths: &'a [PathBuf],
    /// The options for the processes that replay the parts.
    pub options: &'a [OsString],
    /// The number of processes; `None` if the executor determines it.
    pub processes: Option<usize>,
    /// The function that returns the executor, as MODULE:FUNCTION.
    pub executor: Option<&'a str>,
    /// The number of parts of each recording, if an executor replays them.
    pub parts: usize,
    /// The number of events that the script's first line selects.
    pub own_events: usize,
}

/// Replays the parts of all recordings in other processes, and merges their results. Returns the exit status.
pub fn replay_by_engine(work: &RecordingsOfScript<'_>) -> Result<u8, ScriptError> {
    Python::attach(|py| {
        command(py, work).map_err(|error| {
            if error.is_instance_of::<pyo3::exceptions::PySystemExit>(py) {
                return ScriptError::Exited(failure::exit_status(py, &error));
            }
            failure::print_traceback(py, &error);
            ScriptError::Exited(1)
        })
    })
}

fn command(py: Python<'_>, work: &RecordingsOfScript<'_>) -> PyResult<u8> {
    let options = PyDict::new(py);
    options.set_item("options", work.options)?;
    options.set_item("processes", work.processes)?;
    options.set_item("executor", work.executor)?;
    options.set_item("parts", work.parts)?;
    options.set_item("own_events", work.own_events)?;
    let paths: Vec<_> = work.paths.iter().map(|path| path.as_os_str()).collect();
    let engines = py.import("perf_prof._engines")?;
    let status = engines.call_method("command", (work.module, paths, work.args), Some(&options))?.extract()?;
    flush(py)?;
    Ok(status)
}

/// Adds the functions for `_engines.py` to the native module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PartResults>()?;
    module.add_function(wrap_pyfunction!(own_command, module)?)?;
    module.add_function(wrap_pyfunction!(load_to_merge, module)?)?;
    module.add_function(wrap_pyfunction!(merge_aggregators, module)?)?;
    module.add_function(wrap_pyfunction!(end_merge, module)?)
}

/// Returns the start of the command line of a new perf-prof: the executable, or the Python that contains the package.
#[pyfunction]
fn own_command() -> PyResult<Vec<OsString>> {
    // Like `python -m perf_prof`, but without the current folder in the search path.
    const PACKAGE: &str = "import sys; sys.path[:1] = filter(None, sys.path[:1]); \
                           from perf_prof._native import main; sys.exit(main(['perf-prof', *sys.argv[1:]]))";
    match running::executable() {
        Some(python) => Ok(vec![python.into(), "-c".into(), PACKAGE.into()]),
        None => Ok(vec![env::current_exe()?.into()]),
    }
}

/// Returns the run in which the results of several recordings are merged. `reached` is the time that the replays have
/// reached.
pub fn run_of_all(stats: Stats, reached: u64) -> About {
    let context = made_context();
    context.note_reached(reached);
    About::without_events(Arc::new(context), Arc::new(stats))
}

/// Loads the script into this process, so that it can merge `results`.
#[pyfunction]
fn load_to_merge(
    py: Python<'_>,
    module: OsString,
    args: Vec<OsString>,
    results: &PartResults,
) -> PyResult<Py<PyModule>> {
    let &Results { ref sample_counts, lost, damaged, reached, .. } = &results.0;
    let stats = Stats::of_other_processes(sample_counts.delivered, lost);
    if damaged {
        stats.note_damage();
    }
    set_run(Arc::new(run_of_all(stats, reached)));
    match Module::load_within(py, &module, &args) {
        Ok(loaded) => Ok(loaded.module().clone_ref(py)),
        Err(ScriptError::Exited(status)) => Err(pyo3::exceptions::PySystemExit::new_err(status)),
        Err(error @ ScriptError::NotFound { .. }) => {
            Err(pyo3::exceptions::PyFileNotFoundError::new_err(error.to_string()))
        }
        Err(error) => Err(pyo3::exceptions::PyImportError::new_err(error.to_string())),
    }
}

/// The results of parts, which may belong to several recordings.
#[pyclass(module = "perf_prof._native")]
struct PartResults(Results);

#[pymethods]
impl PartResults {
    #[new]
    fn new() -> PartResults {
        PartResults(Results::new(SplitBy::Time))
    }

    /// Adds the results of all parts of a recording. Returns the reasons why events are missing in the results: damage
    /// and losses. Raises ValueError and adds nothing if one of the results cannot be decoded.
    fn add(&mut self, results: Vec<Vec<u8>>) -> PyResult<Vec<String>> {
        let decoded: Result<Vec<_>, _> = results.into_iter().map(PartResult::decode).collect();
        let decoded =
            decoded.map_err(|error| PyValueError::new_err(format!("cannot read the result of a part: {error}")))?;
        let mut reasons: Vec<String> = decoded.iter().flat_map(|result| result.damage.clone()).collect();
        let lost = self.0.add_recording(decoded);
        if lost != 0 {
            reasons.push(format!("{} lost while it was recorded", counted(lost, "event was", "events were")));
        }
        Ok(reasons)
    }

    /// whether a callback raised an exception in a part
    #[getter]
    fn raised(&self) -> bool {
        self.0.callbacks == Callbacks::Raised
    }

    /// Returns the partial results of the script, pickled, in the order of the parts.
    fn partials<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.0.partials.iter().map(|partial| PyBytes::new(py, partial)).collect()
    }

    fn __len__(&self) -> usize {
        self.0.partials.len()
    }
}

/// Adds the aggregators of all parts to the aggregators of the script. Used for scripts without `__merge__`.
#[pyfunction]
fn merge_aggregators(names: &Bound<'_, PyDict>, partials: &Bound<'_, PyList>) -> PyResult<()> {
    add_aggregators(names, partials)
}

/// Ends the run that [`load_to_merge`] began.
#[pyfunction]
fn end_merge() {
    clear_run();
}

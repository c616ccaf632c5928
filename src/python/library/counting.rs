//! `stat` for programs: counts events.

use perf_prof_session::stat::{self, Rows, Tally};
use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::{background::Background, options};

/// The count of an event. The fields are the arguments of `perf_prof.Count`.
#[derive(Default, IntoPyObject)]
pub struct Count {
    /// The count; `None` if the event was never on a counter.
    value: Option<u64>,
    /// The time in ns during which the event was enabled.
    enabled: u64,
    /// The time in ns during which the event was on a counter.
    running: u64,
    /// True if the kernel and the machine support the event.
    is_supported: bool,
}

/// The result of counting.
#[derive(IntoPyObject)]
pub struct Counted {
    /// Each event with its count.
    rows: Vec<(String, Count)>,
    /// How long the events were counted, in seconds.
    elapsed: f64,
    /// The exit status of the command.
    status: u8,
}

/// Counts events until the command ends or the time is over.
#[pyfunction]
pub fn count(
    selectors: &Bound<'_, PyTuple>,
    options: &Bound<'_, PyDict>,
    forms: &Bound<'_, PyDict>,
) -> PyResult<Counted> {
    let py = selectors.py();
    let plan = options::stat_plan(options::Arguments { selectors, keywords: options, forms })?;
    debug_assert_eq!(plan.rows, Rows::Events);
    let work = Background::start(move |signals| {
        let (mut counts, mut elapsed) = (Vec::new(), 0.0);
        let status = stat::run_with(&plan, || Ok(signals), &mut |table| {
            elapsed = table.elapsed.value;
            counts = table.rows.iter().map(row).collect();
            Ok(())
        })?;
        Ok(Counted { rows: counts, elapsed, status: status.0 })
    });
    work.map_err(|error| super::errors::exception(py, &error))?.wait(py)
}

fn row(row: &stat::Row<'_>) -> (String, Count) {
    let count = match row.tally {
        Tally::Counted(counted) => {
            Count { value: Some(counted.value), enabled: counted.enabled, running: counted.running, is_supported: true }
        }
        Tally::NotCounted => Count { is_supported: true, ..Count::default() },
        Tally::NotSupported => Count::default(),
    };
    (row.event.name.clone(), count)
}

//! `stat`: counts events.

use perf_prof_core::stat::{self, Rows, Tally};
use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::{
    background::Background,
    errors::named,
    options::{Action, words},
};
use crate::cli::stat::plan_of_program;

/// The count of an event: its name, the CPU, the count, the times in ns during which it was enabled and had a counter,
/// and whether the machine has it. There is no count if the event never had a counter.
type Count = (String, Option<u32>, Option<u64>, u64, u64, bool);

/// Counts events until the command ends or the time is over. Returns the counts, the time in seconds and the exit status
/// of the command.
#[pyfunction]
pub fn count(
    py: Python<'_>,
    selectors: &Bound<'_, PyTuple>,
    options: &Bound<'_, PyDict>,
) -> PyResult<(Vec<Count>, f64, u8)> {
    let words = words(Action::Count, "stat", selectors, options)?;
    let wrong = |text: String| named(py, "OptionError", &text);
    if words.command.is_none() && !options.contains("duration")? {
        return Err(wrong("stat(): give a command with exec, or a duration".into()));
    }
    let plan = plan_of_program(words.options, words.command).map_err(wrong)?;
    debug_assert_eq!(plan.rows, Rows::Events);
    let work = Background::start(move |signals| {
        let (mut counts, mut elapsed) = (Vec::new(), 0.0);
        let status = stat::run_with(&plan, || Ok(signals), &mut |table| {
            elapsed = table.elapsed.value;
            counts = table.rows.iter().map(row).collect();
            Ok(())
        })?;
        Ok((counts, elapsed, status.0))
    });
    work.map_err(|error| super::errors::exception(py, &error))?.wait(py)
}

fn row(row: &stat::Row<'_>) -> Count {
    let name = row.event.name.clone();
    match row.tally {
        Tally::Counted(counted) => (name, row.cpu, Some(counted.value), counted.enabled, counted.running, true),
        Tally::NotCounted => (name, row.cpu, None, 0, 0, true),
        Tally::NotSupported => (name, row.cpu, None, 0, 0, false),
    }
}

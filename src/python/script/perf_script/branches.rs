//! `brstack` and `brstacksym`: the branches of a sample, as addresses and as symbols.

use perf_prof_events::event::{Context, PerfFrame, Sample, perf_address};
use perf_prof_format::record::Branch;
use pyo3::{
    intern,
    prelude::*,
    types::{PyDict, PyList},
};

/// The name of an unknown mapping or symbol.
const UNKNOWN: &str = "[unknown]";

/// Returns two lists of the sample's branches: one with addresses, one with symbols.
pub fn lists<'py>(
    py: Python<'py>,
    sample: &Sample<'_>,
    context: &Context,
    branches: impl Iterator<Item = Branch>,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
    let (addresses, symbols) = (PyList::empty(py), PyList::empty(py));
    for branch in branches {
        let [from, to] = [branch.from, branch.to].map(|addr| perf_address(sample, addr, context));
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "from"), branch.from)?;
        dict.set_item(intern!(py, "to"), branch.to)?;
        dict.set_item(intern!(py, "mispred"), branch.mispred())?;
        dict.set_item(intern!(py, "predicted"), branch.predicted())?;
        dict.set_item(intern!(py, "in_tx"), branch.in_tx())?;
        dict.set_item(intern!(py, "abort"), branch.abort())?;
        dict.set_item(intern!(py, "cycles"), branch.cycles())?;
        dict.set_item(intern!(py, "from_dsoname"), dso(&from))?;
        dict.set_item(intern!(py, "to_dsoname"), dso(&to))?;
        addresses.append(dict)?;
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "from"), symbol(&from))?;
        dict.set_item(intern!(py, "to"), symbol(&to))?;
        let predicted = match (branch.mispred(), branch.predicted()) {
            (true, _) => "M",
            (false, true) => "P",
            (false, false) => "-",
        };
        dict.set_item(intern!(py, "pred"), predicted)?;
        dict.set_item(intern!(py, "in_tx"), if branch.in_tx() { "X" } else { "-" })?;
        dict.set_item(intern!(py, "abort"), if branch.abort() { "A" } else { "-" })?;
        symbols.append(dict)?;
    }
    Ok((addresses, symbols))
}

fn dso(frame: &PerfFrame) -> &str {
    frame.map.as_ref().map_or(UNKNOWN, |map| &map.dso)
}

fn symbol(frame: &PerfFrame) -> String {
    match &frame.symbol {
        Some(symbol) => format!("{}+{:#x}", symbol.name, symbol.offset),
        None => UNKNOWN.to_owned(),
    }
}

//! The entries of call chains: a dict for each frame, as `perf script` makes them.

use std::sync::Arc;

use perf_prof_core::event::{Frame, UNKNOWN};
use pyo3::{ffi, intern, prelude::*, types::PyDict};

/// The dict of a frame, and the state in which it was made.
struct Entry {
    dict: Py<PyDict>,
    /// The dict of the frame's symbol, which is in `dict`.
    symbol: Option<Py<PyDict>>,
    versions: [Option<u64>; 2],
}

/// Returns the entry of a frame. A script may change an entry or keep it. So the dict is used again for a later event
/// only if nobody else has it, and if it was not changed.
pub fn entry<'py>(py: Python<'py>, frame: &Arc<Frame>) -> PyResult<Bound<'py, PyDict>> {
    let kept = frame.slot.get().and_then(|kept| kept.downcast_ref::<Entry>());
    if let Some(entry) = kept
        && entry.is_unused(py)
    {
        return Ok(entry.dict.bind(py).clone());
    }
    let (dict, symbol) = make(py, frame)?;
    if kept.is_none() {
        let versions = [version(&dict), symbol.as_ref().and_then(version)];
        let entry = Entry { dict: dict.clone().unbind(), symbol: symbol.map(Bound::unbind), versions };
        frame.slot.put(Box::new(entry));
    }
    Ok(dict)
}

impl Entry {
    /// Returns whether only the frame has the dicts, and nothing changed them.
    fn is_unused(&self, py: Python<'_>) -> bool {
        // SAFETY: the GIL is held (`py`), and the dict is a live object.
        let count = |dict: &Py<PyDict>| unsafe { ffi::Py_REFCNT(dict.as_ptr()) };
        let is_free = count(&self.dict) == 1 && self.symbol.as_ref().is_none_or(|symbol| count(symbol) == 2);
        let symbol = self.symbol.as_ref().and_then(|symbol| version(symbol.bind(py)));
        is_free && self.versions[0].is_some() && self.versions == [version(self.dict.bind(py)), symbol]
    }
}

/// Returns the number that CPython changes with each change of a dict (PEP 509). Python 3.14 has no such number any more.
fn version(dict: &Bound<'_, PyDict>) -> Option<u64> {
    #[cfg(not(Py_3_14))]
    {
        // SAFETY: `dict` is a dict (or of a subclass), whose memory starts with this struct. The GIL is held.
        #[allow(deprecated, reason = "it has no successor that tells about single dicts")]
        let version = unsafe { (*dict.as_ptr().cast::<ffi::PyDictObject>()).ma_version_tag };
        Some(version)
    }
    #[cfg(Py_3_14)]
    {
        let _ = dict;
        None
    }
}

fn make<'py>(py: Python<'py>, frame: &Frame) -> PyResult<(Bound<'py, PyDict>, Option<Bound<'py, PyDict>>)> {
    let entry = PyDict::new(py);
    entry.set_item(intern!(py, "ip"), frame.addr)?;
    let mut symbol = None;
    if *frame.symbol != *UNKNOWN {
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "name"), &*frame.symbol)?;
        entry.set_item(intern!(py, "sym"), &dict)?;
        entry.set_item(intern!(py, "sym_off"), frame.offset)?;
        symbol = Some(dict);
    }
    if let Some((file, line)) = &frame.srcline {
        entry.set_item(intern!(py, "sym_srcline"), format!("{file}:{line}"))?;
    }
    entry.set_item(intern!(py, "dso"), &*frame.dso)?;
    Ok((entry, symbol))
}

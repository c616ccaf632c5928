//! The Python objects of a resolved address: the mapping, the symbol, and the entry of callchains. They are made once
//! for each address and stored in the `PerfFrame`, because samples repeat addresses.

use std::ffi::c_long;

use perf_prof_events::event::PerfFrame;
use perf_prof_system::mutex::Mutex;
use pyo3::{
    exceptions::PyRuntimeError,
    ffi, intern,
    prelude::*,
    types::{PyDict, PyInt, PyString},
};

use super::kept_dict::version;

/// The Python objects of a frame.
pub struct FrameObjects {
    /// The mapping that contains the address.
    pub map: Option<MapObjects>,
    /// The symbol that contains the address.
    pub symbol: Option<SymbolObjects>,
    entry: Entry,
}

/// A mapping.
pub struct MapObjects {
    pub dso: Py<PyString>,
    pub build_id: Py<PyString>,
    pub start: Py<PyInt>,
    pub end: Py<PyInt>,
    pub file_offset: Py<PyInt>,
}

/// A symbol, and the offset of the address from its start.
pub struct SymbolObjects {
    pub name: Py<PyString>,
    pub offset: Py<PyInt>,
}

/// An entry of callchains, and the versions that its dicts had when they were made.
struct Entry {
    /// The entry; `None` only while this value is being dropped.
    dict: Option<Py<PyDict>>,
    /// The dict of the symbol. `dict` contains it.
    symbol: Option<Py<PyDict>>,
    versions: [Option<u64>; 2],
}

/// The dicts of frames that were dropped. A script may have put objects into these dicts. When such an object is freed,
/// its `__del__` may look up symbols. But frames are dropped while the lock of the symbols is held. So the dicts are
/// stored here, and freed when the next frame is made.
static GONE: Mutex<Vec<Py<PyDict>>> = Mutex::new(Vec::new());

impl Drop for Entry {
    fn drop(&mut self) {
        let mut gone = GONE.lock();
        gone.extend(self.dict.take().into_iter().chain(self.symbol.take()));
    }
}

impl FrameObjects {
    /// Returns the objects of a frame.
    #[inline]
    pub fn of<'a>(py: Python<'_>, frame: &'a PerfFrame) -> PyResult<&'a FrameObjects> {
        let kept = || frame.slot.get().and_then(|kept| kept.downcast_ref::<FrameObjects>());
        if kept().is_none() {
            frame.slot.put(Box::new(FrameObjects::new(py, frame)?));
        }
        kept().ok_or_else(|| PyRuntimeError::new_err("internal error: the slot of the frame contains other objects"))
    }

    #[cold]
    fn new(py: Python<'_>, frame: &PerfFrame) -> PyResult<FrameObjects> {
        let map = frame.map.as_ref().map(|map| MapObjects {
            dso: PyString::new(py, &map.dso).unbind(),
            build_id: PyString::new(py, &map.build_id).unbind(),
            start: PyInt::new(py, map.start).unbind(),
            end: PyInt::new(py, map.end).unbind(),
            file_offset: PyInt::new(py, map.file_offset).unbind(),
        });
        let symbol = frame.symbol.as_ref().map(|symbol| SymbolObjects {
            name: PyString::new(py, &symbol.name).unbind(),
            offset: PyInt::new(py, symbol.offset).unbind(),
        });
        let gone = std::mem::take(&mut *GONE.lock());
        // The lock of `GONE` is released before the dicts are freed, because freeing a dict may run Python code.
        drop(gone);
        let (dict, of_symbol) = entry(py, frame)?;
        let versions = [version(&dict), of_symbol.as_ref().and_then(version)];
        let entry = Entry { dict: Some(dict.unbind()), symbol: of_symbol.map(Bound::unbind), versions };
        Ok(FrameObjects { map, symbol, entry })
    }

    /// Returns the entry for a callchain. A script may change or keep an entry. So the dict of the last call is
    /// returned only if nothing else refers to the dict, and the dict was not changed. Otherwise a new dict is made.
    #[inline]
    pub fn entry<'py>(&self, py: Python<'py>, frame: &PerfFrame) -> PyResult<Bound<'py, PyDict>> {
        match self.entry.unused(py) {
            Some(dict) => Ok(dict.clone()),
            None => entry(py, frame).map(|(dict, _)| dict),
        }
    }
}

impl Entry {
    /// Returns the dict if nothing else refers to it and it was not changed.
    #[inline]
    fn unused<'py>(&self, py: Python<'py>) -> Option<&Bound<'py, PyDict>> {
        // SAFETY: the GIL is held (`py`), and the dict is a live object.
        let count = |dict: &Py<PyDict>| unsafe { ffi::Py_REFCNT(dict.as_ptr()) };
        let dict = self.dict.as_ref()?;
        let is_free = count(dict) == 1 && self.symbol.as_ref().is_none_or(|symbol| count(symbol) == 2);
        let symbol = self.symbol.as_ref().and_then(|symbol| version(symbol.bind(py)));
        let is_same = self.versions[0].is_some() && self.versions == [version(dict.bind(py)), symbol];
        (is_free && is_same).then(|| dict.bind(py))
    }
}

/// Makes an entry of a callchain. Also returns the dict of its symbol.
pub fn entry<'py>(py: Python<'py>, frame: &PerfFrame) -> PyResult<(Bound<'py, PyDict>, Option<Bound<'py, PyDict>>)> {
    let entry = PyDict::new(py);
    entry.set_item(intern!(py, "ip"), frame.ip)?;
    let mut of_symbol = None;
    if let Some(symbol) = &frame.symbol {
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "start"), symbol.extent.start)?;
        dict.set_item(intern!(py, "end"), symbol.extent.end)?;
        dict.set_item(intern!(py, "binding"), c_long::from(symbol.extent.binding))?;
        dict.set_item(intern!(py, "name"), &*symbol.name)?;
        entry.set_item(intern!(py, "sym"), &dict)?;
        entry.set_item(intern!(py, "sym_off"), symbol.offset)?;
        of_symbol = Some(dict);
    }
    if let Some(srcline) = &frame.srcline {
        entry.set_item(intern!(py, "sym_srcline"), &**srcline)?;
    }
    if let Some(map) = &frame.map {
        entry.set_item(intern!(py, "dso"), &*map.dso)?;
    }
    Ok((entry, of_symbol))
}

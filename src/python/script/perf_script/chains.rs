//! Keeps the callchains of earlier samples as Python lists, because samples often repeat callchains. The list of a
//! callchain is found by the addresses that were recorded.

use std::{hash::Hasher as _, sync::Arc};

use perf_prof_events::event::{Context, PerfFrame, Sample, perf_chain};
use perf_prof_format::abi::PERF_SAMPLE_STACK_USER;
use pyo3::{
    ffi,
    prelude::*,
    types::{PyDict, PyList},
};
use rustc_hash::FxHasher;

use super::{frame, kept_dict::version};

/// The number of callchains that are kept: a power of two.
const KEPT: usize = 512;

/// The lists of the callchains that came last.
pub struct Chains {
    kept: Box<[Chain]>,
    /// The time of the latest sample so far. Changes of mappings up to this time may be known already. For an earlier
    /// sample, only some of these changes count.
    latest: u64,
}

#[derive(Default)]
struct Chain {
    key: Option<Key>,
    /// The recorded addresses and context markers.
    words: Vec<u8>,
    list: Made,
}

/// What determines the meaning of the recorded addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    /// The index of the sample's event. Because this index is part of the key, arguments of different events are never
    /// the same list.
    event: usize,
    pid: i32,
    /// The number of changes of mappings and processes that were known.
    changes: u64,
}

/// The list of a callchain.
#[derive(Default)]
enum Made {
    /// There is no list yet, because the callchain occurred only once.
    #[default]
    Once,
    /// There is no list, because an address of the callchain may have another meaning at the next sample.
    Never,
    /// The list of the last sample with this callchain.
    List(KeptList),
}

/// A list, and everything that shows whether a script has kept or changed it.
struct KeptList {
    list: Py<PyList>,
    /// The time of the sample for which the list was made. For earlier samples, the mappings may have been different.
    since: u64,
    entries: Box<[KeptEntry]>,
}

/// An entry of the list, and the dict of its symbol.
struct KeptEntry {
    frame: Arc<PerfFrame>,
    /// A copy of the entry that no script has seen. It is made when a script has changed the entry. Entries with a
    /// symbol have no copy.
    unchanged: Option<Py<PyDict>>,
    entry: KeptPart,
    symbol: Option<KeptPart>,
}

struct KeptPart {
    dict: Py<PyDict>,
    version: u64,
}

impl Default for Chains {
    fn default() -> Self {
        Chains { kept: (0..KEPT).map(|_| Chain::default()).collect(), latest: 0 }
    }
}

impl Chains {
    /// Returns the kept list for the sample's callchain, if there is one. `held` is a list or null. The caller's
    /// reference to `held` does not count as a reference of the script.
    #[inline]
    pub fn find<'py>(
        &mut self,
        py: Python<'py>,
        event: usize,
        sample: &Sample<'_>,
        context: &Context,
        held: *mut ffi::PyObject,
    ) -> PyResult<Option<Bound<'py, PyList>>> {
        let layout = &sample.event.layout;
        let is_other = layout.format.sample_type & PERF_SAMPLE_STACK_USER != 0 || sample.is_of_guest();
        let Some(words) = layout.callchain(sample.record).filter(|_| !is_other) else { return Ok(None) };
        if sample.time() < self.latest {
            return Ok(None);
        }
        self.latest = sample.time();
        let key = Key { event, pid: sample.pid_tid().0, changes: context.symbol_changes() };
        let chain = &mut self.kept[place(key, words)];
        if chain.key != Some(key) || chain.words != words {
            chain.key = Some(key);
            chain.words.clear();
            chain.words.extend_from_slice(words);
            chain.list = Made::Once;
            return Ok(None);
        }
        match &mut chain.list {
            Made::List(kept) if kept.is_unused(sample.time(), held) => kept.renew_changed(py).map(Some),
            Made::Never => Ok(None),
            // If a script keeps its callchains, it gets new lists. New lists cost less if they are not also stored
            // here.
            Made::List(_) => {
                chain.list = Made::Once;
                Ok(None)
            }
            Made::Once => {
                chain.list = make(py, sample, context)?;
                match &chain.list {
                    Made::List(kept) => Ok(Some(kept.list.bind(py).clone())),
                    Made::Once | Made::Never => Ok(None),
                }
            }
        }
    }
}

/// Makes the list of a callchain. The entries of this list are in no other list.
#[cold]
fn make(py: Python<'_>, sample: &Sample<'_>, context: &Context) -> PyResult<Made> {
    let frames = perf_chain(sample, context);
    let again = perf_chain(sample, context);
    // Frames that are not cached are new objects at each call. Such frames may change their meaning, and no record
    // reports the change.
    let are_cached = frames.len() == again.len() && frames.iter().zip(&again).all(|(one, two)| Arc::ptr_eq(one, two));
    if !are_cached {
        return Ok(Made::Never);
    }
    let entries = frames.into_iter().map(|frame| KeptEntry::new(py, frame)).collect::<PyResult<Option<Box<[_]>>>>()?;
    let Some(entries) = entries else { return Ok(Made::Never) };
    let list = PyList::new(py, entries.iter().map(|kept| kept.entry.dict.bind(py)))?.unbind();
    Ok(Made::List(KeptList { list, since: sample.time(), entries }))
}

impl KeptList {
    /// Returns whether nothing else refers to the list, and the list has as many entries as before.
    #[inline]
    fn is_unused(&self, time: u64, held: *mut ffi::PyObject) -> bool {
        let list = self.list.as_ptr();
        let expected = if list == held { 2 } else { 1 };
        // SAFETY: the GIL is held, and the list is a live object.
        let is_unused =
            unsafe { ffi::Py_REFCNT(list) == expected && ffi::PyList_GET_SIZE(list) as usize == self.entries.len() };
        is_unused && time >= self.since
    }

    /// Returns the list, which no script uses any more. Replaces the entries that the script has kept or changed.
    #[inline]
    fn renew_changed<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = self.list.bind(py);
        for (at, kept) in self.entries.iter_mut().enumerate() {
            // SAFETY: the GIL is held, and the list has an item with this index.
            let item = unsafe { ffi::PyList_GET_ITEM(list.as_ptr(), at as ffi::Py_ssize_t) };
            if item == kept.entry.dict.as_ptr() && kept.is_unused(py) {
                continue;
            }
            kept.renew(py)?;
            list.set_item(at, kept.entry.dict.bind(py))?;
        }
        Ok(list.clone())
    }
}

impl KeptEntry {
    /// Makes an entry. Returns `None` if this Python has no versions of dicts.
    fn new(py: Python<'_>, frame: Arc<PerfFrame>) -> PyResult<Option<KeptEntry>> {
        let (dict, of_symbol) = frame::entry(py, &frame)?;
        let Some(entry) = KeptPart::of(&dict) else { return Ok(None) };
        let symbol = of_symbol.as_ref().and_then(KeptPart::of);
        Ok(Some(KeptEntry { frame, unchanged: None, entry, symbol }))
    }

    /// Makes a new entry for the same frame. An entry without a symbol has to be made often, because scripts add the
    /// missing symbol to it. So such an entry is made as a copy of `unchanged`, which costs less.
    fn renew(&mut self, py: Python<'_>) -> PyResult<()> {
        let (dict, of_symbol) = match &self.unchanged {
            Some(unchanged) => (unchanged.bind(py).copy()?, None),
            None => frame::entry(py, &self.frame)?,
        };
        if self.unchanged.is_none() && of_symbol.is_none() {
            self.unchanged = Some(dict.copy()?.unbind());
        }
        if let Some(entry) = KeptPart::of(&dict) {
            self.entry = entry;
        }
        self.symbol = of_symbol.as_ref().and_then(KeptPart::of);
        Ok(())
    }

    /// Returns whether nothing else refers to the dicts, and the dicts were not changed.
    #[inline]
    fn is_unused(&self, py: Python<'_>) -> bool {
        self.entry.is_unused(py) && self.symbol.as_ref().is_none_or(|symbol| symbol.is_unused(py))
    }
}

impl KeptPart {
    /// Returns `None` if this Python has no versions of dicts.
    fn of(dict: &Bound<'_, PyDict>) -> Option<KeptPart> {
        Some(KeptPart { version: version(dict)?, dict: dict.clone().unbind() })
    }

    /// Returns whether no script uses a dict: only this object and the list or dict that contains the dict refer to it,
    /// and the dict was not changed.
    #[inline]
    fn is_unused(&self, py: Python<'_>) -> bool {
        // SAFETY: the GIL is held (`py`), and the dict is a live object.
        let count = unsafe { ffi::Py_REFCNT(self.dict.as_ptr()) };
        count == 2 && version(self.dict.bind(py)) == Some(self.version)
    }
}

/// Returns the index of a callchain. `key` contains the process id, because the callchains of forked processes have
/// equal addresses.
#[inline]
fn place(key: Key, words: &[u8]) -> usize {
    let mut hasher = FxHasher::default();
    hasher.write_u64((key.pid as u32 as u64) << 32 | key.event as u64);
    hasher.write(words);
    hasher.finish() as usize % KEPT
}

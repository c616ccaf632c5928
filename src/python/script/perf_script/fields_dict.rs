//! The dict of all fields of an event, for `trace_unhandled`.

use pyo3::{
    prelude::*,
    types::{PyDict, PyString},
};

use super::{
    arguments::{ArgumentsOf, COMMON_KEYS, EventArguments, Makers},
    kept_dict::{Holders, KeptDict},
    passing::Common,
    reads::Read,
};

/// The index of `common_callchain` in the dict.
const CALLCHAIN: usize = COMMON_KEYS.len() - 1;

/// Makes the dicts for the samples of one event.
pub struct FieldsDict {
    kept: KeptDict,
    keys: Vec<Py<PyString>>,
    /// For each key, whether it is the last key with its name. Only the last key of a name gets a value, because a
    /// later value in a dict replaces an earlier value.
    is_last: Box<[bool]>,
    /// The [`Read`] from which `wanted` was computed.
    read: Read,
    /// For each key, whether the function reads it.
    wanted: Box<[bool]>,
}

impl FieldsDict {
    /// Prepares the dicts of an event.
    pub fn new(py: Python<'_>, event: &EventArguments) -> PyResult<FieldsDict> {
        let keys = COMMON_KEYS.iter().map(|(key, _)| *key).chain(event.field_names());
        let keys: Vec<Py<PyString>> = keys.map(|key| PyString::intern(py, key).unbind()).collect();
        let is_last: Box<[bool]> =
            (0..keys.len()).map(|at| !keys[at + 1..].iter().any(|later| later.is(&keys[at]))).collect();
        let names = PyDict::new(py);
        for key in &keys {
            names.set_item(key, py.None())?;
        }
        let kept = KeptDict::new(names.unbind(), keys.iter().map(|key| key.clone_ref(py)));
        Ok(FieldsDict { kept, wanted: is_last.clone(), keys, is_last, read: Read::Whole })
    }

    /// Makes the dict of a sample. Only the items in `read` get the values of this sample.
    pub fn make<'py>(
        &mut self,
        py: Python<'py>,
        read: &Read,
        of: ArgumentsOf<'_>,
        makers: &mut Makers,
    ) -> PyResult<Bound<'py, PyDict>> {
        if !self.read.is(read) {
            self.want(py, read)?;
        }
        self.kept.begin(py, Holders::Own)?;
        for (at, (_, common)) in COMMON_KEYS.iter().enumerate() {
            if !self.wanted[at] || *common == Common::Callchain {
                continue;
            }
            match makers.number_of(*common, of) {
                Some(number) => {
                    self.kept.set_of_number(py, at, number, || makers.number_or_comm(py, *common, of))?;
                }
                None => self.kept.set(py, at, makers.number_or_comm(py, *common, of))?,
            }
        }
        if self.wanted[CALLCHAIN] {
            makers.common.set_callchain(py, of.at, of.sample, &mut self.kept, CALLCHAIN)?;
        }
        let wanted = &self.wanted[COMMON_KEYS.len()..];
        for (at, (field, wanted)) in of.event.fields.iter().zip(wanted).enumerate() {
            if !wanted {
                continue;
            }
            let (at, objects) = (COMMON_KEYS.len() + at, &mut makers.objects);
            match field.number_of(of.raw) {
                Some(number) => self.kept.set_of_number(py, at, number, || field.object(py, of.raw, objects))?,
                None => self.kept.set(py, at, field.object(py, of.raw, objects))?,
            }
        }
        Ok(self.kept.end(py))
    }

    #[cold]
    fn want(&mut self, py: Python<'_>, read: &Read) -> PyResult<()> {
        for ((wanted, key), is_last) in self.wanted.iter_mut().zip(&self.keys).zip(&self.is_last) {
            let is_read = match read {
                Read::Whole => true,
                Read::Nothing => false,
                Read::Items(paths) => {
                    paths.iter().any(|path| path.first().is_some_and(|first| key.bind(py) == first.as_str()))
                }
            };
            *wanted = is_read && *is_last;
        }
        self.read = read.clone();
        self.kept.renew(py)
    }
}

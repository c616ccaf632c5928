//! Makes the arguments of the script's functions from a sample.

use perf_prof_session::spine::About;
use std::sync::Arc;

use perf_prof_events::event::{EventType, Sample};
use pyo3::{
    ffi,
    prelude::*,
    types::{PyDict, PyString},
};

use super::{
    Options, Signs,
    cache::{NewReference, Objects},
    context::SampleContext,
    field::FieldReader,
    header::HeaderValues,
    passing::{Common, Value},
    sample::SampleDict,
};

/// The values that all tracepoints have, by their names in the dict for `trace_unhandled`.
const COMMON_KEYS: [(&str, Common); 6] = [
    ("common_cpu", Common::Cpu),
    ("common_s", Common::Secs),
    ("common_ns", Common::Nsecs),
    ("common_pid", Common::Pid),
    ("common_comm", Common::Comm),
    ("common_callchain", Common::Callchain),
];

/// The readers of the values for the samples of one event.
pub struct EventArguments {
    name: Py<PyString>,
    /// The readers of the fields after the common ones.
    pub fields: Vec<FieldReader>,
    /// The names of the common values and of the fields, in their order in the dict for `trace_unhandled`.
    keys: Vec<Py<PyString>>,
    /// A dict with these names as keys. A copy of it already has room for all values.
    names: Py<PyDict>,
    /// The reader of `common_pid`.
    pid: Option<FieldReader>,
}

/// A sample, with everything that is needed for making arguments of its values.
#[derive(Clone, Copy)]
pub struct ArgumentsOf<'a> {
    /// The index of the sample's event.
    pub at: usize,
    /// The readers of the sample's event.
    pub event: &'a EventArguments,
    pub sample: &'a Sample<'a>,
    /// The sample's raw data.
    pub raw: &'a [u8],
}

impl EventArguments {
    /// Prepares the arguments of an event.
    pub fn new(py: Python<'_>, event: &EventType, options: Options) -> PyResult<EventArguments> {
        let (common, fields) = match event.format.tracepoint() {
            Some(format) => (format.common_fields(), format.fields()),
            None => (&[][..], &[][..]),
        };
        let pid = common.iter().find(|field| field.name == "common_pid");
        let keys = COMMON_KEYS.iter().map(|(key, _)| *key).chain(fields.iter().map(|field| field.name.as_str()));
        let keys: Vec<Py<PyString>> = keys.map(|key| PyString::intern(py, key).unbind()).collect();
        let names = PyDict::new(py);
        for key in &keys {
            names.set_item(key, py.None())?;
        }
        Ok(EventArguments {
            name: PyString::intern(py, &event.handler_name()).unbind(),
            fields: fields.iter().map(|field| FieldReader::new(field, options.signs)).collect(),
            names: names.unbind(),
            keys,
            // The kernel writes thread ids from 0 on. But another program may have written any number into the
            // recording.
            pid: pid.map(|pid| FieldReader::new(pid, Signs::True)),
        })
    }

    /// Returns the names of the fields.
    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name.as_str())
    }
}

/// Makes the arguments for all events of a run.
pub struct Arguments {
    pub context: Py<SampleContext>,
    common: HeaderValues,
    objects: Objects,
    sample: SampleDict,
}

impl Arguments {
    /// Prepares the arguments for the events of a run.
    pub fn new(py: Python<'_>, run: &Arc<About>) -> PyResult<Arguments> {
        Ok(Arguments {
            context: Py::new(py, SampleContext::new(run.context.clone()))?,
            common: HeaderValues::new(run.context.clone()),
            objects: Objects::default(),
            sample: SampleDict::new(py, run)?,
        })
    }

    /// Makes one argument for a sample.
    #[inline]
    pub fn make(&mut self, py: Python<'_>, value: Value, of: ArgumentsOf<'_>) -> NewReference {
        let ArgumentsOf { at, event, sample, raw } = of;
        match value {
            Value::Common(Common::EventName) => event.name.clone_ref(py).into_ptr(),
            Value::Common(Common::Context) => self.context.clone_ref(py).into_ptr(),
            Value::Common(Common::Cpu) => self.common.cpu(py, sample, &mut self.objects),
            Value::Common(Common::Secs) => self.common.secs(py, sample),
            Value::Common(Common::Nsecs) => self.common.nsecs(py, sample, &self.objects),
            Value::Common(Common::Pid) => match &event.pid {
                Some(pid) => pid.object(py, raw, &mut self.objects),
                None => self.objects.signed(py, sample.pid_tid().1.into()),
            },
            Value::Common(Common::Comm) => self.common.comm(py, sample),
            Value::Common(Common::Callchain) => pointer(py, self.common.callchain(py, sample)),
            Value::Field(field) => event.fields[field].object(py, raw, &mut self.objects),
            Value::Fields => pointer(py, self.fields(py, of)),
            Value::Sample => pointer(py, self.sample.make(py, at, sample, &mut self.common)),
        }
    }

    /// Makes the dict of all fields for `trace_unhandled`.
    fn fields<'py>(&mut self, py: Python<'py>, of: ArgumentsOf<'_>) -> PyResult<Bound<'py, PyDict>> {
        let fields = of.event.names.bind(py).copy()?;
        let (common_keys, keys) = of.event.keys.split_at(COMMON_KEYS.len());
        for (key, (_, common)) in common_keys.iter().zip(COMMON_KEYS) {
            set(&fields, key, self.make(py, Value::Common(common), of))?;
        }
        for (key, field) in keys.iter().zip(&of.event.fields) {
            set(&fields, key, field.object(py, of.raw, &mut self.objects))?;
        }
        Ok(fields)
    }
}

/// Returns a new reference to the object. If there is none, sets the exception and returns null.
fn pointer<T>(py: Python<'_>, object: PyResult<Bound<'_, T>>) -> NewReference {
    match object {
        Ok(object) => object.into_ptr(),
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
    }
}

/// Sets an item of a dict, and releases the reference to its value.
#[inline]
pub fn set(dict: &Bound<'_, PyDict>, key: &Py<PyString>, value: NewReference) -> PyResult<()> {
    let py = dict.py();
    if value.is_null() {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: the GIL is held, and all three are live objects.
    let result = unsafe {
        let result = ffi::PyDict_SetItem(dict.as_ptr(), key.as_ptr(), value);
        ffi::Py_DECREF(value);
        result
    };
    if result == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
}

//! Makes the arguments of the script's functions from a sample.

use perf_prof_session::spine::About;
use std::sync::Arc;

use perf_prof_events::event::{EventType, Sample};
use pyo3::{prelude::*, types::PyString};

use super::{
    Options, Signs,
    cache::{NewReference, Objects},
    context::SampleContext,
    field::FieldReader,
    fields_dict::FieldsDict,
    function::Made,
    handlers::EventHandler,
    header::HeaderValues,
    passing::{Common, Value},
    sample::SampleDict,
};

/// The values that all tracepoints have, by their keys in the dict for `trace_unhandled`.
pub const COMMON_KEYS: [(&str, Common); 6] = [
    ("common_cpu", Common::Cpu),
    ("common_s", Common::Secs),
    ("common_ns", Common::Nsecs),
    ("common_pid", Common::Pid),
    ("common_comm", Common::Comm),
    ("common_callchain", Common::Callchain),
];

/// Reads the argument values from the samples of one event.
pub struct EventArguments {
    name: Py<PyString>,
    /// The readers of the event's own fields.
    pub fields: Vec<FieldReader>,
    pid: Option<FieldReader>,
}

/// A sample, and everything that is needed to make arguments from it.
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
        Ok(EventArguments {
            name: PyString::intern(py, &event.handler_name()).unbind(),
            fields: fields.iter().map(|field| FieldReader::new(field, options.signs)).collect(),
            // The kernel writes no negative thread ids. But another program may have written any number into the
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
    makers: Makers,
    /// The dicts for `trace_unhandled`, one dict for each event.
    fields: Vec<FieldsDict>,
    sample: SampleDict,
}

/// Makes all values that are not dicts.
pub struct Makers {
    pub common: HeaderValues,
    pub objects: Objects,
}

impl Arguments {
    /// Prepares the arguments for the events of a run.
    pub fn new(py: Python<'_>, run: &Arc<About>, events: &[EventHandler]) -> PyResult<Arguments> {
        Ok(Arguments {
            context: Py::new(py, SampleContext::new(run.context.clone()))?,
            makers: Makers { common: HeaderValues::new(run.context.clone()), objects: Objects::default() },
            fields: events.iter().map(|event| FieldsDict::new(py, &event.arguments)).collect::<PyResult<_>>()?,
            sample: SampleDict::new(py, run)?,
        })
    }

    /// Makes one argument for a sample.
    #[inline]
    pub fn make(&mut self, py: Python<'_>, made: &Made, of: ArgumentsOf<'_>) -> NewReference {
        match made.value {
            Value::Common(Common::EventName) => of.event.name.clone_ref(py).into_ptr(),
            Value::Common(Common::Context) => self.context.clone_ref(py).into_ptr(),
            Value::Common(Common::Callchain) => pointer(py, self.makers.common.callchain(py, of.at, of.sample)),
            Value::Common(common) => self.makers.number_or_comm(py, common, of),
            Value::Field(field) => of.event.fields[field].object(py, of.raw, &mut self.makers.objects),
            Value::Fields => pointer(py, self.fields[of.at].make(py, &made.read, of, &mut self.makers)),
            Value::Sample => pointer(py, self.sample.make(py, made.of_sample, of, &mut self.makers)),
        }
    }
}

impl Makers {
    /// Returns a number that determines what [`Makers::number_or_comm`] returns: for equal numbers, it returns equal
    /// values. Returns `None` if there is no such number.
    #[inline]
    pub fn number_of(&self, common: Common, of: ArgumentsOf<'_>) -> Option<u64> {
        let ArgumentsOf { event, sample, raw, .. } = of;
        match common {
            Common::Cpu => sample.event.layout.cpu(sample.record).map(u64::from),
            Common::Secs => Some(sample.time() / 1_000_000_000),
            Common::Pid => event.pid.as_ref()?.number_of(raw),
            Common::Nsecs | Common::Comm | Common::Callchain | Common::EventName | Common::Context => None,
        }
    }

    /// Makes one of the common values, except the callchain, the name of the event, and the context.
    #[inline]
    pub fn number_or_comm(&mut self, py: Python<'_>, common: Common, of: ArgumentsOf<'_>) -> NewReference {
        let ArgumentsOf { event, sample, raw, .. } = of;
        match common {
            Common::Cpu => self.common.cpu(py, sample, &mut self.objects),
            Common::Secs => self.common.secs(py, sample),
            Common::Nsecs => self.common.nsecs(py, sample, &self.objects),
            Common::Pid => match &event.pid {
                Some(pid) => pid.object(py, raw, &mut self.objects),
                None => self.objects.signed(py, sample.pid_tid().1.into()),
            },
            Common::Comm | Common::Callchain | Common::EventName | Common::Context => self.common.comm(py, sample),
        }
    }
}

/// Returns a new reference to the object. For an error, sets the exception and returns null.
fn pointer<T>(py: Python<'_>, object: PyResult<Bound<'_, T>>) -> NewReference {
    match object {
        Ok(object) => object.into_ptr(),
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
    }
}

//! The Python class of an event type. It is created from the event's format when a run starts.

use std::ffi::CString;

use perf_prof_events::{
    event::{EventType, Format, SpanPart},
    template,
};
use perf_prof_format::{control_characters::without_controls, tracefs::Field};
use pyo3::{
    ffi,
    prelude::*,
    types::{PyDict, PyString},
};

use super::{
    access::Member,
    attributes::{Attributes, Getter},
    base::{base_type, new_type},
    detached::class_of,
    members, perf_sample,
};

/// Which attributes the events of a class have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// The attributes of `perf_prof.PerfEvent`, and the members of the sample.
    PerfProf,
    /// The attributes of `perf_prof.PerfEvent` and of `perf.sample_event`.
    PerfModule,
}

/// The members that only spans have. The order is that of [`template::SPAN_MEMBERS`].
const SPAN_MEMBERS: [Member; 4] =
    [Member::Part(SpanPart::Begin), Member::Part(SpanPart::End), Member::Between, Member::Comm];

/// The members that no field replaces. A field of the event replaces every other member that has the name of the field.
const NOT_REPLACED_BY_FIELDS: [&str; 4] = ["_time", "_cpu", "_pid", "_tid"];

impl Interface {
    /// Returns whether a member is an attribute of the events.
    fn shows(self, member: Member) -> bool {
        self == Interface::PerfProf || !matches!(member, Member::Sample(_))
    }
}

/// The class of an event type. It lives as long as the process, because the descriptors of the Python class point into
/// it.
pub struct Class {
    /// The event type.
    pub event: EventType,
    pub interface: Interface,
    /// The value of `_event`.
    pub shown_name: String,
    /// The names and members, first those in `keys()`, in the same order. The last members, `_comm` and `_cgroup`, are
    /// not in `keys()`.
    members: Vec<(Py<PyString>, Member)>,
    /// The getters of the members in `keys()`, in the same order.
    getters: Vec<Getter>,
    /// A dict with the names in `keys()` and without values. A copy of this dict already has room for all values.
    names: Py<PyDict>,
    /// The value of `_event`, as a Python object.
    shown_name_object: Py<PyString>,
    /// The number of members in `keys()`. These members come first in `members`.
    listed: usize,
    /// The index in `members` by name. A Python dict is used, because it finds a name through any str object with the
    /// same text, and is fast for interned names.
    index: Py<PyDict>,
    attributes: Attributes,
    /// The common fields, then the own fields of the event.
    fields: Vec<&'static Field>,
    /// The classes of the events that spans of this class are made of.
    inputs: Vec<&'static Class>,
    python_type: *mut ffi::PyTypeObject,
}

/// The names of the members that are not in `keys()`.
const COMM: &str = "_comm";
const CGROUP: &str = "_cgroup";

/// Returns all members of an event type with their names. If two members have the same name, [`Class::new`] chooses one
/// of them.
fn members_of(event: &EventType, fields: &[&'static Field]) -> Vec<(&'static str, Member)> {
    match &event.format {
        Format::Other(_) => sample_members(event),
        Format::Tracepoint(format) => tracepoint_members(fields, format.common_fields().len()),
        Format::Span(span) => {
            let mut all = tracepoint_members(fields, span.format.common_fields().len());
            all.extend(span_members(fields).map(|(name, member, _)| (name, member)));
            all
        }
    }
}

/// Returns the members that are not in `keys()`, and so not in `to_dict()`: the name of the task and the path of the
/// cgroup. The record does not contain these values. Looking up the name of a task is slow. Of the cgroup, the record
/// contains only the id.
fn unlisted_members(event: &EventType) -> impl Iterator<Item = (&'static str, Member)> + use<> {
    let cgroup = event.layout.has_cgroup().then_some((CGROUP, Member::Cgroup));
    [Some((COMM, Member::Comm)), cgroup].into_iter().flatten()
}

/// Copies a field into memory that is never freed, so that a descriptor can point to it.
fn leaked(field: &Field) -> &'static Field {
    Box::leak(Box::new(field.clone()))
}

/// The members of an event type, and an index of them by name.
struct ByName<'py> {
    members: Vec<(Py<PyString>, Member)>,
    /// The number of members in `keys()`. These members come first in `members`.
    listed: usize,
    /// The index in `members` by name.
    index: Bound<'py, PyDict>,
}

impl<'py> ByName<'py> {
    fn new(py: Python<'py>, event: &EventType, fields: &[&'static Field]) -> PyResult<ByName<'py>> {
        let index = PyDict::new(py);
        let mut members: Vec<(Py<PyString>, Member)> = Vec::new();
        for (name, member) in members_of(event, fields) {
            match index.get_item(name)? {
                // A field replaces a member of the same name, except for the members in NOT_REPLACED_BY_FIELDS.
                Some(at) if !NOT_REPLACED_BY_FIELDS.contains(&name) => members[at.extract::<usize>()?].1 = member,
                Some(_) => {}
                None => {
                    let name = PyString::intern(py, name);
                    index.set_item(&name, members.len())?;
                    members.push((name.unbind(), member));
                }
            }
        }
        let listed = members.len();
        for (name, member) in unlisted_members(event) {
            if index.get_item(name)?.is_none() {
                let name = PyString::intern(py, name);
                index.set_item(&name, members.len())?;
                members.push((name.unbind(), member));
            }
        }
        Ok(ByName { members, listed, index })
    }
}

// SAFETY: the type object is only used with the GIL held. The other members never change.
unsafe impl Send for Class {}
// SAFETY: the type object is only used with the GIL held. The other members never change.
unsafe impl Sync for Class {}

impl Class {
    /// Creates the class of an event type.
    pub fn new(py: Python<'_>, event: EventType, interface: Interface) -> PyResult<&'static Class> {
        let format = event.format.tracepoint();
        let fields = format.map(|format| format.common_fields().iter().chain(format.fields()).map(leaked));
        let fields: Vec<&'static Field> = fields.into_iter().flatten().collect();
        let inputs = match &event.format {
            Format::Span(span) => span.inputs.iter().map(|input| class_of(py, input)).collect::<PyResult<_>>()?,
            Format::Tracepoint(_) | Format::Other(_) => Vec::new(),
        };
        let ByName { members, listed, index } = ByName::new(py, &event, &fields)?;
        let raw_offset = event.layout.raw_offset();
        let getters: Vec<Getter> = fields.iter().map(|field| members::field_getter(field, raw_offset)).collect();
        let getter = |member| match member {
            Member::Field(at) => getters[at],
            Member::Sample(member) => members::sample_getter(member, &event.layout),
            own => members::own_getter(own),
        };
        let mut named = match interface {
            Interface::PerfProf => Vec::new(),
            Interface::PerfModule => perf_sample::attributes(py, &event.layout, &fields),
        };
        let (mut of_members, names) = (Vec::new(), PyDict::new(py));
        for (at, (name, member)) in members.iter().enumerate() {
            let getter = getter(*member);
            if interface.shows(*member) && template::access_by_key(name.to_str(py)?).is_none() {
                named.push((name.as_ptr(), getter));
            }
            if at < listed {
                of_members.push(getter);
                names.set_item(name, py.None())?;
            }
        }
        let attributes = Attributes::new(&named);
        let shown_name = event.shown_name();
        let python_type = python_type(py, (&event, interface), &shown_name, &fields, &getters)?;
        let index = index.unbind();
        let class = Class {
            event,
            interface,
            shown_name_object: PyString::new(py, &shown_name).unbind(),
            shown_name,
            members,
            listed,
            getters: of_members,
            names: names.unbind(),
            index,
            attributes,
            fields,
            inputs,
            python_type,
        };
        Ok(Box::leak(Box::new(class)))
    }

    /// Returns the Python type.
    pub fn python_type(&self) -> *mut ffi::PyTypeObject {
        self.python_type
    }

    /// Returns the members in the order of `keys()`, with their names.
    pub fn members(&self) -> &[(Py<PyString>, Member)] {
        &self.members[..self.listed]
    }

    /// Returns the names of the members in `keys()`, each with its getter, in the same order.
    pub fn named_getters(&self) -> impl Iterator<Item = (&Py<PyString>, Getter)> {
        self.members().iter().map(|(name, _)| name).zip(self.getters.iter().copied())
    }

    /// Returns a new dict with the names of all members. All values are None.
    pub fn new_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.names.bind(py).copy()
    }

    /// Returns the value of `_event`.
    pub fn shown_name_object(&self) -> &Py<PyString> {
        &self.shown_name_object
    }

    /// Returns the member of this name, even if it is not in `keys()`.
    pub fn member(&self, name: &Bound<'_, PyAny>) -> PyResult<Option<Member>> {
        let at = self.index.bind(name.py()).get_item(name)?;
        Ok(at.map(|at| at.extract::<usize>()).transpose()?.map(|at| self.members[at].1))
    }

    /// Returns the getters by name.
    #[inline]
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Returns the field with this index.
    #[inline]
    pub fn field(&self, index: usize) -> &'static Field {
        self.fields[index]
    }

    /// Returns the class and the record of the event that begins or ends the span in `record`.
    pub fn part<'a>(&'a self, part: SpanPart, record: &'a [u8]) -> Option<(&'static Class, &'a [u8])> {
        let Format::Span(span) = &self.event.format else { return None };
        let (input, record) = span.part(part, self.raw(record))?;
        Some((self.inputs.get(input)?, record))
    }

    /// Returns the classes and the records of the events between the begin and the end of the span in `record`.
    pub fn between<'a>(&'a self, record: &'a [u8]) -> Vec<(&'static Class, &'a [u8])> {
        let Format::Span(span) = &self.event.format else { return Vec::new() };
        let between = span.between(self.raw(record));
        between.filter_map(|(input, record)| Some((*self.inputs.get(input)?, record))).collect()
    }

    /// Returns the raw data of a record: the fields of the tracepoint.
    #[inline]
    pub fn raw<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        self.event.layout.raw(record).unwrap_or(&[])
    }
}

/// Returns the members of a tracepoint's events. The first `common` elements of `fields` are the fields of all
/// tracepoints.
fn tracepoint_members(fields: &[&'static Field], common: usize) -> Vec<(&'static str, Member)> {
    let named = |range: std::ops::Range<usize>| range.map(|at| (fields[at].name.as_str(), Member::Field(at)));
    let first = Member::OWN[..5].iter().copied().chain(named(0..common));
    first.chain(Member::OWN[5..8].iter().copied()).chain(named(common..fields.len())).collect()
}

/// Returns the members that only spans have. Skips a member if a field of the span's key has the same name.
fn span_members(fields: &[&'static Field]) -> impl Iterator<Item = (&'static str, Member, String)> {
    let all = template::SPAN_MEMBERS.into_iter().zip(SPAN_MEMBERS);
    all.filter(|((name, ..), _)| fields.iter().all(|field| field.name != *name))
        .map(|((name, python, doc), member)| (name, member, format!("{name} : {python}    ({doc})")))
}

/// Returns the members of events other than tracepoints.
fn sample_members(event: &EventType) -> Vec<(&'static str, Member)> {
    const OWN: [Member; 6] = [Member::Pid, Member::Tid, Member::Time, Member::Cpu, Member::Realtime, Member::Event];
    let own = OWN.into_iter().filter_map(|own| Member::OWN.into_iter().find(|&(_, member)| member == own));
    own.chain(event.members().map(|member| (member.name(), Member::Sample(member)))).collect()
}

fn python_type(
    py: Python<'_>,
    (event, interface): (&EventType, Interface),
    shown_name: &str,
    fields: &[&'static Field],
    getters: &[Getter],
) -> PyResult<*mut ffi::PyTypeObject> {
    let of_fields = fields.iter().zip(getters).map(|(field, getter)| {
        let doc = template::field_line(field);
        (field.name.as_str(), *getter, doc)
    });
    let of_samples = event.members().filter(|_| interface == Interface::PerfProf).map(|member| {
        let doc = template::member_line(member);
        (member.name(), members::sample_getter(member, &event.layout), doc)
    });
    let of_spans = span_members(fields).filter(|_| matches!(event.format, Format::Span(_)));
    let of_spans = of_spans.map(|(name, member, doc)| (name, members::own_getter(member), doc));
    let all: Vec<(&str, Getter, String)> = of_fields.chain(of_samples).chain(of_spans).collect();
    let is_attribute = |name: &str| !NOT_REPLACED_BY_FIELDS.contains(&name) && template::access_by_key(name).is_none();
    let descriptors = all.iter().filter(|(name, ..)| is_attribute(name));
    let descriptors = descriptors.map(|(name, getter, doc)| members::member(name, *getter, doc));
    let descriptors = members::terminated(descriptors.collect());
    let docs: Vec<&str> = all.iter().map(|(.., doc)| doc.as_str()).collect();
    let doc = format!("{}\n\nFields:\n    {}\n", without_controls(shown_name), docs.join("\n    "));
    let doc = CString::new(doc)?.into_raw();
    let name = match interface {
        Interface::PerfProf => CString::new(format!("perf_prof.{}", event.handler_name()))?,
        Interface::PerfModule => c"perf.sample_event".to_owned(),
    };
    let slots = vec![(ffi::Py_tp_getset, descriptors.as_mut_ptr().cast()), (ffi::Py_tp_doc, doc.cast())];
    let base = match interface {
        Interface::PerfProf => base_type(py)?,
        Interface::PerfModule => perf_sample::sample_type(py)?,
    };
    // SAFETY: name, doc and descriptors live as long as the process.
    let made = unsafe { new_type(py, Box::leak(name.into_boxed_c_str()), 0, slots, Some(base))? };
    Ok(made.into_ptr().cast())
}

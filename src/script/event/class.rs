//! One Python class per event type, made at start-up.

use std::{
    ffi::{CString, c_int, c_uint, c_void},
    sync::Arc,
};

use pyo3::{
    ffi,
    prelude::*,
    types::{PyDict, PyString},
};

use super::{
    access::Member,
    attributes::{Attributes, Getter},
    base::base_type,
    members,
};
use crate::{
    event::{Context, EventType},
    template,
    tracefs::Field,
};

/// The names that stand before a format's fields in the order of look-up.
const FIRST: [&str; 4] = ["_time", "_cpu", "_pid", "_tid"];

/// An event type's class. Lives as long as the process, as its descriptors point into it.
pub struct Class {
    /// What it shows.
    pub event: EventType,
    /// The run's knowledge.
    pub context: Arc<Context>,
    /// `_event`.
    pub shown_name: String,
    /// The members in the order of `keys()`, with their names.
    members: Vec<(Py<PyString>, Member)>,
    /// Member's index by name. A dict, because names are compared by value and most are interned.
    index: Py<PyDict>,
    attributes: Attributes,
    /// Common fields, then the event's own.
    fields: Vec<&'static Field>,
    python_type: *mut ffi::PyTypeObject,
}

/// A field that lives as long as the process, for a descriptor to point to.
fn lasting(field: &Field) -> &'static Field {
    Box::leak(Box::new(field.clone()))
}

// SAFETY: the type object is only touched under the lock; the rest is immutable.
unsafe impl Send for Class {}
// SAFETY: as above.
unsafe impl Sync for Class {}

impl Class {
    /// Makes the class of an event type.
    pub fn new(py: Python<'_>, event: EventType, context: Arc<Context>) -> PyResult<&'static Class> {
        let format = event.format.clone();
        let fields: Vec<&'static Field> = format.common_fields().iter().chain(format.fields()).map(lasting).collect();
        let common = format.common_fields().len();
        let named = |range: std::ops::Range<usize>| range.map(|at| (fields[at].name.as_str(), Member::Field(at)));
        let all = Member::OWN[..5].iter().copied().chain(named(0..common));
        let all = all.chain(Member::OWN[5..].iter().copied()).chain(named(common..fields.len()));

        let index = PyDict::new(py);
        let mut members: Vec<(Py<PyString>, Member)> = Vec::new();
        for (name, member) in all {
            match index.get_item(name)? {
                // A field takes the place of a member of that name, but for the four that come first.
                Some(at) if !FIRST.contains(&name) => members[at.extract::<usize>()?].1 = member,
                Some(_) => {}
                None => {
                    let name = PyString::intern(py, name);
                    index.set_item(&name, members.len())?;
                    members.push((name.unbind(), member));
                }
            }
        }
        let raw_offset = event.layout.raw_offset();
        let getters: Vec<Getter> = fields.iter().map(|field| members::field_getter(field, raw_offset)).collect();
        let getter = |member| match member {
            Member::Field(at) => Some(getters[at]),
            own => members::own_getter(own),
        };
        let named: Vec<_> =
            members.iter().filter_map(|(name, member)| Some((name.as_ptr(), getter(*member)?))).collect();
        let attributes = Attributes::new(&named);
        let shown_name = event.shown_name();
        let python_type = python_type(py, &event, &shown_name, &fields, &getters)?;
        let index = index.unbind();
        let class = Class { event, context, shown_name, members, index, attributes, fields, python_type };
        Ok(Box::leak(Box::new(class)))
    }

    /// The Python class.
    pub fn python_type(&self) -> *mut ffi::PyTypeObject {
        self.python_type
    }

    /// The members in the order of `keys()`.
    pub fn members(&self) -> &[(Py<PyString>, Member)] {
        &self.members
    }

    /// The member of that name.
    pub fn member(&self, name: &Bound<'_, PyAny>) -> PyResult<Option<Member>> {
        let at = self.index.bind(name.py()).get_item(name)?;
        Ok(at.map(|at| at.extract::<usize>()).transpose()?.map(|at| self.members[at].1))
    }

    /// The getters by name.
    #[inline]
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// A field by its index.
    #[inline]
    pub fn field(&self, index: usize) -> &'static Field {
        self.fields[index]
    }

    /// A record's tracepoint data.
    #[inline]
    pub fn raw<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        self.event.layout.raw(record).unwrap_or(&[])
    }
}

fn python_type(
    py: Python<'_>,
    event: &EventType,
    shown_name: &str,
    fields: &[&'static Field],
    getters: &[Getter],
) -> PyResult<*mut ffi::PyTypeObject> {
    let field_docs = fields.iter().map(|field| template::field_line(field));
    let descriptors = fields.iter().zip(getters).zip(field_docs.clone());
    let descriptors = descriptors.filter(|((field, _), _)| !FIRST.contains(&field.name.as_str()));
    let descriptors = descriptors.map(|((field, getter), doc)| members::field_member(field, *getter, &doc));
    let descriptors = members::terminated(descriptors.collect());
    let doc = format!("{shown_name}\n\nFields:\n    {}\n", field_docs.collect::<Vec<_>>().join("\n    "));
    let doc = CString::new(doc)?.into_raw();
    let name = CString::new(format!("perf_prof.{}", event.handler_name()))?.into_raw();
    let mut slots = [
        ffi::PyType_Slot { slot: ffi::Py_tp_getset, pfunc: descriptors.as_mut_ptr().cast::<c_void>() },
        ffi::PyType_Slot { slot: ffi::Py_tp_doc, pfunc: doc.cast::<c_void>() },
        ffi::PyType_Slot { slot: 0, pfunc: std::ptr::null_mut() },
    ];
    let mut spec = ffi::PyType_Spec {
        name,
        // 0: the base's, so the layout is the same.
        basicsize: 0 as c_int,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION | ffi::Py_TPFLAGS_IMMUTABLETYPE)
            as c_uint,
        slots: slots.as_mut_ptr(),
    };
    let base = base_type(py)?;
    // SAFETY: the spec and its slots are complete; name, doc and descriptors live as long as the process.
    unsafe {
        let object = ffi::PyType_FromSpecWithBases(&mut spec, base.as_ptr());
        Ok(Bound::from_owned_ptr_or_err(py, object)?.into_ptr().cast())
    }
}

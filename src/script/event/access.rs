//! Which members an event has, and each member's value as a Python object.

use std::sync::Arc;

use pyo3::{ffi, prelude::*};

use super::{convert, object::EventObject};
use crate::{
    event::{Frame, frames},
    record::{MemberType, SampleMember},
    tracefs::Field,
    value::Value,
};

/// A member of an event, as `keys()` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// `_pid`: process.
    Pid,
    /// `_tid`: thread.
    Tid,
    /// `_time`: nanoseconds of the capture's clock.
    Time,
    /// `_cpu`.
    Cpu,
    /// `_period`.
    Period,
    /// `_realtime`: nanoseconds since the Unix epoch.
    Realtime,
    /// `_callchain`: list of frames.
    Callchain,
    /// `_event`: `sys:name` or `sys:alias`.
    Event,
    /// A field of the format, common fields first.
    Field(usize),
    /// A member of a sample that is no tracepoint's.
    Sample(SampleMember),
}

impl Member {
    /// The members that no format gives, with their names.
    pub const OWN: [(&str, Member); 8] = [
        ("_pid", Member::Pid),
        ("_tid", Member::Tid),
        ("_time", Member::Time),
        ("_cpu", Member::Cpu),
        ("_period", Member::Period),
        ("_realtime", Member::Realtime),
        ("_callchain", Member::Callchain),
        ("_event", Member::Event),
    ];

    /// A new reference to the member's value; null with an exception set.
    ///
    /// # Safety
    /// `object` is an event object, and the lock is held.
    #[inline]
    pub unsafe fn get(self, object: *mut ffi::PyObject) -> *mut ffi::PyObject {
        // SAFETY: the caller's.
        let this = unsafe { EventObject::of(object) };
        let sample = this.sample();
        let value = match self {
            Member::Pid => Value::Int(sample.pid_tid().0.into()),
            Member::Tid => Value::Int(sample.pid_tid().1.into()),
            Member::Time => Value::Uint(sample.time()),
            Member::Cpu => Value::Uint(sample.cpu().into()),
            Member::Period => Value::Uint(sample.period()),
            Member::Realtime => Value::Int(realtime(this)),
            // SAFETY: the caller's.
            Member::Callchain => return unsafe { callchain(object) },
            Member::Event => Value::Str(this.class().shown_name.as_bytes()),
            // SAFETY: the caller's.
            Member::Field(index) => return unsafe { field(this, this.class().field(index)) },
            Member::Sample(SampleMember::Callchain) => {
                // SAFETY: the caller's.
                return unsafe { callchain(object) };
            }
            Member::Sample(member) if member.kind() == MemberType::Int || member.kind() == MemberType::Bytes => {
                match sample.event.layout.value(member, sample.record) {
                    Some(value) => value,
                    // SAFETY: the caller's.
                    None => return unsafe { cut_off(this) },
                }
            }
            // SAFETY: the caller's.
            Member::Sample(member) => return unsafe { dict(this, member) },
        };
        // SAFETY: the lock is held.
        unsafe { convert::value(value) }
    }
}

/// A new reference to a format field's value. A record that is too short for it raises ValueError.
///
/// # Safety
/// The lock is held.
#[inline]
pub unsafe fn field(this: &EventObject, field: &Field) -> *mut ffi::PyObject {
    match field.value(this.class().raw(this.record())) {
        // SAFETY: the lock is held.
        Some(value) => unsafe { convert::value(value) },
        // SAFETY: the lock is held.
        None => unsafe { cut_off(this) },
    }
}

/// A new reference to the dict of a member that has several values.
///
/// # Safety
/// The lock is held.
unsafe fn dict(this: &EventObject, member: SampleMember) -> *mut ffi::PyObject {
    // SAFETY: the caller's.
    let py = unsafe { Python::assume_attached() };
    let (layout, record) = (&this.class().event.layout, this.record());
    let dict = match member {
        SampleMember::Read => layout.reading(record).map(|reading| convert::reading(py, &reading)),
        SampleMember::RegsUser => layout.regs_user(record).map(|registers| convert::registers(py, &registers)),
        SampleMember::RegsIntr => layout.regs_intr(record).map(|registers| convert::registers(py, &registers)),
        _ => None,
    };
    match dict {
        Some(Ok(dict)) => dict.into_ptr(),
        Some(Err(error)) => {
            error.restore(py);
            std::ptr::null_mut()
        }
        // SAFETY: the caller's.
        None => unsafe { cut_off(this) },
    }
}

/// Raises ValueError: the record ends before the field that was asked for.
///
/// # Safety
/// The lock is held.
#[cold]
pub unsafe fn cut_off(this: &EventObject) -> *mut ffi::PyObject {
    // SAFETY: the caller's.
    let py = unsafe { Python::assume_attached() };
    let text = format!("this record of {} is cut off before the field", this.class().shown_name);
    pyo3::exceptions::PyValueError::new_err(text).restore(py);
    std::ptr::null_mut()
}

/// Nanoseconds since the Unix epoch.
pub fn realtime(this: &EventObject) -> i64 {
    match this.extra().and_then(|extra| extra.detached.as_ref()) {
        Some(detached) => detached.realtime,
        None => this.class().context.realtime(this.sample().time()),
    }
}

/// The resolved call chain.
pub fn resolve(this: &EventObject) -> Vec<Arc<Frame>> {
    match this.extra().and_then(|extra| extra.detached.as_ref()) {
        Some(detached) => detached.frames.clone(),
        None => frames(&this.sample(), &this.class().context),
    }
}

/// Where the sample's instruction is, of an event that samples that; not of a tracepoint, whose line does not show it.
pub fn ip_frame(this: &EventObject) -> Option<Arc<Frame>> {
    let class = this.class();
    if class.event.format.tracepoint().is_some() {
        return None;
    }
    crate::event::ip_frame(&this.sample(), &class.context)
}

/// The name of the task, as known at the event's time.
pub fn comm(this: &EventObject) -> Option<Vec<u8>> {
    match this.extra().and_then(|extra| extra.detached.as_ref()) {
        Some(detached) => detached.comm.clone(),
        None => {
            let sample = this.sample();
            this.class().context.comm(sample.task(), sample.time())
        }
    }
}

/// The call chain's list, made at the first access and kept with the event.
///
/// # Safety
/// As for [`Member::get`].
unsafe fn callchain(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller's; no reference into the extra part outlives its statement.
    unsafe {
        let py = Python::assume_attached();
        if let Some(list) = EventObject::of(object).extra().and_then(|extra| extra.callchain.as_ref()) {
            return list.clone_ref(py).into_ptr();
        }
        match convert::callchain(py, &resolve(EventObject::of(object))) {
            Ok(list) => {
                EventObject::extra_mut(object).callchain = Some(list.clone().unbind());
                list.into_ptr()
            }
            Err(error) => {
                error.restore(py);
                std::ptr::null_mut()
            }
        }
    }
}

//! The members of an event. Converts their values to Python objects.

use std::sync::Arc;

use perf_prof_events::event::{Frame, SpanPart, UNKNOWN_COMM, frames};
use perf_prof_format::{
    abi::{PERF_SAMPLE_CALLCHAIN, PERF_SAMPLE_STACK_USER},
    record::{MemberType, SampleMember},
    tracefs::Field,
    value::Value,
};
use pyo3::{exceptions::PyAttributeError, ffi, prelude::*, types::PyTuple};

use super::{convert, input::input_of, object::EventObject};

/// A member of an event. Each name in `keys()` stands for one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// `_pid`: the process id.
    Pid,
    /// `_tid`: the thread id.
    Tid,
    /// `_time`: the time in nanoseconds, by the clock of the records.
    Time,
    /// `_cpu`: the CPU.
    Cpu,
    /// `_period`: the sample period.
    Period,
    /// `_realtime`: the time in nanoseconds since the Unix epoch.
    Realtime,
    /// `_callchain`: the list of frames.
    Callchain,
    /// `_event`: the event's name. For a tracepoint: `sys:name` or `sys:alias`.
    Event,
    /// `_comm`: the comm (the name of the task).
    Comm,
    /// `_cgroup`: the path of the task's cgroup.
    Cgroup,
    /// A field of a tracepoint's format, by its index. The common fields come first.
    Field(usize),
    /// One of the two events that begin and end a span.
    Part(SpanPart),
    /// The events between the begin and the end of a span.
    Between,
    /// A member of the sample, for events other than tracepoints.
    Sample(SampleMember),
}

impl Member {
    /// The members that do not come from an event's format, with their names.
    pub const OWN: [(&str, Member); 10] = [
        ("_pid", Member::Pid),
        ("_tid", Member::Tid),
        ("_time", Member::Time),
        ("_cpu", Member::Cpu),
        ("_period", Member::Period),
        ("_realtime", Member::Realtime),
        ("_callchain", Member::Callchain),
        ("_event", Member::Event),
        ("_comm", Member::Comm),
        ("_cgroup", Member::Cgroup),
    ];

    /// Returns a new reference to the member's value, or null with an exception set.
    ///
    /// # Safety
    /// `object` is an event object, and the GIL is held.
    #[inline]
    pub unsafe fn get(self, object: *mut ffi::PyObject) -> *mut ffi::PyObject {
        // SAFETY: guaranteed by the caller.
        let this = unsafe { EventObject::from_ptr(object) };
        let sample = this.sample();
        let value = match self {
            Member::Pid => Value::Int(sample.pid_tid().0.into()),
            Member::Tid => Value::Int(sample.pid_tid().1.into()),
            Member::Time => Value::Uint(sample.time()),
            Member::Cpu => Value::Uint(sample.cpu().into()),
            Member::Period => Value::Uint(sample.period()),
            Member::Realtime => match realtime(this) {
                Some(realtime) => Value::Int(realtime),
                // SAFETY: the GIL is held, and None lives as long as the interpreter.
                None => return unsafe { ffi::Py_NewRef(ffi::Py_None()) },
            },
            // SAFETY: guaranteed by the caller.
            Member::Callchain => return unsafe { callchain(object) },
            Member::Event => {
                // SAFETY: guaranteed by the caller.
                let py = unsafe { Python::assume_attached() };
                return this.class().shown_name_object().clone_ref(py).into_ptr();
            }
            // SAFETY: guaranteed by the caller.
            Member::Comm => return unsafe { convert::string(comm(this).as_deref().unwrap_or(UNKNOWN_COMM)) },
            // SAFETY: guaranteed by the caller.
            Member::Cgroup => return unsafe { cgroup(this) },
            // SAFETY: guaranteed by the caller.
            Member::Part(part) => return unsafe { self::part(this, part) },
            // SAFETY: guaranteed by the caller.
            Member::Between => return unsafe { between(this) },
            // SAFETY: guaranteed by the caller.
            Member::Field(index) => return unsafe { field(this, this.class().field(index)) },
            Member::Sample(SampleMember::Callchain) => {
                // SAFETY: guaranteed by the caller.
                return unsafe { callchain(object) };
            }
            Member::Sample(member) if member.kind() == MemberType::Int || member.kind() == MemberType::Bytes => {
                match sample.event.layout.value(member, sample.record) {
                    Some(value) => value,
                    // SAFETY: guaranteed by the caller.
                    None => return unsafe { raise_record_too_short(this) },
                }
            }
            // SAFETY: guaranteed by the caller.
            Member::Sample(member) => return unsafe { dict(this, member) },
        };
        // SAFETY: the GIL is held.
        unsafe { convert::value(value) }
    }
}

/// Returns a new reference to the value of a field of the event's format. If the record does not contain the field,
/// raises ValueError. But if the field is a string from user space, returns None, because the kernel may have failed to
/// read the string.
///
/// # Safety
/// The GIL is held.
#[inline]
pub unsafe fn field(this: &EventObject, field: &Field) -> *mut ffi::PyObject {
    match field.value(this.class().raw(this.record())) {
        // SAFETY: the GIL is held.
        Some(value) => unsafe { convert::value(value) },
        // SAFETY: the GIL is held.
        None if field.may_be_absent() => unsafe { ffi::Py_NewRef(ffi::Py_None()) },
        // SAFETY: the GIL is held.
        None => unsafe { raise_record_too_short(this) },
    }
}

/// Returns a new reference to the event that begins or ends a span, or to None if the span has no such event. The
/// returned event has its own copy of its record.
///
/// # Safety
/// The GIL is held.
unsafe fn part(this: &EventObject, part: SpanPart) -> *mut ffi::PyObject {
    // SAFETY: guaranteed by the caller.
    let py = unsafe { Python::assume_attached() };
    let found = this.class().part(part, this.record());
    let made = found.map(|(class, record)| this.part_event(py, class, record, part as usize));
    match made.transpose() {
        Ok(made) => made.unwrap_or_else(|| py.None()).into_ptr(),
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
    }
}

/// Returns a new reference to a tuple of the events between the begin and the end of a span.
///
/// # Safety
/// The GIL is held.
unsafe fn between(this: &EventObject) -> *mut ffi::PyObject {
    // SAFETY: guaranteed by the caller.
    let py = unsafe { Python::assume_attached() };
    let events = this.class().between(this.record()).into_iter().zip(2..);
    let events = events.map(|((class, record), at)| this.part_event(py, class, record, at));
    let events = events.collect::<PyResult<Vec<_>>>();
    match events.and_then(|events| PyTuple::new(py, events)) {
        Ok(events) => events.into_ptr(),
        Err(error) => {
            error.restore(py);
            std::ptr::null_mut()
        }
    }
}

/// Returns a new reference to the dict or list of a member that contains several values: counters, registers or
/// branches.
///
/// # Safety
/// The GIL is held.
unsafe fn dict(this: &EventObject, member: SampleMember) -> *mut ffi::PyObject {
    // SAFETY: guaranteed by the caller.
    let py = unsafe { Python::assume_attached() };
    let (layout, record) = (&this.class().event.layout, this.record());
    let named = |registers| convert::registers(py, &registers, this.context().registers());
    let dict = match member {
        SampleMember::Read => layout.reading(record).map(|reading| convert::reading(py, &reading)),
        SampleMember::RegsUser => layout.regs_user(record).map(named),
        SampleMember::BranchStack => layout.branches(record).map(|branches| convert::branches(py, branches)),
        SampleMember::RegsIntr => layout.regs_intr(record).map(named),
        _ => None,
    };
    match dict {
        Some(Ok(dict)) => dict.into_ptr(),
        Some(Err(error)) => {
            error.restore(py);
            std::ptr::null_mut()
        }
        // SAFETY: guaranteed by the caller.
        None => unsafe { raise_record_too_short(this) },
    }
}

/// Raises ValueError, because the record ends before the requested field.
///
/// # Safety
/// The GIL is held.
#[cold]
pub unsafe fn raise_record_too_short(this: &EventObject) -> *mut ffi::PyObject {
    // SAFETY: guaranteed by the caller.
    let py = unsafe { Python::assume_attached() };
    let text = format!("this record of {} is too short to contain the field", this.class().shown_name);
    pyo3::exceptions::PyValueError::new_err(text).restore(py);
    std::ptr::null_mut()
}

/// Returns the event's time in nanoseconds since the Unix epoch. Returns `None` if the recording does not contain the
/// time of day.
pub fn realtime(this: &EventObject) -> Option<i64> {
    match this.extra().and_then(|extra| extra.detached.as_ref()) {
        Some(detached) => detached.realtime,
        None => this.context().realtime(this.sample().time()),
    }
}

/// Returns the frames of the callchain with their symbols, innermost frame first.
pub fn resolved_frames(this: &EventObject) -> Vec<Arc<Frame>> {
    match this.extra().and_then(|extra| extra.detached.as_ref()) {
        Some(detached) => detached.frames.clone(),
        None => frames(&this.sample(), this.context()),
    }
}

/// Returns the frame of the sampled instruction. Returns `None` if the sample does not contain the address of the
/// instruction. Also returns `None` for a tracepoint, whose printed line does not show the instruction.
pub fn ip_frame(this: &EventObject) -> Option<Arc<Frame>> {
    let class = this.class();
    if class.event.format.tracepoint().is_some() {
        return None;
    }
    perf_prof_events::event::ip_frame(&this.sample(), this.context())
}

/// Returns the comm (the task's name) at the event's time.
pub fn comm(this: &EventObject) -> Option<Vec<u8>> {
    match this.extra().and_then(|extra| extra.detached.as_ref()) {
        Some(detached) => detached.comm.clone(),
        None => {
            let sample = this.sample();
            this.context().comm(sample.task(), sample.time())
        }
    }
}

/// Returns a new reference to the path of the task's cgroup. Raises AttributeError if the samples do not contain a
/// cgroup.
///
/// # Safety
/// The GIL is held.
unsafe fn cgroup(this: &EventObject) -> *mut ffi::PyObject {
    if this.class().event.layout.has_cgroup() {
        // SAFETY: guaranteed by the caller.
        return unsafe { convert::string(&input_of(this).cgroup()) };
    }
    // SAFETY: guaranteed by the caller.
    let py = unsafe { Python::assume_attached() };
    let name = &this.class().shown_name;
    let text = format!(
        "the samples of {name} contain no cgroups (_cgroup); use --all-cgroups (in programs all_cgroups=True), here \
         or when you record"
    );
    PyAttributeError::new_err(text).restore(py);
    std::ptr::null_mut()
}

/// Returns the callchain as a list. The list is created at the first access and stored with the event.
///
/// # Safety
/// As for [`Member::get`].
unsafe fn callchain(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: guaranteed by the caller. No reference into the `extra` part outlives the statement that creates the
    // reference.
    unsafe {
        let py = Python::assume_attached();
        let members = EventObject::from_ptr(object).class().event.layout.format.sample_type;
        if members & (PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_STACK_USER) == 0 {
            return ffi::PyList_New(0);
        }
        if let Some(list) = EventObject::from_ptr(object).extra().and_then(|extra| extra.callchain.as_ref()) {
            return list.clone_ref(py).into_ptr();
        }
        match convert::callchain(py, &resolved_frames(EventObject::from_ptr(object))) {
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

//! The attribute descriptors of events. For `event.x`, CPython calls the function in the `PyGetSetDef` of x.

use std::ffi::{CString, c_void};

use perf_prof_events::event::SpanPart;
use perf_prof_format::{
    record::{SampleLayout, SampleMember},
    tracefs::Field,
};
use pyo3::ffi;

use super::{
    access::{self, Member},
    attributes::Getter,
    fast,
    object::EventObject,
};

/// Returns the descriptors of the members that do not come from an event's format. They are attributes of the base
/// class.
pub fn own_members() -> Vec<ffi::PyGetSetDef> {
    const DOCS: [&str; 10] = [
        "process id (int), -1 while the task exits",
        "thread id (int), -1 while the thread exits",
        "time of the perf clock in ns; for latencies (int)",
        "CPU (int)",
        "sample period (int)",
        "time in ns since the Unix epoch; for display (int, computed at access; None if a recording does not say it)",
        "call chain, innermost first: list of {'addr','symbol','offset','kernel','dso'} (resolved at access)",
        "tracepoint: 'sys:name', or 'sys:alias' with alias=; other event: its name or alias (str)",
        "name of the task at the time of the event, as print() shows it; not one of keys() (str)",
        "path of the task's cgroup, with --all-cgroups; not one of keys() (str)",
    ];
    let own = Member::OWN.iter().zip(DOCS).zip(GETTERS);
    own.map(|((&(name, _), doc), get)| descriptor(name, doc, get, std::ptr::null_mut())).collect()
}

/// Returns the getter of a member that comes neither from an event's format nor from its sample members.
pub fn own_getter(member: Member) -> Getter {
    if let Member::Part(part) = member {
        return Getter {
            get: if part == SpanPart::Begin { get_begin } else { get_end },
            closure: std::ptr::null_mut(),
        };
    }
    if member == Member::Between {
        return Getter { get: get_between, closure: std::ptr::null_mut() };
    }
    // `Member::OWN` contains all other members that this function gets.
    let at = Member::OWN.iter().position(|&(_, own)| own == member).unwrap_or_default();
    Getter { get: GETTERS[at], closure: std::ptr::null_mut() }
}

/// Returns the getter of a field of the event's format. `raw_offset` is the offset of the raw data in the record;
/// `None` if this offset differs between records. `field` must live as long as the process.
pub fn field_getter(field: &'static Field, raw_offset: Option<usize>) -> Getter {
    let general = Getter { get: get_field, closure: std::ptr::from_ref(field).cast_mut().cast() };
    fast::getter(field, raw_offset).map_or(general, |(get, closure)| Getter { get, closure })
}

/// Returns the getter of a sample member.
pub fn sample_getter(member: SampleMember, layout: &SampleLayout) -> Getter {
    let general = Getter { get: get_sample_member, closure: member as usize as *mut c_void };
    fast::sample_getter(member, layout).map_or(general, |(get, closure)| Getter { get, closure })
}

/// Returns the descriptor of a member that comes from the event's format or its sample members.
pub fn member(name: &str, Getter { get, closure }: Getter, doc: &str) -> ffi::PyGetSetDef {
    descriptor(name, doc, get, closure)
}

/// Appends the empty entry that ends the list for CPython. Leaks the list, because CPython keeps a pointer to it.
pub fn terminated(mut members: Vec<ffi::PyGetSetDef>) -> &'static mut [ffi::PyGetSetDef] {
    members.push(ffi::PyGetSetDef::default());
    members.leak()
}

fn descriptor(name: &str, doc: &str, get: ffi::getter, closure: *mut c_void) -> ffi::PyGetSetDef {
    // The names come from the kernel's formats, which contain no NUL. A name with a NUL would become an empty name.
    let text = |text: &str| CString::new(text).unwrap_or_default().into_raw();
    ffi::PyGetSetDef { name: text(name), get: Some(get), set: None, doc: text(doc), closure }
}

unsafe extern "C" fn get_field(object: *mut ffi::PyObject, closure: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: CPython checks that `object` is of the descriptor's class. The closure is the leaked field.
    unsafe { access::field(EventObject::from_ptr(object), &*closure.cast::<Field>()) }
}

unsafe extern "C" fn get_sample_member(object: *mut ffi::PyObject, member: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: CPython checks that `object` is of the descriptor's class, and holds the GIL.
    unsafe {
        match SampleMember::of_sample_type(!0).nth(member as usize) {
            Some(member) => Member::Sample(member).get(object),
            None => access::raise_record_too_short(EventObject::from_ptr(object)),
        }
    }
}

unsafe extern "C" fn get_begin(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: CPython checks that `object` is of the descriptor's class, and holds the GIL.
    unsafe { Member::Part(SpanPart::Begin).get(object) }
}

unsafe extern "C" fn get_end(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: CPython checks that `object` is of the descriptor's class, and holds the GIL.
    unsafe { Member::Part(SpanPart::End).get(object) }
}

unsafe extern "C" fn get_between(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: CPython checks that `object` is of the descriptor's class, and holds the GIL.
    unsafe { Member::Between.get(object) }
}

macro_rules! getters {
    ($($member:ident => $function:ident)*) => {
        $(
            unsafe extern "C" fn $function(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
                // SAFETY: CPython checks that `object` is of the descriptor's class, and holds the GIL.
                unsafe { Member::$member.get(object) }
            }
        )*

        /// The getters, in the order of `Member::OWN`.
        const GETTERS: [ffi::getter; 10] = [$($function),*];
    };
}

getters! {
    Pid => get_pid
    Tid => get_tid
    Time => get_time
    Cpu => get_cpu
    Period => get_period
    Realtime => get_realtime
    Callchain => get_callchain
    Event => get_event
    Comm => get_comm
    Cgroup => get_cgroup
}

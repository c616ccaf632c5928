//! The descriptors that attribute access goes through: `event.x` calls the function of x's `PyGetSetDef`.

use std::ffi::{CString, c_void};

use pyo3::ffi;

use super::{
    access::{self, Member},
    attributes::Getter,
    fast,
    object::EventObject,
};
use crate::{
    record::{SampleLayout, SampleMember},
    tracefs::Field,
};

/// Descriptors of the members that no format gives; they live on the base class.
pub fn own_members() -> Vec<ffi::PyGetSetDef> {
    const DOCS: [&str; 8] = [
        "process id (int)",
        "thread id (int)",
        "time in ns, of the perf clock; for latencies (int)",
        "CPU (int)",
        "sample period (int)",
        "time in ns since the Unix epoch; for display (int, computed at access)",
        "call chain, innermost first: list of {'addr','symbol','offset','kernel','dso'} (resolved at access)",
        "'sys:name', or 'sys:alias' with alias=; of what is no tracepoint, its name or alias (str)",
    ];
    let own = Member::OWN.iter().zip(DOCS).zip(GETTERS);
    own.map(|((&(name, _), doc), get)| descriptor(name, doc, get, std::ptr::null_mut())).collect()
}

/// How a member that no format gives is got.
pub fn own_getter(member: Member) -> Option<Getter> {
    let at = Member::OWN.iter().position(|&(_, own)| own == member)?;
    Some(Getter { get: GETTERS[at], closure: std::ptr::null_mut() })
}

/// How a format field is got whose raw data begins at `raw_offset` of every record, if at a fixed place at all. `field`
/// lives as long as the process.
pub fn field_getter(field: &'static Field, raw_offset: Option<usize>) -> Getter {
    let general = Getter { get: get_field, closure: std::ptr::from_ref(field).cast_mut().cast() };
    fast::getter(field, raw_offset).map_or(general, |(get, closure)| Getter { get, closure })
}

/// How a member of a sample is got.
pub fn sample_getter(member: SampleMember, layout: &SampleLayout) -> Getter {
    let general = Getter { get: get_sample_member, closure: member as usize as *mut c_void };
    fast::sample_getter(member, layout).map_or(general, |(get, closure)| Getter { get, closure })
}

/// The descriptor of a member of the event's own.
pub fn member(name: &str, Getter { get, closure }: Getter, doc: &str) -> ffi::PyGetSetDef {
    descriptor(name, doc, get, closure)
}

/// The list's end, which CPython looks for.
pub fn terminated(mut members: Vec<ffi::PyGetSetDef>) -> &'static mut [ffi::PyGetSetDef] {
    members.push(ffi::PyGetSetDef::default());
    members.leak()
}

fn descriptor(name: &str, doc: &str, get: ffi::getter, closure: *mut c_void) -> ffi::PyGetSetDef {
    // Names come from a kernel's text and hold no NUL; if one did, the descriptor would just not be found.
    let text = |text: &str| CString::new(text).unwrap_or_default().into_raw();
    ffi::PyGetSetDef { name: text(name), get: Some(get), set: None, doc: text(doc), closure }
}

unsafe extern "C" fn get_field(object: *mut ffi::PyObject, closure: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: CPython checks that `object` is of the descriptor's class; the closure is the leaked field.
    unsafe { access::field(EventObject::of(object), &*closure.cast::<Field>()) }
}

unsafe extern "C" fn get_sample_member(object: *mut ffi::PyObject, member: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: CPython checks that `object` is of the descriptor's class, and holds the lock.
    unsafe {
        match SampleMember::of(!0).nth(member as usize) {
            Some(member) => Member::Sample(member).get(object),
            None => access::cut_off(EventObject::of(object)),
        }
    }
}

macro_rules! getters {
    ($($member:ident => $function:ident)*) => {
        $(
            unsafe extern "C" fn $function(object: *mut ffi::PyObject, _: *mut c_void) -> *mut ffi::PyObject {
                // SAFETY: CPython checks that `object` is of the descriptor's class, and holds the lock.
                unsafe { Member::$member.get(object) }
            }
        )*

        /// In the order of `Member::OWN`.
        const GETTERS: [ffi::getter; 8] = [$($function),*];
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
}

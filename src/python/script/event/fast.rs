//! Fast getters for the fields that scripts read most often: integers and comms (names of tasks) at a fixed offset in
//! the record.
//!
//! If no member of variable size comes before the raw data, a field has the same offset in every record. In this case,
//! the descriptor contains the offset, and the getter needs only one bounds check and one load.

use std::{cell::UnsafeCell, ffi::c_void};

use perf_prof_format::{
    record::{SampleLayout, SampleMember},
    tracefs::{Field, IntType},
    value::Value,
};
use pyo3::ffi;

use super::{access, convert, object::EventObject};

/// Returns the getter of a field, with its closure. The raw data starts at `raw_offset` in the record. Returns `None`
/// if only the general getter can read the field.
pub fn getter(field: &'static Field, raw_offset: Option<usize>) -> Option<(ffi::getter, *mut c_void)> {
    let at = raw_offset?.checked_add(field.offset)?;
    if field.is_fixed_text() && field.size == COMM {
        let slot = Box::new(CommField { at, field, memo: UnsafeCell::new([const { None }; MEMO]) });
        return Some((name, Box::into_raw(slot).cast()));
    }
    let IntType { width, signed } = field.number()?;
    // An argument of a system call may be smaller than its slot in the record. Only little-endian machines store the
    // low half first, so only there do the argument and the slot have the same offset.
    if cfg!(target_endian = "big") && usize::from(width) != field.size {
        return None;
    }
    Some((integer(width, signed)?, at as *mut c_void))
}

/// Returns the getter of a sample member, with its closure. Returns `None` if the member does not have the same offset
/// in all records.
pub fn sample_getter(member: SampleMember, layout: &SampleLayout) -> Option<(ffi::getter, *mut c_void)> {
    let at = layout.fixed_offset(member)?;
    let (width, signed) = match member {
        SampleMember::Pid | SampleMember::Tid => (4, true),
        SampleMember::Cpu => (4, false),
        _ => (8, false),
    };
    Some((integer(width, signed)?, at as *mut c_void))
}

macro_rules! integers {
    ($($name:ident: $type:ty => $value:ident($as:ty),)*) => {
        $(
            unsafe extern "C" fn $name(object: *mut ffi::PyObject, at: *mut c_void) -> *mut ffi::PyObject {
                // SAFETY: CPython checks that `object` is of the descriptor's class, and holds the GIL.
                unsafe {
                    let bytes = EventObject::from_ptr(object).record().get(at as usize..).and_then(|rest| rest.first_chunk());
                    match bytes {
                        Some(bytes) => convert::value(Value::$value(<$type>::from_ne_bytes(*bytes) as $as)),
                        None => access::raise_record_too_short(EventObject::from_ptr(object)),
                    }
                }
            }
        )*

        fn integer(width: u8, signed: bool) -> Option<ffi::getter> {
            $(
                if usize::from(width) == size_of::<$type>() && signed == (<$type>::MIN != 0) {
                    return Some($name);
                }
            )*
            None
        }
    };
}

integers! {
    get_s8: i8 => Int(i64),
    get_s16: i16 => Int(i64),
    get_s32: i32 => Int(i64),
    get_s64: i64 => Int(i64),
    get_u8: u8 => Uint(u64),
    get_u16: u16 => Uint(u64),
    get_u32: u32 => Uint(u64),
    get_u64: u64 => Uint(u64),
}

/// TASK_COMM_LEN: the size of a comm (a task's name) in bytes.
const COMM: usize = 16;
/// The number of comms that a [`CommField`] can keep: a power of two.
const MEMO: usize = 64;

/// A field that is a comm. It keeps str objects for later events, because there are many events of few tasks.
struct CommField {
    at: usize,
    field: &'static Field,
    /// The comms and their str objects. [`memo_index`] returns the index of a comm. Only used with the GIL held.
    memo: UnsafeCell<[Option<MemoEntry>; MEMO]>,
}

/// The bytes of a comm, and a reference to the str object of this comm.
type MemoEntry = ([u8; COMM], *mut ffi::PyObject);

/// Returns the index of a comm in the memo, by Fibonacci hashing: the highest bits of the product depend on all bytes.
fn memo_index(name: &[u8; COMM]) -> usize {
    let word = u128::from_ne_bytes(*name);
    let mixed = ((word >> 64) as u64 ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - MEMO.trailing_zeros())) as usize
}

unsafe extern "C" fn name(object: *mut ffi::PyObject, slot: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: CPython checks that `object` is of the descriptor's class, and holds the GIL. The closure is the leaked
    // [`CommField`], which is never freed. No Python code runs here while the memo is borrowed.
    unsafe {
        let slot = &*slot.cast::<CommField>();
        let this = EventObject::from_ptr(object);
        let Some(bytes) = this.record().get(slot.at..).and_then(|rest| rest.first_chunk::<COMM>()) else {
            return access::field(this, slot.field);
        };
        let place = &mut (&mut *slot.memo.get())[memo_index(bytes)];
        if let Some((known, string)) = place
            && known == bytes
        {
            ffi::Py_INCREF(*string);
            return *string;
        }
        let string = access::field(this, slot.field);
        if !string.is_null() {
            ffi::Py_INCREF(string);
            if let Some((_, before)) = place.replace((*bytes, string)) {
                ffi::Py_DECREF(before);
            }
        }
        string
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The names of the threads in a pool differ only in their last characters.
    #[test]
    fn numbered_names_have_different_memo_indexes() {
        for prefix in ["worker", "kworker", "http-nio-8080-"] {
            let place = |number: usize| {
                let mut name = [0; COMM];
                let text = format!("{prefix}{number}");
                name[..text.len()].copy_from_slice(text.as_bytes());
                memo_index(&name)
            };
            let places: HashSet<usize> = (0..10).map(place).collect();
            assert!(places.len() >= 7, "{prefix}: {places:?}");
        }
    }
}

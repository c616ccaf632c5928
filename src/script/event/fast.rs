//! Getters for what scripts read most: integers and task names at a fixed place of the record.
//!
//! Where no member of variable size comes before the raw data, a field lies at the same offset in every record. Its getter
//! is then one bounds check and one load, with the offset in the descriptor itself.

use std::{cell::UnsafeCell, ffi::c_void};

use pyo3::ffi;

use super::{access, convert, object::EventObject};
use crate::{
    record::{SampleLayout, SampleMember},
    tracefs::{ElementType, Field, FieldKind},
    value::Value,
};

/// The getter and its closure for a field whose raw data begins at `raw_offset`; `None` where the general one is needed.
pub fn getter(field: &'static Field, raw_offset: Option<usize>) -> Option<(ffi::getter, *mut c_void)> {
    let at = raw_offset?.checked_add(field.offset)?;
    match field.kind {
        FieldKind::Array(ElementType::Char) if field.size == COMM => {
            let slot = Box::new(NameSlot { at, field, memo: UnsafeCell::new([const { None }; MEMO]) });
            Some((name, Box::into_raw(slot).cast()))
        }
        // An argument of a system call is narrower than its slot, and its low half comes first on these machines only.
        FieldKind::Int { width, signed } if cfg!(target_endian = "little") || usize::from(width) == field.size => {
            Some((integer(width, signed)?, at as *mut c_void))
        }
        FieldKind::Pointer => Some((integer(field.size as u8, false)?, at as *mut c_void)),
        _ => None,
    }
}

/// The same for a sample's member, where it has one place in all records of that layout.
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
                // SAFETY: CPython checks that `object` is of the descriptor's class, and holds the lock.
                unsafe {
                    let bytes = EventObject::of(object).record().get(at as usize..).and_then(|rest| rest.first_chunk());
                    match bytes {
                        Some(bytes) => convert::value(Value::$value(<$type>::from_ne_bytes(*bytes) as $as)),
                        None => access::cut_off(EventObject::of(object)),
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

/// TASK_COMM_LEN, the size of a task's name.
const COMM: usize = 16;
/// How many names a field remembers. A power of two.
const MEMO: usize = 64;

/// A field that is a task's name. There are few tasks and many events, so the strings are kept.
struct NameSlot {
    at: usize,
    field: &'static Field,
    /// The bytes and their str, in a place that the bytes choose. Only touched under the lock.
    memo: UnsafeCell<[Option<Remembered>; MEMO]>,
}

/// A name's bytes and a reference to its str.
type Remembered = ([u8; COMM], *mut ffi::PyObject);

/// The place of a name in the memo, by Fibonacci hashing: the product's highest bits depend on all bytes.
fn place_of(name: &[u8; COMM]) -> usize {
    let word = u128::from_ne_bytes(*name);
    let mixed = ((word >> 64) as u64 ^ word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (u64::BITS - MEMO.trailing_zeros())) as usize
}

unsafe extern "C" fn name(object: *mut ffi::PyObject, slot: *mut c_void) -> *mut ffi::PyObject {
    // SAFETY: CPython checks that `object` is of the descriptor's class and holds the lock; the closure is the slot, which
    // is never freed. Nothing in here runs Python while the memo is borrowed.
    unsafe {
        let slot = &*slot.cast::<NameSlot>();
        let this = EventObject::of(object);
        let Some(bytes) = this.record().get(slot.at..).and_then(|rest| rest.first_chunk::<COMM>()) else {
            return access::field(this, slot.field);
        };
        let place = &mut (&mut *slot.memo.get())[place_of(bytes)];
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

    /// The threads of a pool differ in their last characters only.
    #[test]
    fn numbered_names_do_not_share_a_place() {
        for prefix in ["worker", "kworker", "http-nio-8080-"] {
            let place = |number: usize| {
                let mut name = [0; COMM];
                let text = format!("{prefix}{number}");
                name[..text.len()].copy_from_slice(text.as_bytes());
                place_of(&name)
            };
            let places: HashSet<usize> = (0..10).map(place).collect();
            assert!(places.len() >= 7, "{prefix}: {places:?}");
        }
    }
}

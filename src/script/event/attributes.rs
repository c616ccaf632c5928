//! Attribute access: `event.x` finds x's getter by the address of the name.
//!
//! Names in code are interned, so that a name is one object. A table of the class's own names by their address answers in
//! a few loads, where CPython's general way looks the type up in its cache, then finds and checks a descriptor. What is not
//! in the table (methods, names made at run time) takes the general way, through the same getters.

use std::ffi::c_void;

use pyo3::ffi;

use super::object::EventObject;

/// How a member is got: a getter and its closure, as in a `PyGetSetDef`.
#[derive(Clone, Copy, Debug)]
pub struct Getter {
    /// The function.
    pub get: ffi::getter,
    /// What it is given beside the object.
    pub closure: *mut c_void,
}

/// A class's getters by the address of their interned names.
#[derive(Debug)]
pub struct Attributes {
    /// A power of two of places, at least four times as many as names. Null where there is none.
    places: Box<[(*mut ffi::PyObject, Getter)]>,
}

impl Attributes {
    /// The table of these names, which are interned and live as long as it does.
    pub fn new(names: &[(*mut ffi::PyObject, Getter)]) -> Attributes {
        let size = (4 * names.len()).next_power_of_two();
        let Some(&(_, any)) = names.first() else { return Attributes { places: Box::new([]) } };
        let mut places = vec![(std::ptr::null_mut::<ffi::PyObject>(), any); size];
        for &(name, getter) in names {
            let mut at = place(name, size);
            while !places[at].0.is_null() {
                at = (at + 1) % size;
            }
            places[at] = (name, getter);
        }
        Attributes { places: places.into() }
    }

    /// The getter of a name.
    #[inline]
    fn find(&self, name: *mut ffi::PyObject) -> Option<Getter> {
        let size = self.places.len();
        if size == 0 {
            return None;
        }
        let mut at = place(name, size);
        loop {
            let (known, getter) = self.places[at];
            if known == name {
                return Some(getter);
            }
            if known.is_null() {
                return None;
            }
            at = (at + 1) % size;
        }
    }
}

/// Where a name's search begins. Objects are 16 bytes apart, and strings of like length lie in rows.
fn place(name: *mut ffi::PyObject, size: usize) -> usize {
    let address = name as usize >> 4;
    (address ^ address >> 7) & (size - 1)
}

/// `tp_getattro` of the event classes.
///
/// # Safety
/// Called by CPython only.
pub unsafe extern "C" fn get(object: *mut ffi::PyObject, name: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython passes an instance and a name, with the lock held.
    unsafe {
        match EventObject::of(object).class().attributes().find(name) {
            Some(Getter { get, closure }) => get(object, closure),
            None => ffi::PyObject_GenericGetAttr(object, name),
        }
    }
}

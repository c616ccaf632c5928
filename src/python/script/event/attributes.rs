//! Attribute access: the attribute x of an event is found by the address of the name object 'x'.
//!
//! CPython interns the names in code, so equal names are the same object. Each event class has a hash table from the
//! addresses of its attribute names to getters. A look-up in this table takes a few loads. CPython's generic look-up
//! takes longer, because it uses the type cache and then checks a descriptor. For names that are not in the table, the
//! generic look-up is used: for methods, and for names that were made at run time. The generic look-up of a member
//! calls the getter that the table contains for the member.

use std::ffi::c_void;

use pyo3::ffi;

use super::object::EventObject;

/// A getter and its closure, as in a `PyGetSetDef`.
#[derive(Clone, Copy, Debug)]
pub struct Getter {
    /// The function.
    pub get: ffi::getter,
    /// The second argument of the function, after the object.
    pub closure: *mut c_void,
}

/// The hash table of an event class, from the addresses of interned attribute names to getters.
#[derive(Debug)]
pub struct Attributes {
    /// The slots of the table. Their number is a power of two, and at least four times the number of names. An empty
    /// slot contains a null pointer instead of a name.
    places: Box<[(*mut ffi::PyObject, Getter)]>,
}

impl Attributes {
    /// Creates the table for `names`. The names must be interned, and must live as long as the table.
    pub fn new(names: &[(*mut ffi::PyObject, Getter)]) -> Attributes {
        let size = (4 * names.len()).next_power_of_two();
        let Some(&(_, any)) = names.first() else { return Attributes { places: Box::new([]) } };
        let mut places = vec![(std::ptr::null_mut::<ffi::PyObject>(), any); size];
        for &(name, getter) in names {
            let mut at = first_place(name, size);
            while !places[at].0.is_null() {
                at = (at + 1) % size;
            }
            places[at] = (name, getter);
        }
        Attributes { places: places.into() }
    }

    /// Returns the getter of a name. Returns `None` for a name that is not interned, even if the class has an attribute
    /// of this name.
    #[inline]
    pub fn find(&self, name: *mut ffi::PyObject) -> Option<Getter> {
        let size = self.places.len();
        if size == 0 {
            return None;
        }
        let mut at = first_place(name, size);
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

/// Returns the slot at which the search for a name begins. The addresses of objects are multiples of 16, and strings of
/// similar length are in adjacent memory. So the slot depends not only on the lowest bits, but also on higher bits of
/// the address.
fn first_place(name: *mut ffi::PyObject, size: usize) -> usize {
    let address = name as usize >> 4;
    (address ^ address >> 7) & (size - 1)
}

/// `tp_getattro` of the event classes.
///
/// # Safety
/// Called by CPython only.
pub unsafe extern "C" fn get(object: *mut ffi::PyObject, name: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython passes an instance and a name, with the GIL held.
    unsafe {
        match EventObject::from_ptr(object).class().attributes().find(name) {
            Some(Getter { get, closure }) => get(object, closure),
            None => ffi::PyObject_GenericGetAttr(object, name),
        }
    }
}

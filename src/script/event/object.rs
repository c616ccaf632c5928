//! The object's memory: a view of a record while its callback runs, the owner of a copy when the script kept it.

use std::{
    ffi::c_void,
    ptr, slice,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use pyo3::{ffi, prelude::*};

use super::class::Class;
use crate::event::{Frame, Sample};

/// An event, as CPython sees it.
#[repr(C)]
pub struct EventObject {
    head: ffi::PyObject,
    /// The record's bytes: in the batch while `owned` is not set, else a boxed slice of our own.
    record: *const u8,
    /// Costly or detached parts; null until there are some.
    extra: *mut Extra,
    /// The class that it is of; CPython's type keeps it alive.
    class: *const Class,
    /// A record's size is a u16 in its header.
    size: u16,
    owned: bool,
}

/// What few events have.
#[derive(Default)]
pub struct Extra {
    /// The resolved call chain, a list.
    pub callchain: Option<Py<PyAny>>,
    /// What a copy knows by itself because it has left its run.
    pub detached: Option<Detached>,
}

/// What a detached event takes along.
pub struct Detached {
    /// The task's name.
    pub comm: Option<Vec<u8>>,
    /// Nanoseconds since the Unix epoch.
    pub realtime: i64,
    /// The call chain with its names.
    pub frames: Vec<Arc<Frame>>,
}

impl EventObject {
    /// The object behind a pointer that CPython passed to a slot, method or descriptor of the event classes.
    ///
    /// # Safety
    /// `object` is an instance of a class made by `Class::new`, the lock is held, and the reference is not kept beyond
    /// the call that it was passed to.
    #[inline]
    pub unsafe fn of<'a>(object: *mut ffi::PyObject) -> &'a EventObject {
        // SAFETY: the caller's; instances of these classes have this layout (`tp_basicsize`).
        unsafe { &*object.cast::<EventObject>() }
    }

    /// Its class.
    #[inline]
    pub fn class(&self) -> &Class {
        // SAFETY: set when the object was made; the Python type of the object keeps the class alive.
        unsafe { &*self.class }
    }

    /// The record's bytes, header included.
    #[inline]
    pub fn record(&self) -> &[u8] {
        // SAFETY: the batch outlives the callback, and before the batch goes an object that was kept gets its own
        // copy (`EventSlot::settle`), both under the lock.
        unsafe { slice::from_raw_parts(self.record, self.size as usize) }
    }

    /// The sample that the object shows.
    #[inline]
    pub fn sample(&self) -> Sample<'_> {
        Sample { event: &self.class().event, record: self.record() }
    }

    /// The costly parts, if there are any yet.
    pub fn extra(&self) -> Option<&Extra> {
        // SAFETY: null or a box of this object's, freed with it; only touched under the lock.
        unsafe { self.extra.as_ref() }
    }

    /// The costly parts, made now when there are none.
    ///
    /// # Safety
    /// As for [`EventObject::of`]; no reference from `extra` is alive.
    pub unsafe fn extra_mut<'a>(object: *mut ffi::PyObject) -> &'a mut Extra {
        let this = object.cast::<EventObject>();
        // SAFETY: the caller's.
        unsafe {
            if (*this).extra.is_null() {
                (*this).extra = Box::into_raw(Box::default());
            }
            &mut *(*this).extra
        }
    }

    fn drop_extra(&mut self) {
        if !self.extra.is_null() {
            // SAFETY: it came from `Box::into_raw` and is not used again.
            drop(unsafe { Box::from_raw(self.extra) });
            self.extra = ptr::null_mut();
        }
    }

    /// Gives the object a copy of its record.
    fn own(&mut self) {
        if !self.owned {
            let copy: Box<[u8]> = self.record().into();
            self.record = Box::into_raw(copy).cast::<u8>();
            self.owned = true;
            KEPT.fetch_add(1, Relaxed);
        }
    }
}

/// Events with a copy of their own.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// How many events the script has kept.
pub fn kept() -> usize {
    KEPT.load(Relaxed)
}

/// `tp_dealloc` of the event classes.
///
/// # Safety
/// Called by CPython only.
pub unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: CPython passes an instance whose last reference is gone; a heap type's instance holds a reference to it.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        let this = &mut *object.cast::<EventObject>();
        this.drop_extra();
        if this.owned {
            KEPT.fetch_sub(1, Relaxed);
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(this.record.cast_mut(), this.size as usize)));
        }
        ffi::PyObject_Free(object.cast::<c_void>());
        ffi::Py_DECREF(kind.cast());
    }
}

/// The one object of an event type that is shown to callbacks, again and again while nobody keeps it.
pub struct EventSlot {
    object: *mut ffi::PyObject,
}

impl EventSlot {
    /// No object yet.
    pub fn new() -> Self {
        Self { object: ptr::null_mut() }
    }

    /// Lets the object show `record`; makes one when there is none. Null with an exception set when memory is short.
    ///
    /// # Safety
    /// The lock is held, and `record` stays where it is until [`EventSlot::settle`] was called.
    #[inline]
    pub unsafe fn show(&mut self, class: &Class, record: &[u8]) -> *mut ffi::PyObject {
        if self.object.is_null() {
            // SAFETY: the lock is held.
            self.object = unsafe { allocate(class) };
            if self.object.is_null() {
                return ptr::null_mut();
            }
        }
        // SAFETY: the slot's object is alive, and nobody else has a reference to it.
        let this = unsafe { &mut *self.object.cast::<EventObject>() };
        this.record = record.as_ptr();
        this.size = record.len() as u16;
        self.object
    }

    /// After the callback: an object that somebody kept gets its own copy and leaves the slot.
    ///
    /// # Safety
    /// The lock is held and has been since the callback returned.
    #[inline]
    pub unsafe fn settle(&mut self) {
        if self.object.is_null() {
            return;
        }
        // SAFETY: the slot holds one reference, so the object is alive.
        unsafe {
            let this = &mut *self.object.cast::<EventObject>();
            if ffi::Py_REFCNT(self.object) == 1 {
                if !this.extra.is_null() {
                    this.drop_extra();
                }
            } else {
                this.own();
                ffi::Py_DECREF(self.object);
                self.object = ptr::null_mut();
            }
        }
    }

    /// Frees the object.
    ///
    /// # Safety
    /// The lock is held.
    pub unsafe fn clear(&mut self) {
        if !self.object.is_null() {
            // SAFETY: the slot's own reference.
            unsafe { ffi::Py_DECREF(self.object) };
            self.object = ptr::null_mut();
        }
    }
}

/// An object with a copy of a record and what it takes along.
pub fn detached(py: Python<'_>, class: &Class, record: &[u8], extra: Detached) -> PyResult<Py<PyAny>> {
    // SAFETY: the lock is held (`py`); the fresh object is ours alone until it is returned.
    unsafe {
        let object = allocate(class);
        let owned = Bound::from_owned_ptr_or_err(py, object)?;
        let this = &mut *object.cast::<EventObject>();
        this.record = record.as_ptr();
        this.size = record.len() as u16;
        this.own();
        EventObject::extra_mut(object).detached = Some(extra);
        Ok(owned.unbind())
    }
}

/// # Safety
/// The lock is held.
unsafe fn allocate(class: &Class) -> *mut ffi::PyObject {
    // SAFETY: the class's type is alive; the memory comes back zeroed, with a reference to the type.
    unsafe {
        let object = ffi::PyType_GenericAlloc(class.python_type(), 0);
        if !object.is_null() {
            let this = &mut *object.cast::<EventObject>();
            this.class = class;
            this.record = ptr::NonNull::dangling().as_ptr();
        }
        object
    }
}

//! The memory of an event object. During a callback, the object points to the record in the batch. If the script keeps
//! the object, the object gets its own copy of the record.
//!
//! Each event type has one object, which is used for one event after the other. After a callback, the reference count
//! shows whether the script has kept the object. If so, the object gets a copy of its record, and the next event gets a
//! new object.

use std::{
    ffi::c_void,
    ptr, slice,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use perf_prof_events::event::{Context, Sample, reader::KeptFacts};
use pyo3::{ffi, prelude::*};

use super::class::Class;

/// An event object, in the layout that CPython needs.
#[repr(C)]
pub struct EventObject {
    head: ffi::PyObject,
    /// The bytes of the record. If `owned` is true, they are a boxed slice that belongs to this object. Otherwise they
    /// are a part of the batch.
    record: *const u8,
    /// Values that few events have; null until one of them is set.
    extra: *mut Extra,
    /// The class of the event, which lives as long as the process.
    class: *const Class,
    /// The symbols, task names and clocks of the event's run. The object owns a reference of this `Arc`.
    context: *const Context,
    /// The size of the record in bytes: a u16, as in the record's header.
    size: u16,
    owned: bool,
}

/// Values that few events have: the resolved callchain, and the facts that only a copy contains.
#[derive(Default)]
pub struct Extra {
    /// The resolved callchain, as a Python list.
    pub callchain: Option<Py<PyAny>>,
    /// The facts that the record does not contain. A copy contains them, because a copy no longer depends on its run.
    /// `None` if the event is not a copy.
    pub detached: Option<KeptFacts>,
}

impl EventObject {
    /// Returns the event for a pointer that CPython passed to a slot, method or descriptor of the event classes.
    ///
    /// # Safety
    /// `object` is an instance of a class that `Class::new` created, and the GIL is held. The reference is not used
    /// after the call to which CPython passed the pointer.
    #[inline]
    pub unsafe fn from_ptr<'a>(object: *mut ffi::PyObject) -> &'a EventObject {
        // SAFETY: guaranteed by the caller. Instances of these classes have this layout (`tp_basicsize`).
        unsafe { &*object.cast::<EventObject>() }
    }

    /// Returns the event's class.
    #[inline]
    pub fn class(&self) -> &Class {
        // SAFETY: the pointer was set when the object was created, and a class is never freed.
        unsafe { &*self.class }
    }

    /// Returns the symbols, task names and clocks of the event's run.
    #[inline]
    pub fn context(&self) -> &Context {
        // SAFETY: the pointer was set when the object was created, and the object holds a reference until it is freed.
        unsafe { &*self.context }
    }

    /// Creates the event object of an event that this span is made of, with its own copy of the record. `at` is the
    /// index of this event: 0 for the begin, 1 for the end, and 2 for the first event between them.
    pub fn part_event(&self, py: Python<'_>, class: &Class, record: &[u8], at: usize) -> PyResult<Py<PyAny>> {
        // SAFETY: the pointer came from `Arc::into_raw`, and this object holds a reference. The count is raised before
        // the new `Arc` takes over one reference.
        let context = unsafe {
            Arc::increment_strong_count(self.context);
            Arc::from_raw(self.context)
        };
        match self.extra().and_then(|extra| extra.detached.as_ref()) {
            Some(whole) => {
                let facts = whole.parts.get(at).cloned().unwrap_or_default();
                detached(py, class, &context, record, facts)
            }
            None => with_record(py, class, &context, record),
        }
    }

    /// Returns the record's bytes, including the header.
    #[inline]
    pub fn record(&self) -> &[u8] {
        // SAFETY: the batch outlives the callback. An object that the script keeps gets its own copy before the batch
        // is freed (`EventSlot::after_callback`). The GIL is held all the time.
        unsafe { slice::from_raw_parts(self.record, self.size as usize) }
    }

    /// Returns the sample of this event.
    #[inline]
    pub fn sample(&self) -> Sample<'_> {
        Sample { event: &self.class().event, record: self.record() }
    }

    /// Returns the extra values; `None` if the event has no extra values.
    pub fn extra(&self) -> Option<&Extra> {
        // SAFETY: the pointer is null, or a box that belongs to this object and is freed with it. It is only used with
        // the GIL held.
        unsafe { self.extra.as_ref() }
    }

    /// Returns the extra values. Creates them if the event has none.
    ///
    /// # Safety
    /// As for [`EventObject::from_ptr`]; no reference from `extra` is alive.
    pub unsafe fn extra_mut<'a>(object: *mut ffi::PyObject) -> &'a mut Extra {
        let this = object.cast::<EventObject>();
        // SAFETY: guaranteed by the caller.
        unsafe {
            if (*this).extra.is_null() {
                (*this).extra = Box::into_raw(Box::default());
            }
            &mut *(*this).extra
        }
    }

    fn drop_extra(&mut self) {
        if !self.extra.is_null() {
            // SAFETY: the pointer came from `Box::into_raw` and is not used again.
            drop(unsafe { Box::from_raw(self.extra) });
            self.extra = ptr::null_mut();
        }
    }

    /// Gives the object its own copy of its record.
    fn copy_record(&mut self) {
        if !self.owned {
            let copy: Box<[u8]> = self.record().into();
            self.record = Box::into_raw(copy).cast::<u8>();
            self.owned = true;
            KEPT.fetch_add(1, Relaxed);
        }
    }
}

/// The number of event objects that own a copy of their record.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of events that the script keeps.
pub fn kept_events() -> usize {
    KEPT.load(Relaxed)
}

/// `tp_dealloc` of the event classes.
///
/// # Safety
/// Called by CPython only.
pub unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: CPython passes an instance without references. The instance of a heap type holds a reference to the type,
    // which is released here.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        let this = &mut *object.cast::<EventObject>();
        this.drop_extra();
        if this.owned {
            KEPT.fetch_sub(1, Relaxed);
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(this.record.cast_mut(), this.size as usize)));
        }
        drop(Arc::from_raw(this.context));
        ffi::PyObject_Free(object.cast::<c_void>());
        ffi::Py_DECREF(kind.cast());
    }
}

/// Contains the event object that is passed to the handlers of an event type. If the script does not keep the object,
/// the next event uses the object again.
pub struct EventSlot {
    object: *mut ffi::PyObject,
    context: Arc<Context>,
}

impl EventSlot {
    /// Creates a slot without an object, for the events of the run that `context` belongs to.
    pub fn new(context: Arc<Context>) -> Self {
        Self { object: ptr::null_mut(), context }
    }

    /// Makes the object show a record. Creates the object if there is none. Returns null with an exception set if there
    /// is not enough memory.
    ///
    /// # Safety
    /// The GIL is held, and `record` is neither moved nor freed until [`EventSlot::after_callback`] has been called.
    #[inline]
    pub unsafe fn show(&mut self, class: &Class, record: &[u8]) -> *mut ffi::PyObject {
        if self.object.is_null() {
            // SAFETY: the GIL is held.
            self.object = unsafe { allocate(class, &self.context) };
            if self.object.is_null() {
                return ptr::null_mut();
            }
        }
        // SAFETY: the slot's object is alive, and only the slot has a reference to it.
        let this = unsafe { &mut *self.object.cast::<EventObject>() };
        this.record = record.as_ptr();
        this.size = record.len() as u16;
        self.object
    }

    /// Must be called after the callback. If the script has kept the object, the object gets its own copy of the
    /// record, and the slot no longer uses the object.
    ///
    /// # Safety
    /// The GIL is held, and has been held since the callback returned.
    #[inline]
    pub unsafe fn after_callback(&mut self) {
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
                this.copy_record();
                ffi::Py_DECREF(self.object);
                self.object = ptr::null_mut();
            }
        }
    }

    /// Frees the object.
    ///
    /// # Safety
    /// The GIL is held.
    pub unsafe fn clear(&mut self) {
        if !self.object.is_null() {
            // SAFETY: releases the reference that the slot holds.
            unsafe { ffi::Py_DECREF(self.object) };
            self.object = ptr::null_mut();
        }
    }
}

/// Creates an event object that does not depend on a run. It owns a copy of the record, and its own facts.
pub fn detached(
    py: Python<'_>,
    class: &Class,
    context: &Arc<Context>,
    record: &[u8],
    extra: KeptFacts,
) -> PyResult<Py<PyAny>> {
    let object = with_record(py, class, context, record)?;
    // SAFETY: the GIL is held (`py`). The new object has no other references until it is returned.
    unsafe { EventObject::extra_mut(object.as_ptr()).detached = Some(extra) };
    Ok(object)
}

/// Creates an event object with its own copy of a record.
pub fn with_record(py: Python<'_>, class: &Class, context: &Arc<Context>, record: &[u8]) -> PyResult<Py<PyAny>> {
    // SAFETY: the GIL is held (`py`). The new object has no other references until it is returned.
    unsafe {
        let object = allocate(class, context);
        let owned = Bound::from_owned_ptr_or_err(py, object)?;
        let this = &mut *object.cast::<EventObject>();
        this.record = record.as_ptr();
        this.size = record.len() as u16;
        this.copy_record();
        Ok(owned.unbind())
    }
}

/// Allocates an object of the class, without a record yet.
///
/// # Safety
/// The GIL is held.
unsafe fn allocate(class: &Class, context: &Arc<Context>) -> *mut ffi::PyObject {
    // SAFETY: the class's type is alive. The allocated memory is zeroed, and the object holds a reference to the type.
    unsafe {
        let object = ffi::PyType_GenericAlloc(class.python_type(), 0);
        if !object.is_null() {
            let this = &mut *object.cast::<EventObject>();
            this.class = class;
            this.context = Arc::into_raw(Arc::clone(context));
            this.record = ptr::NonNull::dangling().as_ptr();
        }
        object
    }
}

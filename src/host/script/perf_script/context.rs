//! The module `perf_trace_context`: functions about the current sample, which a handler calls with its argument
//! `context`.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use perf_prof_core::tracefs::EventFormat;
use pyo3::{exceptions::PyValueError, prelude::*};

/// The current sample, as the argument `context` of handlers.
#[pyclass(frozen, module = "perf_trace_context", name = "Context")]
#[derive(Default)]
pub struct SampleContext {
    /// The raw data of the current sample. Null if no handler runs.
    raw: AtomicPtr<u8>,
    size: AtomicUsize,
    /// The format of the current sample. Null if it is no tracepoint's.
    format: AtomicPtr<EventFormat>,
}

impl SampleContext {
    /// Sets the current sample.
    ///
    /// # Safety
    /// `raw` and `format` live until [`SampleContext::clear`] is called. The GIL is held all the time.
    #[inline]
    pub unsafe fn set(&self, raw: &[u8], format: Option<&EventFormat>) {
        self.raw.store(raw.as_ptr().cast_mut(), Relaxed);
        self.size.store(raw.len(), Relaxed);
        self.format.store(format.map_or(std::ptr::null_mut(), |format| std::ptr::from_ref(format).cast_mut()), Relaxed);
    }

    /// Says that there is no current sample.
    #[inline]
    pub fn clear(&self) {
        self.raw.store(std::ptr::null_mut(), Relaxed);
    }

    /// Returns the value of a common field of the current sample: 0 if the sample does not have the field.
    fn common_field(&self, name: &str) -> PyResult<i64> {
        let (raw, format) = (self.raw.load(Relaxed), self.format.load(Relaxed));
        if raw.is_null() {
            return Err(PyValueError::new_err("the context describes a sample only while the sample's handler runs"));
        }
        // SAFETY: the pointers are set while a handler runs, and the GIL is held: see `set`. Only this thread can clear
        // them.
        let (raw, format) = unsafe { (std::slice::from_raw_parts(raw, self.size.load(Relaxed)), format.as_ref()) };
        let field = format.and_then(|format| format.common_fields().iter().find(|field| field.name == name));
        let number = field.and_then(|field| field.value(raw));
        Ok(match number {
            Some(perf_prof_core::value::Value::Int(number)) => number,
            Some(perf_prof_core::value::Value::Uint(number)) => number as i64,
            _ => 0,
        })
    }
}

/// Functions about the current sample, for scripts of `perf script`.
#[pymodule]
pub fn perf_trace_context(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("perf_script_context", module.py().None())?;
    module.add_function(wrap_pyfunction!(common_pc, module)?)?;
    module.add_function(wrap_pyfunction!(common_flags, module)?)?;
    module.add_function(wrap_pyfunction!(common_lock_depth, module)?)
}

/// Returns the field common_preempt_count of the current event.
#[pyfunction]
#[pyo3(signature = (context, /))]
fn common_pc(context: &SampleContext) -> PyResult<i64> {
    context.common_field("common_preempt_count")
}

/// Returns the field common_flags of the current event. trace_flag_str() of the module Core returns its text.
#[pyfunction]
#[pyo3(signature = (context, /))]
fn common_flags(context: &SampleContext) -> PyResult<i64> {
    context.common_field("common_flags")
}

/// Returns the field common_lock_depth of the current event, which only kernels with the big kernel lock had.
#[pyfunction]
#[pyo3(signature = (context, /))]
fn common_lock_depth(context: &SampleContext) -> PyResult<i64> {
    context.common_field("common_lock_depth")
}

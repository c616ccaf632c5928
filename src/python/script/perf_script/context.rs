//! The module `perf_trace_context`: functions about the current sample. Handlers pass their argument `context` to these
//! functions.

use std::{
    io::Read as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::Relaxed},
    },
};

use perf_prof_events::event::{Context, EventType, Sample};
use perf_prof_format::value::Value;
use perf_prof_symbols::symbol::AddressKind;
use perf_prof_system::file::open_regular;
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};

/// The current sample: the argument `context` of handlers.
#[pyclass(frozen, module = "perf_trace_context", name = "Context")]
pub struct SampleContext {
    /// The names and symbols of the run.
    context: Arc<Context>,
    /// The record of the current sample; null if no handler runs.
    record: AtomicPtr<u8>,
    size: AtomicUsize,
    event: AtomicPtr<EventType>,
}

impl SampleContext {
    /// Creates the object, without a current sample.
    pub fn new(context: Arc<Context>) -> SampleContext {
        SampleContext { context, record: AtomicPtr::default(), size: 0.into(), event: AtomicPtr::default() }
    }

    /// Sets the current sample.
    ///
    /// # Safety
    /// The sample lives until [`SampleContext::clear`] is called. Both calls hold the GIL.
    #[inline]
    pub unsafe fn set(&self, sample: &Sample<'_>) {
        self.record.store(sample.record.as_ptr().cast_mut(), Relaxed);
        self.size.store(sample.record.len(), Relaxed);
        self.event.store(std::ptr::from_ref(sample.event).cast_mut(), Relaxed);
    }

    /// Clears the current sample.
    #[inline]
    pub fn clear(&self) {
        self.record.store(std::ptr::null_mut(), Relaxed);
    }

    /// Returns the current sample. The caller holds the GIL, and must not release it while it uses the sample.
    fn sample(&self) -> Option<Sample<'_>> {
        let (record, event) = (self.record.load(Relaxed), self.event.load(Relaxed));
        if record.is_null() {
            return None;
        }
        // SAFETY: the pointers are valid until `clear` is called, which needs the GIL.
        unsafe { Some(Sample { record: std::slice::from_raw_parts(record, self.size.load(Relaxed)), event: &*event }) }
    }

    /// Returns the value of a common field of the current sample; 0 if the sample does not contain the field.
    fn common_field(&self, name: &str) -> PyResult<i64> {
        let sample = self.sample().ok_or_else(|| {
            PyValueError::new_err("the context can be used only while the handler of its sample runs")
        })?;
        let format = sample.event.format.tracepoint();
        let field = format.and_then(|format| format.common_fields().iter().find(|field| field.name == name));
        Ok(match field.and_then(|field| sample.field(field)) {
            Some(Value::Int(number)) => number,
            Some(Value::Uint(number)) => number as i64,
            _ => 0,
        })
    }

    /// Returns the source file and the line of the current sample's instruction; `None` if they are not known.
    fn srcline(&self) -> Option<(Arc<str>, u32)> {
        let sample = self.sample()?;
        source_of(&sample, sample.event.layout.ip(sample.record)?, &self.context)
    }
}

/// Returns the source file and the line of an address in the sample's process; `None` if they are not known.
pub fn source_of(sample: &Sample<'_>, addr: u64, context: &Context) -> Option<(Arc<str>, u32)> {
    if sample.is_in_kernel() == Some(true) {
        return None;
    }
    let (pid, time) = (sample.pid_tid().0, sample.time());
    context.with_symbols(|symbols| symbols.srcline(pid as u32, addr, time, AddressKind::Instruction).ok())
}

/// Functions about the current sample, for scripts of `perf script`.
#[pymodule]
pub fn perf_trace_context(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("perf_script_context", module.py().None())?;
    module.add_function(wrap_pyfunction!(common_pc, module)?)?;
    module.add_function(wrap_pyfunction!(common_flags, module)?)?;
    module.add_function(wrap_pyfunction!(common_lock_depth, module)?)?;
    module.add_function(wrap_pyfunction!(perf_set_itrace_options, module)?)?;
    module.add_function(wrap_pyfunction!(perf_sample_insn, module)?)?;
    module.add_function(wrap_pyfunction!(perf_sample_srcline, module)?)?;
    module.add_function(wrap_pyfunction!(perf_sample_srccode, module)?)
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

/// Returns 0 at the first call, and 1 at all later calls, because the options can be set only once. Hardware traces are
/// not decoded, so the options have no effect.
#[pyfunction]
#[pyo3(signature = (context, options, /))]
fn perf_set_itrace_options(context: &SampleContext, options: &str) -> i32 {
    static IS_SET: AtomicBool = AtomicBool::new(false);
    let _ = (context, options);
    IS_SET.swap(true, Relaxed).into()
}

/// Returns the bytes of the current sample's instruction, or None. They are known only in decoded hardware traces, which
/// perf-prof does not decode, so the result is None.
#[pyfunction]
#[pyo3(signature = (context, /))]
fn perf_sample_insn<'py>(py: Python<'py>, context: &SampleContext) -> Option<Bound<'py, PyBytes>> {
    let _ = (py, context);
    None
}

/// Returns the source file and the line of the current sample's instruction: (str, int), or (None, 0) if they are not
/// known.
#[pyfunction]
#[pyo3(signature = (context, /))]
fn perf_sample_srcline(context: &SampleContext) -> (Option<String>, u32) {
    match context.srcline() {
        Some((file, line)) => (Some(file.as_ref().to_owned()), line),
        None => (None, 0),
    }
}

/// Returns the source file, the line and the text of the line: (str, int, str). The text is None if the file cannot be
/// read. Returns (None, 0, None) if the line is not known.
#[pyfunction]
#[pyo3(signature = (context, /))]
fn perf_sample_srccode(context: &SampleContext) -> (Option<String>, u32, Option<String>) {
    let (file, line) = perf_sample_srcline(context);
    let text = file.as_ref().and_then(|file| line_of(Path::new(file), line));
    (file, line, text)
}

/// The maximum size of a source file that is read, in bytes.
const LARGEST_SOURCE: u64 = 64 << 20;

/// Returns a line of a source file. The path of the file comes from debug information, which is not trusted: it may
/// lead to a device or a pipe.
pub fn line_of(file: &Path, line: u32) -> Option<String> {
    let mut text = Vec::new();
    open_regular(file).ok()?.take(LARGEST_SOURCE).read_to_end(&mut text).ok()?;
    let line = text.split(|&byte| byte == b'\n').nth((line as usize).checked_sub(1)?)?;
    Some(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_are_read_only_from_regular_files() {
        let file = std::env::temp_dir().join(format!("perf-prof-source-{}", std::process::id()));
        fs::write(&file, "first\nseécond\n").unwrap();
        let lines = [0, 1, 2, 4].map(|line| line_of(&file, line));
        fs::remove_file(&file).unwrap();
        assert_eq!(lines, [None, Some("first".to_owned()), Some("seécond".to_owned()), None]);
        assert_eq!(line_of(Path::new("/dev/zero"), 1), None);
    }
}

//! The module `perf_prof` that scripts import.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::{
    exceptions::{PyKeyError, PyValueError},
    prelude::*,
    types::{PyDict, PyInt},
};

use super::{
    event::{base_type, field_error, restore},
    flame_graph::FlameGraph,
    histogram::Log2Hist,
    parts::shard,
    system_calls,
};
use crate::{
    event::{Context, EventType, Stats},
    symbol::{Place, Reason},
    sys::clock,
};

/// What the module tells of the run that it is in.
pub struct Run {
    /// The selected events.
    pub events: Vec<EventType>,
    /// Names of addresses and tasks.
    pub context: Arc<Context>,
    /// Counts.
    pub stats: Arc<Stats>,
    /// Each ring's CPU.
    pub ring_cpus: Vec<Option<u32>>,
    /// The architecture of the recording, as `uname -m` says it; `None` for this machine's.
    pub machine: Option<String>,
}

static RUN: Mutex<Option<Arc<Run>>> = Mutex::new(None);

/// Makes the module importable. Before the interpreter starts.
pub fn register() {
    pyo3::append_to_inittab!(perf_prof);
}

/// The run has begun.
pub fn set_run(run: Arc<Run>) {
    *RUN.lock().unwrap_or_else(PoisonError::into_inner) = Some(run);
}

/// The run is over.
pub fn clear_run() {
    *RUN.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

fn run() -> Option<Arc<Run>> {
    RUN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Script the Linux kernel's events: the event class and what helps reading events.
#[pymodule]
fn perf_prof(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("PerfEvent", base_type(py)?)?;
    module.add("FieldError", field_error(py)?)?;
    module.add_class::<FlameGraph>()?;
    module.add_class::<Log2Hist>()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(syscall_name, module)?)?;
    module.add_function(wrap_pyfunction!(syscall_nr, module)?)?;
    module.add_function(wrap_pyfunction!(errno_name, module)?)?;
    module.add_function(wrap_pyfunction!(ksym, module)?)?;
    module.add_function(wrap_pyfunction!(usym, module)?)?;
    module.add_function(wrap_pyfunction!(srcline, module)?)?;
    module.add_function(wrap_pyfunction!(build_id, module)?)?;
    module.add_function(wrap_pyfunction!(stats, module)?)?;
    module.add_function(wrap_pyfunction!(is_recording, module)?)?;
    module.add_function(wrap_pyfunction!(realtime, module)?)?;
    module.add_function(wrap_pyfunction!(shard, module)?)?;
    module.add_function(wrap_pyfunction!(restore, module)?)?;
    Ok(())
}

/// The name of a system call, or 'sys_NR' for a number without one. From __init__ on of the recording's architecture, else
/// of this one.
#[pyfunction]
fn syscall_name(nr: i64) -> String {
    with_machine(|machine| system_calls::name(machine, nr)).map_or_else(|| format!("sys_{nr}"), str::to_owned)
}

/// The number of a system call. KeyError for a name that the architecture does not have.
#[pyfunction]
fn syscall_nr(name: &str) -> PyResult<i64> {
    let number = with_machine(|machine| system_calls::number(machine, name));
    number.ok_or_else(|| PyKeyError::new_err(format!("no system call '{name}'")))
}

fn with_machine<T>(work: impl FnOnce(&str) -> T) -> T {
    let run = run();
    let recorded = run.as_ref().and_then(|run| run.machine.as_deref());
    work(recorded.unwrap_or(std::env::consts::ARCH))
}

/// The name of an error number, of either sign: errno_name(-2) == 'ENOENT'. 'errno_N' for one without a name.
#[pyfunction]
fn errno_name(py: Python<'_>, n: i64) -> PyResult<String> {
    let n = n.checked_abs().ok_or_else(|| PyValueError::new_err("no error number is that small"))?;
    // The kernel's own, which a system call's tracepoint shows before they are turned into EINTR or a restart
    // (`include/linux/errno.h`).
    let internal = match n {
        512 => "ERESTARTSYS",
        513 => "ERESTARTNOINTR",
        514 => "ERESTARTNOHAND",
        515 => "ENOIOCTLCMD",
        516 => "ERESTART_RESTARTBLOCK",
        517 => "EPROBE_DEFER",
        518 => "EOPENSTALE",
        519 => "ENOPARAM",
        524 => "ENOTSUPP",
        _ => "",
    };
    if !internal.is_empty() {
        return Ok(internal.to_owned());
    }
    let codes = py.import("errno")?.getattr("errorcode")?.cast_into::<PyDict>()?;
    match codes.get_item(PyInt::new(py, n))? {
        Some(name) => name.extract(),
        None => Ok(format!("errno_{n}")),
    }
}

/// 'symbol+0xoffset' of a kernel address; '0x...' when it has no name.
#[pyfunction]
fn ksym(addr: u64) -> String {
    let run = run();
    let symbol = run.as_ref().and_then(|run| run.context.kernel.symbol(addr));
    symbol.map_or_else(|| format!("{addr:#x}"), |symbol| format!("{}+{:#x}", symbol.name, symbol.offset))
}

/// 'symbol+0xoffset' of an address of a process, as it is now; 'dso+0xoffset' when it has no name there, '0x...' when
/// the process has nothing at that address, or is not known.
#[pyfunction]
fn usym(pid: u32, addr: u64) -> String {
    let Some(run) = run() else { return format!("{addr:#x}") };
    let resolved = run.context.with_symbols(|symbols| symbols.user(pid, addr, u64::MAX, Place::Exact));
    match &resolved.symbol {
        Ok(symbol) => format!("{}+{:#x}", symbol.name, symbol.offset),
        Err(Reason::NotMapped) => format!("{addr:#x}"),
        Err(_) => format!("{}+{:#x}", resolved.dso, resolved.dso_offset),
    }
}

/// 'file:line' of a user frame, an element of a call chain; None for a frame of the kernel, and where no debug
/// information tells. Reads DWARF, whatever the options say.
#[pyfunction]
fn srcline(frame: &Bound<'_, PyDict>) -> PyResult<Option<String>> {
    if let Some(known) = frame.get_item("srcline")? {
        return known.extract();
    }
    let (Some(run), Some(pid), Some(addr)) = (run(), frame.get_item("pid")?, frame.get_item("addr")?) else {
        return Ok(None);
    };
    let (pid, addr): (i32, u64) = (pid.extract()?, addr.extract()?);
    // The address is where a call returns to, but for the innermost frame: there the line may be the next one's.
    let found = run.context.with_symbols(|symbols| symbols.srcline(pid as u32, addr, u64::MAX, Place::Return));
    Ok(found.ok().map(|(file, line)| format!("{file}:{line}")))
}

/// The build id of a user frame's file, in hexadecimal digits: what a debug file for it is found by. None for a frame of
/// the kernel, and for a file that has none or cannot be read any more.
#[pyfunction]
fn build_id(frame: &Bound<'_, PyDict>) -> PyResult<Option<String>> {
    let (Some(run), Some(pid), Some(addr)) = (run(), frame.get_item("pid")?, frame.get_item("addr")?) else {
        return Ok(None);
    };
    let (pid, addr): (i32, u64) = (pid.extract()?, addr.extract()?);
    let resolved = run.context.with_symbols(|symbols| symbols.user(pid as u32, addr, u64::MAX, Place::Return));
    let digits = |id: &std::sync::Arc<[u8]>| id.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(resolved.build_id.as_ref().map(digits))
}

/// Whether the events are those of a recording: then /proc has other processes than they tell of. From __init__ on.
#[pyfunction]
fn is_recording() -> bool {
    run().is_some_and(|run| run.context.is_recording())
}

/// The time of day, in ns since the epoch: of a recording that of its events, in __interval__ when the interval ended.
#[pyfunction]
fn realtime() -> i64 {
    run().and_then(|run| run.context.reached()).unwrap_or_else(clock::realtime)
}

/// Counts so far: {'delivered', 'lost', 'events': {name: {'delivered', 'lost'}}, 'cpus': {cpu: {'delivered', 'lost'}}}.
///
/// 'lost' of an event is None on kernels before 6.0, which count losses per ring only. In __exit__ they are exact:
/// delivered + lost is what the kernel produced.
#[pyfunction]
fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    let Some(run) = run() else { return Ok(all) };
    let counts = |delivered: u64, lost: Option<u64>| {
        let dict = PyDict::new(py);
        dict.set_item("delivered", delivered)?;
        dict.set_item("lost", lost)?;
        PyResult::Ok(dict)
    };
    all.set_item("delivered", run.stats.total_delivered())?;
    all.set_item("lost", run.stats.total_lost())?;
    let events = PyDict::new(py);
    for (event, count) in run.events.iter().zip(run.stats.per_event()) {
        // The same event selected twice is one row.
        let name = event.shown_name();
        let before = events.get_item(&name)?;
        let before = |key: &str| -> PyResult<Option<u64>> {
            before.as_ref().map_or(Ok(Some(0)), |row| row.get_item(key)?.extract())
        };
        let delivered = before("delivered")?.unwrap_or(0) + count.delivered;
        let lost = before("lost")?.zip(count.lost).map(|(a, b)| a + b);
        events.set_item(name, counts(delivered, lost)?)?;
    }
    all.set_item("events", events)?;
    let cpus = PyDict::new(py);
    for (cpu, (delivered, lost)) in run.ring_cpus.iter().zip(run.stats.per_ring()) {
        if let Some(cpu) = cpu {
            cpus.set_item(cpu, counts(delivered, Some(lost))?)?;
        }
    }
    all.set_item("cpus", cpus)?;
    Ok(all)
}

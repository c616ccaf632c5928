//! Functions and classes of the native module `perf_prof._native`, which scripts import from the package `perf_prof`.

use std::sync::Arc;

use perf_prof_events::event::{IncompleteTask, Shortfall};
use perf_prof_format::abi::system_calls;
use perf_prof_session::spine::{About, RecordingFacts};
use perf_prof_symbols::symbol::{AddressKind, Reason};
use perf_prof_system::{clock, mutex::Mutex};
use pyo3::{
    exceptions::{PyKeyError, PyValueError},
    prelude::*,
    types::{IntoPyDict, PyCFunction, PyDict, PyInt},
};

use super::{
    aggregate::{Aggregator, Count, Hist, PyDistribution as Distribution, Stacks, Sum, Top, add_metrics_to},
    columns,
    event::{base_type, field_error, perf_sample_event, restore},
    flame_graph::FlameGraph,
    fleet,
    heat_map::Heatmap,
    histogram::Log2Hist,
    interpreter,
    merge::shard,
    perf_module::{BranchEntry, BranchStack, Callchain, CallchainNode},
    printing::print,
    snapshots::snapshot,
    timeline::{Timeline, TimelineTrack},
};

static RUN: Mutex<Option<Arc<About>>> = Mutex::new(None);

/// Sets the current run.
pub fn set_run(run: Arc<About>) {
    *RUN.lock() = Some(run);
}

/// Sets the current run to `run`, which was the current run earlier; `None` if there was no current run.
pub fn set_current_run(run: Option<Arc<About>>) {
    *RUN.lock() = run;
}

/// Clears the current run. Called when the run is over.
pub fn clear_run() {
    *RUN.lock() = None;
}

/// Returns the current run; `None` outside of runs.
pub fn run() -> Option<Arc<About>> {
    RUN.lock().clone()
}

/// Adds the functions and classes of this module to the native module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("PerfEvent", base_type(py)?)?;
    module.add("FieldError", field_error(py)?)?;
    module.add_class::<Aggregator>()?;
    module.add_class::<Count>()?;
    module.add_class::<Distribution>()?;
    module.add_class::<FlameGraph>()?;
    module.add_class::<Heatmap>()?;
    module.add_class::<Hist>()?;
    module.add_class::<Log2Hist>()?;
    module.add_class::<Timeline>()?;
    module.add_class::<TimelineTrack>()?;
    module.add_class::<Stacks>()?;
    module.add_class::<Sum>()?;
    module.add_class::<Top>()?;
    module.add_class::<BranchEntry>()?;
    module.add_class::<BranchStack>()?;
    module.add_class::<Callchain>()?;
    module.add_class::<CallchainNode>()?;
    module.add_function(wrap_pyfunction!(perf_sample_event, module)?)?;
    module.add_function(wrap_pyfunction!(syscall_of_machine, module)?)?;
    module.add_function(wrap_pyfunction!(syscall_nr_of_machine, module)?)?;
    columns::add_to(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(syscall_name, module)?)?;
    module.add_function(wrap_pyfunction!(syscall_nr, module)?)?;
    module.add_function(wrap_pyfunction!(errno_name, module)?)?;
    module.add_function(wrap_pyfunction!(ksym, module)?)?;
    module.add_function(wrap_pyfunction!(usym, module)?)?;
    module.add_function(wrap_pyfunction!(srcline, module)?)?;
    module.add_function(wrap_pyfunction!(build_id, module)?)?;
    module.add_function(wrap_pyfunction!(stats, module)?)?;
    module.add_function(wrap_pyfunction!(missing, module)?)?;
    module.add_function(wrap_pyfunction!(lost_cpu, module)?)?;
    module.add_function(wrap_pyfunction!(is_recording, module)?)?;
    module.add_function(wrap_pyfunction!(recording, module)?)?;
    module.add_function(wrap_pyfunction!(is_target, module)?)?;
    module.add_function(wrap_pyfunction!(process_of, module)?)?;
    module.add_function(wrap_pyfunction!(realtime, module)?)?;
    module.add_function(wrap_pyfunction!(shard, module)?)?;
    module.add_function(wrap_pyfunction!(snapshot, module)?)?;
    module.add_function(wrap_pyfunction!(is_host, module)?)?;
    fleet::add_to(module)?;
    add_metrics_to(module)?;
    module.add_function(wrap_pyfunction!(print, module)?)?;
    module.add_function(wrap_pyfunction!(restore, module)?)
}

/// Sets `__module__` of the functions to `perf_prof`, because programs import them from this package.
pub fn name_package(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for (_, member) in module.dict() {
        if member.is_instance_of::<PyCFunction>() {
            member.setattr("__module__", "perf_prof")?;
        }
    }
    Ok(())
}

/// Returns the name of a system call, or 'sys_NR' if the number has no name. The number is looked up for this
/// machine's architecture; with --input, for the recording's architecture (from __init__ on). For calls of 32-bit programs
/// on x86-64, 2048 is added to the number, as in `nr` of spans of `syscall`.
#[pyfunction]
fn syscall_name(nr: i64) -> String {
    with_machine(|machine| system_calls::name(machine, nr)).map_or_else(|| format!("sys_{nr}"), str::to_owned)
}

/// Returns the number of a system call. Raises KeyError if the architecture has no system call of this name.
#[pyfunction]
fn syscall_nr(name: &str) -> PyResult<i64> {
    let number = with_machine(|machine| system_calls::number(machine, name));
    number.ok_or_else(|| PyKeyError::new_err(format!("no system call '{name}'")))
}

/// Returns the name of a system call of an architecture, as `uname -m` prints it; None if the number has no name.
#[pyfunction]
#[pyo3(signature = (nr, machine = None))]
fn syscall_of_machine(nr: i64, machine: Option<&str>) -> Option<&'static str> {
    system_calls::name_in_table(machine.unwrap_or(std::env::consts::ARCH), nr)
}

/// Returns the number of a system call of an architecture, as `uname -m` prints it; None if it has no such call.
#[pyfunction]
#[pyo3(signature = (name, machine = None))]
fn syscall_nr_of_machine(name: &str, machine: Option<&str>) -> Option<i64> {
    system_calls::number(machine.unwrap_or(std::env::consts::ARCH), name)
}

fn with_machine<T>(work: impl FnOnce(&str) -> T) -> T {
    let run = run();
    let recorded = run.as_ref().and_then(|run| run.machine.as_deref());
    work(recorded.unwrap_or(std::env::consts::ARCH))
}

/// Returns the name of an error number, which may be negative: errno_name(-2) == 'ENOENT'. Returns 'errno_N'
/// if the number has no name.
#[pyfunction]
fn errno_name(py: Python<'_>, n: i64) -> PyResult<String> {
    let n = n.checked_abs().ok_or_else(|| PyValueError::new_err("the error number is too small"))?;
    // These are the kernel's internal error numbers (`include/linux/errno.h`). The exit tracepoint of a system call
    // shows them. Later the kernel converts them to EINTR, or restarts the call.
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

/// Returns 'symbol+0xoffset' for a kernel address, or '0x...' if it has no symbol.
#[pyfunction]
fn ksym(addr: u64) -> String {
    run().map_or_else(|| format!("{addr:#x}"), |run| ksym_of(&run, addr))
}

/// Returns the text for a kernel address in a run, as `ksym` returns it.
pub fn ksym_of(run: &About, addr: u64) -> String {
    let symbol = run.context.kernel.symbol(addr);
    symbol.map_or_else(|| format!("{addr:#x}"), |symbol| format!("{}+{:#x}", symbol.name, symbol.offset))
}

/// Returns 'symbol+0xoffset' for an address in a process, using the process's current mappings. Returns
/// 'dso+0xoffset' if there is no symbol, '0x...' if nothing is mapped at the address, and '[unknown]+0x...'
/// if the process is not known.
#[pyfunction]
fn usym(pid: u32, addr: u64) -> String {
    run().map_or_else(|| format!("{addr:#x}"), |run| usym_of(&run, pid, addr))
}

/// Returns the text for an address in a process of a run, as `usym` returns it.
pub fn usym_of(run: &About, pid: u32, addr: u64) -> String {
    let resolved = run.context.with_symbols(|symbols| symbols.user(pid, addr, u64::MAX, AddressKind::Instruction));
    match &resolved.symbol {
        Ok(symbol) => format!("{}+{:#x}", symbol.name, symbol.offset),
        Err(Reason::NotMapped) => format!("{addr:#x}"),
        Err(_) => format!("{}+{:#x}", resolved.dso, resolved.dso_offset),
    }
}

/// Returns 'file:line' for frame, a user frame from a call chain. Returns None if it is a kernel frame or if
/// there is no debug information. Works without --srcline too, by reading the file's DWARF.
#[pyfunction]
fn srcline(frame: &Bound<'_, PyDict>) -> PyResult<Option<String>> {
    if let Some(known) = frame.get_item("srcline")? {
        return known.extract();
    }
    let (Some(run), Some(pid), Some(addr)) = (run(), frame.get_item("pid")?, frame.get_item("addr")?) else {
        return Ok(None);
    };
    let (pid, addr): (i32, u64) = (pid.extract()?, addr.extract()?);
    // The address of a user frame is a return address, except in the innermost frame. So the line of the address minus
    // one is looked up. The innermost frame contains the address of the sampled instruction. For the innermost frame,
    // the result may therefore be the line of the previous instruction.
    let found = run.context.with_symbols(|symbols| symbols.srcline(pid as u32, addr, u64::MAX, AddressKind::Return));
    Ok(found.ok().map(|(file, line)| format!("{file}:{line}")))
}

/// Returns the build id of a user frame's file as hexadecimal digits. Debug files are found by their build
/// id. Returns None if frame is a kernel frame, or if the file has no build id or can no longer be read.
#[pyfunction]
fn build_id(frame: &Bound<'_, PyDict>) -> PyResult<Option<String>> {
    let (Some(run), Some(pid), Some(addr)) = (run(), frame.get_item("pid")?, frame.get_item("addr")?) else {
        return Ok(None);
    };
    let (pid, addr): (i32, u64) = (pid.extract()?, addr.extract()?);
    let resolved = run.context.with_symbols(|symbols| symbols.user(pid as u32, addr, u64::MAX, AddressKind::Return));
    let digits = |id: &std::sync::Arc<[u8]>| id.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(resolved.build_id.as_ref().map(digits))
}

/// Returns True in a script of perf-prof, and False in a program that uses perf_prof as a library.
#[pyfunction]
fn is_host() -> bool {
    interpreter::is_host()
}

/// Returns True if the events come from a recording. Then /proc does not show the processes of the events.
/// The result is valid from __init__ on.
#[pyfunction]
fn is_recording() -> bool {
    run().is_some_and(|run| run.context.is_recording())
}

/// Returns the recording that the events come from, as a dict: 'path', 'hostname' and 'kernel' (the release of the
/// kernel) of the recorded machine, 'start' and 'end'. These are the times of the first and the last sample, in ns
/// since the epoch. A value that the recording does not contain is None. Returns None for live events. With several
/// recordings, returns the one whose events are being delivered; returns None where the results of all parts are merged.
#[pyfunction]
fn recording(py: Python<'_>) -> PyResult<Option<Bound<'_, PyDict>>> {
    let Some(run) = run() else { return Ok(None) };
    let Some(RecordingFacts { path, hostname, kernel, times, .. }) = &run.recording else { return Ok(None) };
    let dict = PyDict::new(py);
    dict.set_item("path", path.as_os_str())?;
    dict.set_item("hostname", hostname)?;
    dict.set_item("kernel", kernel)?;
    let times = times.and_then(|(start, end)| run.context.realtime(start).zip(run.context.realtime(end)));
    dict.set_item("start", times.map(|(start, _)| start))?;
    dict.set_item("end", times.map(|(_, end)| end))?;
    Ok(Some(dict))
}

/// Returns True if -p, -t, --cgroups or --exec selects the thread tid, or if none of them is given. Use it with
/// --all-cpus, which delivers the events of all tasks. Processes that a selected process creates during the run
/// are selected too. In a program, it is for the handlers of run(), and raises Error elsewhere; a trace has
/// Trace.is_target().
#[pyfunction]
fn is_target(py: Python<'_>, tid: i32) -> PyResult<bool> {
    match run() {
        Some(run) => Ok(run.context.is_target(tid)),
        // There is no run yet, because the script is still being loaded.
        None if interpreter::is_host() => Ok(true),
        None => {
            let text = "is_target(): no handler of run() is being called; a trace has its own is_target()";
            Err(PyErr::from_value(py.import("perf_prof")?.getattr("Error")?.call1((text,))?))
        }
    }
}

/// Returns the process id of the thread tid, or None if it is not known. In a program, it is for the handlers of
/// run(), and returns None elsewhere; a trace has Trace.process_of().
#[pyfunction]
fn process_of(tid: i32) -> Option<i32> {
    run().and_then(|run| run.context.process(tid))
}

/// Returns the CPU of the lost events that __lost__ reports. Returns None outside of __lost__, or if the CPU is
/// not known: with -p, -t and --exec, events are not lost per CPU.
#[pyfunction]
fn lost_cpu() -> Option<u32> {
    let run = run()?;
    run.ring_cpus.get(run.stats.reported_ring()?).copied().flatten()
}

/// Returns the wall clock time in ns since the epoch. With --input, it is the time that the replay has
/// reached. In __interval__, it is the end of the interval.
#[pyfunction]
fn realtime() -> i64 {
    run().and_then(|run| run.context.reached()).unwrap_or_else(clock::realtime)
}

/// Returns the counts so far: {'delivered', 'lost', 'own', 'partial', 'events': {name: {'delivered', 'lost', 'where'}},
/// 'cpus': {cpu: {'delivered', 'lost'}}}. 'partial' is True if events or spans are missing: missing() says which.
///
/// 'own' is the number of events of perf-prof's own threads, which are left out without --include-self. The
/// 'lost' of an event is None on kernels before 6.0, which count losses only per ring. In __exit__ the counts
/// are exact: delivered + lost + own is the number of events that the kernel produced. 'where' is 'kernel' if the
/// kernel adds up the event: it then counts in 'delivered' when its tables are read, and belongs to no CPU. Of a
/// recording of perf, and with --jobs, the 'lost' of a CPU counts events that were recorded but not selected too.
///
/// The row of a span also contains 'opened', 'ended', 'open', 'dropped', 'without_begin', 'begun_before',
/// 'begun_before_events' and 'unseen'.
/// 'begun_before' is the number of spans that began before the run or the recording and ended in it, if their ends show
/// this, and 'begun_before_events' counts events of spans whose begin was not seen: of `tcp`, packets that were sent
/// again. 'unseen' is the number of events of the selected tasks that the kernel did not deliver, although it reported
/// no loss; later events show this. 'partial' is True if spans of the selected tasks are missing. 'incomplete_tasks' maps the
/// thread id of each such task to its name and the number of its gaps. 'missing_time' is the maximum total
/// duration, in ns, of the spans that were dropped because events were lost; None if spans are missing and nothing
/// shows how long they lasted. 'cpus_without_idle_events' lists the CPUs of whose idle task the kernel delivers no
/// events.
#[pyfunction]
fn stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    run().map_or_else(|| Ok(PyDict::new(py)), |run| stats_of(py, &run))
}

/// Returns what is missing in the events and spans so far, as text: '12 events were lost'. Returns '' if they are
/// complete. Tables and pictures that perf_prof makes have this text in a line or in the subtitle.
#[pyfunction]
fn missing() -> String {
    let shortfall = run().and_then(|run| Shortfall::of(&run.stats, Some(&run.context)));
    shortfall.map(|shortfall| shortfall.reasons()).unwrap_or_default()
}

/// Returns the counts of a run so far.
pub fn stats_of<'py>(py: Python<'py>, run: &About) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    let counts = |delivered: u64, lost: Option<u64>| {
        let dict = PyDict::new(py);
        dict.set_item("delivered", delivered)?;
        dict.set_item("lost", lost)?;
        PyResult::Ok(dict)
    };
    all.set_item("delivered", run.stats.total_delivered())?;
    all.set_item("lost", run.stats.total_lost())?;
    all.set_item("own", run.stats.own_samples())?;
    all.set_item("partial", Shortfall::of(&run.stats, Some(&run.context)).is_some())?;
    let place = |at: usize| if run.stats.is_worked_out_in_kernel(at) { "kernel" } else { "perf-prof" };
    let events = PyDict::new(py);
    for (at, (event, count)) in run.events.iter().zip(run.stats.per_event()).enumerate() {
        // If an event is selected several times, its counts are added up.
        let name = event.shown_name();
        let before = events.get_item(&name)?;
        let before = |key: &str| -> PyResult<Option<u64>> {
            before.as_ref().map_or(Ok(Some(0)), |row| row.get_item(key)?.extract())
        };
        let delivered = before("delivered")?.unwrap_or(0) + count.delivered;
        let lost = before("lost")?.zip(count.lost).map(|(a, b)| a + b);
        let row = counts(delivered, lost)?;
        row.set_item("where", place(at))?;
        events.set_item(&name, row)?;
    }
    for (at, event) in run.events.iter().enumerate() {
        if let Some(span) = run.stats.span(at) {
            let row = PyDict::new(py);
            let numbers = [
                ("delivered", span.delivered()),
                ("opened", span.opened()),
                ("ended", span.ended()),
                ("open", span.open()),
                ("dropped", span.dropped()),
                ("without_begin", span.without_begin()),
                ("begun_before", span.begun_before()),
                ("begun_before_events", span.begun_before_events()),
                ("unseen", span.unseen()),
            ];
            numbers.into_iter().try_for_each(|(key, number)| row.set_item(key, number))?;
            let (incomplete, lacks_events) = (span.gaps_so_far(), run.stats.lacks_events());
            let dropped = span.without_room() + span.without_task();
            let partial = lacks_events || incomplete.gaps() + dropped + run.stats.total_lost() != 0;
            row.set_item("partial", partial)?;
            let tasks = IncompleteTask::list(&incomplete, Some(&run.context)).into_iter();
            let tasks = tasks.map(|IncompleteTask { tid, comm, gaps, .. }| (tid, (comm, gaps)));
            row.set_item("incomplete_tasks", tasks.into_py_dict(py)?)?;
            row.set_item("missing_time", Some(incomplete.missing()).filter(|&time| time != 0 || !partial))?;
            row.set_item("cpus_without_idle_events", incomplete.cpus_without_idle_events())?;
            // The number of lost samples is known. The number of lost spans is known only if BPF programs make the
            // spans.
            let is_in_kernel = run.stats.is_in_kernel(at);
            let missed = run.stats.per_event().get(at).and_then(|counts| counts.lost).filter(|_| is_in_kernel);
            row.set_item("lost", missed)?;
            row.set_item("where", place(at))?;
            events.set_item(event.shown_name(), row)?;
        }
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

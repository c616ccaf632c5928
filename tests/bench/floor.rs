//! Measures the floor of each handler, which is a direct call, and the same handler with records from memory that pass
//! the whole pipeline.

use pyo3::{Py, PyAny, Python, ffi};

use super::{cpu::thread_ns, events, python, table::Table};

/// The number of events of a run.
const EVENTS: u64 = 2_000_000;

/// Adds the rows `floor` and `memory` of each handler. The two measurements alternate.
pub fn and_memory(table: &mut Table) {
    let events = table.effort.count(EVENTS);
    let memory = events::Memory::new(events, 1);
    for (name, body) in python::HANDLERS {
        let bare = python::bare(body);
        let run = events::run(1);
        let mut program = python::program(run.clone(), body);
        let (mut floor, mut whole) = (Vec::new(), Vec::new());
        for _ in 0..table.effort.runs() {
            floor.push(calls(&bare, events));
            let begun = thread_ns();
            memory.deliver(&mut program, &run);
            whole.push((thread_ns() - begun) as f64 / events as f64);
        }
        program.clear();
        table.row(
            &format!("floor {name}"),
            &floor,
            "ns",
            "the function is called in a bare loop (vectorcall); fields are attributes of a `__slots__` object",
        );
        let base = format!("floor {name}");
        table.compared(
            &format!("memory {name}"),
            &whole,
            (&base, &floor),
            "ns",
            "the whole pipeline; the records are in memory",
        );
    }
    // An event without a handler is parsed, counted and skipped.
    let run = events::run(1);
    let mut program =
        python::program(run.clone(), "    pass\n\ndef __exit__():\n    pass\n\ndel sched__sched_wakeup\n");
    let mut whole = Vec::new();
    for _ in 0..table.effort.runs() {
        let begun = thread_ns();
        memory.deliver(&mut program, &run);
        whole.push((thread_ns() - begun) as f64 / events as f64);
    }
    program.clear();
    table.row("memory, no handler", &whole, "ns", "");
}

/// Calls the function `count` times in a loop. Returns the CPU time of one call, in ns.
pub fn calls((function, argument): &(Py<PyAny>, Py<PyAny>), count: u64) -> f64 {
    calls_of(function, std::slice::from_ref(argument), count)
}

/// Calls the function with these arguments `count` times in a loop. Returns the CPU time of one call, in ns.
pub fn calls_of(function: &Py<PyAny>, arguments: &[Py<PyAny>], count: u64) -> f64 {
    Python::attach(|_| {
        let free = std::iter::once(std::ptr::null_mut());
        let mut args: Vec<*mut ffi::PyObject> = free.chain(arguments.iter().map(Py::as_ptr)).collect();
        let flags = arguments.len() | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
        let begun = thread_ns();
        for _ in 0..count {
            // SAFETY: the thread is attached to the interpreter, and the free entry before the argument is what
            // PY_VECTORCALL_ARGUMENTS_OFFSET promises.
            unsafe {
                let first = args.as_mut_ptr().add(1);
                let result = ffi::PyObject_Vectorcall(function.as_ptr(), first, flags, std::ptr::null_mut());
                assert!(!result.is_null());
                ffi::Py_DECREF(result);
            }
        }
        (thread_ns() - begun) as f64 / count as f64
    })
}

//! The floor of each handler, and the same handler through the whole pipeline from memory.

use pyo3::{Py, PyAny, Python, ffi};

use super::{cpu::thread_ns, events, python, table::Table};

/// Events of a run.
const EVENTS: u64 = 2_000_000;

/// Rows `floor` and `memory` of every handler, in turn.
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
            "vectorcall in a bare loop, attributes of a `__slots__` object",
        );
        let base = format!("floor {name}");
        table.compared(
            &format!("memory {name}"),
            &whole,
            (&base, &floor),
            "ns",
            "whole pipeline from records in memory",
        );
    }
    // An event without handler is parsed, counted and passed over.
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

/// Nanoseconds of a call, of so many in a loop.
pub fn calls((function, argument): &(Py<PyAny>, Py<PyAny>), count: u64) -> f64 {
    Python::attach(|_| {
        let begun = thread_ns();
        for _ in 0..count {
            // SAFETY: attached; the free place in front is what PY_VECTORCALL_ARGUMENTS_OFFSET promises.
            unsafe {
                let args = [std::ptr::null_mut(), argument.as_ptr()];
                let flags = 1 | ffi::PY_VECTORCALL_ARGUMENTS_OFFSET;
                let result =
                    ffi::PyObject_Vectorcall(function.as_ptr(), args.as_ptr().add(1), flags, std::ptr::null_mut());
                assert!(!result.is_null());
                ffi::Py_DECREF(result);
            }
        }
        (thread_ns() - begun) as f64 / count as f64
    })
}

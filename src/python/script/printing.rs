//! Prints text of events to stdout. On a terminal, control characters are escaped, because anybody can give a task a
//! name that changes the terminal. Files and pipes get the text unchanged.

use std::{io::IsTerminal, sync::OnceLock};

use perf_prof_format::control_characters;
use pyo3::{
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyTuple},
};

/// Returns whether a Python stream is a terminal. The stream may be any object that the script has stored in
/// `sys.stdout`.
pub fn is_terminal(stream: &Bound<'_, PyAny>) -> bool {
    static HAS_TERMINAL: OnceLock<bool> = OnceLock::new();
    let any = || std::io::stdout().is_terminal() || std::io::stderr().is_terminal();
    // If no descriptor of the process is a terminal, Python need not be asked.
    *HAS_TERMINAL.get_or_init(any)
        && stream.call_method0(pyo3::intern!(stream.py(), "isatty")).is_ok_and(|on| on.is_truthy().unwrap_or(false))
}

/// Writes text and a newline to a file, or to sys.stdout.
pub fn write_to(py: Python<'_>, file: Option<&Bound<'_, PyAny>>, text: String) -> PyResult<()> {
    let stdout = || py.import("sys")?.getattr("stdout");
    let file = file.map_or_else(stdout, |file| Ok(file.clone()))?;
    if !file.is_none() {
        file.call_method1("write", (text + "\n",))?;
    }
    Ok(())
}

/// Prints args as the built-in print() does. On a terminal, control characters in args are shown escaped: a task
/// can have a name that changes the terminal. Files and pipes get the text as it is.
#[pyfunction]
#[pyo3(signature = (*args, sep=None, end=None, file=None, flush=false))]
pub fn print(
    args: &Bound<'_, PyTuple>,
    sep: Option<&Bound<'_, PyAny>>,
    end: Option<&Bound<'_, PyAny>>,
    file: Option<&Bound<'_, PyAny>>,
    flush: bool,
) -> PyResult<()> {
    let py = args.py();
    let stdout = || py.import(pyo3::intern!(py, "sys"))?.getattr(pyo3::intern!(py, "stdout"));
    let to = file.map_or_else(stdout, |file| Ok(file.clone()))?;
    let options = PyDict::new(py);
    options.set_item("sep", sep)?;
    options.set_item("end", end)?;
    options.set_item("file", file)?;
    options.set_item("flush", flush)?;
    let shown;
    let args = if is_terminal(&to) {
        let table = escapes(py)?;
        let escaped = args.iter().map(|arg| arg.str()?.call_method1("translate", (table,)));
        shown = PyTuple::new(py, escaped.collect::<PyResult<Vec<_>>>()?)?;
        &shown
    } else {
        args
    };
    py.import(pyo3::intern!(py, "builtins"))?.getattr(pyo3::intern!(py, "print"))?.call(args, Some(&options))?;
    Ok(())
}

/// Returns the table for `str.translate`. It escapes the characters that a terminal obeys, and the lone surrogates that
/// stand for the bytes from 0x80 to 0x9f (PEP 383).
fn escapes(py: Python<'_>) -> PyResult<&Bound<'_, PyDict>> {
    static TABLE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let make = || {
        let table = PyDict::new(py);
        for c in control_characters::commands() {
            let shown = control_characters::text_for_terminal(c.encode_utf8(&mut [0; 4])).into_owned();
            if ('\u{80}'..='\u{9f}').contains(&c) {
                table.set_item(0xdc00 + u32::from(c), &shown)?;
            }
            table.set_item(u32::from(c), shown)?;
        }
        Ok(table.unbind())
    };
    TABLE.get_or_try_init(py, make).map(|table| table.bind(py))
}

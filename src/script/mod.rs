//! The script host: interpreter, loader, handlers, event object. The only room with pyo3; knows nothing of argv.

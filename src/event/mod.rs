//! Meaning: event types, lazy fields, call chain, text line, task names. Knows nothing of Python.

//! Live capture: open, ring, reader thread, loss accounting. Knows nothing of Python.

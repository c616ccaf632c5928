//! Event types to the text of a script template. Knows nothing of files.

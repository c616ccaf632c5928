//! Format text to `EventFormat`: fields and print formats. Knows nothing of files and of time.

//! Address to name, or the reason why not: kallsyms. Knows nothing of events.

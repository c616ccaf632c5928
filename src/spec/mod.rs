//! Selector text to `EventSpec`: grammar, attributes, CPU lists. Knows nothing of the machine.

mod cpus;

pub use cpus::CpuSet;

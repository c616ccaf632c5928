//! The contract with users of `perf-prof python`. Each test checks one sentence of it, by running the built program on
//! events of this kernel.

mod aggregators;
mod callbacks;
mod compat;
mod differences;
mod endings;
mod errors;
mod event;
mod exceptions;
mod heat_maps;
mod inherited_probes;
mod interpreter;
mod line;
mod memory;
mod misbehaviour;
mod module;
mod own_events;
mod parts;
mod perf_prof_module;
mod pictures;
mod probe_arguments;
mod probes;
mod signals;
mod source_errors;
mod sources;
mod streams;
mod symbols;
mod task_names;
mod template;
mod types;

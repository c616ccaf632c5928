//! What a user of `perf-prof python` relies on, sentence by sentence: each test runs the built program on events of
//! this kernel.

mod callbacks;
mod differences;
mod endings;
mod errors;
mod event;
mod exceptions;
mod inherited_probes;
mod interpreter;
mod line;
mod misbehaviour;
mod module;
mod parts;
mod perf_prof_module;
mod pictures;
mod probes;
mod signals;
mod source_errors;
mod sources;
mod streams;
mod symbols;
mod template;
mod types;

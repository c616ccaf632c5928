//! The script host: interpreter, loader, handlers, event object. The only room with pyo3; knows nothing of argv.

mod callbacks;
mod choice;
mod error;
mod event;
mod failure;
mod flame_graph;
mod forked;
mod histogram;
mod host;
mod interpreter;
mod loader;
mod module;
mod parts;
mod system_calls;
mod without;

pub use choice::Choice;
pub use error::ScriptError;
pub use failure::OnError;
pub use host::{LOADED, Module, Program, announce};
pub use interpreter::{
    Interpreter, description as interpreter_description, interrupt, libpython, version as interpreter_version,
};
pub use module::Run;
pub use parts::Shard;
pub use without::Without;

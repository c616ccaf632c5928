//! The script host: interpreter, loader, handlers and event objects. Only this module calls CPython's C API directly.
//! This module must not know the command line of perf-prof.

mod aggregate;
mod callbacks;
mod choice;
mod columns;
mod embedded;
mod error;
mod event;
mod failure;
mod feeding;
mod flame_graph;
mod fleet;
mod forked;
mod handlers;
mod heat_map;
mod histogram;
mod host;
mod interpreter;
mod loader;
mod merge;
mod module;
mod objects;
mod optional_events;
mod package;
mod perf_module;
mod perf_script;
mod pictures;
mod printing;
mod running;
mod serving;
mod shared_folder;
mod snapshots;
mod timeline;

pub use callbacks::Callbacks;
pub use choice::{BUILD_PREFIX, BUILD_VERSION, ChoiceSource, PythonChoice};
pub use columns::{Batch, Table, stream_capsule};
pub use error::ScriptError;
pub use event::{
    EventClass, Evsels, Interface, Seen, class_with, kept_event, made, made_context, seen, text, unnamed_frames,
};
pub use failure::{OnError, discard_unwritable_output};
pub use fleet::{RecordingsOfScript, replay_by_engine, run_of_all};
pub use forked::stay as stay_in_forked_child;
pub use host::{Dialect, Module, Program, announce};
pub use interpreter::{
    Interpreter, description as interpreter_description, interrupt, is_host, libpython, version as interpreter_version,
};
pub use loader::{file_that_others_can_change, run_program};
pub use merge::{prepare_for_parts, set_part_of_process};
pub use module::{add_to, ksym_of, name_package, run as current_run, set_current_run, stats_of, usym_of};
pub use objects::WithObjects;
pub use optional_events::OptionalEvents;
pub use package::{InitNative, set_native};
pub use perf_script::{Options as PerfScriptOptions, Signs, exec_path as perf_exec_path};
pub use running::{Fork, executable as running_python};
pub use serving::MetricsServer;
pub use snapshots::{LOOK_FOR_SIGNALS, await_dump, set_snapshots};

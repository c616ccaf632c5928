//! Scripts that were written for `perf script -s`: the modules that they import, templates, arguments, and their output
//! compared with perf's output.

mod arguments;
mod db_export;
mod definitions;
mod handlers;
mod modules;
mod reads;
mod records;
mod same_output;
mod template;

//! Scripts that were written for `perf script -s`: the modules that they import, templates, and what they are told.

mod db_export;
mod definitions;
mod handlers;
mod modules;
mod template;

//! Scripts that were written for `perf script -s`: the modules that they import, and templates.

mod modules;
mod template;

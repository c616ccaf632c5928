//! All integration tests, in one program with its own `main`: `cargo test --test integration`.
//!
//! Tests are functions with `#[test]`. A test calls `harness::machine::needs` with its needs. If this machine does not
//! meet all of them, the test is ignored. Each group of tests is a module here.

#![allow(clippy::unwrap_used)] // A test that cannot continue has failed.

// The `#[test]` of this crate replaces the standard one in all modules.
#[macro_use]
extern crate registered;

mod capture;
mod cgroups;
mod cli;
mod companions;
mod completions;
mod contract;
mod harness;
mod help;
mod ignoring;
mod in_kernel;
mod licenses;
mod manual;
mod messages;
mod metrics;
mod parallel;
mod perf_module;
mod perf_script;
mod plain_user;
mod print_fmt;
mod print_fmt_oracle;
mod record;
mod reference;
mod replay;
mod scripts;
mod sources;
mod spans;
mod stacks;
mod stat;
mod stubs;
mod symbol;
mod testing;
mod tidy;
mod typed;
mod usdt;
mod watch;

fn main() -> std::process::ExitCode {
    harness::suite::main()
}

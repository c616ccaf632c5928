//! All integration tests, in one program with a `main` of its own: `cargo test --test integration`.
//!
//! Tests are functions with `#[test]`, as everywhere. What they need of the machine they name with `harness::needs`; where
//! that is missing they count as ignored. A new group of tests is a module here.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

// Its `#[test]` takes the place of the standard one in all modules.
#[macro_use]
extern crate registered;

mod capture;
mod cli;
mod companions;
mod contract;
mod harness;
mod ignoring;
mod messages;
mod parallel;
mod plain_user;
mod print_fmt;
mod print_fmt_oracle;
mod record;
mod reference;
mod replay;
mod scripts;
mod stacks;
mod stat;
mod stubs;
mod symbol;
mod tidy;

fn main() -> std::process::ExitCode {
    harness::suite::main()
}

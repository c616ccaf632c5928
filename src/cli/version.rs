//! `-V`: the version, and with `-v` the Python in use.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use super::report::Failure;
use crate::script::{Choice, interpreter_description};

/// Prints the version. `python` is what `--python` says.
pub fn print(verbose: u8, python: Option<&Path>) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "perf-prof {}", env!("CARGO_PKG_VERSION"))?;
    if verbose > 0 {
        let choice = Choice::make(python).map_err(anyhow::Error::from)?;
        writeln!(out, "{}", interpreter_description(&choice))?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

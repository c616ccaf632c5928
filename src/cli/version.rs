//! `-V`: the version, and with `-v` the Python in use.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use super::report::Failure;

/// Prints the version.
pub fn print(verbose: u8) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "perf-prof {}", env!("CARGO_PKG_VERSION"))?;
    if verbose > 0 {
        writeln!(
            out,
            "built for Python {} ({})",
            env!("PERF_PROF_BUILD_PYTHON_VERSION"),
            env!("PERF_PROF_BUILD_PYTHON")
        )?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

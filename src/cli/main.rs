//! The `perf-prof` executable: runs the command line and exits with its status.

use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    #[cfg(feature = "python")]
    perf_prof_cli::native::register();
    let argv: Vec<OsString> = std::env::args_os().collect();
    ExitCode::from(perf_prof_cli::main(&argv).0)
}

//! Option values that several commands share: intervals, owners of recordings, verbosity, `--in-kernel` and `--python`.

use std::{path::Path, time::Duration};

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use perf_prof_format::spec::parse_interval;
use perf_prof_session::plan::{InKernel, InterpreterFrameUse, Owner, Verbosity};
use perf_prof_system::shell::shell_quote;

/// Parses the interval of `-i`. If the text is the path of a file, the error mentions --input, because other commands
/// take a recording with `-i`.
pub fn parse_interval_not_file(text: &str) -> Result<Duration, String> {
    parse_interval(text).map_err(|error| match Path::new(text).exists() {
        true => format!("{error}; --input {} reads the recording", shell_quote(text)),
        false => error.to_string(),
    })
}

/// A number without a unit that is smaller than `FEW` probably means seconds and not milliseconds.
const FEW: u64 = 100;

/// Parses the duration of a run. A number without a unit means milliseconds, as for `-i`. A small number needs a unit,
/// because nobody wants a run of 5 ms.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match text.trim().parse::<u64>() {
        Ok(number) if number < FEW => Err(format!("`{number}` has no unit; write {number}s, or {number}ms")),
        _ => parse_interval(text).map_err(|error| error.to_string()),
    }
}

/// Like [`parse_duration`], for a time that may be 0.
pub fn parse_duration_or_zero(text: &str) -> Result<Duration, String> {
    match text.trim() {
        "0" | "0s" | "0ms" => Ok(Duration::ZERO),
        _ => parse_duration(text),
    }
}

/// Returns whose recordings may be read. `force` is true if -f was given.
pub fn owner(force: bool) -> Owner {
    if force { Owner::Anybody } else { Owner::UserOrRoot }
}

pub fn verbosity(verbose: u8, quiet: bool) -> Verbosity {
    match (verbose, quiet) {
        (0, true) => Verbosity::Quiet,
        (0, false) => Verbosity::Normal,
        (1, _) => Verbosity::Verbose,
        (2.., _) => Verbosity::Debug,
    }
}

/// Whether BPF programs add up and pair events in the kernel.
#[derive(Args, Clone, Debug)]
pub struct InKernelOption {
    /// Add up events and pair system calls in the kernel: auto (the default: if the kernel can), never, or always
    #[arg(
        long = "in-kernel",
        value_name = "WHEN",
        value_parser = PossibleValuesParser::new(InKernel::NAMES).try_map(|when| when.parse::<InKernel>()),
        hide_possible_values = true,
        help_heading = "Run"
    )]
    when: Option<InKernel>,
}

impl InKernelOption {
    pub fn when(&self) -> InKernel {
        self.when.unwrap_or_default()
    }
}

/// Whether callchains show the functions of Python programs.
#[derive(Args, Clone, Copy, Debug)]
pub struct PythonFramesOption {
    /// Like -g, and show the functions of Python programs in place of the interpreter's C functions: yes, or only (no native
    /// frames). Needs the right to load BPF programs; recordings of `record --python` have them without the option
    #[arg(
        long = "python",
        alias = "python-frames",
        value_name = "yes|only|no",
        value_parser = interpreter_frames(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "yes",
        hide_possible_values = true,
        help_heading = "Output"
    )]
    pub python_frames: Option<InterpreterFrameUse>,
}

/// Parses the value of --python.
pub fn interpreter_frames() -> impl TypedValueParser<Value = InterpreterFrameUse> {
    PossibleValuesParser::new(InterpreterFrameUse::NAMES).try_map(|which| which.parse::<InterpreterFrameUse>())
}

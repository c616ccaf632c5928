//! perf-prof under the name `perf`, which the wrappers of scripts call. Accepts options of perf that change nothing
//! here, gives `record` perf's default event and rate, and exits with perf's status after wrong usage.

use std::{ffi::OsString, path::Path};

use clap::{Arg, ArgAction, Command};
use perf_prof_format::spec::Rate;
#[cfg(feature = "python")]
use perf_prof_system::output;
use perf_prof_system::procfs;

/// The exit status of perf after wrong usage.
pub const WRONG_USAGE: u8 = 129;

/// Returns whether this program was started under the name `perf`.
pub fn is_started_as_perf(argv: &[OsString]) -> bool {
    argv.first().and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == "perf")
}

/// The options of `perf record` that take no value and change nothing here, each with its letter if it has one.
/// perf-prof always records what they request: raw data, times, periods, CPUs and build ids. The last option
/// (`--force`) allows recordings of any owner.
const OF_RECORD: [(&str, Option<char>); 8] = [
    ("raw-samples", Some('R')),
    ("timestamp", Some('T')),
    ("period", Some('P')),
    ("sample-cpu", None),
    ("no-buildid", Some('B')),
    ("no-buildid-cache", Some('N')),
    ("buildid-all", None),
    ("force", Some('f')),
];

/// Adds the options that are accepted only under the name `perf`. They have no effect.
pub fn with_options_of_perf(commands: Command) -> Command {
    let commands = commands.mut_subcommand("record", with_options_of_record);
    ["script", "report"].into_iter().fold(commands, |commands, name| commands.mut_subcommand(name, with_itrace))
}

/// Adds `--itrace`, the option that says how perf decodes hardware traces. perf-prof decodes no hardware traces, so the
/// option has no effect. perf also ignores `--itrace` for a recording without hardware traces.
fn with_itrace(command: Command) -> Command {
    command.arg(Arg::new("itrace").long("itrace").num_args(0..=1).require_equals(true).hide(true))
}

/// If the first word is `--exec-path`, prints the folder with perf's scripts, as perf does. Returns whether
/// `--exec-path` was the first word.
#[cfg(feature = "python")]
pub fn print_exec_path(argv: &[OsString]) -> bool {
    let is_asked = argv.get(1).is_some_and(|word| word == "--exec-path");
    if is_asked {
        output::print_line(&perf_prof_python::script::perf_exec_path().display().to_string());
    }
    is_asked
}

/// Adds the options of `perf record` that change nothing here.
pub fn with_options_of_record(record: Command) -> Command {
    OF_RECORD.into_iter().fold(record, |record, (name, letter)| {
        let option = Arg::new(name).long(name).action(ArgAction::Count).hide(true);
        record.arg(if let Some(letter) = letter { option.short(letter) } else { option })
    })
}

/// Returns the sample rate of events other than tracepoints: 4000 samples a second, or less if the kernel's limit is
/// lower.
pub fn default_rate() -> Rate {
    const USUAL: u64 = 4000;
    if procfs::perf_event_max_sample_rate().is_some_and(|highest| highest < USUAL) {
        return Rate::MaxFrequency;
    }
    Rate::Frequency(USUAL)
}

/// Returns the event that is recorded if the user selects none: cycles, or a clock on machines without cycles.
pub fn default_event() -> &'static str {
    // The names of the core PMUs: on x86, on x86 with two kinds of cores, and on Arm.
    let devices = ["cpu", "cpu_core", "armv8_pmuv3_0", "armv8_pmuv3"];
    let has_pmu = |name: &&str| Path::new("/sys/bus/event_source/devices").join(name).exists();
    if devices.iter().any(has_pmu) { "cycles" } else { "cpu-clock" }
}

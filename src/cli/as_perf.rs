//! perf-prof under the name `perf`, as wrappers of scripts call it: accepts the options of perf that change nothing here, gives
//! `record` the default event and rate of perf, and exits with the status of perf after wrong usage.

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

/// The options of `perf record` that take no value and change nothing here. Each comes with its letter, if it has one.
/// A recording always has what they request: raw data, times, periods, CPUs and build ids. The last option of the list
/// allows recordings of any owner.
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

/// Adds the options that are accepted only under the name `perf`.
pub fn with_options_of_perf(commands: Command) -> Command {
    let commands = commands.mut_subcommand("record", with_options_of_record);
    ["script", "report"].into_iter().fold(commands, |commands, name| commands.mut_subcommand(name, with_itrace))
}

/// Adds the option that says how perf decodes hardware traces. It changes nothing: hardware traces are not decoded here, and in
/// a recording without them, perf ignores the option too.
fn with_itrace(command: Command) -> Command {
    command.arg(Arg::new("itrace").long("itrace").num_args(0..=1).require_equals(true).hide(true))
}

/// Prints the folder with perf's scripts if the first word is `--exec-path`, as perf does. Returns whether the first
/// word is `--exec-path`.
#[cfg(feature = "python")]
pub fn print_exec_path(argv: &[OsString]) -> bool {
    let is_asked = argv.get(1).is_some_and(|word| word == "--exec-path");
    if is_asked {
        output::print_line(&perf_prof_python::script::perf_exec_path().display().to_string());
    }
    is_asked
}

/// Adds options of `perf record` that change nothing.
pub fn with_options_of_record(record: Command) -> Command {
    OF_RECORD.into_iter().fold(record, |record, (name, letter)| {
        let option = Arg::new(name).long(name).action(ArgAction::Count).hide(true);
        record.arg(if let Some(letter) = letter { option.short(letter) } else { option })
    })
}

/// Returns the rate of events other than tracepoints: 4000 samples a second, or the highest rate that the kernel allows.
pub fn default_rate() -> Rate {
    const USUAL: u64 = 4000;
    if procfs::perf_event_max_sample_rate().is_some_and(|highest| highest < USUAL) {
        return Rate::MaxFrequency;
    }
    Rate::Frequency(USUAL)
}

/// Returns the event that is recorded if none is selected: cycles, or a clock on machines without this event.
pub fn default_event() -> &'static str {
    // The names of the core PMUs: on x86, on x86 with two kinds of cores, and on Arm.
    let devices = ["cpu", "cpu_core", "armv8_pmuv3_0", "armv8_pmuv3"];
    let has_pmu = |name: &&str| Path::new("/sys/bus/event_source/devices").join(name).exists();
    if devices.iter().any(has_pmu) { "cycles" } else { "cpu-clock" }
}

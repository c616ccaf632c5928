//! The options of several commands that select the target of live events, and the sample rate.

use std::ffi::OsString;

use clap::{Arg, Args};
use perf_prof_format::spec::{CpuSet, Ids, Rate, parse_frequency, parse_ids, parse_period, parse_recorded_ids};
use perf_prof_session::plan::{AllCpus, CgroupsOfEvents, Selection, Verbosity};
use perf_prof_system::output;

use super::option_error::option_name;

/// The target: all CPUs, some CPUs, processes, threads or cgroups.
#[derive(Args, Clone, Debug)]
pub struct TargetOptions {
    /// All CPUs; with a command, for as long as it runs
    #[arg(short, long)]
    pub all_cpus: bool,
    /// Only these CPUs, for example 0-3,7; with a command, for as long as it runs
    #[arg(short = 'C', long = "cpu", value_name = "LIST")]
    pub cpus: Option<CpuSet>,
    #[arg(short, long = "pid", value_name = "LIST", value_parser = parse_ids)]
    pub pids: Option<Ids>,
    #[arg(short, long = "tid", value_name = "LIST", value_parser = parse_ids)]
    pub tids: Option<Ids>,
    /// Only the tasks of these cgroups and of those below them: paths or globs, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cgroups: Vec<String>,
    /// Like `-- CMD`, as in perf-prof python: all words behind it are the command and its arguments
    #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true, conflicts_with = "command")]
    pub exec: Vec<OsString>,
}

/// The option `-G` of perf, for those commands that have it in perf.
#[derive(Args, Clone, Debug)]
pub struct EventCgroups {
    /// As in perf: the cgroup of all events, or a list with one cgroup for each event
    #[arg(short = 'G', long, value_name = "LIST", value_delimiter = ',', conflicts_with = "cgroups")]
    cgroup: Vec<String>,
}

impl EventCgroups {
    /// Adds the cgroups to a selection, if there are any. Returns whether all events are attached to the same cgroup,
    /// or each event to its own cgroup.
    pub fn add_to(self, selection: &mut Selection) -> CgroupsOfEvents {
        let of_events = if self.cgroup.len() > 1 { CgroupsOfEvents::OneEach } else { CgroupsOfEvents::All };
        selection.cgroups.extend(self.cgroup);
        of_events
    }
}

/// Returns a function that changes the help of `-p` and `-t`. The help then says what ends when the selected tasks have
/// exited; `ends` is for example "the run".
pub fn until_exit(ends: &'static str) -> impl FnMut(Arg) -> Arg {
    move |arg| {
        let tasks = match arg.get_id().as_str() {
            "pids" => "processes and their new children",
            "tids" => "threads",
            _ => return arg,
        };
        arg.help(format!("Only these {tasks}, for example 1,2,3; {ends} ends when they have exited"))
    }
}

/// Changes the target options for commands that also read recordings. Adds longer names, and accepts the id 0, which
/// selects samples of idle tasks.
pub fn or_samples(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "cpus" => arg.alias("cpus").help("Only these CPUs, for example 0-3,7"),
        "pids" => until_exit("a live run")(arg.alias("pids").value_parser(parse_recorded_ids)),
        "cgroups" => arg.visible_alias("cgroup"),
        "tids" => until_exit("a live run")(arg.alias("tids").value_parser(parse_recorded_ids)),
        _ => arg,
    }
}

impl TargetOptions {
    /// Returns the command to run. `command` contains the words after the options.
    pub fn command(&self, command: Vec<OsString>) -> Vec<OsString> {
        if self.exec.is_empty() { command } else { self.exec.clone() }
    }

    /// Returns the selection. `command` contains the words after the options.
    pub fn selection(self, command: Vec<OsString>) -> Selection {
        let command = self.command(command);
        let all_cpus = if self.all_cpus { AllCpus::Target } else { AllCpus::NotSelected };
        let (pids, tids) = (self.pids.map(Vec::from), self.tids.map(Vec::from));
        let cgroups = self.cgroups;
        Selection { all_cpus, cpus: self.cpus, pids, tids, cgroups, command, ..Selection::default() }
    }
}

/// Prints a message if `-a` has no effect. As in perf, `-a` has no effect if tasks are selected: then these tasks are
/// the target.
pub fn say_what_has_no_effect(selection: &Selection, verbosity: Verbosity) {
    if let (Some(tasks), AllCpus::Target, true) = (selection.tasks(), selection.all_cpus, verbosity > Verbosity::Quiet)
    {
        output::say(format_args!("-a has no effect: {} selects the tasks", option_name(tasks)));
    }
}

/// How often events other than tracepoints are sampled.
#[derive(Args, Clone, Debug)]
pub struct RateOptions {
    /// For events other than tracepoints: take one sample every N events
    #[arg(short = 'c', long, value_name = "N", value_parser = parse_period)]
    pub count: Option<Rate>,
    /// For events other than tracepoints: take HZ samples a second; `max` is the highest rate that the kernel allows
    #[arg(short = 'F', long, value_name = "HZ", value_parser = parse_frequency)]
    pub freq: Option<Rate>,
}

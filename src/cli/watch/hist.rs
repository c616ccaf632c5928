//! The options of `perf-prof hist`, and its plan.

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use perf_prof_session::engine::ExitStatus;
use perf_prof_tools::watch::hist::{self, HistPlan, Unit};

use super::tally::TallyOptions;
use crate::{event_as_command::with_hint_of_command, failure::Failure};

const USAGE: &str = "perf-prof hist [OPTION...] EVENT[,EVENT...] [--value FIELD] [-- CMD [ARGS...]]
       perf-prof hist [OPTION...] --input PATH [EVENT,...] [--value FIELD]";

const LONG_ABOUT: &str = "Show how the values of a field are distributed: a histogram with a row for each power of two, and the \
values that 50, 90 and 99 percent of all values do not exceed.

On a terminal, the histogram is drawn again once a second; the key q or Ctrl-C ends it. Elsewhere, beside a command (-- CMD), \
which writes to the terminal too, and with --input, -i prints a histogram for each interval. At the end, the \
histogram of the whole run is printed.";

const AFTER_HELP: &str = "\
Examples
  How large the allocations are that a command makes in the kernel:
      perf-prof hist kmem:kmalloc --value bytes_req -- ls /
      total: 32 events in 0.000424 s
      32 values, p50 53, p90 67, p99 4096, max 4096
           bytes_req           : count     distribution
              32 -> 63         : 27       |****************************************|
              64 -> 127        : 4        |*****                                   |
             128 -> 255        : 0        |                                        |
             256 -> 511        : 0        |                                        |
             512 -> 1023       : 0        |                                        |
            1024 -> 2047       : 0        |                                        |
            2048 -> 4095       : 0        |                                        |
            4096 -> 8191       : 1        |*                                       |
  The same for all tasks, by task, for ten seconds:
      perf-prof hist kmem:kmalloc --value bytes_req --by comm --duration 10s
  How long the reads of a command take:
      perf-prof hist read -- make
  From a recording, in JSON:
      perf-prof record -e kmem:kmalloc -a -- sleep 1
      perf-prof hist --input perf.data --value bytes_req --json

--value takes the name of a field that is a number; an event with the field `duration` needs
none. Values are shown as they are, and durations in microseconds; --unit is for fields with
times, which are in nanoseconds. --by takes the names of fields, as in `perf-prof top`. The
keys with most values come first; of durations, those with the longest time together.
Percentiles are at most 1/8 away from the value, and are shown with the digits that are known; \
with --json they are estimates with all digits. A value that is not known is not counted: a \
line says how many are missing, with --json the member `without_value`.

Exit status
  0      the run is complete, or q, Ctrl-C or a closed pipe ended it
  1      the run could not start, or an error ended it
  2      wrong usage
  N      the command ended with status N
  128+N  signal N ended the run or the command";

/// Show how the values of a field are distributed, live or from a recording
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true, override_usage = USAGE, long_about = LONG_ABOUT, after_help = "--help explains more, with examples.", after_long_help = AFTER_HELP, next_help_heading = "Events and targets")]
pub struct Hist {
    #[command(flatten)]
    of: TallyOptions,
    /// The field whose values are counted [default: duration]
    #[arg(long, value_name = "FIELD", help_heading = "Output")]
    value: Option<String>,
    /// A histogram for each value of these fields
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', help_heading = "Output")]
    by: Vec<String>,
    /// The unit of values that are nanoseconds: ns, us, ms or s
    #[arg(
        long,
        value_name = "UNIT",
        value_parser = PossibleValuesParser::new(["ns", "us", "ms", "s"]).map(|unit| self::unit(&unit)),
        hide_possible_values = true,
        help_heading = "Output"
    )]
    unit: Option<Unit>,
}

fn unit(text: &str) -> Unit {
    match text {
        "ns" => Unit::Nanoseconds,
        "us" => Unit::Microseconds,
        "ms" => Unit::Milliseconds,
        _ => Unit::Seconds,
    }
}

impl Hist {
    /// Counts the values.
    pub fn run(self) -> Result<ExitStatus, Failure> {
        const READ_ON: &str = "`perf-prof hist --help` explains the options, with examples";
        let words = self.of.words().to_vec();
        let tally = self.of.plan("hist", "kmem:kmalloc --value bytes_req", &self.by);
        let tally = tally.map_err(|error| Failure::Usage(error.to_string(), READ_ON.into()))?;
        let (value, by, unit) = (self.value, self.by, self.unit.unwrap_or_default());
        let status = hist::run(&HistPlan { tally, value, by, unit });
        Ok(status.map_err(|error| with_hint_of_command(error, &words))?)
    }
}

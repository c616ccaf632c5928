//! The options of `perf-prof top`, and its plan.

use clap::Args;
use perf_prof_session::engine::ExitStatus;
use perf_prof_tools::watch::top::{self, TopPlan};

use super::tally::TallyOptions;
use crate::{event_as_command::with_hint_of_command, failure::Failure};

const USAGE: &str = "perf-prof top [OPTION...] EVENT[,EVENT...] [-- CMD [ARGS...]]
       perf-prof top [OPTION...] --input PATH [EVENT,...]";

const LONG_ABOUT: &str = "Count events by task or by the values of fields, the largest counts first. Of spans, such as \
system calls with their durations, add up the time, the longest total first.

On a terminal, the table is drawn again once a second, with the counts of the last second; the key q or Ctrl-C ends it. \
Elsewhere, beside a command (-- CMD), which writes to the terminal too, and with --input, -i prints a table for each \
interval. At the end, the counts of the whole run are printed.";

const AFTER_HELP: &str = "\
Examples
  Which tasks are switched out most often, now:
      perf-prof top sched:sched_switch
  Which system calls a command makes most often (their numbers are in the field `id`):
      perf-prof top raw_syscalls:sys_enter --by comm,id -n 3 -- ls
      total: 139 events in 0.001844 s
      comm   id  count  share  per second
      ls    257     33  23.7%     17899.6
      ls      9     30  21.6%     16272.3
      ls      3     22  15.8%     11933.0
      (19 more keys, 54 together)
  In which system calls a command spends its time:
      perf-prof top syscall -n 3 -- ls /usr
      total: 143 spans in 0.009556 s
      name        count  total ms  average ms  max ms  share  per second
      getdents64      2     0.599       0.299   0.597  52.3%       209.3
      mmap           30     0.174       0.005   0.015  15.3%      3139.4
      openat         34     0.141       0.004   0.011  12.4%      3558.0
      (19 more keys, 77 together)
  Which tasks wait longest for their writes to reach the disk:
      perf-prof top fsync,fdatasync --by comm,name
  Which tasks wake which others, on two CPUs, for ten seconds:
      perf-prof top sched:sched_wakeup --by _comm,comm -C 0,1 --duration 10s
  How long the containers of a machine wait for a CPU (a cgroup has a path):
      perf-prof top runqueue --by cgroup --duration 10s
      perf-prof top runqueue --cgroups 'machine.slice/*' --by comm
  Who allocates most often, with the call chain, from a recording:
      perf-prof record -e kmem:kmalloc -g -a -- sleep 1
      perf-prof top --input perf.data --by stack -n 5
  What has changed since an earlier recording, or in the second half of this one:
      perf-prof top offcpu --by comm --input after.data --diff before.data
      perf-prof top offcpu --by comm --input perf.data --diff-time 0%-50% --time 50%-100%
  How many bytes each task writes, by what its calls returned (without sendfile, copy_file_range,
  splice, io_uring, aio and memory mappings, which have other names or no calls; a pattern for
  reads, *read*, is readlink too):
      perf-prof top 'syscall/ret > 0/name=*write*/' --by comm --sum ret -i 1s
  Who allocates most memory in the kernel, with what was requested and what it took:
      perf-prof top kmem:kmalloc --sum bytes_alloc,bytes_req
  For other programs, one JSON object per interval, and one for the whole run:
      perf-prof top irq:irq_handler_entry --by name -i 1s --json

--by takes the names of fields. `perf-prof list -v EVENT` shows the fields of an event. All
events have comm, pid, tid, cpu, cgroup and event, of the task in which the event happened. If
a field of the event has the same name, write _comm, _pid, _tid, _cpu, _cgroup or _event.
stack is the call chain: a live run records it then, a recording has to have it. Programs without
frame pointers need --call-graph dwarf. stack_lines is the same with the lines of Python functions
(--python), as in `load_rows (app.py:42)`. On a terminal, the table shows as many of its innermost
frames as fit into a line, the innermost last, with `...` for others; of the kernel's frames the
innermost that differs. Files, pipes and --json get all frames.

--sum takes the names of fields that are numbers, and may be repeated. The columns are the
number of events, the sum of each field, and of the first one the share and what came per
second. Times of spans are in ms; with --json, sums are in the unit of the field. A value that
is not known is not added: a line says how many are missing, with --json the member
`without_value`. The sum of a key without any value is `-`, and null in JSON.

Spans have their number, the sum of their durations, the average and the longest one. With
--json, these are count, total, average and max, in ns. share is the share of the time, and
per second is the rate of the spans.
Of spans, begin.FIELD and end.FIELD are fields of the events that begin and end them.

--diff compares rates, because recordings have different lengths: the number of events, or ms of
spans, per second. Seconds are those of the whole run or recording, from its first sample to its
end, or of the part that --time selects, also where none of the events happened. Of a pipe
that does not say when it starts, they begin with the first event.

Exit status
  0      the run is complete, or q, Ctrl-C or a closed pipe ended it
  1      the run could not start, or an error ended it
  2      wrong usage
  N      the command ended with status N
  128+N  signal N ended the run or the command";

/// Count events by task or by the values of fields, live or from a recording
#[derive(Args, Clone, Debug)]
#[command(args_override_self = true, override_usage = USAGE, long_about = LONG_ABOUT, after_help = "--help explains more, with examples.", after_long_help = AFTER_HELP, next_help_heading = "Events and targets")]
pub struct Top {
    #[command(flatten)]
    of: TallyOptions,
    /// Count by the values of these fields [default: comm; for several events event,comm; name or function for sources
    /// with this field]
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',', help_heading = "Output")]
    by: Vec<String>,
    /// Add up the values of these fields for each key, the largest sums of the first one first
    #[arg(long = "sum", value_name = "FIELD,...", value_delimiter = ',', help_heading = "Output")]
    sums: Vec<String>,
}

impl Top {
    /// Counts the events.
    pub fn run(self) -> Result<ExitStatus, Failure> {
        const READ_ON: &str = "`perf-prof top --help` explains the options, with examples";
        let words = self.of.words().to_vec();
        let tally = self.of.plan("top", "sched:sched_switch", &self.by);
        let tally = tally.map_err(|error| Failure::Usage(error.to_string(), READ_ON.into()))?;
        let status = top::run(&TopPlan { tally, by: self.by, sums: self.sums });
        Ok(status.map_err(|error| with_hint_of_command(error, &words))?)
    }
}

//! The template that `help` prints: a script that runs as it is.

use std::{collections::HashSet, fmt::Write};

use super::{field_line, member_line};
use crate::event::{EventType, Format};

const HEADER: &str = r#"#
# Functions marked [OPTIONAL] can be deleted. What a function raises is printed, and the events go on.
#
# Every event has
#   _pid, _tid      process and thread id (int)
#   _time           ns of the perf clock, for latencies (int)
#   _cpu, _period   CPU and sample period (int)
#   common_type, common_flags, common_preempt_count, common_pid    (int; of tracepoints)
#   _realtime       ns since the Unix epoch, for display (int)
#   _callchain      list of {'addr', 'symbol', 'offset', 'kernel', 'dso'}, innermost first; [] without -g or stack
#   _event          'sys:name', or 'sys:alias' with alias=; of what is no tracepoint, its name or alias (str)
# and the fields that its handler's docstring lists.
#
# Ways to read it
#   event.field, event['field'], event.get('field', default=None), 'field' in event
#   len(event), event.keys(), event.values(), event.items(), for name, value in event, dict(event), event.to_dict()
#   event.print(timestamp=True, callchain=True)    writes it as text, as the kernel does
#   event.text('flags')                            one field as the kernel's text shows it
#   event.array('args')                            an integer array as a tuple
#   hash(event), event == other, copies and pickles; an event may be kept for as long as you like
#
# `import perf_prof` gives PerfEvent, syscall_name(nr), errno_name(n), ksym(addr), stats() and more.

"#;

const CALLBACKS: &str = r#"events = 0


# [OPTIONAL]
def __init__() -> None:
    """Called once, before the events start."""


# [OPTIONAL]
def __exit__() -> None:
    """Called once, at the end, whatever ended the run."""
    print(f"{events} events")


# [OPTIONAL]
def __interval__() -> None:
    """Called every -i; all that had happened by then has been delivered."""
    print(f"{events} events so far")


# [OPTIONAL]
def __print_stat__(indent: int) -> None:
    """Called when SIGUSR2 asks for statistics."""
    print(" " * indent + f"{events} events")


# [OPTIONAL]
def __lost__(lost_start: int, lost_end: int) -> None:
    """Called when events were lost: with --order, between these two times; else 0, 0."""
    print(f"events lost between {lost_start} and {lost_end}")
"#;

const SAMPLE: &str = r#"

# [OPTIONAL] Called for every event without a handler of its own.
def __sample__(event) -> None:
    global events
    events += 1
    event.print()
"#;

/// The template for these events. `command` is the command line that asked for it.
pub fn script(events: &[EventType], command: &str) -> String {
    let mut text = String::from("# A script for perf-prof, made by\n#\n");
    for line in command.lines() {
        // Whatever stands in the command line, it stays a comment.
        let _ = writeln!(text, "#   {line}");
    }
    text.push_str(HEADER);
    text.push_str(CALLBACKS);
    let mut named = HashSet::new();
    for event in events {
        // The same event twice without alias has one handler.
        if named.insert(event.handler_name()) {
            handler(&mut text, event);
        }
    }
    text.push_str(SAMPLE);
    text
}

fn handler(text: &mut String, event: &EventType) {
    let (name, shown, real) = (event.handler_name(), event.shown_name(), event.real_name());
    let of = if shown == real { String::new() } else { format!(" ({real})") };
    let _ = write!(text, "\n\ndef {name}(event) -> None:\n    \"\"\"{shown}{of}\n");
    let lines: Vec<String> = match &event.format {
        Format::Tracepoint(format) => format.fields().iter().map(field_line).collect(),
        Format::Source(_) => event.members().map(member_line).collect(),
    };
    if !lines.is_empty() {
        text.push_str("\n    Fields:\n");
    }
    for line in lines {
        let _ = writeln!(text, "        {line}");
    }
    text.push_str("    \"\"\"\n    global events\n    events += 1\n    event.print()\n");
}

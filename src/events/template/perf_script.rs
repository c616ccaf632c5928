//! The template of a script for `perf script -s` and `perf-prof script -s`. Its handlers print every field of each
//! tracepoint.

use std::{collections::HashSet, fmt::Write};

use perf_prof_format::{
    control_characters::without_controls,
    tracefs::{EventFormat, Field},
};

use crate::event::{EventType, Format};

/// How scripts see negative values in fields that are narrower than 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldSigns {
    /// As large positive numbers, like in perf.
    #[default]
    AsPerf,
    /// As negative numbers.
    True,
}

/// The first line of a script with [`FieldSigns::True`]. The kernel reads this line when it executes the file.
const SIGNED_FIRST_LINE: &str = "#!/usr/bin/env -S perf-prof script --signed -s\n";

const BEGIN: &str = r#"# A script for `perf-prof script -s`, with a handler for each tracepoint of a recording. perf runs it too.
#
# The first eight arguments of a handler are the same for all tracepoints. The fields of the tracepoint follow, in
# their order. The last argument, a dict about the sample, may be left out.
#
# Functions of a handler's context: common_pc(context), common_flags(context), common_lock_depth(context).

import os
import sys

sys.path.append(os.environ["PERF_EXEC_PATH"] + "/scripts/python/Perf-Trace-Util/lib/Perf/Trace")

from perf_trace_context import *
from Core import *


def trace_begin():
    print("in trace_begin")


def trace_end():
    print("in trace_end")
"#;

const PROCESS_EVENT: &str = r#"

# Called for the samples of all events that are no tracepoints.
def process_event(param_dict):
    sample = param_dict["sample"]
    secs, nsecs = divmod(sample["time"], 10**9)
    print_header(param_dict["ev_name"], sample["cpu"], secs, nsecs, sample["tid"], param_dict["comm"])
    print_fields(("symbol", param_dict.get("symbol", "")), ("dso", param_dict.get("dso", "")))
    print_sample(param_dict)
    print_callchain(param_dict["callchain"])
"#;

const END: &str = r#"

# Called for tracepoints without a handler.
def trace_unhandled(event_name, context, event_fields_dict, perf_sample_dict):
    print(dict_text(event_fields_dict, " "))
    print_sample(perf_sample_dict)


def print_header(event_name, cpu, secs, nsecs, pid, comm):
    print("%-20s %5u %05u.%09u %8u %-20s " % (event_name, cpu, secs, nsecs, pid, comm), end="")


def print_fields(*fields):
    print(", ".join("%s=%s" % field for field in fields))


def print_sample(perf_sample_dict):
    print("Sample: {" + dict_text(perf_sample_dict["sample"], ", ") + "}")


def print_callchain(callchain):
    for frame in callchain:
        line = "\t[%x]" % frame["ip"]
        if "sym" in frame:
            line += " " + frame["sym"]["name"]
            if "sym_off" in frame:
                line += "+0x%x" % frame["sym_off"]
            if "dso" in frame:
                line += " (%s)" % frame["dso"]
            if "sym_srcline" in frame:
                line += " " + frame["sym_srcline"]
        print(line)
    print()


def dict_text(a_dict, separator):
    return separator.join("%s=%s" % item for item in sorted(a_dict.items()))
"#;

/// Returns a script with a handler for each tracepoint in `events`, in the order of their ids. For events that are not
/// tracepoints, the script has a function that gets all their samples.
pub fn perf_script_template(events: &[EventType], signs: FieldSigns) -> String {
    let mut text = String::from(match signs {
        FieldSigns::AsPerf => "",
        FieldSigns::True => SIGNED_FIRST_LINE,
    });
    text.push_str(BEGIN);
    let tracepoint = |event: &EventType| Some((event.format.tracepoint()?.clone(), event.handler_name()));
    let mut tracepoints: Vec<_> = events.iter().filter_map(tracepoint).collect();
    tracepoints.sort_by_key(|(format, _)| format.id);
    let mut written = HashSet::new();
    for (format, name) in &tracepoints {
        // If an event's name is not valid for a function, its samples go to trace_unhandled().
        if is_usable_name(name) && written.insert(name) {
            handler(&mut text, format, name);
        }
    }
    if events.iter().any(|event| matches!(event.format, Format::Other(_))) {
        text.push_str(PROCESS_EVENT);
    }
    text.push_str(END);
    text
}

fn handler(text: &mut String, format: &EventFormat, name: &str) {
    let mut taken: HashSet<String> = USED_NAMES.map(str::to_owned).into();
    let parameters: Vec<String> = format.fields().iter().map(|field| parameter(&field.name, &mut taken)).collect();
    let _ = write!(
        text,
        "\n\ndef {name}(\n    event_name, context, common_cpu, common_secs, common_nsecs, common_pid, common_comm, \
         common_callchain,\n{}    perf_sample_dict,\n):\n    print_header(event_name, common_cpu, common_secs, \
         common_nsecs, common_pid, common_comm)\n    print_fields(\n",
        lines(&parameters)
    );
    let print_fmt = format.print_fmt_text();
    for (field, parameter) in format.fields().iter().zip(&parameters) {
        let label = literal(&field.name);
        let value = match names_of_values(print_fmt, field) {
            Some(function) => format!("{function}(event_name, {label}, {parameter})"),
            None => parameter.clone(),
        };
        let _ = writeln!(text, "        ({label}, {value}),");
    }
    text.push_str("    )\n    print_sample(perf_sample_dict)\n    print_callchain(common_callchain)\n");
}

/// Joins parameters, and breaks them into lines.
fn lines(parameters: &[String]) -> String {
    const LONGEST: usize = 110;
    let (mut text, mut line) = (String::new(), String::new());
    for parameter in parameters {
        if !line.is_empty() && line.len() + parameter.len() > LONGEST {
            text += &std::mem::take(&mut line);
            text.push('\n');
        }
        line += if line.is_empty() { "    " } else { " " };
        line += parameter;
        line.push(',');
    }
    if line.is_empty() { text } else { text + &line + "\n" }
}

/// The names that the code of a handler uses. A parameter with such a name would hide the object with this name.
const USED_NAMES: [&str; 15] = [
    "event_name",
    "context",
    "common_cpu",
    "common_secs",
    "common_nsecs",
    "common_pid",
    "common_comm",
    "common_callchain",
    "perf_sample_dict",
    "print_header",
    "print_fields",
    "print_sample",
    "print_callchain",
    "flag_str",
    "symbol_str",
];

/// The names that Python does not allow for parameters: its keywords, and `__debug__`.
const KEYWORDS: [&str; 36] = [
    "False",
    "None",
    "True",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "class",
    "continue",
    "def",
    "del",
    "elif",
    "else",
    "except",
    "finally",
    "for",
    "from",
    "global",
    "if",
    "import",
    "in",
    "is",
    "lambda",
    "nonlocal",
    "not",
    "or",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
    "__debug__",
];

/// Returns whether a name can be that of a function or a parameter. Accepts only ASCII, because Python takes some names with
/// other letters for the same name.
fn is_usable_name(name: &str) -> bool {
    starts_a_name(name) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !KEYWORDS.contains(&name)
}

fn starts_a_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Returns the parameter for a field: the name of the field if Python allows it. Otherwise replaces each invalid character
/// by `_`. Appends `_` until the name is valid and differs from the other parameters.
fn parameter(field: &str, taken: &mut HashSet<String>) -> String {
    let mut name = field.to_owned();
    if !is_usable_name(field) {
        name = field.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        if !starts_a_name(&name) {
            name.insert(0, '_');
        }
    }
    while !is_usable_name(&name) || !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// Returns text as a Python string literal. The text is escaped, because anybody may have made the recording that contains
/// it.
fn literal(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", without_controls(&escaped))
}

/// Returns the function of perf's module `Core` that names the values of a field; `None` if the print format names none. As
/// in perf, the names belong to the first field after the parenthesis of the helper. If the print format has both flags and
/// symbols for a field, flags are taken.
fn names_of_values(print_fmt: &str, field: &Field) -> Option<&'static str> {
    let helpers = [("__print_flags", "flag_str"), ("__print_symbolic", "symbol_str")];
    let names = |helper: &str| {
        print_fmt.match_indices(helper).any(|(at, _)| {
            let rest = print_fmt[at + helper.len()..].trim_start_matches("_u64").trim_start();
            let field_use = rest.strip_prefix('(').and_then(|rest| rest.split_once("REC->"));
            let word = |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
            field_use.is_some_and(|(_, rest)| rest[..word(rest)] == *field.name)
        })
    };
    helpers.into_iter().find(|(helper, _)| names(helper)).map(|(_, function)| function)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perf_prof_format::record::SampleLayout;

    use super::*;

    fn tracepoint(system: &str, text: &str) -> EventType {
        let format = Format::Tracepoint(Arc::new(EventFormat::parse(system, text).unwrap()));
        EventType { alias: None, format, layout: SampleLayout::from_format(Default::default()), max_stack: None }
    }

    fn format(name: &str, id: u32, fields: &[&str], print_fmt: &str) -> String {
        let field =
            |(at, name): (usize, &&str)| format!("\tfield:int {name};\toffset:{};\tsize:4;\tsigned:1;\n", 8 + at * 4);
        let fields: String = fields.iter().enumerate().map(field).collect();
        format!("name: {name}\nID: {id}\nformat:\n{fields}\nprint fmt: \"x\"{print_fmt}\n")
    }

    #[test]
    fn handlers_come_in_the_order_of_ids_and_once() {
        let events = [("b", 9), ("a", 12), ("c", 3), ("b", 9)];
        let mut events: Vec<_> =
            events.iter().map(|(name, id)| tracepoint("s", &format(name, *id, &["x"], ""))).collect();
        let handlers = |text: &str| -> Vec<String> {
            let names = text.lines().filter_map(|line| line.strip_prefix("def ")?.strip_suffix('('));
            names.map(str::to_owned).collect()
        };
        let text = perf_script_template(&events, FieldSigns::AsPerf);
        assert_eq!(handlers(&text), ["s__c", "s__b", "s__a"]);
        assert!(text.starts_with("# ") && !text.contains("def process_event("));
        events.push(EventType { format: Format::other("cycles"), ..events[0].clone() });
        let text = perf_script_template(&events, FieldSigns::True);
        assert!(text.contains("def process_event("));
        assert_eq!(text.lines().next(), Some("#!/usr/bin/env -S perf-prof script --signed -s"));
    }

    #[test]
    fn parameters_are_names_that_python_allows() {
        let names =
            ["from", "pass", "context", "from_", "x", "x", "common_pid", "flag_str", "1st", "a-b", "", "ﬁ", "_x"];
        let mut taken = USED_NAMES.map(str::to_owned).into();
        let parameters = names.map(|name| parameter(name, &mut taken));
        let expected = [
            "from_",
            "pass_",
            "context_",
            "from__",
            "x",
            "x_",
            "common_pid_",
            "flag_str_",
            "_1st",
            "a_b",
            "_",
            "__",
            "_x",
        ];
        assert_eq!(parameters, expected);
    }

    #[test]
    fn names_of_values_belong_to_the_first_field_of_a_helper() {
        let print_fmt = ", __print_flags(REC->a & 3, \"|\", { 1, \"A\" }), REC->b, \
             __print_symbolic_u64 ((REC->c) >> REC->d, { 0, \"X\" }), __print_symbolic(REC->a, { 0, \"Y\" })";
        let events = [tracepoint("s", &format("n", 1, &["a", "b", "c", "d"], print_fmt))];
        let text = perf_script_template(&events, FieldSigns::AsPerf);
        for line in [
            r#"        ("a", flag_str(event_name, "a", a)),"#,
            r#"        ("b", b),"#,
            r#"        ("c", symbol_str(event_name, "c", c)),"#,
            r#"        ("d", d),"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    #[test]
    fn text_of_a_format_is_never_code() {
        assert_eq!(literal("a\"+b\\n\n\r\u{85}{}%s"), r#""a\"+b\\n\x0a\x0d\x85{}%s""#);
        // In the kernel's formats, nearly all characters are possible in the name of a pointer to a function.
        let hostile = ["(*x\"],print#)(int)", "(*y\rimport os)(int)", "(*z:)(int)", "__debug__", "a.b$"];
        let mut events = vec![tracepoint("s\"\r", &format("n():\rimport os\r", 1, &hostile, ""))];
        // The first name contains a letter that Python does not allow. The second name is `__debug__` together with its
        // system.
        events.push(tracepoint("s", &format("ⓐ", 2, &["x"], "")));
        events.push(tracepoint("", &format("debug__", 3, &["x"], "")));
        let text = perf_script_template(&events, FieldSigns::AsPerf);
        let handlers: Vec<&str> =
            text.lines().filter(|line| line.starts_with("def s") || line.starts_with("def _")).collect();
        assert_eq!(handlers, ["def s____n____import_os("], "{text}");
        assert!(!text.contains(['\r', 'ⓐ']), "{text}");
        assert!(text.contains("\n    x___print_, y_import_os, z_, __debug___, a_b_,\n"), "{text}");
        assert!(text.contains(r#"("x\"],print#", x___print_),"#), "{text}");
    }
}

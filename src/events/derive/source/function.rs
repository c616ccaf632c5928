//! `function:NAME@FILE`: calls of a function of a program or library.

use super::{Field, Rule, Scope, SourceDefinition};
use crate::event::SpanTask;

/// The argument of the probe with the number of bytes that a return takes off the stack. On x86, these bytes are the return
/// address. Other processors have the return address in a register.
#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
const POPPED: &str = "\\8";
#[cfg(not(any(target_arch = "x86_64", target_arch = "x86")))]
const POPPED: &str = "\\0";

/// The stack pointer identifies a call. The kernel does not report the return of a call that longjmp() or an exception ends.
/// Of more than 64 nested calls in a task, it reports only the returns of the outermost 64. A call without a reported return
/// stays open until another call has the same stack pointer. So a return never ends the wrong call.
pub(super) const FUNCTION: SourceDefinition = SourceDefinition {
    system: "function",
    name: "function",
    about: "a call of a function of a program or library, from its entry to its return",
    example: "function:getaddrinfo@libc/min=100ms/stack/",
    rules: &[
        Rule::begin_at_entry("_pid+frame plus popped", &[("frame", "$stack"), ("popped", POPPED)]),
        Rule::end_at_return("_pid+frame", &[("frame", "$stack"), ("ret", "$retval")]),
    ],
    task: SpanTask::OfEnd,
    scope: Scope::Task,
    fields: &[
        Field::text("name", "name of the function", |span| span.begin().name().as_bytes().into()),
        Field::int(
            "ret",
            "the value that it returned, with the type that the debug information of the file says; else as a number of 64 bits",
            |span| span.end().map_or(0, |end| end.int("ret")),
        ),
    ],
    ..SourceDefinition::EMPTY
};

//! `process`: the lives of processes.

use perf_prof_format::abi::signals;

use super::{Dependent, Field, Rule, Scope, SourceDefinition, signal::is_by_kernel};
use crate::{
    derive::span::Keep,
    event::{PartView, SpanTask, SpanView},
};

/// A filter for the signals that end a process by default. These are all signals except 17 to 23 and 28 (SIGCHLD, SIGCONT,
/// SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH). The numbers differ on Alpha, MIPS, PA-RISC and SPARC.
macro_rules! fatal {
    () => {
        "!(sig >= 17 && sig <= 23) && sig != 28"
    };
}

/// A new task opens a span, unless it is a thread of its creator (flag CLONE_THREAD, 0x10000). The exit of the last thread
/// of the process ends the span.
///
/// The exit code is the argument of exit_group(), or of exit() in the main thread. A signal without a handler is fatal. Most
/// fatal signals are delivered as SIGKILL, because `complete_signal()` in kernel/signal.c sends a SIGKILL to each thread.
/// Then the kernel drops all further signals to the process. So the last signal that was sent is the fatal one.
pub(super) const PROCESS: SourceDefinition = SourceDefinition {
    name: "process",
    about: "the life of a process, from its creation to the end of its last thread",
    example: "process/comm=make, min=1s/",
    rules: &[
        Rule::begin("task:task_newtask", "pid").when("!(clone_flags & 0x10000)"),
        Rule::note("sched:sched_process_exec", "pid", Keep::Last),
        Rule::note("syscalls:sys_enter_exit_group", "_pid", Keep::First).optional(),
        Rule::note("syscalls:sys_enter_exit", "_tid", Keep::Last).optional(),
        // `group` is set if the signal was sent to the whole process. The results 0 (TRACE_SIGNAL_DELIVERED) and 4
        // (TRACE_SIGNAL_LOSE_INFO) mean that the kernel did not drop the signal.
        Rule::note("signal:signal_generate", "pid", Keep::Last)
            .when(concat!("(result == 0 || result == 4) && ", fatal!()))
            .optional(),
        Rule::note("signal:signal_deliver", "_pid", Keep::Last)
            .when(concat!("sa_handler == 0 && sig != 9 && ", fatal!()))
            .optional(),
        Rule::note("signal:signal_deliver", "_pid", Keep::Last).when("sa_handler == 0 && sig == 9").optional(),
        Rule::note("signal:signal_deliver", "_pid", Keep::Last).when("sa_handler != 0").optional(),
        // `group_dead` exists since Linux 6.16. On older kernels, the exit of the main thread counts as the end of the
        // process.
        Rule::end("sched:sched_process_exit", "_pid").when("group_dead != 0").with_field("group_dead"),
        Rule::end("sched:sched_process_exit", "pid").without_field("group_dead"),
    ],
    // The first event happens in the parent, so a function finds the task.
    task: SpanTask::Computed(|span| {
        let created = span.key(0) as i32;
        span.end().map(|end| (end.pid(), end.tid())).or(Some((created, created)))
    }),
    scope: Scope::Machine,
    fields: &[
        Field::text("comm", "name of its last thread when it ended", |span| span.last().text("comm").into()),
        Field::int("pid", "its id", |span| span.key(0)),
        Field::int("ppid", "process that created it", |span| span.begin().pid().into()),
        Field::text("parent_comm", "name of the thread that created it, at that time", |span| span.comm(&span.begin())),
        Field::text("filename", "the program that it executed last; empty if it executed none", |span| {
            span.note("sched_process_exec").map_or(b"".into(), |exec| exec.text("filename").into())
        }),
        Field::int(
            "exit_code",
            "its exit code; -1 if a signal ended it, or if it is not known: system calls of 32-bit programs are not seen",
            |span| match end(span) {
                End::Exit(code) => code & 0xff,
                End::Signal(_) | End::Unknown => -1,
            },
        ),
        Field::text(
            "signal",
            "the signal that ended it; empty if none did; unknown if SIGKILL ended it, and it was not seen which signal was sent",
            |span| match end(span) {
                End::Signal(Some(sent)) => signals::signal_name(sent.int("sig")).into_owned().into_bytes().into(),
                End::Signal(None) => b"unknown".into(),
                End::Exit(_) | End::Unknown => b"".into(),
            },
        )
        .one_of(|| signals::signal_names().chain(["unknown".into()]).collect(), ""),
        Field::int("sender_pid", "process that sent this signal; -1 if the kernel did, or nobody was seen", |span| {
            sender(span).filter(|sent| !is_by_kernel(sent)).map_or(-1, |sent| sent.pid().into())
        }),
        Field::text("sender_comm", "name of the task that sent this signal; empty if there is no `sender_pid`", |span| {
            sender(span).filter(|sent| !is_by_kernel(sent)).map_or(b"".into(), |sent| span.comm(&sent))
        }),
        Field::uint("by_kernel", "1 if the kernel sent this signal: for a fault, a timer, a closed pipe; else 0", |span| {
            sender(span).is_some_and(|sent| is_by_kernel(&sent)).into()
        }),
    ],
    dependent: &[
        Dependent { fields: "most values of `exit_code`", events: &["syscalls:sys_enter_exit_group"] },
        Dependent { fields: "`signal` and its sender", events: &["signal:signal_deliver"] },
    ],
    ..SourceDefinition::EMPTY
};

/// Returns the `signal_generate` of the signal that ended a process. Returns `None` if no signal ended it, or if this sample
/// was not seen.
fn sender<'a>(span: &SpanView<'a>) -> Option<PartView<'a>> {
    match end(span) {
        End::Signal(sent) => sent.filter(|sent| sent.is("signal_generate")),
        End::Exit(_) | End::Unknown => None,
    }
}

/// How a process ended.
enum End<'a> {
    Exit(i64),
    /// A signal: the sample of its sending, or of its delivery if the sending was not seen. `None` if the signal's number is
    /// unknown.
    Signal(Option<PartView<'a>>),
    /// The process has not exited, or no event says how it ended.
    Unknown,
}

fn end<'a>(span: &SpanView<'a>) -> End<'a> {
    if span.end().is_none() {
        return End::Unknown;
    }
    // exit_group() does not return, so its argument is the exit code.
    if let Some(exit) = span.note("sys_enter_exit_group") {
        return End::Exit(exit.int("error_code"));
    }
    // Ignore samples from before the last exec(), and an exit() before a fatal signal. These samples do not say how the
    // process ended.
    let exec = span.note("sched_process_exec").map_or(0, |exec| exec.time());
    let exit = span.note("sys_enter_exit").filter(|exit| exit.time() > exec);
    let delivered = |is_wanted: fn(i64, u64) -> bool| {
        let of_signal =
            span.notes().map(|(part, _)| part).filter(|part| part.is("signal_deliver") && part.time() > exec);
        of_signal.filter(|part| is_wanted(part.int("sig"), part.uint("sa_handler"))).last()
    };
    let after_exit = |part: &PartView<'_>| exit.is_none_or(|exit| exit.time() < part.time());
    let sent_before = |part: &PartView<'_>| {
        let time = part.time();
        span.note("signal_generate").filter(|sent| sent.time() <= time)
    };
    if let Some(killed) = delivered(|sig, handler| sig != 9 && handler == 0).filter(after_exit) {
        let sent = sent_before(&killed).filter(|sent| sent.int("sig") == killed.int("sig"));
        return End::Signal(sent.or(Some(killed)));
    }
    if let Some(killed) = delivered(|sig, handler| sig == 9 && handler == 0).filter(after_exit) {
        let handled = delivered(|_, handler| handler != 0);
        let was_handled = |sent: &PartView<'_>| {
            handled.is_some_and(|handled| handled.time() >= sent.time() && handled.int("sig") == sent.int("sig"))
        };
        return End::Signal(sent_before(&killed).filter(|sent| !was_handled(sent)));
    }
    exit.map_or(End::Unknown, |exit| End::Exit(exit.int("error_code")))
}

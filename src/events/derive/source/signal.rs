//! `signal`: signals, from the time at which they are sent until they are delivered.

use perf_prof_format::abi::signals::{signal_name, signal_names};

use super::{Field, Rule, Scope, SourceDefinition, texts};
use crate::event::{PartView, SpanTask};

/// A signal is sent to a process or to a thread. The field `pid` of `signal_generate` is the id of this process or thread.
///
/// A signal that ends a process is delivered as SIGKILL, unless the process dumps core (`complete_signal()` in
/// kernel/signal.c). After the SIGKILL, the kernel sends no more signals to the process. So the last signal that was sent
/// is the one that ended the process.
pub(super) const SIGNAL: SourceDefinition = SourceDefinition {
    name: "signal",
    about: "a signal, from the time at which it was sent until it was delivered",
    example: "signal/name=SIGTERM|SIGKILL/",
    rules: &[
        // TRACE_SIGNAL_DELIVERED and TRACE_SIGNAL_LOSE_INFO (include/trace/events/signal.h). With other results, such as
        // TRACE_SIGNAL_IGNORED, the kernel does not deliver the signal. It does deliver an ignored signal that is blocked
        // when it is sent (`sig_ignored()` in kernel/signal.c), because the target may set a handler before it is unblocked.
        Rule::begin("signal:signal_generate", "pid+sig").when("sig < 32 && (result == 0 || result == 4)"),
        // Real-time signals are queued, so several signals with the same number may be pending.
        Rule::begin_another("signal:signal_generate", "pid+sig").when("sig >= 32 && (result == 0 || result == 4)"),
        Rule::end("signal:signal_deliver", "_tid+sig|_pid+sig").when("sig < 32 && sig != 9"),
        Rule::end_first("signal:signal_deliver", "_tid+sig|_pid+sig").when("sig >= 32"),
        Rule::end("signal:signal_deliver", ENDED_BY_SIGKILL).when("sig == 9"),
    ],
    // The first event happens in the sender, so a function finds the task.
    task: SpanTask::Computed(|span| span.end().map(|end| (end.pid(), end.tid())).or(Some((-1, span.key(0) as i32)))),
    scope: Scope::Machine,
    fields: &[
        Field::text("name", "its name: SIGTERM, SIGRTMIN+1, ...", |span| match signal_name(span.key(1)) {
            std::borrow::Cow::Borrowed(name) => name.as_bytes().into(),
            std::borrow::Cow::Owned(name) => name.into_bytes().into(),
        })
        .one_of(|| signal_names().collect(), ""),
        Field::int("sig", "its number", |span| span.key(1)),
        Field::int("sender", "thread id of the task that sent it; -1 if an interrupt did", |span| {
            let begin = span.begin();
            if begin.is_in_interrupt() { -1 } else { begin.tid().into() }
        }),
        Field::text("sender_comm", "name of the task that sent it; empty if an interrupt did", |span| {
            let begin = span.begin();
            if begin.is_in_interrupt() { b"".into() } else { span.comm(&begin) }
        }),
        Field::uint("by_kernel", "1 if the kernel sent it: for a fault, a timer, a child that ended; else 0", |span| {
            is_by_kernel(&span.begin()).into()
        }),
        Field::int("target", "id of the process or thread that it is for", |span| span.key(0)),
        Field::text("target_comm", "name of the process or thread that it is for", |span| {
            span.begin().text("comm").into()
        }),
        Field::text(
            "action",
            "`handler`, `default`, or `ignored` if it was blocked before; empty if it was not delivered",
            |span| {
                let action = span.end().map(|end| end.uint("sa_handler"));
                match action {
                    None => b"".into(),
                    Some(0) => b"default".into(),
                    Some(1) => b"ignored".into(),
                    Some(_) => b"handler".into(),
                }
            },
        )
        .one_of(|| texts(["handler", "default", "ignored"]), ""),
        Field::time("waited", "ns until it was delivered", |span| span.duration()),
    ],
    ..SourceDefinition::EMPTY
};

/// Returns whether the kernel itself sent the signal of a `signal_generate`.
///
/// A positive code means that the kernel sent the signal (sigaction(2), si_code). SIGPIPE of a write() is an exception: its
/// code is 0, as for signals of kill(). But the kernel sends this SIGPIPE to one thread, and kill() sends a signal to a
/// process (`send_sig()` with priv 0 in kernel/signal.c). In an interrupt, the current task is not the sender.
pub(super) fn is_by_kernel(sent: &PartView<'_>) -> bool {
    let is_of_write = sent.int("code") == 0 && sent.int("group") == 0;
    sent.int("code") > 0 || is_of_write || sent.is_in_interrupt()
}

/// The keys of signals that are delivered as SIGKILL: SIGKILL, and the signals that end a process by default without a core
/// dump. These are SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGALRM, SIGUSR1, SIGUSR2, SIGSTKFLT, SIGVTALRM, SIGPROF, SIGIO and
/// SIGPWR.
const ENDED_BY_SIGKILL: &str = "_tid+sig|_pid+sig|_pid+15|_pid+2|_pid+1|_pid+13|_pid+14|_pid+10|_pid+12|_pid+16|\
                                _pid+26|_pid+27|_pid+29|_pid+30|_tid+15|_tid+2|_tid+1|_tid+13|_tid+14|_tid+10|_tid+12|\
                                _tid+16|_tid+26|_tid+27|_tid+29|_tid+30";

#[cfg(test)]
mod tests {
    use super::{super::made::*, *};

    const EVENTS: [MadeEvent; 2] = [
        MadeEvent {
            name: "signal:signal_generate",
            fields: &["int sig", "int code", "int pid", "int group", "int result"],
            print: "\"sig=%d\", REC->sig",
        },
        MadeEvent {
            name: "signal:signal_deliver",
            fields: &["int sig", "unsigned long sa_handler"],
            print: "\"sig=%d\", REC->sig",
        },
    ];

    fn sent(time: u64, sig: i64, target: i64, result: i64) -> MadeSample<'static> {
        let fields = Box::leak(Box::new([("sig", sig), ("pid", target), ("group", 1), ("result", result)]));
        MadeSample { event: "signal:signal_generate", tid: 5, cpu: 0, time, fields }
    }

    fn delivered(time: u64, sig: i64, tid: i32) -> MadeSample<'static> {
        let fields = Box::leak(Box::new([("sig", sig)]));
        MadeSample { event: "signal:signal_deliver", tid, cpu: 0, time, fields }
    }

    /// Returns the name of the signal of each span, and how long it was pending.
    fn shown(spans: &[String]) -> Vec<String> {
        let word =
            |span: &str, name: &str| span.split(' ').find_map(|word| word.strip_prefix(name)).unwrap().to_owned();
        spans.iter().map(|span| format!("{} {}", word(span, "name="), word(span, "waited="))).collect()
    }

    #[test]
    fn a_process_is_ended_by_the_signal_that_was_sent_last() {
        let mut run = MadeRun::start(&SIGNAL, "signal", &EVENTS);
        let spans = run.spans(&[
            // These signals are blocked.
            sent(100, 15, 7, 0),
            sent(110, 10, 7, 0),
            sent(120, 2, 7, 0),
            // The first signal is for another process. The second signal is ignored.
            sent(130, 1, 8, 0),
            sent(140, 1, 7, 1),
            delivered(150, 9, 7),
            delivered(160, 1, 8),
            delivered(170, 9, 9),
        ]);
        assert_eq!(shown(&spans), ["SIGINT 30", "SIGHUP 30"]);
        assert_eq!(run.counts(), [4, 2, 0, 1]);
    }

    #[test]
    fn real_time_signals_are_delivered_in_their_order() {
        let mut run = MadeRun::start(&SIGNAL, "signal", &EVENTS);
        let spans = run.spans(&[
            sent(100, 37, 7, 0),
            sent(110, 37, 7, 0),
            delivered(150, 37, 7),
            delivered(151, 37, 7),
            // At most one standard signal per number is pending. If it is sent again, no event says that the first one was
            // removed.
            sent(200, 10, 7, 0),
            sent(210, 10, 7, 0),
            delivered(220, 10, 7),
        ]);
        assert_eq!(shown(&spans), ["SIGRTMIN+3 50", "SIGRTMIN+3 41", "SIGUSR1 10"]);
        assert_eq!(run.counts(), [4, 3, 1, 0]);
    }

    #[test]
    fn sigkill_is_itself() {
        let mut run = MadeRun::start(&SIGNAL, "signal", &EVENTS);
        let spans = run.spans(&[sent(100, 15, 7, 0), sent(110, 9, 7, 0), delivered(150, 9, 7)]);
        assert_eq!(shown(&spans), ["SIGKILL 40"]);
    }
}

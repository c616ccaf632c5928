//! `lock`: waits for locks of the kernel.

use perf_prof_format::abi::system_calls;

use super::{Field, Rule, Scope, SourceDefinition};
use crate::event::SpanTask;

/// The address of the lock is part of the key, because a task may wait for a spin lock while it waits for a mutex. A wait
/// for a mutex has several begin events: the task spins first, and sleeps later (`__mutex_lock_common()` in
/// kernel/locking/mutex.c). As in perf, the first event begins the wait.
///
/// For idle tasks, the CPU is part of the key too, because all idle tasks have the id 0. Idle tasks wait only for spin
/// locks, in interrupts, so each of their waits stays on its CPU.
pub(super) const LOCK: SourceDefinition = SourceDefinition {
    name: "lock",
    about: "the time for which a task waited for a lock of the kernel (not of a program) that another one held",
    example: "lock/kind=mutex|rwsem*, min=1ms/stack/",
    rules: &[
        Rule::begin_unless_open("lock:contention_begin", "common_pid+lock_addr").when("common_pid != 0"),
        Rule::begin_unless_open("lock:contention_begin", "common_pid+lock_addr+_cpu").when("common_pid == 0"),
        Rule::end("lock:contention_end", "common_pid+lock_addr").when("common_pid != 0"),
        Rule::end("lock:contention_end", "common_pid+lock_addr+_cpu").when("common_pid == 0"),
    ],
    task: SpanTask::OfEnd,
    scope: Scope::Task,
    fields: &[
        Field::text("kind", "spinlock, mutex, rwsem:R, rwsem:W, rwlock:R, pcpu-sem:R, rt-mutex, ...", |span| {
            let flags = span.begin().uint("flags");
            match kind(flags) {
                Some(kind) => kind.as_bytes().into(),
                None => span.shown(&span.begin(), "flags"),
            }
        }),
        Field::address("addr", "address of the lock", |span| span.begin().uint("lock_addr")),
        Field::text("name", "symbol of the lock; empty if it is not a variable of the kernel", |span| {
            span.symbol(span.begin().uint("lock_addr"))
        }),
        Field::text(
            "errno",
            "name of the error if the task did not get the lock, for example EINTR; else empty",
            |span| match span.end().map_or(0, |end| end.int("ret")) {
                0 => b"".into(),
                ret => system_calls::error_name(ret.saturating_neg()).map_or_else(
                    || format!("errno_{}", ret.saturating_neg()).into_bytes().into(),
                    |name| name.as_bytes().into(),
                ),
            },
        ),
    ],
    ..SourceDefinition::EMPTY
};

/// Returns the name of a kind of locks, as `perf lock contention` prints it (tools/perf/builtin-lock.c). The flags are
/// `LCB_F_...` in include/trace/events/lock.h.
fn kind(flags: u64) -> Option<&'static str> {
    const SPIN: u64 = 1;
    const READ: u64 = 2;
    const WRITE: u64 = 4;
    const RT: u64 = 8;
    const PERCPU: u64 = 16;
    const MUTEX: u64 = 32;
    const KINDS: [(u64, &str); 13] = [
        (0, "semaphore"),
        (SPIN, "spinlock"),
        (SPIN | READ, "rwlock:R"),
        (SPIN | WRITE, "rwlock:W"),
        (READ, "rwsem:R"),
        (WRITE, "rwsem:W"),
        (RT, "rt-mutex"),
        (RT | READ, "rwlock-rt:R"),
        (RT | WRITE, "rwlock-rt:W"),
        (PERCPU | READ, "pcpu-sem:R"),
        (PERCPU | WRITE, "pcpu-sem:W"),
        (MUTEX, "mutex"),
        (MUTEX | SPIN, "mutex"),
    ];
    KINDS.iter().find(|(of, _)| *of == flags).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::{super::made::*, *};

    const EVENTS: [MadeEvent; 2] = [
        MadeEvent {
            name: "lock:contention_begin",
            fields: &["void * lock_addr", "unsigned int flags"],
            print: "\"%p (flags=%s)\", REC->lock_addr, __print_flags(REC->flags, \"|\", { 1, \"SPIN\" }, { 16, \"PERCPU\" })",
        },
        MadeEvent {
            name: "lock:contention_end",
            fields: &["void * lock_addr", "int ret"],
            print: "\"%p (ret=%d)\", REC->lock_addr, REC->ret",
        },
    ];

    const BEGIN: &str = "lock:contention_begin";
    const END: &str = "lock:contention_end";

    fn sample<'a>(event: &'a str, task: (i32, u32), time: u64, fields: &'a [(&'a str, i64)]) -> MadeSample<'a> {
        MadeSample { event, tid: task.0, cpu: task.1, time, fields }
    }

    #[test]
    fn the_wait_for_a_mutex_begins_once_and_may_contain_one_for_a_spin_lock() {
        let mut run = MadeRun::start(&LOCK, "lock", &EVENTS);
        let spans = run.spans(&[
            sample(BEGIN, (7, 0), 100, &[("lock_addr", 0x10), ("flags", 0x21)]),
            sample(BEGIN, (7, 0), 110, &[("lock_addr", 0x18), ("flags", 0x01)]),
            sample(END, (7, 0), 115, &[("lock_addr", 0x18)]),
            sample(BEGIN, (7, 0), 120, &[("lock_addr", 0x10), ("flags", 0x20)]),
            sample(BEGIN, (8, 1), 130, &[("lock_addr", 0x10), ("flags", 0x20)]),
            sample(END, (7, 1), 200, &[("lock_addr", 0x10)]),
            sample(END, (8, 1), 230, &[("lock_addr", 0x10), ("ret", -4)]),
        ]);
        assert_eq!(
            spans,
            [
                "0.000005 ms kind=spinlock addr=0x18 name= errno=",
                "0.000100 ms kind=mutex addr=0x10 name= errno=",
                "0.000100 ms kind=mutex addr=0x10 name= errno=EINTR",
            ]
        );
        assert_eq!(run.counts(), [3, 3, 0, 0]);
    }

    #[test]
    fn the_idle_tasks_of_two_cpus_wait_for_one_spin_lock() {
        let mut run = MadeRun::start(&LOCK, "lock", &EVENTS);
        let spans = run.spans(&[
            sample(BEGIN, (0, 0), 100, &[("lock_addr", 0x10), ("flags", 1)]),
            sample(BEGIN, (0, 1), 101, &[("lock_addr", 0x10), ("flags", 1)]),
            sample(END, (0, 1), 108, &[("lock_addr", 0x10)]),
            sample(END, (0, 0), 109, &[("lock_addr", 0x10)]),
        ]);
        assert_eq!(
            spans,
            ["0.000007 ms kind=spinlock addr=0x10 name= errno=", "0.000009 ms kind=spinlock addr=0x10 name= errno="]
        );
    }

    #[test]
    fn a_kind_without_a_name_shows_its_flags() {
        let mut run = MadeRun::start(&LOCK, "lock", &EVENTS);
        let spans = run.spans(&[
            sample(BEGIN, (7, 0), 100, &[("lock_addr", 0x10), ("flags", 0x11)]),
            sample(END, (7, 0), 101, &[("lock_addr", 0x10)]),
        ]);
        assert_eq!(spans, ["0.000001 ms kind=SPIN|PERCPU addr=0x10 name= errno="]);
    }
}

//! Compares the line that `event.print()` writes with a line that the script makes from the event's values.

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs},
    script::{RENAME, Run, prints},
};

/// The functions that make the expected line. `comm` is the task's comm, and `text` is the event's text as the kernel
/// prints it.
const EXPECTED: &str = "
import contextlib, io, time
def printed(event, *args, **kwargs):
    with contextlib.redirect_stdout(io.StringIO()) as out: result = event.print(*args, **kwargs)
    assert result is None
    return out.getvalue()
def latency(event):
    flags, count = event.common_flags, event.common_preempt_count
    irqs = {0: '.', 1: 'd', 0x80: 'b', 0x81: 'D'}[flags & 0x81]
    context = {0: '.', 0x10: 's', 8: 'h', 0x18: 'H'}[flags & 0x18]
    return irqs + '?' + context + ('.' if count & 15 == 0 else '0123456789abcdef'[count & 15])
def line(event, comm, text):
    us = (event._time + 500) // 1000
    real = event.__class__.__name__.replace('__', ':')
    return f'{comm:>16} {event._tid:>6} {latency(event)} [{event._cpu:03}] {us // 10**6}.{us % 10**6:06}: {real}: {text}\\n'
def wall(event):
    return time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(event._realtime // 10**9)) + f'.{event._realtime // 1000 % 10**6:06} '
def same(a, b):
    # The letter for a wanted reschedule is of no interest here.
    a, b = a.split(' ['), b.split(' [')
    a[0] = a[0][:-3] + '?' + a[0][-2:]
    return a == b
";

fn line(body: &str) -> Run {
    Run::script(&format!("{EXPECTED}{body}"))
}

#[test]
fn the_parts_of_the_line() {
    let body = "
def __sample__(event):
    expected = line(event, 'worker', f'sys_getpgid(pid: {event.pid})')
    assert same(printed(event), wall(event) + expected), (printed(event), wall(event) + expected)
    assert same(printed(event, timestamp=False), expected)
    assert same(printed(event, False, True), expected)
    print('same')
";
    prints(
        line(body).call_event().workload("comm worker calls 3"),
        expect![[r#"
        same
        same
        same
    "#]],
    );
}

#[test]
fn the_wall_clock_is_local() {
    let body = "
def __sample__(event):
    print(printed(event).startswith(wall(event)), time.timezone)
";
    let run = line(body).call_event().workload("calls 1");
    prints(
        run.env("TZ", "XYZ-05:45"),
        expect![[r#"
        True -20700
    "#]],
    );
}

#[test]
fn the_real_name_stands_in_the_line_not_the_alias() {
    let body = "
def syscalls__mine(event): print(event._event, ' syscalls:sys_enter_getpgid: sys_getpgid(pid: 1)' in printed(event))
";
    prints(
        line(body).event("syscalls:sys_enter_getpgid//alias=mine/").workload("calls 1"),
        expect![[r#"
            syscalls:mine True
        "#]],
    );
}

#[test]
fn a_switch_is_shown_with_interrupts_off() {
    let body = "
def sched__sched_switch(event):
    text = printed(event, timestamp=False)
    print(same(text, line(event, 'worker', text.split(': sched:sched_switch: ')[1][:-1])), latency(event)[0], 'prev_comm=worker' in text)
";
    prints(
        line(body)
            .event("sched:sched_switch/prev_comm==\"worker\"/")
            .workload("comm worker sleep-ms 1")
            .options(["-N", "1"]),
        expect![[r#"
            True d True
        "#]],
    );
}

#[test]
fn frames_stand_below_the_line() {
    let body = "
def __sample__(event):
    if event.oldcomm != 'worker': return
    frames = ''.join(f\"    {f['addr']:016x} {f['symbol']}+{f['offset']:#x} ({f['dso']})\\n\" for f in event._callchain)
    first = line(event, 'worker', printed(event, False, False).split(': task:task_rename: ')[1][:-1])
    assert frames and same(printed(event, False), first + frames), printed(event, False)
    print(same(printed(event, timestamp=False, callchain=False), first))
";
    prints(
        line(body).event(format!("{RENAME}stack/")).workload("renames 2"),
        expect![[r#"
        True
    "#]],
    );
}

#[test]
fn tasks_are_named_as_they_were_called_at_the_time() {
    // The events are printed after the workload and its child have exited.
    let body = "
kept = []
def __sample__(event): kept.append(event)
def __exit__():
    for event in kept: print(event.pid, printed(event, False).split()[0])
";
    let run = line(body).call_event().workload("comm first calls 1 comm second calls 1 fork comm third calls 1");
    prints(
        run.options(["--order"]),
        expect![[r#"
        1 first
        2 second
        3 second
        3 third
    "#]],
    );
}

#[test]
fn the_idle_task_is_swapper() {
    needs([Need::Idle]);
    let body = "
def __sample__(event): print(printed(event, False).split()[:2])
";
    prints(
        line(body).event("sched:sched_switch/prev_pid==0/").options(["-N", "1", "-i", "1000"]),
        expect![[r#"
        ['swapper', '0']
    "#]],
    );
}

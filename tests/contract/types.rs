//! The Python type and the value of each kind of field.

use expect_test::expect;

use crate::harness::{
    machine::{Need, needs},
    script::{CALL, Run, prints},
};

#[test]
fn a_u64_is_never_negative_and_an_s32_may_be() {
    // An int that is stored in eight bytes is still an int.
    let text = "
def syscalls__sys_enter_ioperm(event): print(event['from'], event.num, event.turn_on)
def syscalls__sys_enter_getpgid(event): print(event.pid, type(event.pid).__name__)
def syscalls__sys_exit_getpgid(event): print(event.ret)
";
    let run = Run::script(text).call_event().event("syscalls:sys_exit_getpgid,syscalls:sys_enter_ioperm");
    let ioperm = libc::SYS_ioperm;
    let run = run.options(["--order"]);
    prints(
        run.workload(&format!("syscall {ioperm} -1 -2 -3 call -1 call -2147483648")),
        expect![[r#"
        18446744073709551615 18446744073709551614 -3
        -1 int
        -3
        -2147483648 int
        -3
    "#]],
    );
}

#[test]
fn pointers_are_positive_and_the_node_is_minus_one() {
    let text = "
seen = set()
def kmem__kmalloc(event):
    seen.add((type(event.ptr).__name__, event.ptr > 2**63, event.call_site > 2**63, event.node >= -1 and event.node < 1024))
    if event.node == -1: seen.add('no node')
def __exit__(): print(sorted(map(str, seen)))
";
    prints(
        Run::script(text).event("kmem:kmalloc").workload("fork fork open /proc/self/status"),
        expect![[r#"
        ["('int', True, True, True)", 'no node']
    "#]],
    );
}

#[test]
fn a_bool_is_a_bool_and_a_dynamic_text_is_a_str() {
    let text = "
seen = set()
def kmem__kmem_cache_alloc(event): seen.add((type(event.accounted).__name__, type(event.name).__name__, '\\0' in event.name))
def __exit__(): print(seen)
";
    prints(
        Run::script(text).event("kmem:kmem_cache_alloc").workload("fork open /proc/self/status"),
        expect![[r#"
        {('bool', 'str', False)}
    "#]],
    );
}

#[test]
fn texts_end_at_their_first_nul() {
    let text = "
import sys
def task__task_rename(event): print(repr(event.newcomm), len(event.newcomm))
def sched__sched_process_exec(event): print(type(event.filename).__name__, sys.argv[1] in event.filename, event.pid == event._pid)
";
    needs([Need::Tracefs]);
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let outcome = Run::script(text)
        .event("task:task_rename,sched:sched_process_exec")
        .options(["--order"])
        .args([&program])
        .workload("comm ab comm abcdefghijklmnopqrstuvwxyz")
        .run();
    assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
    let lines: Vec<&str> =
        outcome.stdout.lines().filter(|line| !line.contains(&program[..program.len().min(15)])).collect();
    expect![[r#"
        str True True
        'ab' 2
        'abcdefghijklmno' 15"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn an_array_of_integers_is_bytes_with_a_typed_view() {
    let text = "
import struct, sys
def __sample__(event):
    print(type(event.args).__name__, len(event.args), event.array('args')[:3], struct.unpack('6Q', event.args) == event.array('args'))
    print(type(event.id).__name__, event.id >= 0)
";
    let nr = libc::SYS_ioperm;
    let run = Run::script(text).event(format!("raw_syscalls:sys_enter/id=={nr}/"));
    prints(
        run.workload(&format!("syscall {nr} -1 2 0")),
        expect![[r#"
            bytes 48 (18446744073709551615, 2, 0) True
            int True
        "#]],
    );
}

#[test]
fn a_result_of_a_system_call_is_negative_when_it_failed() {
    let text = "
import perf_prof
def __sample__(event): print(event.ret, perf_prof.errno_name(event.ret))
";
    let run = Run::script(text).event(format!("raw_syscalls:sys_exit/id=={}/", libc::SYS_getpgid));
    prints(
        run.workload("call -5"),
        expect![[r#"
        -3 ESRCH
    "#]],
    );
}

#[test]
fn a_field_as_the_kernel_shows_it() {
    let text = "
import sys
def kmem__kmalloc(event):
    flags = event.text('gfp_flags')
    if 'GFP_KERNEL' in flags:
        assert flags in line(event), (flags, line(event))
        print(set(flags) <= set('ABCDEFGHIJKLMNOPQRSTUVWXYZ_|0123456789x'), event.text('node'), event.text('_event'), event.text(name='bytes_req') == str(event.bytes_req))
        sys.exit()
def line(event):
    import contextlib, io
    with contextlib.redirect_stdout(io.StringIO()) as out: event.print()
    return out.getvalue()
";
    prints(
        Run::script(text).event("kmem:kmalloc/node==-1/").workload("fork open /proc/self/status"),
        expect![[r#"
        True -1 kmem:kmalloc True
    "#]],
    );
}

#[test]
fn a_field_named_by_a_keyword_is_reached_by_its_name() {
    let text = "
def __sample__(event): print(event['from'], getattr(event, 'from'), event.get('from'), 'from' in event, event.num, 'from' in event.keys())
";
    let run = Run::script(text).event("syscalls:sys_enter_ioperm");
    prints(
        run.workload(&format!("syscall {} 5 6 0", libc::SYS_ioperm)),
        expect![[r#"
        5 5 5 True 6 True
    "#]],
    );
}

#[test]
fn the_task_and_the_cpu() {
    let text = "
import os
pids = set()
def __sample__(event):
    pids.add((event._pid, event._tid))
    print(event._pid == event._tid == event.common_pid, 0 <= event._cpu < os.cpu_count(), event._period, event.common_type > 0)
def __exit__(): print(len(pids))
";
    prints(
        Run::script(text).event(CALL).workload("calls 1 fork"),
        expect![[r#"
        True True 1 True
        True True 1 True
        2
    "#]],
    );
}

//! `syscall`.

use expect_test::expect;

use super::live_and_recorded;

#[test]
fn a_system_call_has_its_name_its_arguments_and_its_error() {
    // All calls but one are about the caller itself, so they succeed on every machine.
    let operations = format!(
        "comm caller call 0 syscall {getsid} 0 0 0 syscall {getsid} 2147483647 0 0 call 0",
        getsid = libc::SYS_getsid
    );
    live_and_recorded(
        "
def syscall(e):
    print(e._event, e.name, e.args[0], e.ret >= 0, e.errno, e.comm, e.begin.id == e.end.id == e.nr)
",
        "syscall/name=getpgid|getsid, comm=caller/",
        &operations,
        expect![[r#"
            syscall getpgid 0 True  caller True
            syscall getsid 0 True  caller True
            syscall getsid 2147483647 False ESRCH caller True
            syscall getpgid 0 True  caller True
        "#]],
    );
}

#[test]
fn calls_that_failed_are_selected_by_an_option() {
    let operations =
        format!("call 1 syscall {getsid} 0 0 0 syscall {getsid} 2147483647 0 0", getsid = libc::SYS_getsid);
    live_and_recorded(
        "
def syscall(e): print(e.name, e.errno)
",
        "syscall/name=get?id|getpgid, failed/",
        &operations,
        expect![[r#"
            getsid ESRCH
        "#]],
    );
}

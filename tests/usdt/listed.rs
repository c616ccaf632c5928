//! What `perf-prof list` and errors say about static probes.

use expect_test::expect;

use super::Programs;
use crate::harness::{
    plain_user::{self, Tracefs},
    run::{said, stdout},
};

/// A program whose operands do not depend on the compiler.
const PROGRAM: &str = r#"
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>
unsigned short app_start_semaphore __attribute__((section(".probes")));
unsigned short app_stop_semaphore __attribute__((section(".probes")));
int main(void) {
    DTRACE_PROBE2(app, start, 5, (unsigned char)200);
    DTRACE_PROBE2(app, start, -1, (unsigned char)7);
    DTRACE_PROBE(app, stop);
    return 0;
}
"#;

#[test]
fn list_shows_arguments_with_types_semaphores_and_places() {
    let programs = Programs::compiled(PROGRAM, &[]);
    let names = stdout(&programs.run(&["list", "usdt:*@./p"]));
    let names: Vec<&str> = names.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, ["usdt:app:start@\"./p\"", "usdt:app:stop@\"./p\""]);
    let text = stdout(&programs.run(&["list", "-v", "usdt:app@./p"]));
    // The addresses depend on the compiler.
    let without_addresses: String = text
        .lines()
        .map(|line| match line.trim_start().strip_prefix("at 0x").and_then(|rest| rest.split_once(',')) {
            Some((_, rest)) => format!("    at ADDRESS,{rest}\n"),
            None => format!("{line}\n"),
        })
        .collect();
    expect![[r#"
        usdt:app:start@"./p"           [static probe]
            at ADDRESS, with a semaphore: -4@$5 1@$-56
            at ADDRESS, with a semaphore: -4@$-1 1@$7
            arg1  int    s32  s32
            arg2  int    u8   u8
        usdt:app:stop@"./p"            [static probe]
            at ADDRESS, with a semaphore: no arguments
    "#]]
    .assert_eq(&without_addresses);
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&programs.run(&["list", "-v", "--json", "usdt:app@./p"]))).unwrap();
    let start = &json[0];
    assert_eq!((&start["kind"], &start["fields"][0]["c_type"]), (&"static probe".into(), &"s32".into()));
    assert_eq!(
        (&start["places"][1]["arguments"], &start["places"][1]["semaphore"]),
        (&"-4@$-1 1@$7".into(), &true.into())
    );
}

#[test]
fn errors_name_the_probe_the_file_and_the_way_out() {
    let programs = Programs::compiled(PROGRAM, &[]);
    let mut text = String::new();
    for selector in [
        "usdt:app:strat@./p",
        "usdt:start@./p",
        "usdt:ap:start@./p",
        "usdt:a:b@/bin/true",
        "usdt:a:b",
        "usdt:a:b@./none",
        "usdt:a b:c@./p",
        "usdt:app:start@./p//n=arg3/",
        "usdt:app:stop@./p//n=arg1/",
        "usdt:app:start@./p//n=$retval/",
        "usdt:app:start@./p//n=%nothing/",
        "span:s=usdt:app:start@./p..usdt:app:none@./p//key=_tid/",
        "span:s=usdt:app:start@./p..usdt:app:stop@./p//key=arg1/",
        "span:s=usdt:app:start@./p..usdt:app:stop@./p",
    ] {
        let output = programs.run(&["trace", "-e", selector, "--", "./p"]);
        assert!(output.status.code().is_some_and(|status| [1, 2].contains(&status)), "{selector}");
        text += &(said(&output).lines().next().unwrap().replacen("perf-prof: ", "", 1) + "\n");
    }
    expect![[r#"
        usdt:app:strat@./p: ./p has no static probe `app:strat` (`perf-prof list 'usdt:*@./p'` lists those that it has); did you mean `app:start`?
        usdt:start@./p: ./p has no static probe `start:*` (`perf-prof list 'usdt:*@./p'` lists those that it has); did you mean `app:start`?
        usdt:ap:start@./p: ./p has no static probe `ap:start` (`perf-prof list 'usdt:*@./p'` lists those that it has); did you mean `app:start`?
        usdt:a:b@/bin/true: /bin/true has no static probes (it has no section .note.stapsdt)
        usdt:a:b: a file is missing; write usdt:PROVIDER:NAME@"/path/or/name", or select processes with -p: then the files that they have mapped are searched
        usdt:a:b@./none: cannot open ./none: No such file or directory (os error 2)
        -e usdt:a b:c@./p: `a b:c` is not the name of a static probe; write usdt:PROVIDER:NAME@"FILE"
        usdt:app:start@./p//n=arg3/: the static probe has no argument `arg3`; it has arg1 to arg2
        usdt:app:stop@./p//n=arg1/: the static probe has no argument `arg1`; it has none
        usdt:app:start@./p//n=$retval/: `$retval`: the result of a function is known only when it returns; use uretprobe: or kretprobe:
        usdt:app:start@./p//n=%nothing/: cannot define the probe in tracefs: Invalid register name (Invalid argument (os error 22))
        span:s=usdt:app:start@./p..usdt:app:none@./p//key=_tid/: ./p has no static probe `app:none` (`perf-prof list 'usdt:*@./p'` lists those that it has)
        span:s=usdt:app:start@./p..usdt:app:stop@./p//key=arg1/: sdt_app:stop has no field `arg1`, which is in the key of the span
        -e span:s=usdt:app:start@./p..usdt:app:stop@./p: the span has no key; add key= with the fields that have the same value when it begins and when it ends, for example `//key=pid/`
    "#]].assert_eq(&text);
    let output = programs.run(&["trace", "-e", "usdt:app:none", "-p", &std::process::id().to_string()]);
    assert!(said(&output).contains("no file that the processes have mapped has a static probe `app:none`"));
}

/// A user without privileges cannot define a probe in tracefs, which is needed to raise the semaphore.
#[test]
fn a_plain_user_learns_that_static_probes_need_root() {
    plain_user::needs_plain_user();
    let programs = Programs::compiled(PROGRAM, &[]);
    let folder = plain_user::folder();
    std::fs::copy(programs.file("p"), folder.path().join("p")).unwrap();
    for (tracefs, said) in [(Tracefs::Closed, "run as root"), (Tracefs::NotMounted, "tracefs is not mounted")] {
        let outcome = plain_user::perf_prof(&folder, tracefs, &["trace", "-e", "usdt:app:start@./p", "--", "./p"]);
        assert_eq!(outcome.status, Some(1), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
        let listed = plain_user::perf_prof(&folder, tracefs, &["list", "usdt:app:st*@./p"]);
        assert_eq!((listed.status, listed.stdout.lines().count()), (Some(0), 2), "{}", listed.stderr);
    }
}

//! Arguments of probes on a program that the test compiles: their values in a script, a filter, a template and a
//! recording.

use expect_test::expect;

use super::probes::{PROBES, gcc};
use crate::harness::{
    machine::needs,
    script::{Outcome, Run},
};

/// A program that calls functions with known arguments.
const PROGRAM: &str = r#"
#include <stdint.h>
struct pair { long a, b, c; };
__attribute__((noinline)) int sum(int n, const char *text, unsigned char byte) { __asm__ volatile("" :: "r"(text)); return n - byte; }
__attribute__((noinline)) double scaled(double factor, int number) { __asm__ volatile(""); return factor * number; }
__attribute__((noinline)) struct pair made(int number) { struct pair p = {number, number, number}; __asm__ volatile("" :: "r"(&p) : "memory"); return p; }
int main(void) {
    static const uint16_t numbers[4] = {1, 2, 3, 65535};
    for (int i = 0; i < 3; i++) {
        sum(i - 1, i == 2 ? "" : "some text", 200);
        sum(7, (const char *)numbers, 1);
        scaled(1.5, i);
        made(i);
    }
    return 0;
}
"#;

fn compiled(script: &str, flags: &[&str]) -> Run {
    let run = Run::script(script).file("p.c", PROGRAM);
    gcc(run.dir.path(), &[&["-O1", "-fno-omit-frame-pointer", "p.c", "-o", "p"], flags].concat());
    run
}

#[track_caller]
fn succeeded(run: &Run) -> Outcome {
    let outcome = run.run();
    outcome.assert_civil();
    assert_eq!((outcome.status, outcome.complaints().as_str()), (0, ""), "{}", outcome.stdout);
    outcome
}

const PRINT: &str = "
def __sample__(e): print(*(f'{name}={value!r}' for name, value in e.items() if not name.startswith(('_', 'common_'))))";

#[cfg(target_arch = "x86_64")]
#[test]
fn arguments_of_a_probe_are_fields_with_types() {
    needs(PROBES);
    let run = compiled(PRINT, &[]).options(["--order"]);
    // A type that contains `/` is quoted.
    let events = "uprobe:sum@./p//'low=%di:b4@0/8'/n=%di:s32/text=+0(%si):ustring/byte=%dx:u8/who=comm/\
                  numbers=+0(%si):u16[4]/raw=%di/";
    let outcome = succeeded(&run.event(events).exec(["./p"]));
    let first = outcome.stdout.lines().next().unwrap();
    assert!(first.contains("n=-1 text='some text' byte=200 who='p' "), "{first}");
    assert!(first.contains("low=15 ") && first.contains("numbers=b'some tex' raw=4294967295"), "{first}");
    let second = outcome.stdout.lines().nth(1).unwrap();
    assert!(
        second.contains("n=7 ") && second.contains("numbers=b'\\x01\\x00\\x02\\x00\\x03\\x00\\xff\\xff' "),
        "{second}"
    );
    assert_eq!(outcome.stdout.lines().count(), 6, "{}", outcome.stdout);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn results_of_functions_have_the_type_that_the_user_or_the_binary_says() {
    needs(PROBES);
    for (flags, events) in [(&[][..], "uretprobe:sum@./p//r=retval:s32/"), (&["-g"], "uretprobe:sum@./p//r=retval/")] {
        let run = compiled(PRINT, flags).options(["--order"]);
        let outcome = succeeded(&run.event(events).exec(["./p"]));
        assert_eq!(outcome.stdout, "r=-201\nr=6\nr=-200\nr=6\nr=-199\nr=6\n", "{events}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn names_and_types_of_parameters_come_from_the_binary() {
    needs(PROBES);
    let run = compiled(PRINT, &["-g"]).options(["--order"]);
    let events = "uprobe:sum@./p//n/byte/content=+0(text):ustring/,uprobe:scaled@./p//$arg1/";
    let outcome = succeeded(&run.event(events).exec(["./p"]));
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(lines[0], "n=-1 byte=200 content='some text'");
    // The first parameter is in a floating-point register. So the first general register contains the second parameter.
    assert_eq!([lines[2], lines[5], lines[8]], ["number=0", "number=1", "number=2"], "{lines:?}");
    assert_eq!(lines[6], "n=1 byte=200 content=''");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_filter_of_the_kernel_knows_the_arguments() {
    needs(PROBES);
    let run = compiled(PRINT, &[]).options(["--order"]);
    let outcome = succeeded(&run.event("uprobe:sum@\"./p\"/n > 0 && n < 7/n=%di:s32/").exec(["./p"]));
    assert_eq!(outcome.stdout, "n=1\n");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_recording_has_the_arguments() {
    needs(PROBES);
    let run = compiled(PRINT, &[]);
    let file = run.path("perf.data").display().to_string();
    let events = "uprobe:sum@./p//n=%di:s32/text=+0(%si):ustring/";
    let run = run.options(["-q", "--order", "--record", &file]).event(events).exec(["./p"]);
    let outcome = succeeded(&run);
    assert!(outcome.stdout.starts_with("n=-1 text='some text'\n"), "{}", outcome.stdout);
    let replayed = succeeded(&Run::script(PRINT).options(["--input", &file]));
    assert_eq!(replayed.stdout, outcome.stdout);
    let selected = Run::script(PRINT).options(["--input", &file]).event("uprobe:sum@\"./p\"/n>0 && n<7/").run();
    assert_eq!((selected.status, selected.stdout.as_str()), (0, "n=1 text=''\n"), "{}", selected.complaints());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_template_has_the_arguments() {
    needs(PROBES);
    let events = "uprobe:sum@./p//n=%di:s32/path=+0(%si):ustring/";
    let outcome = succeeded(&compiled("", &[]).event(events).module("help"));
    let from = outcome.stdout.find("def uprobe__sum(").unwrap();
    expect![[r#"
        def uprobe__sum(event) -> None:
            """uprobe:sum

            Fields:
                __probe_ip : int    (C: unsigned long)
                n : int    (C: s32)
                path : str    (C: __data_loc char[])
            """"#]]
    .assert_eq(outcome.stdout[from..].split("\n    global").next().unwrap());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn arguments_that_cannot_be_read_say_why() {
    needs(PROBES);
    let with_debug = compiled("def __sample__(e): pass", &["-g"]);
    let without = compiled("def __sample__(e): pass", &[]);
    let mut text = String::new();
    for (run, selector) in [
        (&with_debug, "uprobe:sum@./p//m/"),
        (&with_debug, "uprobe:scaled@./p//factor/"),
        (&with_debug, "uprobe:made@./p//number/"),
        (&without, "uprobe:sum@./p//n/"),
        (&without, "uprobe:sum+1@./p//$arg1/"),
        (&without, "uretprobe:sum@./p//$arg1/"),
        (&without, "uprobe:sum@./p//n=%nothing/"),
        (&without, "uprobe:sum@./p//n=%di:u33/"),
        (&without, "uprobe:sum@./p//n=5/"),
        (&without, "uprobe:sum@./p//n=%di/n=%si/"),
    ] {
        let mut command = std::process::Command::new(crate::harness::run::tested_program());
        let output = command.current_dir(run.dir.path()).args(["python", "-e", selector, "s.py"]).output().unwrap();
        assert!(output.status.code().is_some_and(|status| [1, 2].contains(&status)), "{selector}");
        let line = String::from_utf8(output.stderr).unwrap().lines().next().unwrap().replacen("perf-prof: ", "", 1);
        text += &(line + "\n");
    }
    expect![[r#"
        uprobe:sum@./p//m/: the function has no parameter `m`; its parameters are n, text, byte
        uprobe:scaled@./p//factor/: the parameter `factor` is not in a general register, because it or a parameter before it is a structure or a floating-point number; write where it is, for example %REGISTER or +OFFSET(%sp)
        uprobe:made@./p//number/: the parameter `number` is not in a general register, because it or a parameter before it is a structure or a floating-point number; write where it is, for example %REGISTER or +OFFSET(%sp)
        uprobe:sum@./p//n/: the parameter `n` is not known, because no debug information was found for the function; write $argN or %REGISTER instead
        uprobe:sum+1@./p//$arg1/: `$arg1`: the arguments of a function are in their registers only where the function starts; write %REGISTER, or probe the start of the function
        uretprobe:sum@./p//$arg1/: `$arg1`: the arguments of a function are in their registers only where the function starts; write %REGISTER, or probe the start of the function
        uprobe:sum@./p//n=%nothing/: cannot define the probe in tracefs: Invalid register name (Invalid argument (os error 22))
        uprobe:sum@./p//n=%di:u33/: cannot define the probe in tracefs: Unknown type is specified (Invalid argument (os error 22))
        -e uprobe:sum@./p//n=5/: argument: `5` is not a fetch argument; write %REGISTER, $argN, $retval, $comm, @ADDRESS, +OFFSET(...) or the name of a parameter, and a type such as :u32 or :ustring after it
        uprobe:sum@./p//n=%di/n=%si/: two arguments have the name `n`; give one of them another name with NAME=
    "#]].assert_eq(&text);
}

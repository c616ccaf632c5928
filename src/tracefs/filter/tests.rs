//! Filters against samples.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

const FORMAT: &str = "name: e\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:char comm[8];\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:int prio;\toffset:16;\tsize:4;\tsigned:1;\n\tfield:u32 mask;\toffset:20;\tsize:4;\tsigned:0;\n\
    \tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;\n\tfield:const char * text;\toffset:32;\tsize:8;\tsigned:0;\n\
    \tfield:u64 args[2];\toffset:40;\tsize:16;\tsigned:0;\n\nprint fmt: \"\"\n";

fn format() -> EventFormat {
    EventFormat::parse("s", FORMAT).unwrap()
}

/// comm `worker`, prio -5, mask 0x30, name `eth0`, of pid 1234.
fn raw() -> Vec<u8> {
    let mut raw = vec![0; 56];
    raw[4..8].copy_from_slice(&1234i32.to_ne_bytes());
    raw[8..14].copy_from_slice(b"worker");
    raw[16..20].copy_from_slice(&(-5i32).to_ne_bytes());
    raw[20..24].copy_from_slice(&0x30u32.to_ne_bytes());
    raw[24..28].copy_from_slice(&(56u32 | 5 << 16).to_ne_bytes());
    raw.extend(b"eth0\0");
    raw
}

fn passes(filter: &str) -> bool {
    Filter::parse(filter, &format()).unwrap().passes(&raw(), Some(3))
}

#[test]
fn what_passes_and_what_does_not() {
    let holds = [
        "prio == -5",
        "prio<0",
        "prio >= -0x5 && prio <= -5",
        "mask & 0x10",
        "mask == 060",
        "!(mask & 0x40)",
        "comm == worker",
        "comm ~ \"wor*\"",
        "comm ~ 'w?rk[a-f]r'",
        "comm != \"work\"",
        "name == \"eth0\" && common_pid == 1234",
        "prio > 0 || mask > 1 && comm == 'worker'",
        "(prio > 0 || mask > 1) && !(comm ~ x*)",
        "cpu == 3 && CPU < 4",
        "text == 0",
    ];
    holds.iter().for_each(|filter| assert!(passes(filter), "{filter}"));
    let fails = ["prio > 0", "mask & 8", "comm == work", "comm ~ \"ork*\"", "name ~ 'eth1*'", "cpu > 3", "mask < 0x30"];
    fails.iter().for_each(|filter| assert!(!passes(filter), "{filter}"));
    // A sample that is cut off passes no filter that asks for what it lacks.
    let filter = Filter::parse("!(prio == 1)", &format()).unwrap();
    assert!(!filter.passes(&raw()[..18], None));
}

fn check(filter: &str, expected: Expect) {
    expected.assert_eq(&Filter::parse(filter, &format()).unwrap_err().to_string());
}

#[test]
fn what_is_wrong() {
    check("pri == 1", expect!["no field `pri`"]);
    check("prio", expect!["an operator (== != < <= > >= & ~) is expected at the end"]);
    check("prio = 1", expect!["an operator (== != < <= > >= & ~) is expected before `= 1`"]);
    check("prio == ", expect!["a value is expected at the end"]);
    check("(prio == 1", expect!["`)` is expected at the end"]);
    check("prio == 1)", expect!["`&&` or `||` is expected before `)`"]);
    check("prio == 1 mask", expect!["`&&` or `||` is expected before `mask`"]);
    check("prio ~ 1", expect!["`~` does not compare numbers, which `prio` is"]);
    check("comm < 'a'", expect!["`<` does not compare text, which `comm` is"]);
    check("mask == -1", expect!["`-1` is not a number, which `mask` is"]);
    check("comm == 'a", expect!["a closing quote is expected before `'a`"]);
    check("COMM == a", expect!["`COMM` cannot be compared in a recording: the task's name is no part of the sample"]);
    check(
        "text == 'a'",
        expect!["`text` cannot be compared in a recording: it is the address of a text, which has not been copied"],
    );
    check("args == 1", expect!["`args` cannot be compared in a recording: it is an array"]);
    check(&"(".repeat(1000), expect!["too many parentheses in one another"]);
    check("", expect!["a field's name is expected at the end"]);
}

proptest! {
    #[test]
    fn any_text_is_a_filter_or_an_error(text in "[a-z!()&|=<>~'\" 0-9x_.-]{0,40}") {
        if let Ok(filter) = Filter::parse(&text, &format()) {
            filter.passes(&raw(), Some(0));
        }
    }

    #[test]
    fn numbers_compare_as_their_type_does(value: i32, against: i32) {
        let mut raw = raw();
        raw[16..20].copy_from_slice(&value.to_ne_bytes());
        let holds = |operator: &str| {
            Filter::parse(&format!("prio {operator} {against}"), &format()).unwrap().passes(&raw, None)
        };
        prop_assert_eq!(
            (holds("=="), holds("!="), holds("<"), holds("<="), holds(">"), holds(">="), holds("&")),
            (value == against, value != against, value < against, value <= against, value > against, value >= against,
             value & against != 0)
        );
    }
}

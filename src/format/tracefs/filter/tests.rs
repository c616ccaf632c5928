//! Tests that filters accept the right samples, and that wrong filters are reported.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;
use crate::tracefs::UNKNOWN_NUMBER;

const FORMAT: &str = "name: e\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:char comm[8];\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:int prio;\toffset:16;\tsize:4;\tsigned:1;\n\tfield:u32 mask;\toffset:20;\tsize:4;\tsigned:0;\n\
    \tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;\n\tfield:const char * text;\toffset:32;\tsize:8;\tsigned:0;\n\
    \tfield:u64 args[2];\toffset:40;\tsize:16;\tsigned:0;\n\nprint fmt: \"\"\n";

fn format() -> EventFormat {
    EventFormat::parse("s", FORMAT).unwrap()
}

/// Returns the raw data of a sample of pid 1234: comm `worker`, prio -5, mask 0x30, name `eth0`.
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
fn filters_accept_and_reject_samples() {
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
    // A truncated sample does not pass a filter that needs a missing field.
    let filter = Filter::parse("!(prio == 1)", &format()).unwrap();
    assert!(!filter.passes(&raw()[..18], None));
}

#[test]
fn neither_a_comparison_with_an_unknown_number_nor_its_opposite_holds() {
    let text =
        FORMAT.replace("u64 args[2]", "u64 __if_known args").replace("offset:40;\tsize:16", "offset:40;\tsize:8");
    let format = EventFormat::parse("s", &text).unwrap();
    let passes = |number: u64, filter: &str| {
        let mut raw = raw();
        raw[40..48].copy_from_slice(&number.to_ne_bytes());
        Filter::parse(filter, &format).unwrap().passes(&raw, None)
    };
    for (filter, of_four) in
        [("args == 4", true), ("!(args == 4)", false), ("args != 4", false), ("args > 3", true), ("!(args > 4)", true)]
    {
        assert_eq!((passes(4, filter), passes(UNKNOWN_NUMBER, filter)), (of_four, false), "{filter}");
    }
    // If the result does not depend on the unknown number, it is known.
    assert!(passes(UNKNOWN_NUMBER, "args == 4 || prio == -5") && passes(UNKNOWN_NUMBER, "!(args == 4 && prio == 1)"));
}

fn check(filter: &str, expected: Expect) {
    expected.assert_eq(&Filter::parse(filter, &format()).unwrap_err().to_string());
}

#[test]
fn wrong_filters_are_explained() {
    check("pri == 1", expect!["the event has no field `pri`"]);
    check("prio", expect!["expected an operator (== != < <= > >= & ~) at the end of the filter"]);
    check("prio = 1", expect!["expected `==` at `= 1`"]);
    check("prio == ", expect!["expected a value at the end of the filter"]);
    check("(prio == 1", expect!["expected `)` at the end of the filter"]);
    check("prio == 1)", expect!["expected `&&` or `||` at `)`"]);
    check("prio == 1 mask", expect!["expected `&&` or `||` at `mask`"]);
    check("prio ~ 1", expect!["`~` cannot be used with `prio`, which holds a number"]);
    check("comm < 'a'", expect!["`<` cannot be used with `comm`, which holds text"]);
    check(
        "mask == -1",
        expect![
            "`-1` is not a valid value for the field `mask`: give a number (no quotes; a minus sign only for signed fields)"
        ],
    );
    check("comm == 'a", expect!["expected a value with a closing quote at `'a`"]);
    check(
        "COMM == a",
        expect!["`COMM` cannot be used in a filter on a recording: a sample does not contain the thread's name"],
    );
    check(
        "text == 'a'",
        expect![
            "`text` cannot be used in a filter on a recording: it holds the address of a string, and the string itself is not in the sample"
        ],
    );
    check("args == 1", expect!["`args` cannot be used in a filter on a recording: it is an array"]);
    check(&"(".repeat(1000), expect!["parentheses and `!` are nested more than 64 levels deep"]);
    check("", expect!["expected a field's name at the end of the filter"]);
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

//! Text and bytes that no kernel writes must cause neither panics nor unlimited work.

use perf_prof_format::tracefs::{EventFormat, NoKernel, PrintFmt, PrintFmtError};
use proptest::prelude::*;

fn fails(print_fmt: &str) -> PrintFmtError {
    PrintFmt::compile(print_fmt, &[]).unwrap_err()
}

fn len(print_fmt: &str) -> usize {
    let mut out = Vec::new();
    PrintFmt::compile(print_fmt, &[]).unwrap().show(&[0; 64], &NoKernel, &mut out);
    out.len()
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in
        [("(", ")"), ("!", ""), ("-", ""), ("(u8)", ""), ("a(", ")"), ("1 ? 1 : ", ""), ("({ ", "; })")]
    {
        let text = format!("\"%d\", {}1{}", open.repeat(100_000), close.repeat(100_000));
        assert_eq!(fails(&text), PrintFmtError::TooDeep, "{open}");
    }
    assert_eq!(fails(&format!("\"%d\", {}1", "1 + ".repeat(100_000))), PrintFmtError::TooDeep);
    assert_eq!(fails(&format!("\"%d\", REC{}", "[1]".repeat(100_000))), PrintFmtError::TooDeep);
}

/// The most deeply nested expressions that are accepted can be compiled and evaluated on the stack of any thread.
#[test]
fn the_deepest_expressions_do_not_overflow_the_stack() {
    let deepest = |make: &dyn Fn(usize) -> String| {
        let depth = (1..1000).take_while(|&n| PrintFmt::compile(&make(n), &[]).is_ok()).last().unwrap();
        assert!(depth >= 35, "{depth} of {}", make(1));
        assert_eq!(len(&make(depth)), 1);
    };
    deepest(&|n| format!("\"%c\", {}unknown{}", "(0 || 1 + (u8)".repeat(n), ")".repeat(n)));
    deepest(&|n| format!("\"%c\", unknown{}", " + 1".repeat(n)));
    deepest(&|n| format!("\"%c\", {}unknown{}", "unknown ? 1 : ".repeat(n), ""));
    deepest(&|n| format!("\"%c\", {}unknown{}", "({ ".repeat(n), "; })".repeat(n)));
    let sum = "unknown".to_owned() + &" + 1".repeat(20);
    let locals = |n: usize| (1..=n.min(15)).map(|i| format!("int x{i} = {sum} + x{};", i - 1)).collect::<String>();
    let print_fmt = |n: usize| format!("\"%c\", ({{ int x0 = 1; {} x{}; }})", locals(n), n.min(15));
    let most = (1..15).take_while(|&n| PrintFmt::compile(&print_fmt(n), &[]).is_ok()).last().unwrap();
    assert_eq!(len(&print_fmt(most)), 1);
}

#[test]
fn growth_by_locals_is_limited() {
    let locals: String = (1..15).map(|i| format!("int x{i} = x{0} + x{0} + x{0} + x{0};", i - 1)).collect();
    assert_eq!(fails(&format!("\"%d\", ({{ int x0 = 1; {locals} x14; }})")), PrintFmtError::TooLarge);
    let chain: String = (1..100).map(|i| format!("int x{i} = x{};", i - 1)).collect();
    assert_eq!(fails(&format!("\"%d\", ({{ int x0 = 1; {chain} x99; }})")), PrintFmtError::TooDeep);
    assert!(PrintFmt::compile("\"%d\", ({ int x = x; x; })", &[]).is_ok());
}

#[test]
fn widths_are_bounded() {
    assert_eq!(len("\"%999999999d\", 1"), 8192);
    assert_eq!(len("\"%.999999999d\", 1"), 8192);
    assert_eq!(len("\"%*d\", 0x7fffffff, 1"), 8192);
    assert_eq!(len("\"%*s\", -0x80000000, \"\""), 8192);
    assert_eq!(len(&format!("\"{}\"{}", "%999999999d".repeat(100), ", 1".repeat(100))), 64 * 1024);
}

#[test]
fn extreme_arithmetic_does_not_panic() {
    for expression in ["1 << 100", "1 >> -1", "-0x7fffffffffffffff - 1 - 1", "(-0x7fffffffffffffff - 1) / -1", "5 / 0"]
    {
        assert!(len(&format!("\"%lld\", {expression}")) > 0, "{expression}");
    }
    assert!(matches!(fails("\"%d\", 99999999999999999999"), PrintFmtError::Unexpected { .. }));
}

#[test]
fn invalid_print_formats_are_reported_with_their_cause() {
    for (text, why) in [
        ("", "the print format does not begin with a format string"),
        ("REC->x", "the print format does not begin with a format string"),
        ("\"open", "the string at 0 is not closed"),
        ("\"%d\"", "the print format has fewer arguments than conversions"),
        ("\"%d\", (1", "the print format ends in the middle of an expression"),
        ("\"%d\", 1 2", "unexpected `2` at position 2"),
        ("\"%d\", REC->nothing", "the event has no field `nothing`"),
        ("\"%y\", 1", "`%y` is not a conversion of the kernel's printf"),
        ("\"%s\", __print_flags(1)", "cannot parse the arguments of the function `__print_flags`"),
        ("\"%d\", @", "unexpected `@` at position 6"),
    ] {
        assert_eq!(fails(text).to_string(), why, "{text}");
    }
}

#[test]
fn invalid_formats_are_reported_with_their_cause() {
    let why = |text: &str| EventFormat::parse("made", text).unwrap_err().to_string();
    assert_eq!(why(""), "the event's format has no `print fmt:` line");
    assert_eq!(why("\nprint fmt: \"\""), "the event's format has no `name:` line");
    assert_eq!(why("name: x\nprint fmt: \"\""), "the event's format has no `ID:` line");
    assert_eq!(why("name: x\nID: y\nprint fmt: \"\""), "cannot parse this line of the event's format: `ID: y`");
    let field = "field:int x;	offset:99999999999999999999;	size:4;";
    assert_eq!(
        why(&format!("name: x\nID: 1\n{field}\nprint fmt: \"\"")),
        format!("cannot parse this line of the event's format: `{field}`")
    );
}

proptest! {
    #[test]
    fn no_text_makes_compiling_panic(text in "\"(%[-+ #0]?[0-9*]{0,3}(\\.[0-9*])?l{0,2}[duxscpo]){0,3}\"(, [-+*/%&|^~!<>=?:().,{}\\[\\]A-Za-z0-9_\" ]{0,20}){0,4}") {
        if let Ok(print_fmt) = PrintFmt::compile(&text, &[]) {
            print_fmt.show(&[1; 32], &NoKernel, &mut Vec::new());
        }
    }

    #[test]
    fn no_bytes_make_parsing_panic(text in "(\\PC|\n){0,200}", raw in proptest::collection::vec(any::<u8>(), 0..64)) {
        for text in [text.clone(), format!("name: x\nID: 1\n\tfield:{text}\nprint fmt: {text}")] {
            if let Ok(format) = EventFormat::parse("made", &text) {
                format.render(&raw, &NoKernel, &mut Vec::new());
            }
        }
    }
}

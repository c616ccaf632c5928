//! Tests that run the code of expressions on records, and check the results.

use perf_prof_format::tracefs::{Comparison, IntType};
use proptest::prelude::*;

use super::*;
use crate::instruction::{Operation, interpreter::Machine};

fn machine() -> Machine {
    let mut machine = Machine::new((8, 8));
    (machine.ids, machine.cpu, machine.comm) = ((7, 9), 3, *b"worker\0\0\0\0\0\0\0\0\0\0");
    machine
}

/// Runs the code, and returns the value of `R8` at its end.
fn result(mut machine: Machine, record: &[u8], write: impl FnOnce(&mut Code)) -> u64 {
    let mut code = Code::new();
    start(&mut code);
    write(&mut code);
    code.copy(Register::R0, Register::R8);
    code.push(crate::instruction::Instruction::Exit);
    machine.run(&code, record)
}

fn number(number: Number, record: &[u8]) -> u64 {
    result(machine(), record, |code| number.load(code, Register::R8))
}

fn holds(test: &Test, record: &[u8]) -> bool {
    let of = |outcome| {
        let code = |code: &mut Code| {
            let label = code.label();
            code.copy(Register::R8, 1);
            test.jump(code, outcome, label);
            code.copy(Register::R8, 0);
            code.here(label);
        };
        result(machine(), record, code) == 1
    };
    assert_ne!(of(Outcome::Holds), of(Outcome::Fails), "{test:?}");
    of(Outcome::Holds)
}

fn text(test: TextTest, text: &[u8; 8]) -> bool {
    // The record contains other letters before and after the text.
    let record = [&b"abcdabcdabcd"[..], text, b"abcdabcd"].concat();
    holds(&Test::Text { array: CONTEXT.at(12), size: 8, test }, &record)
}

#[test]
fn numbers_are_those_of_the_record_and_of_the_task() {
    assert_eq!(number(Number::Process, &[]), 7);
    assert_eq!(number(Number::Thread, &[]), 9);
    assert_eq!(number(Number::Cpu, &[]), 3);
    assert_eq!(number(Number::Constant(1 << 40), &[]), 1 << 40);
    assert_eq!([0, 1, 200].map(|byte| number(Number::Bool { offset: 8 }, &[0, 0, 0, 0, 0, 0, 0, 0, byte])), [0, 1, 1]);
}

#[test]
fn texts_end_at_the_first_nul_or_with_their_field() {
    let equal = |text: &str| TextTest::Equal(text.into());
    assert!(text(equal("abc"), b"abc\0\xff\xff\xff\xff"));
    assert!(text(equal("abcdefgh"), b"abcdefgh"));
    assert!(text(equal(""), b"\0bcdefgh"));
    assert!(!text(equal("abc"), b"abcd\0\0\0\0"));
    assert!(!text(equal("abcdefg"), b"abcdefgh"));
    let glob = |pattern: &str| TextTest::Matches(Glob::parse(pattern).unwrap());
    for pattern in ["ab*", "*cd", "*bc*", "*", "**", "abcd*", "*abcd"] {
        assert!(text(glob(pattern), b"abcd\0\0\0\0"), "{pattern}");
    }
    for pattern in ["abcde*", "*ab", "*x*", "*abcdefghi", "*abcda*", "*d\u{1}"] {
        assert!(!text(glob(pattern), b"abcd\0ab\x01"), "{pattern}");
    }
    assert!(text(glob("*h"), b"abcdefgh"));
    assert_eq!(["a?*", "a*b", "a", "*[a-c]", "*é"].map(Glob::parse), [const { None }; 5]);
}

#[test]
fn an_idle_task_has_one_name_on_all_cpus_and_other_tasks_keep_theirs() {
    let comm = |ids, comm: &[u8; 16]| {
        let mut machine = machine();
        (machine.ids, machine.comm) = (ids, *comm);
        let code = |code: &mut Code| {
            Text::Comm.copy(code, Register::Frame.at(-16));
            code.load(crate::instruction::Size::Double, Register::R8, Register::Frame.at(-16));
            code.load(crate::instruction::Size::Double, Register::R1, Register::Frame.at(-8));
            code.operate(Operation::Or, Register::R8, Register::R1);
        };
        result(machine, &[], code).to_ne_bytes()
    };
    assert_eq!(comm((0, 0), b"swapper/1\0\0\0\0\0\0\0"), *b"swapper\0");
    assert_eq!(comm((5, 5), b"swapper/\0\0\0\0\0\0\0\0"), *b"swapper/");
    assert_eq!(comm((5, 5), b"bash\0\0\0\0\0\0\0\0\0\0\0\0"), *b"bash\0\0\0\0");
}

proptest! {
    #[test]
    fn numbers_of_any_type_are_extended_as_their_type_is(bytes: [u8; 16], width in 0u32..4, at in 0usize..8, signed: bool) {
        let ty = IntType { width: 1 << width, signed };
        let offset = at / usize::from(ty.width) * usize::from(ty.width);
        let field = Number::Field { offset: offset as i16, ty };
        prop_assert_eq!(number(field, &bytes), ty.load(&bytes, offset).unwrap());
    }

    #[test]
    fn tests_hold_where_their_parts_say_so(bytes: [u8; 4], against: [u8; 3], signed: bool, shape in 0usize..6) {
        let leaf = |at: usize| {
            let comparisons = [Comparison::Less, Comparison::Bits, Comparison::NotEqual];
            let sign = if signed { Sign::Signed } else { Sign::Unsigned };
            let ty = IntType { width: 1, signed };
            let value = ty.wrap(against[at].into());
            let holds = match (at, signed) {
                (0, true) => (bytes[0] as i8) < (against[0] as i8),
                (0, false) => bytes[0] < against[0],
                (1, _) => bytes[1] & against[1] != 0 || signed && (bytes[1] & against[1]) >> 7 != 0,
                _ => bytes[2] != against[2],
            };
            let number = Number::Field { offset: at as i16, ty };
            (Test::Number { number, sign, comparison: comparisons[at], value }, holds)
        };
        let [(a, x), (b, y), (c, z)] = [0, 1, 2].map(leaf);
        let not = |test| Test::Not(Box::new(test));
        let (test, expected) = match shape {
            0 => (Test::All(vec![a, b, c]), x && y && z),
            1 => (Test::Any(vec![a, b, c]), x || y || z),
            2 => (Test::All(vec![a, Test::Any(vec![b, not(c)])]), x && (y || !z)),
            3 => (Test::Any(vec![Test::All(vec![a, b]), c]), x && y || z),
            4 => (not(Test::Any(vec![a, not(Test::All(vec![b, c]))])), !(x || !(y && z))),
            _ => (Test::All(vec![Test::Any(vec![]), a]), false),
        };
        prop_assert_eq!(holds(&test, &bytes), expected);
    }
}

//! Tests of an event, like those of the kernel's filters. Their code jumps as soon as the result is known.

use perf_prof_format::tracefs::Comparison;

use super::{Number, TextTest};
use crate::instruction::{Code, Condition, Label, Place, Register};

/// A test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// All tests hold.
    All(Vec<Test>),
    /// At least one test holds.
    Any(Vec<Test>),
    /// The test does not hold.
    Not(Box<Test>),
    /// The comparison of a number with a constant holds.
    Number {
        /// The number.
        number: Number,
        /// Whether `number` and `value` are signed.
        sign: Sign,
        /// How `number` is compared with `value`.
        comparison: Comparison,
        /// The constant, in two's complement.
        value: u64,
    },
    /// The test of the text in an array holds.
    Text {
        /// The place of the array.
        array: Place,
        /// The size of the array in bytes.
        size: usize,
        /// The test of the text.
        test: TextTest,
    },
}

/// Whether a comparison is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Sign {
    Signed,
    Unsigned,
}

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Outcome {
    Holds,
    Fails,
}

impl Outcome {
    fn opposite(self) -> Outcome {
        match self {
            Outcome::Holds => Outcome::Fails,
            Outcome::Fails => Outcome::Holds,
        }
    }
}

impl Test {
    /// Returns the test of other numbers: of `other` for each number.
    pub fn with_numbers(self, other: &impl Fn(Number) -> Number) -> Test {
        let all = |tests: Vec<Test>| tests.into_iter().map(|test| test.with_numbers(other)).collect();
        match self {
            Test::All(tests) => Test::All(all(tests)),
            Test::Any(tests) => Test::Any(all(tests)),
            Test::Not(test) => Test::Not(Box::new(test.with_numbers(other))),
            Test::Number { number, sign, comparison, value } => {
                Test::Number { number: other(number), sign, comparison, value }
            }
            Test::Text { .. } => self,
        }
    }

    /// Writes code that jumps to `to` if the test has the outcome `on`, and otherwise goes on with the next instruction.
    pub fn jump(&self, code: &mut Code, on: Outcome, to: Label) {
        match self {
            Test::All(tests) => joined(code, tests, Outcome::Fails, (on, to)),
            Test::Any(tests) => joined(code, tests, Outcome::Holds, (on, to)),
            Test::Not(test) => test.jump(code, on.opposite(), to),
            Test::Number { number, sign, comparison, value } => {
                number.load(code, Register::R1);
                let condition = condition(*comparison, *sign);
                let value = (*value, Register::R2);
                match (on, condition.negated()) {
                    (Outcome::Holds, _) => code.jump_if_number(condition, Register::R1, value, to),
                    (Outcome::Fails, Some(negated)) => code.jump_if_number(negated, Register::R1, value, to),
                    (Outcome::Fails, None) => {
                        let holds = code.label();
                        code.jump_if_number(condition, Register::R1, value, holds);
                        code.jump(to);
                        code.here(holds);
                    }
                }
            }
            Test::Text { array, size, test } => test.jump(code, (*array, *size), on, to),
        }
    }
}

/// Writes the code of several tests. The first test with the outcome `decisive` decides: a failure for `All`, a success for
/// `Any`.
fn joined(code: &mut Code, tests: &[Test], decisive: Outcome, (on, to): (Outcome, Label)) {
    if on == decisive {
        tests.iter().for_each(|test| test.jump(code, on, to));
        return;
    }
    let decided = code.label();
    tests.iter().for_each(|test| test.jump(code, decisive, decided));
    code.jump(to);
    code.here(decided);
}

fn condition(comparison: Comparison, sign: Sign) -> Condition {
    match (comparison, sign) {
        (Comparison::Equal, _) => Condition::Equal,
        (Comparison::NotEqual, _) => Condition::NotEqual,
        (Comparison::Less, Sign::Unsigned) => Condition::Less,
        (Comparison::LessOrEqual, Sign::Unsigned) => Condition::LessOrEqual,
        (Comparison::Greater, Sign::Unsigned) => Condition::Greater,
        (Comparison::GreaterOrEqual, Sign::Unsigned) => Condition::GreaterOrEqual,
        (Comparison::Less, Sign::Signed) => Condition::LessSigned,
        (Comparison::LessOrEqual, Sign::Signed) => Condition::LessOrEqualSigned,
        (Comparison::Greater, Sign::Signed) => Condition::GreaterSigned,
        (Comparison::GreaterOrEqual, Sign::Signed) => Condition::GreaterOrEqualSigned,
        (Comparison::Bits, _) => Condition::Bits,
    }
}

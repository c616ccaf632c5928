//! Writes code that finds the range of a number in a distribution, as `Buckets` does in perf-prof.

use perf_prof_events::aggregate::{Buckets, LinearRanges, Place};

use crate::{
    instruction::{Code, Condition, Label, Operation, Register},
    lower::Unsuited,
};

/// The number of ranges from one power of two to the next.
const STEPS: i32 = 8;
/// The words in keys that stand for "below all ranges" and "above all ranges".
const BELOW: u64 = u64::MAX;
const ABOVE: u64 = u64::MAX - 1;

/// How to find the range of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeOf {
    /// Eight ranges for each power of two of `number * 2^shift / divisor`.
    Log2 { divisor: u64, shift: u32 },
    /// Ranges of equal width, in the unit of the numbers.
    Linear { low: i64, high: i64, step: i64 },
}

/// Which values numbers can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    /// Whether the numbers can be negative.
    pub is_signed: bool,
    /// Whether the numbers can have more than 32 bits.
    pub is_wide: bool,
}

impl RangeOf {
    /// Returns how to find the range of a number.
    pub fn new(buckets: Buckets) -> Result<RangeOf, Unsuited> {
        let divisor = buckets.divisor();
        if let Some(LinearRanges { low, high, step }) = buckets.as_linear() {
            // The products fit into 64 bits, as `Buckets::linear` has checked.
            let own = |shown: i64| (i128::from(shown) * i128::from(divisor)) as i64;
            return Ok(RangeOf::Linear { low: own(low), high: own(high), step: own(step) });
        }
        let shift = divisor.next_power_of_two().trailing_zeros();
        // The code shifts remainders too. They have to fit into 64 bits.
        match u128::from(divisor - 1) << shift {
            remainder if remainder > u64::MAX.into() => Err(Unsuited::Unit(divisor)),
            _ => Ok(RangeOf::Log2 { divisor, shift }),
        }
    }

    /// Writes code that sets `R0` to the range of the number in `register`, which must not be one of `R0` to `R5`.
    pub fn write(self, code: &mut Code, register: Register, numbers: Numbers) {
        let end = code.label();
        match self {
            RangeOf::Log2 { divisor, shift } => {
                if numbers.is_signed {
                    code.set(Register::R0, BELOW);
                    code.jump_if(Condition::LessSigned, register, 0, end);
                }
                code.copy(Register::R1, register);
                if !divisor.is_power_of_two() {
                    scale(code, divisor, shift, numbers);
                }
                log2(code, end);
            }
            RangeOf::Linear { low, high, step } => {
                outside(code, (low, high), (register, numbers), end);
                code.copy(Register::R0, register);
                code.set(Register::R1, low as u64);
                code.operate(Operation::Subtract, Register::R0, Register::R1);
                code.set(Register::R1, step as u64);
                code.operate(Operation::Divide, Register::R0, Register::R1);
            }
        }
        code.here(end);
    }
}

/// Writes code that sets `R1` to `R1 * 2^shift / divisor`, limited to the largest number. The product can have more than 64
/// bits, so the quotient and the remainder are shifted separately.
fn scale(code: &mut Code, divisor: u64, shift: u32, numbers: Numbers) {
    let scaled = code.label();
    code.set(Register::R2, divisor);
    code.copy(Register::R3, Register::R1);
    code.operate(Operation::Divide, Register::R1, Register::R2);
    code.operate(Operation::Remainder, Register::R3, Register::R2);
    code.operate(Operation::ShiftLeft, Register::R3, shift as i32);
    code.operate(Operation::Divide, Register::R3, Register::R2);
    if numbers.is_wide && !numbers.is_signed {
        // The result is less than twice the number, so it fits into 64 bits if the number has at most 63.
        let fits = code.label();
        let largest = u64::MAX >> shift;
        code.jump_if_number(Condition::LessOrEqual, Register::R1, (largest, Register::R4), fits);
        code.set(Register::R1, u64::MAX);
        code.jump(scaled);
        code.here(fits);
    }
    code.operate(Operation::ShiftLeft, Register::R1, shift as i32);
    code.operate(Operation::Add, Register::R1, Register::R3);
    code.here(scaled);
}

/// Writes code that sets `R0` to the range of `R1`. Each number below 8 is a range, and each power of two above has 8
/// ranges.
fn log2(code: &mut Code, end: Label) {
    code.copy(Register::R0, Register::R1);
    code.jump_if(Condition::Less, Register::R1, STEPS, end);
    // R2 becomes the exponent of the highest power of two in R1. A binary search finds it: each step tests half of the bits
    // that are left in R3.
    code.copy(Register::R2, 0);
    code.copy(Register::R3, Register::R1);
    for bits in [32, 16, 8, 4, 2, 1] {
        let below = code.label();
        code.copy(Register::R4, Register::R3);
        code.operate(Operation::ShiftRight, Register::R4, bits);
        code.jump_if(Condition::Equal, Register::R4, 0, below);
        code.copy(Register::R3, Register::R4);
        code.operate(Operation::Add, Register::R2, bits);
        code.here(below);
    }
    // The three bits below the highest bit select the range.
    code.operate(Operation::Subtract, Register::R2, 3);
    code.operate(Operation::ShiftRight, Register::R1, Register::R2);
    code.operate(Operation::And, Register::R1, STEPS - 1);
    code.copy(Register::R0, Register::R2);
    code.operate(Operation::Add, Register::R0, 1);
    code.operate(Operation::Multiply, Register::R0, STEPS);
    code.operate(Operation::Add, Register::R0, Register::R1);
}

/// Writes code that sets `R0` and jumps to `end` if the number is outside of the ranges.
fn outside(code: &mut Code, (low, high): (i64, i64), (register, numbers): (Register, Numbers), end: Label) {
    code.set(Register::R0, BELOW);
    if numbers.is_signed || !numbers.is_wide {
        code.jump_if_number(Condition::LessSigned, register, (low as u64, Register::R1), end);
        code.set(Register::R0, ABOVE);
        code.jump_if_number(Condition::GreaterOrEqualSigned, register, (high as u64, Register::R1), end);
        return;
    }
    let unsigned = |number: i64| number.max(0) as u64;
    code.jump_if_number(Condition::Less, register, (unsigned(low), Register::R1), end);
    code.set(Register::R0, ABOVE);
    code.jump_if_number(Condition::GreaterOrEqual, register, (unsigned(high), Register::R1), end);
}

/// Returns the place that a word in a key stands for.
pub(super) fn place(word: u64) -> Place {
    match word {
        BELOW => Place::Below,
        ABOVE => Place::Above,
        // The number of a range has at most 32 bits.
        range => Place::Range(range as u32),
    }
}

//! Texts of numbers, such as names of system calls: keys contain the number, and filters compare the number.

use std::{fmt, sync::Arc};

use perf_prof_events::event::{Context, SpanFormat};
use perf_prof_format::{
    abi::system_calls,
    spec::glob_matches,
    tracefs::{Comparison, TextComparison},
};

use super::Unsuited;
use crate::expression::{Number, Sign, Test};

/// Only numbers from -1 to below this number can have a name: system calls have the largest ones. To compile a comparison, the
/// text of each of these numbers is compared.
const NAMED: i64 = 2 * system_calls::COMPAT;
/// Examples of numbers that have no name.
const UNNAMED: [i64; 3] = [-2, NAMED, 1 << 40];
/// The maximum number of numbers that a test compares in place of a text.
const MOST: usize = 160;

/// The texts of a field, by number, such as names of system calls.
#[derive(Clone)]
pub struct Names {
    format: Arc<SpanFormat>,
    field: usize,
    numbers: Numbers,
    /// Knows the names of addresses. `None` if the run has no context.
    context: Option<Arc<Context>>,
}

/// Which numbers have texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// The numbers from 0 to this number, and no others.
    UpTo(u32),
    /// Any number. Those below [`NAMED`] can have a text of their own.
    Few,
    /// Addresses of the kernel.
    Addresses,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("field", &self.field).field("numbers", &self.numbers).finish_non_exhaustive()
    }
}

impl PartialEq for Names {
    fn eq(&self, other: &Names) -> bool {
        Arc::ptr_eq(&self.format, &other.format) && self.field == other.field
    }
}

impl Eq for Names {}

impl Names {
    pub(super) fn new(
        format: &Arc<SpanFormat>,
        field: usize,
        numbers: Numbers,
        context: Option<&Arc<Context>>,
    ) -> Names {
        Names { format: Arc::clone(format), field, numbers, context: context.cloned() }
    }

    /// Returns the text for a number.
    pub fn text(&self, number: i64) -> Vec<u8> {
        self.format.text_for_number(self.field, number, self.context.as_deref()).unwrap_or_default()
    }

    /// Returns the test that holds for a number if the text of the number passes the comparison.
    pub(super) fn test(&self, number: Number, (comparison, value): (TextComparison, &str)) -> Result<Test, Unsuited> {
        let matches = |number: i64| {
            let text = self.text(number);
            match comparison {
                TextComparison::Equal | TextComparison::NotEqual => text == value.as_bytes(),
                TextComparison::Matches => glob_matches(value, &String::from_utf8_lossy(&text)),
            }
        };
        let all = match self.numbers {
            Numbers::UpTo(largest) => 0..i64::from(largest) + 1,
            Numbers::Few => -1..NAMED,
            Numbers::Addresses => return Err(Unsuited::Spans("its filter compares names of addresses")),
        };
        let numbers: Vec<i64> = all.filter(|&number| matches(number)).collect();
        if self.numbers == Numbers::Few && self.may_be_unnamed(value) || numbers.len() > MOST {
            return Err(Unsuited::Pattern(value.to_owned()));
        }
        let is = |number_is: &i64| Test::Number {
            number,
            sign: Sign::Signed,
            comparison: Comparison::Equal,
            value: *number_is as u64,
        };
        let any = Test::Any(numbers.iter().map(is).collect());
        Ok(if comparison == TextComparison::NotEqual { Test::Not(Box::new(any)) } else { any })
    }

    /// Returns whether `value`, a text or a pattern, can match the text of a number without a name. The texts of all
    /// numbers without a name start alike.
    fn may_be_unnamed(&self, value: &str) -> bool {
        let start = UNNAMED
            .map(|number| self.text(number))
            .into_iter()
            .reduce(|one, other| one.iter().zip(&other).take_while(|(a, b)| a == b).map(|(a, _)| *a).collect());
        let start = start.unwrap_or_default();
        let plain = value.split(['*', '?', '[']).next().unwrap_or_default().as_bytes();
        plain.starts_with(&start) || plain.len() < value.len() && start.starts_with(plain)
    }
}

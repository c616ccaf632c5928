//! Texts that depend on a number, such as the name of a system call: keys have the number, and filters compare it.

use std::{fmt, sync::Arc};

use perf_prof_events::event::{Context, SpanFormat};
use perf_prof_format::{
    spec::glob_matches,
    tracefs::{Comparison, TextComparison},
};

use super::Unsuited;
use crate::expression::{Number, Sign, Test};

/// The numbers from -1 to below this one may have a name. A comparison tests the text of each of them. Other numbers have no
/// name.
const NAMED: i64 = 4096;
/// Examples of numbers without a name.
const UNNAMED: [i64; 3] = [-2, NAMED, 1 << 40];
/// The maximum number of numbers that a test compares instead of a text.
const MOST: usize = 64;

/// The texts of a field of spans by number, for example the names of system calls.
#[derive(Clone)]
pub struct Names {
    format: Arc<SpanFormat>,
    field: usize,
    numbers: Numbers,
    /// What the run knows of names, if it knows any.
    context: Option<Arc<Context>>,
}

/// The numbers that have texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// Those from 0 to this one. There are no other numbers.
    UpTo(u32),
    /// There may be any number, and those below [`NAMED`] have a text of their own.
    Few,
    /// They are addresses of the kernel.
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
    /// Creates the texts of a field.
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

    /// Returns the test of the number that holds if the number's text passes the comparison.
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

    /// Returns whether `value`, a text or a pattern, may match the text of a number without a name. All texts of such numbers
    /// start in the same way.
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

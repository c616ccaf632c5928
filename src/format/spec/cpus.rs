//! Sets of CPUs in the kernel's list format, `0-3,7`.

use std::{collections::BTreeSet, fmt, str::FromStr};

/// The maximum CPU number that is accepted. No kernel has CPU numbers this high (`CONFIG_NR_CPUS` is at most 8192).
/// Without this limit, a range such as `0-4000000000` would be expanded.
const MAX_CPU: u32 = 65535;

/// A set of CPU numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<u32>);

/// An error in a list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuSetError {
    /// The text is neither a number nor a range.
    #[error("`{0}` is neither a CPU number nor a range; a list of CPUs looks like `0-3,7`")]
    Number(String),
    /// A range has a first CPU that is higher than its last CPU.
    #[error("the range of CPUs `{0}` is reversed; write the lower CPU first")]
    Reversed(String),
}

impl CpuSet {
    /// Returns the CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Returns whether `cpu` is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// Returns how many CPUs are in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(list: &str) -> Result<Self, CpuSetError> {
        let mut cpus = BTreeSet::new();
        for item in list.split(',').map(str::trim) {
            let number = |text: &str| {
                let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                let number = text.parse::<u32>().ok().filter(|&cpu| digits && cpu <= MAX_CPU);
                number.ok_or_else(|| CpuSetError::Number(item.to_owned()))
            };
            let (first, last) = match item.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(item)?, number(item)?),
            };
            if first > last {
                return Err(CpuSetError::Reversed(item.to_owned()));
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(list: &str, expected: Expect) {
        let actual = match list.parse::<CpuSet>() {
            Ok(cpus) => format!("{cpus} = {:?}", cpus.iter().collect::<Vec<_>>()),
            Err(error) => format!("error: {error}"),
        };
        expected.assert_eq(&actual);
    }

    #[test]
    fn lists() {
        check("0-3,7", expect!["0-3,7 = [0, 1, 2, 3, 7]"]);
        check("7, 1,0,1", expect!["0-1,7 = [0, 1, 7]"]);
        check("", expect!["error: `` is neither a CPU number nor a range; a list of CPUs looks like `0-3,7`"]);
        check("3-1", expect!["error: the range of CPUs `3-1` is reversed; write the lower CPU first"]);
        check("-1", expect!["error: `-1` is neither a CPU number nor a range; a list of CPUs looks like `0-3,7`"]);
        check("+1", expect!["error: `+1` is neither a CPU number nor a range; a list of CPUs looks like `0-3,7`"]);
        check(
            "0-4000000000",
            expect!["error: `0-4000000000` is neither a CPU number nor a range; a list of CPUs looks like `0-3,7`"],
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_an_error(text in ".*") {
            let _ = text.parse::<CpuSet>();
        }

        #[test]
        fn display_parses_back(cpus in proptest::collection::btree_set(0u32..200, 1..40)) {
            let set = CpuSet(cpus);
            prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
        }
    }
}

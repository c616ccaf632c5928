//! A CPU list as the kernel writes it: `0-3,7`. Knows nothing of which CPUs there are.

use std::{collections::BTreeSet, fmt, str::FromStr};

/// A set of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<u32>);

/// The text is no CPU list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no CPU list; write CPUs and ranges, like 0-3,7")]
pub struct CpuListError(String);

/// More CPUs than any kernel supports (CONFIG_NR_CPUS goes to 8192).
const MAX_CPU: u32 = 1 << 16;

impl CpuSet {
    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }
}

impl FromStr for CpuSet {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let wrong = || CpuListError(text.to_owned());
        let number = |text: &str| text.trim().parse().ok().filter(|&cpu| cpu < MAX_CPU).ok_or_else(wrong);
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',') {
            match part.split_once('-') {
                None => {
                    cpus.insert(number(part)?);
                }
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(wrong());
                    }
                    cpus.extend(first..=last);
                }
            }
        }
        Ok(CpuSet(cpus))
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
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for (text, canonical) in [("0-3,7", "0-3,7"), ("7,0,1", "0-1,7"), (" 2\n", "2"), ("1-1", "1")] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), canonical);
        }
        for wrong in ["", "a", "3-1", "1,", "-", "0-99999999"] {
            assert!(wrong.parse::<CpuSet>().is_err(), "{wrong}");
        }
    }
}

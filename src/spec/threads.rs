//! How many threads write a recording, as typed: `cpu`, `core`, `package`, `numa`, or the CPUs of each. Knows nothing of which
//! CPUs there are.

use std::{fmt, str::FromStr};

use super::{CpuSet, CpuSetError};

/// Which threads there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// One for each CPU.
    #[default]
    Cpu,
    /// One for the CPUs of each core.
    Core,
    /// One for the CPUs of each package.
    Package,
    /// One for the CPUs of each node of memory.
    Numa,
    /// These.
    Spec(Vec<ThreadSpec>),
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSpec {
    /// The CPUs whose events it writes.
    pub cpus: CpuSet,
    /// The CPUs that it runs on.
    pub affinity: CpuSet,
}

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThreadsError {
    /// Neither a name nor two lists.
    #[error("`{0}` is neither cpu, core, package or numa nor CPUs/AFFINITY, as in 0-3/0:4-7/4")]
    Unknown(String),
    /// A list without a CPU.
    #[error("`{0}` names no CPU on one side of the slash; write CPUs/AFFINITY, as in 0-3/0:4-7/4")]
    Empty(String),
    /// A list is wrong.
    #[error(transparent)]
    Cpus(#[from] CpuSetError),
    /// Two threads for a CPU.
    #[error("CPU {0} is written by two threads; each CPU's events are written by one")]
    Twice(u32),
    /// Two threads on a CPU.
    #[error("two threads are to run on CPU {0}; give each CPUs of its own")]
    SharedAffinity(u32),
}

impl FromStr for Threads {
    type Err = ThreadsError;

    fn from_str(text: &str) -> Result<Threads, ThreadsError> {
        Ok(match text.trim() {
            "cpu" => Threads::Cpu,
            "core" => Threads::Core,
            "package" => Threads::Package,
            "numa" => Threads::Numa,
            text => {
                let specs = text.split(':').map(spec).collect::<Result<Vec<_>, _>>()?;
                if let Some(cpu) = twice(specs.iter().map(|spec| &spec.cpus)) {
                    return Err(ThreadsError::Twice(cpu));
                }
                if let Some(cpu) = twice(specs.iter().map(|spec| &spec.affinity)) {
                    return Err(ThreadsError::SharedAffinity(cpu));
                }
                Threads::Spec(specs)
            }
        })
    }
}

fn spec(text: &str) -> Result<ThreadSpec, ThreadsError> {
    let (cpus, affinity) = text.split_once('/').ok_or_else(|| ThreadsError::Unknown(text.to_owned()))?;
    if cpus.trim().is_empty() || affinity.trim().is_empty() {
        return Err(ThreadsError::Empty(text.to_owned()));
    }
    Ok(ThreadSpec { cpus: cpus.parse()?, affinity: affinity.parse()? })
}

/// A CPU that is in two sets.
fn twice<'a>(sets: impl Iterator<Item = &'a CpuSet>) -> Option<u32> {
    let mut seen = std::collections::BTreeSet::new();
    sets.flat_map(CpuSet::iter).find(|&cpu| !seen.insert(cpu))
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threads::Cpu => f.write_str("cpu"),
            Threads::Core => f.write_str("core"),
            Threads::Package => f.write_str("package"),
            Threads::Numa => f.write_str("numa"),
            Threads::Spec(specs) => {
                let specs: Vec<String> =
                    specs.iter().map(|ThreadSpec { cpus, affinity }| format!("{cpus}/{affinity}")).collect();
                f.write_str(&specs.join(":"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Expect) {
        let shown = text.parse::<Threads>().map(|threads| threads.to_string());
        expected.assert_eq(&shown.unwrap_or_else(|error| format!("error: {error}")));
    }

    #[test]
    fn threads() {
        check("cpu", expect!["cpu"]);
        check("numa", expect!["numa"]);
        check("0,2-4/2-4:1,5-7/5-7", expect!["0,2-4/2-4:1,5-7/5-7"]);
        check("0/0", expect!["0/0"]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        check("", expect!["error: `` is neither cpu, core, package or numa nor CPUs/AFFINITY, as in 0-3/0:4-7/4"]);
        check(
            "socket",
            expect!["error: `socket` is neither cpu, core, package or numa nor CPUs/AFFINITY, as in 0-3/0:4-7/4"],
        );
        check(
            "0-3",
            expect!["error: `0-3` is neither cpu, core, package or numa nor CPUs/AFFINITY, as in 0-3/0:4-7/4"],
        );
        check("/", expect!["error: `/` names no CPU on one side of the slash; write CPUs/AFFINITY, as in 0-3/0:4-7/4"]);
        check(
            "0/0:1/",
            expect!["error: `1/` names no CPU on one side of the slash; write CPUs/AFFINITY, as in 0-3/0:4-7/4"],
        );
        check("0/0/1", expect!["error: `0/1` is neither a CPU number nor a range; a list of CPUs looks like `0-3,7`"]);
        check("0-3/0:3-5/4", expect!["error: CPU 3 is written by two threads; each CPU's events are written by one"]);
        check("0-3/0:4-5/0-1", expect!["error: two threads are to run on CPU 0; give each CPUs of its own"]);
    }

    proptest! {
        #[test]
        fn any_text_is_a_layout_or_an_error(text in "([0-9,-]{0,6}/[0-9,-]{0,6}:?){0,4}|.*") {
            if let Ok(threads) = text.parse::<Threads>() {
                prop_assert_eq!(threads.to_string().parse(), Ok(threads));
            }
        }
    }
}

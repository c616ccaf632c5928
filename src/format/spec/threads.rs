//! The threads that write a recording, as the user types them: `cpu`, `core`, `package`, `numa`, or the CPUs of each
//! thread.

use std::{fmt, str::FromStr};

use super::{CpuSet, CpuSetError};

/// The threads that write a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// One thread for each CPU.
    #[default]
    Cpu,
    /// One thread for the CPUs of each core.
    Core,
    /// One thread for the CPUs of each package.
    Package,
    /// One thread for the CPUs of each NUMA node.
    Numa,
    /// The given threads.
    Spec(Vec<ThreadSpec>),
}

/// One thread that writes a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadSpec {
    /// The CPUs that the thread is responsible for: it writes the events of these CPUs.
    pub cpus: CpuSet,
    /// The CPUs that the thread runs on.
    pub affinity: CpuSet,
}

/// An error in the text of [`Threads`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThreadsError {
    /// The text is neither a name nor a pair of lists.
    #[error(
        "`{0}` is not a thread layout; write cpu, core, package, numa, or CPUs/AFFINITY, for example `0-3/0:4-7/4`"
    )]
    Unknown(String),
    /// One of a thread's two lists contains no CPU.
    #[error("`{0}` has no CPU on one side of the slash; write CPUs/AFFINITY, for example `0-3/0:4-7/4`")]
    Empty(String),
    /// An invalid list of CPUs.
    #[error(transparent)]
    Cpus(#[from] CpuSetError),
    /// Two threads write the events of one CPU.
    #[error("two threads write the events of CPU {0}; assign each CPU to one thread only")]
    Twice(u32),
    /// Two threads run on one CPU.
    #[error("two threads run on CPU {0}; give each thread its own CPUs")]
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
                if let Some(cpu) = find_duplicate_cpu(specs.iter().map(|spec| &spec.cpus)) {
                    return Err(ThreadsError::Twice(cpu));
                }
                if let Some(cpu) = find_duplicate_cpu(specs.iter().map(|spec| &spec.affinity)) {
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

/// Returns a CPU that is in two of the sets.
fn find_duplicate_cpu<'a>(sets: impl Iterator<Item = &'a CpuSet>) -> Option<u32> {
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
    fn invalid_thread_layouts_are_reported() {
        check(
            "",
            expect![
                "error: `` is not a thread layout; write cpu, core, package, numa, or CPUs/AFFINITY, for example `0-3/0:4-7/4`"
            ],
        );
        check(
            "socket",
            expect![
                "error: `socket` is not a thread layout; write cpu, core, package, numa, or CPUs/AFFINITY, for example `0-3/0:4-7/4`"
            ],
        );
        check(
            "0-3",
            expect![
                "error: `0-3` is not a thread layout; write cpu, core, package, numa, or CPUs/AFFINITY, for example `0-3/0:4-7/4`"
            ],
        );
        check(
            "/",
            expect!["error: `/` has no CPU on one side of the slash; write CPUs/AFFINITY, for example `0-3/0:4-7/4`"],
        );
        check(
            "0/0:1/",
            expect!["error: `1/` has no CPU on one side of the slash; write CPUs/AFFINITY, for example `0-3/0:4-7/4`"],
        );
        check("0/0/1", expect!["error: `0/1` is neither a CPU number nor a range; a list of CPUs looks like `0-3,7`"]);
        check(
            "0-3/0:3-5/4",
            expect!["error: two threads write the events of CPU 3; assign each CPU to one thread only"],
        );
        check("0-3/0:4-5/0-1", expect!["error: two threads run on CPU 0; give each thread its own CPUs"]);
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

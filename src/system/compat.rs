//! PERF_PROF_COMPAT: the output of the C implementation, for programs that read it.

use std::{env, sync::LazyLock};

/// The environment variable that selects the output of the C implementation.
const VARIABLE: &str = "PERF_PROF_COMPAT";

/// Returns whether an environment variable is set, not empty and not `0`.
fn variable_is_on(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Returns whether perf-prof prints as the C implementation does. The result stays the same for the whole run.
pub fn is_on() -> bool {
    static ON: LazyLock<bool> = LazyLock::new(|| variable_is_on(VARIABLE));
    *ON
}

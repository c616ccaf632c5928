//! Ways to trace a program whose name the user typed: `perf-prof help nginx`.

use std::{env, ffi::OsStr, fs, os::unix::fs::PermissionsExt, path::Path};

use perf_prof_system::shell::shell_quote;

use super::{
    entry::{Entry, Kind},
    synonyms,
};

/// How certain it is that a word is the name of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Many machines run a program of this name.
    Well,
    /// A folder of PATH contains a program of this name.
    InPath,
    /// No such program is known.
    No,
}

impl Known {
    /// Returns how certain it is that `word` is the name of a program.
    pub fn of(word: &str) -> Known {
        Known::in_path(word, &env::var_os("PATH").unwrap_or_default())
    }

    fn in_path(word: &str, path: &OsStr) -> Known {
        let is_program =
            |path: &Path| fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
        match () {
            () if synonyms::is_program(word) => Known::Well,
            () if word.is_empty() || word.contains('/') => Known::No,
            () if env::split_paths(path).any(|folder| is_program(&folder.join(word))) => Known::InPath,
            () => Known::No,
        }
    }
}

/// Returns the ways to trace a program.
pub fn entries(name: &str) -> Vec<Entry> {
    let quoted = shell_quote(name);
    let selector = |text: &str| format!("-e {}", shell_quote(text.replace("NAME", name)));
    let rows = [
        (
            format!("-p \"$(pgrep -d, -x {quoted})\""),
            "its processes, while they run; trace, top, hist, record, stat, python and scripts have -p",
            "perf-prof trace --help",
        ),
        (
            format!("perf-prof trace -e syscall -- {quoted} ARGS"),
            "start it, and trace it and its children; python and scripts have --exec for this",
            "perf-prof trace --help",
        ),
        (
            format!("perf-prof list {}", shell_quote(format!("uprobe:*@{name}"))),
            "list the functions of the program that uprobes can trace",
            "docs/events-and-fields.md#probes",
        ),
        (
            selector("uprobe:FUNCTION@NAME"),
            "a call of a function of the program, with arguments as fields (//size=$arg1/)",
            "docs/events-and-fields.md#probes",
        ),
        (
            selector("function:FUNCTION@NAME"),
            "a call of a function of the program, with its duration and its result",
            "perf-prof list -v function",
        ),
        (
            selector("offcpu/comm=NAME/"),
            "the events of a built-in source by the name of their task; all sources have comm=",
            "docs/sources.md#selectors",
        ),
        (
            format!("perf-prof report --comms {quoted}"),
            "the samples of its tasks in a recording; script and export have --comms too",
            "perf-prof report --help",
        ),
    ];
    rows.into_iter().map(|(line, text, place)| Entry::new(Kind::Program, line, text, place)).collect()
}

#[cfg(test)]
mod tests {
    use perf_prof_format::spec::parse_events;

    use super::*;

    #[test]
    fn programs_are_known_by_name_or_by_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("my-server");
        fs::write(&program, "").expect("a file");
        assert_eq!(Known::in_path("my-server", folder.path().as_os_str()), Known::No);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("an executable file");
        assert_eq!(Known::in_path("my-server", folder.path().as_os_str()), Known::InPath);
        assert_eq!(Known::in_path("nginx", folder.path().as_os_str()), Known::Well);
        assert_eq!(Known::in_path("", folder.path().as_os_str()), Known::No);
    }

    #[test]
    fn selectors_of_a_program_are_valid() {
        let found = entries("nginx");
        let selectors: Vec<&str> = found.iter().filter_map(|entry| entry.name.strip_prefix("-e ")).collect();
        assert_eq!(selectors.len(), 3, "{found:?}");
        for selector in selectors {
            let selector = selector.trim_matches('\'');
            assert!(parse_events(selector).is_ok(), "{selector}");
        }
    }
}

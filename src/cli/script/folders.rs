//! The folders that contain scripts of perf: where they are, which scripts they contain, and the descriptions of the
//! scripts.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
};

use perf_prof_python::script::perf_exec_path;
use perf_prof_system::file::open_regular;

/// The two shell scripts that belong to a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrapper {
    /// `bin/NAME-record` records the events that the script needs.
    Record,
    /// `bin/NAME-report` runs the script on a recording.
    Report,
}

impl Wrapper {
    fn suffix(self) -> &'static str {
        match self {
            Wrapper::Record => "-record",
            Wrapper::Report => "-report",
        }
    }
}

/// A file of a script, and the value of PERF_EXEC_PATH for the folder that contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file.
    pub file: PathBuf,
    /// The folder that contains `scripts/python`.
    pub exec_path: PathBuf,
}

/// The description of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name of the script, for `perf-prof script NAME`.
    pub name: String,
    /// The names of the script's arguments: `<comm>` is required, `[comm]` is optional.
    pub args: String,
    /// One line that describes the script.
    pub text: String,
}

fn find(name: &OsStr, suffix: &str, folder: &str) -> Option<Found> {
    // A name with a folder, such as `../x`, does not name a script.
    if Path::new(name).file_name() != Some(name) {
        return None;
    }
    let file_name: OsString = [name, OsStr::new(suffix)].into_iter().collect();
    let exec_path = perf_exec_path();
    let file = exec_path.join(folder).join(&file_name);
    file.is_file().then_some(Found { file, exec_path })
}

/// Returns the wrapper of a script.
pub fn wrapper(name: &OsStr, which: Wrapper) -> Option<Found> {
    find(name, which.suffix(), "scripts/python/bin")
}

/// Returns the script NAME.py.
pub fn script(name: &OsStr) -> Option<Found> {
    find(name, ".py", "scripts/python")
}

/// Returns all scripts that have a report wrapper, sorted by name.
pub fn list() -> Vec<Description> {
    let files = fs::read_dir(perf_exec_path().join("scripts/python/bin")).into_iter().flatten().flatten();
    let named = files.filter_map(|file| {
        let name = file.file_name().to_str()?.strip_suffix(Wrapper::Report.suffix())?.to_owned();
        Some(description(&name, &file.path()))
    });
    let mut all: Vec<Description> = named.collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Returns the names of all scripts, each with the line that describes the script.
pub fn script_names() -> Vec<(String, String)> {
    list().into_iter().map(|script| (script.name, script.text)).collect()
}

/// Reads the description of a script from the comments in its report wrapper.
pub fn description(name: &str, report: &Path) -> Description {
    let text = open_regular(report).ok().and_then(|file| std::io::read_to_string(file).ok()).unwrap_or_default();
    let comment = |key: &str| {
        let comments = text.lines().filter_map(|line| line.trim_start().strip_prefix('#'));
        let mut values = comments.filter_map(|comment| comment.trim_start().strip_prefix(key));
        values.next().unwrap_or_default().trim().to_owned()
    };
    Description { name: name.to_owned(), args: comment("args:"), text: comment("description:") }
}

impl Description {
    /// Returns how many arguments are required.
    pub fn required_args(&self) -> usize {
        self.args.matches('<').count()
    }

    /// Returns the line for the list of scripts, as perf prints it.
    pub fn line(&self) -> String {
        let separator = if self.args.is_empty() { "" } else { " " };
        let named = format!("{}{separator}{}", self.name, self.args);
        format!("  {named:<36} {}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_perf() {
        let file = std::env::temp_dir().join(format!("perf-prof-description-{}", std::process::id()));
        let lines = |text: &str| {
            fs::write(&file, text).unwrap();
            let described = description("rw", &file);
            (described.line(), described.required_args())
        };
        let whole = lines("#!/bin/bash\n#description: reads and writes\n# args: <comm> [interval]\nperf script\n");
        let empty = lines("#!/bin/bash\nperf script\n");
        fs::remove_file(&file).unwrap();
        assert_eq!(whole, ("  rw <comm> [interval]                 reads and writes".to_owned(), 1));
        assert_eq!(empty, (format!("  rw{} ", " ".repeat(34)), 0));
    }

    #[test]
    fn a_name_is_no_path() {
        assert_eq!(script(OsStr::new("../python/sctop")), None);
        assert_eq!(wrapper(OsStr::new(""), Wrapper::Record), None);
    }
}

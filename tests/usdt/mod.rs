//! Static probes (USDT) of programs that the tests compile, of Python and of PostgreSQL.

mod arguments;
mod files;
mod listed;
mod places;
mod postgresql;
mod spans;

use std::{
    path::{Path, PathBuf},
    process::Output,
};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::harness::{
    compile::compile,
    counting::objects,
    machine::{Need, needs},
    run::{PATIENCE, perf_prof, stdout, with_patience},
};

/// What these tests need.
const STATIC_PROBES: [Need; 4] = [Need::Tracefs, Need::Uprobes, Need::Compilers, Need::StaticProbes];

/// A folder with programs that contain static probes.
struct Programs {
    folder: TempDir,
}

impl Programs {
    /// Compiles a program as `p`.
    #[track_caller]
    fn compiled(source: &str, options: &[&str]) -> Programs {
        needs(STATIC_PROBES);
        let programs = Programs { folder: tempfile::tempdir().unwrap() };
        compile(programs.path(), "p", source, &[&["-O1"], options].concat());
        programs
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Runs perf-prof with these arguments in the folder.
    fn run(&self, args: &[&str]) -> Output {
        with_patience(perf_prof(args).current_dir(self.path()), PATIENCE).output().unwrap()
    }

    /// Runs `./p` with these arguments. Returns its events, and what the program printed.
    #[track_caller]
    fn trace(&self, events: &str, of_program: &[&str]) -> (Vec<Json>, Vec<String>) {
        let text = stdout(&self.run(&[&["trace", "--json", "-e", events, "--", "./p"], of_program].concat()));
        let (events, printed): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('{'));
        (objects(&events.join("\n")), printed.into_iter().map(str::to_owned).collect())
    }
}

/// Returns some fields of events, each event as a line.
fn fields(events: &[Json], names: &[&str]) -> Vec<String> {
    let field = |event: &Json, name: &&str| match &event[*name] {
        Json::String(text) => text.clone(),
        value => value.to_string(),
    };
    let line = |event: &Json| names.iter().map(|name| field(event, name)).collect::<Vec<_>>().join(" ");
    events.iter().map(line).collect()
}

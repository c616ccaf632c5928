//! Builds the programs in `programs/` with the compilers of this machine.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::harness::compile;

/// A folder with programs, which is removed after the test.
pub struct Programs {
    dir: TempDir,
}

impl Programs {
    pub fn new() -> Programs {
        Programs { dir: tempfile::Builder::new().prefix("perf-prof-stacks-").tempdir().unwrap() }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Compiles `source` to `name`. The extension of the source selects the compiler.
    pub fn build(&self, source: &str, name: &str, flags: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stacks/programs").join(source);
        let output = self.path(name);
        let (compiler, own) = match source.extension().and_then(OsStr::to_str) {
            Some("c") => ("cc", &[][..]),
            Some("cc") => ("c++", &["-std=c++17"][..]),
            _ => ("rustc", &["--edition=2024"][..]),
        };
        let mut command = Command::new(compiler);
        command.args(own).args(flags).arg("-o").arg(&output).arg(&source).current_dir(self.dir());
        compile::build(&mut command);
        output
    }

    /// Runs a tool such as `strip` in the folder and returns its output.
    pub fn tool(&self, tool: &str, args: &[&str]) -> String {
        let mut command = Command::new(tool);
        command.args(args).current_dir(self.dir());
        compile::build(&mut command)
    }
}

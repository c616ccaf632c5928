//! Builds the programs of `programs/` with the compilers of this machine.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// A folder with programs, gone after the test.
pub struct Programs {
    dir: TempDir,
}

/// What this machine lacks for a test; it is said, and the test is over.
#[derive(Debug)]
pub struct Skipped(pub String);

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

    /// Compiles `source` to `name`; the compiler goes by the source's extension.
    pub fn build(&self, source: &str, name: &str, flags: &[&str]) -> Result<PathBuf, Skipped> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stacks/programs").join(source);
        let output = self.path(name);
        let (compiler, own) = match source.extension().and_then(OsStr::to_str) {
            Some("c") => ("cc", &[][..]),
            Some("cc") => ("c++", &["-std=c++17"][..]),
            _ => ("rustc", &["--edition=2024"][..]),
        };
        let mut command = Command::new(compiler);
        command.args(own).args(flags).arg("-o").arg(&output).arg(&source).current_dir(self.dir());
        run(command)?;
        Ok(output)
    }

    /// Runs a tool like `strip`, with paths in the folder.
    pub fn tool(&self, tool: &str, args: &[&str]) -> Result<String, Skipped> {
        let mut command = Command::new(tool);
        command.args(args).current_dir(self.dir());
        run(command)
    }
}

/// Runs a command that has to succeed, if it is there at all.
fn run(mut command: Command) -> Result<String, Skipped> {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return Err(Skipped(format!("{}: {error}", command.get_program().display()))),
    };
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a test that this machine may not be able to run.
pub fn test(body: impl FnOnce() -> Result<(), Skipped>) {
    if let Err(Skipped(why)) = body() {
        println!("skipped: {why}");
    }
}

//! `perf-prof scripts` and `perf-prof run NAME`: the scripts that are embedded in perf-prof.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use perf_prof_format::spec::{did_you_mean_quoted, similar_names};
use perf_prof_session::engine::ExitStatus;
use perf_prof_system::output;

use super::{failure::Failure, python};

/// A script that is embedded in perf-prof.
struct Shipped {
    name: &'static str,
    text: &'static str,
}

// `shipped.rs` defines SHIPPED: all files `scripts/*.py`, sorted by name. `build.rs` writes `shipped.rs`.
include!(concat!(env!("OUT_DIR"), "/shipped.rs"));

const SCRIPTS_AFTER_HELP: &str = "\
Examples:
  perf-prof scripts
      list the scripts
  perf-prof run offcpu --help
      show what a script prints, and its options
  perf-prof scripts offcpu > mine.py
      begin a script of your own with one of them";

/// List the scripts that are part of perf-prof, or print one
#[derive(Args)]
#[command(after_help = SCRIPTS_AFTER_HELP)]
pub struct Scripts {
    /// Print the text of this script
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

const RUN_AFTER_HELP: &str = "\
Examples:
  perf-prof run runqlat -i 1s
      how long tasks wait for a CPU, each second
  perf-prof run offcpu -p 1234 --flame off.svg
      where a process waits, as a picture
  perf-prof run syscalls --exec ls /
      the system calls of a command
  perf-prof run offcpu --input perf.data
      the same script on a recording

The options are those of the script (`perf-prof run NAME --help`) and those of `perf-prof python`.";

/// Run a script that is part of perf-prof (`perf-prof scripts` lists them)
#[derive(Args)]
#[command(override_usage = "perf-prof run NAME [OPTION...] [--exec CMD [ARGS...]]", after_help = RUN_AFTER_HELP)]
pub struct Run {
    /// The script, such as offcpu
    #[arg(value_name = "NAME")]
    name: String,
    /// Options of the script and of perf-prof python
    #[arg(value_name = "OPTION")]
    options: Vec<OsString>,
}

impl Scripts {
    /// Prints the list or the script.
    pub fn run(self) -> Result<ExitStatus, Failure> {
        match self.name {
            Some(name) => output::print_line(script(&name)?.text.trim_end()),
            None => {
                let width = SHIPPED.iter().map(|script| script.name.len()).max().unwrap_or(0);
                for script in SHIPPED {
                    output::print_line(&format!("{:width$}  {}", script.name, about(script.text)));
                }
            }
        }
        Ok(ExitStatus(0))
    }
}

impl Run {
    /// Returns whether the word after `run` is a script. If so, clap must not parse the words after it, because an
    /// option such as `--help` belongs to the script.
    pub fn names_script(argv: &[OsString]) -> bool {
        argv.get(2).is_some_and(|name| !name.as_encoded_bytes().starts_with(b"-"))
    }

    /// Returns the script and its options.
    pub fn of(argv: &[OsString]) -> Run {
        let name = argv.get(2).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Run { name, options: argv.iter().skip(3).cloned().collect() }
    }

    /// Runs the script. `argv` is the whole command line.
    pub fn run(self, argv: &[OsString]) -> Result<ExitStatus, Failure> {
        let script = script(&self.name)?;
        let file = ScriptFile::of(script)?;
        let path = file.path();
        // The words have the order that the kernel uses when it starts a script through its first line: the options of
        // this line, the script, then all other options.
        let of_program = argv.first().cloned().unwrap_or_else(|| "perf-prof".into());
        let given = python::given(path.as_os_str()).unwrap_or_default();
        let words = [of_program, "python".into()].into_iter().chain(given).chain([path.into()]);
        python::run(&words.chain(self.options).collect::<Vec<OsString>>())
    }
}

/// The file of an embedded script. The file exists as long as this value.
pub struct ScriptFile {
    path: PathBuf,
    _folder: ScriptFolder,
}

impl ScriptFile {
    fn of(script: &Shipped) -> Result<ScriptFile, Failure> {
        let folder = ScriptFolder::new()?;
        let path = folder.0.join(format!("{}.py", script.name));
        fs::write(&path, script.text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(ScriptFile { path, _folder: folder })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the file of the script with this name; `None` if no such script is embedded. A file of this name in the
/// current folder is not used, because it may belong to anybody. The user can run it as `./NAME`.
pub fn file_of(name: &OsStr) -> Result<Option<ScriptFile>, Failure> {
    SHIPPED.iter().find(|script| name == script.name).map(ScriptFile::of).transpose()
}

/// Returns the embedded script with this name. The name may end in `.py`.
fn script(name: &str) -> Result<&'static Shipped, Failure> {
    let name = name.strip_suffix(".py").unwrap_or(name);
    SHIPPED.iter().find(|script| script.name == name).ok_or_else(|| unknown(name))
}

/// Returns the error for a name that no embedded script has.
pub fn unknown(name: &str) -> Failure {
    let similar = similar_names(name, SHIPPED.iter().map(|script| script.name));
    let hint = did_you_mean_quoted(&similar);
    anyhow!("there is no script `{name}`{hint}\n`perf-prof scripts` lists the scripts").into()
}

/// Returns the first line of a script's docstring.
fn about(text: &str) -> &str {
    text.split_once("\"\"\"").and_then(|(_, docstring)| docstring.lines().next()).unwrap_or_default()
}

/// A folder for the script's file, which only this user can use. The folder exists during the run, because tools and
/// messages show the path of the script.
struct ScriptFolder(PathBuf);

impl ScriptFolder {
    fn new() -> Result<ScriptFolder, Failure> {
        let in_folder = env::temp_dir();
        // An earlier run with the same process id may have left a folder of this name, and the folder may belong to
        // another user. So an existing folder is not used.
        for number in 0..u16::MAX {
            let path = in_folder.join(format!("perf-prof-run-{}-{number}", process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(ScriptFolder(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => Err(error).with_context(|| format!("cannot create {}", path.display()))?,
            }
        }
        Err(anyhow!("cannot create a folder in {}: all names exist", in_folder.display()).into())
    }
}

impl Drop for ScriptFolder {
    fn drop(&mut self) {
        // An error is ignored: the folder is among the temporary files, and nothing depends on its removal.
        let _ = fs::remove_dir_all(&self.0);
    }
}

//! Chooses the Python interpreter. `--python` comes first, then an environment variable, then the interpreter that
//! perf-prof was built for.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{error::ScriptError, running};

/// The interpreter that perf-prof was built for.
const BUILD_PYTHON: &str = env!("PERF_PROF_BUILD_PYTHON");
/// The `sys.base_prefix` of the interpreter that perf-prof was built for. It contains the standard library of the
/// linked libpython.
pub const BUILD_PREFIX: &str = env!("PERF_PROF_BUILD_PREFIX");
/// The version of the interpreter that perf-prof was built for, as `major.minor`.
pub const BUILD_VERSION: &str = env!("PERF_PROF_BUILD_PYTHON_VERSION");

/// The Python interpreter whose packages a script can import. The script itself always runs in the linked libpython.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonChoice {
    /// The value of `sys.executable`.
    pub executable: PathBuf,
    /// Package folders to add to `sys.path`. CPython itself finds all other package folders, starting at the folder of
    /// the executable.
    pub packages: Vec<PathBuf>,
    /// What made the choice, for messages.
    pub source: ChoiceSource,
}

/// What chose an interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceSource {
    /// Nothing: it is the interpreter that perf-prof was built for.
    Build,
    /// The option or the environment variable of this name.
    Named(&'static str),
    /// perf-prof is a package of this interpreter, which runs already.
    Running,
}

impl PythonChoice {
    /// Chooses the interpreter. `asked` is the value of `--python`, which takes precedence over the environment. If
    /// perf-prof runs as a package in an interpreter, only this interpreter can be chosen.
    pub fn make(asked: Option<&Path>) -> Result<PythonChoice, ScriptError> {
        if let Some(executable) = running::executable() {
            return match asked {
                Some(asked) => Err(ScriptError::RunningPython { asked: asked.to_owned(), executable }),
                None => Ok(PythonChoice { executable, packages: Vec::new(), source: ChoiceSource::Running }),
            };
        }
        let variable = |name: &'static str| {
            env::var_os(name).filter(|value| !value.is_empty()).map(|value| (PathBuf::from(value), name))
        };
        let found = asked
            .map(|path| (path.to_owned(), "--python"))
            .or_else(|| variable("PERF_PROF_PYTHON"))
            .or_else(|| variable("VIRTUAL_ENV"))
            .or_else(|| variable("CONDA_PREFIX"));
        match found {
            Some((path, because)) => Self::from_path(&path, because),
            None => {
                Ok(PythonChoice { executable: BUILD_PYTHON.into(), packages: Vec::new(), source: ChoiceSource::Build })
            }
        }
    }

    fn from_path(path: &Path, because: &'static str) -> Result<PythonChoice, ScriptError> {
        let executable = executable_of(path).ok_or_else(|| ScriptError::NoPython { path: path.into(), because })?;
        // `bin/python` in a venv is a link to the base interpreter. The link is not followed, because it leads out of
        // the venv.
        let prefix = executable.parent().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
        if let Ok(settings) = fs::read_to_string(prefix.join("pyvenv.cfg")) {
            if let Some(version) = venv_version(&settings) {
                check_version(&version, path, because)?;
            }
            return Ok(PythonChoice { executable, packages: Vec::new(), source: ChoiceSource::Named(because) });
        }
        if executable == Path::new(BUILD_PYTHON) {
            return Ok(PythonChoice { executable, packages: Vec::new(), source: ChoiceSource::Named(because) });
        }
        let (version, packages) =
            query_interpreter(&executable).ok_or_else(|| ScriptError::NoPython { path: path.into(), because })?;
        check_version(&version, path, because)?;
        Ok(PythonChoice { executable, packages, source: ChoiceSource::Named(because) })
    }
}

/// Returns the executable that `path` names: a file, the interpreter of an environment if `path` is its folder, or a
/// program in `PATH` if `path` is a bare name.
fn executable_of(path: &Path) -> Option<PathBuf> {
    let is_bare_name = path.components().count() == 1 && !path.is_absolute();
    let path = if path.is_absolute() { path.to_owned() } else { env::current_dir().ok()?.join(path) };
    if path.is_dir() {
        return ["bin/python3", "bin/python"].iter().map(|name| path.join(name)).find(|path| path.is_file());
    }
    if path.is_file() {
        return Some(path);
    }
    // Only a bare name, as in `--python python3.11`, is looked up in `PATH`. A path with a slash must exist: another
    // Python of the same name must not be used instead.
    let name = path.file_name().filter(|_| is_bare_name)?;
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// Returns the version in the text of a `pyvenv.cfg`, as `major.minor`. The key is `version` in PEP 405, and
/// `version_info` in virtualenv.
fn venv_version(settings: &str) -> Option<String> {
    let value = settings.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        matches!(key.trim(), "version" | "version_info").then(|| value.trim())
    })?;
    Some(value.split('.').take(2).collect::<Vec<_>>().join("."))
}

/// Runs an interpreter that is not in a venv, and returns its version and its package folders.
fn query_interpreter(executable: &Path) -> Option<(String, Vec<PathBuf>)> {
    const QUESTION: &str = "import site, sys\nprint('%d.%d' % sys.version_info[:2])\n\
                            print('\\n'.join(p for p in site.getsitepackages() if p in sys.path))";
    let answer = Command::new(executable).args(["-c", QUESTION]).env_remove("PYTHONHOME").output().ok()?;
    let text = String::from_utf8(answer.stdout).ok()?;
    let mut lines = text.lines();
    let version = lines.next()?.to_owned();
    Some((version, lines.filter(|line| !line.is_empty()).map(PathBuf::from).collect()))
}

fn check_version(version: &str, path: &Path, because: &'static str) -> Result<(), ScriptError> {
    if version == BUILD_VERSION {
        return Ok(());
    }
    Err(ScriptError::OtherVersion { path: path.into(), because, theirs: version.into(), ours: BUILD_VERSION })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_venv_of_another_minor_version_is_named_with_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        fs::write(dir.path().join("bin/python3"), "").unwrap();
        fs::write(dir.path().join("pyvenv.cfg"), "home = /usr/bin\nversion = 2.7.18\n").unwrap();
        let error = PythonChoice::make(Some(dir.path())).unwrap_err().to_string();
        assert!(error.contains("2.7") && error.contains(BUILD_VERSION), "{error}");
    }

    #[test]
    fn a_word_of_another_option_is_told_from_a_path() {
        let said = |asked: &str| PythonChoice::make(Some(Path::new(asked))).unwrap_err().to_string();
        for word in ["yes", "only", "no"] {
            let error = said(word);
            assert!(error.starts_with(&format!("--python: no usable Python at '{word}'; ")), "{error}");
            assert!(
                error.ends_with(&format!("; for the frames of Python programs, write --python-frames={word}")),
                "{error}"
            );
        }
        assert!(said("--duration").ends_with("; for the frames of Python programs, write --python-frames"));
        assert!(!said("/no/such/python").contains("frames"));
        let of_variable = ScriptError::NoPython { path: "only".into(), because: "VIRTUAL_ENV" };
        assert!(!of_variable.to_string().contains("frames"));
    }

    #[test]
    fn a_path_that_is_not_there_is_not_looked_up_by_its_last_part() {
        assert!(PythonChoice::make(Some(Path::new("/no/such/sh"))).is_err());
        assert_eq!(executable_of(Path::new("/no/such/sh")), None);
        assert_eq!(executable_of(Path::new("./sh")), None);
        assert!(executable_of(Path::new("sh")).is_some());
    }

    #[test]
    fn venv_versions() {
        assert_eq!(venv_version("version = 3.11.7"), Some("3.11".into()));
        assert_eq!(venv_version("home=/x\nversion_info = 3.12.1.final.0"), Some("3.12".into()));
        assert_eq!(venv_version("home = /x"), None);
    }
}

//! Which Python the user means: `--python`, the environment, or the one that perf-prof was built for.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::error::ScriptError;

/// The interpreter that perf-prof was built for.
pub const BUILD_PYTHON: &str = env!("PERF_PROF_BUILD_PYTHON");
/// Its `sys.base_prefix`: where the standard library of the linked libpython lies.
pub const BUILD_PREFIX: &str = env!("PERF_PROF_BUILD_PREFIX");
/// Its `major.minor`.
pub const BUILD_VERSION: &str = env!("PERF_PROF_BUILD_PYTHON_VERSION");

/// The Python whose packages a script imports. The libpython that runs it is always the linked one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What `sys.executable` is to be.
    pub executable: PathBuf,
    /// Where to look for packages beyond what the executable's place tells CPython itself.
    pub packages: Vec<PathBuf>,
    /// Who asked for it, for messages: `--python`, a variable's name, or nobody.
    pub because: Option<&'static str>,
}

impl Choice {
    /// Settles which Python is used, `asked` (`--python`) first.
    pub fn make(asked: Option<&Path>) -> Result<Choice, ScriptError> {
        let variable = |name: &'static str| {
            env::var_os(name).filter(|value| !value.is_empty()).map(|value| (PathBuf::from(value), name))
        };
        let found = asked
            .map(|path| (path.to_owned(), "--python"))
            .or_else(|| variable("PERF_PROF_PYTHON"))
            .or_else(|| variable("VIRTUAL_ENV"))
            .or_else(|| variable("CONDA_PREFIX"));
        match found {
            Some((path, because)) => Self::of(&path, because),
            None => Ok(Choice { executable: BUILD_PYTHON.into(), packages: Vec::new(), because: None }),
        }
    }

    fn of(path: &Path, because: &'static str) -> Result<Choice, ScriptError> {
        let executable = executable_of(path).ok_or_else(|| ScriptError::NoPython { path: path.into(), because })?;
        // `bin/python` of a venv is a link to its base's, so the link must not be followed.
        let prefix = executable.parent().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
        if let Ok(settings) = fs::read_to_string(prefix.join("pyvenv.cfg")) {
            if let Some(version) = venv_version(&settings) {
                check_version(&version, path, because)?;
            }
            return Ok(Choice { executable, packages: Vec::new(), because: Some(because) });
        }
        if executable == Path::new(BUILD_PYTHON) {
            return Ok(Choice { executable, packages: Vec::new(), because: Some(because) });
        }
        let (version, packages) =
            ask(&executable).ok_or_else(|| ScriptError::NoPython { path: path.into(), because })?;
        check_version(&version, path, because)?;
        Ok(Choice { executable, packages, because: Some(because) })
    }
}

/// The executable that a path means: itself, or that of the environment whose folder it is.
fn executable_of(path: &Path) -> Option<PathBuf> {
    let is_bare_name = path.components().count() == 1 && !path.is_absolute();
    let path = if path.is_absolute() { path.to_owned() } else { env::current_dir().ok()?.join(path) };
    if path.is_dir() {
        return ["bin/python3", "bin/python"].iter().map(|name| path.join(name)).find(|path| path.is_file());
    }
    if path.is_file() {
        return Some(path);
    }
    // As in `--python python3.11`. A path that is not there must not become another Python of the same name.
    let name = path.file_name().filter(|_| is_bare_name)?;
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// `major.minor` of a `pyvenv.cfg` (PEP 405; `version_info` is what virtualenv writes).
fn venv_version(settings: &str) -> Option<String> {
    let value = settings.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        matches!(key.trim(), "version" | "version_info").then(|| value.trim())
    })?;
    Some(value.split('.').take(2).collect::<Vec<_>>().join("."))
}

/// Asks an interpreter that is no venv for its version and its package folders.
fn ask(executable: &Path) -> Option<(String, Vec<PathBuf>)> {
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

/// The value of a variable that turns a behaviour on.
pub fn variable_is_on(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
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
        let error = Choice::make(Some(dir.path())).unwrap_err().to_string();
        assert!(error.contains("2.7") && error.contains(BUILD_VERSION), "{error}");
    }

    #[test]
    fn a_path_that_is_not_there_is_not_looked_up_by_its_last_part() {
        assert!(Choice::make(Some(Path::new("/no/such/sh"))).is_err());
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

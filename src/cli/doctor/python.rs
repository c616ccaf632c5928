//! The Python in use: the library that is linked and the environment whose packages scripts see.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use super::Check;

/// The minor version that libpython was linked for.
const BUILT_FOR: &str = env!("PERF_PROF_BUILD_PYTHON_VERSION");

pub(super) fn library() -> Check {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    match loaded(&maps, "libpython") {
        Some(path) => Check::ok("libpython", format!("{path}, Python {BUILT_FOR}")),
        None => Check::ok("libpython", format!("built for Python {BUILT_FOR} ({})", env!("PERF_PROF_BUILD_PYTHON"))),
    }
}

pub(super) fn prefix() -> Check {
    // In this order; `--python` goes before all.
    let named = ["PERF_PROF_PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .find_map(|name| Some((name, PathBuf::from(env::var_os(name).filter(|value| !value.is_empty())?))));
    environment(named, BUILT_FOR)
}

fn environment(named: Option<(&str, PathBuf)>, built_for: &str) -> Check {
    let name = "environment";
    let Some((variable, path)) = named else {
        let python = Path::new(env!("PERF_PROF_BUILD_PYTHON"));
        return Check::ok(name, format!("that of {}; no venv is active", python.display()));
    };
    let shown = format!("{variable}={}", path.display());
    if !path.exists() {
        return Check::fail(name, format!("{shown} does not exist"), Some(&format!("unset {variable}")));
    }
    // An interpreter lies in `bin` of its prefix.
    let prefix = if path.is_dir() { Some(path.as_path()) } else { path.parent().and_then(Path::parent) };
    match prefix.and_then(minor_version) {
        Some(version) if version != built_for => Check::fail(
            name,
            format!("{shown} is for Python {version}, perf-prof is linked with Python {built_for}"),
            Some(&format!("python{built_for} -m venv VENV and activate it, or unset {variable}")),
        ),
        Some(version) => Check::ok(name, format!("{shown}, Python {version}")),
        None => Check::warn(name, format!("{shown}: its Python version is unknown"), None),
    }
}

/// `3.11` of a prefix: what its `pyvenv.cfg` says, else its library folder.
fn minor_version(prefix: &Path) -> Option<String> {
    let config = fs::read_to_string(prefix.join("pyvenv.cfg")).unwrap_or_default();
    let version = config.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        // `venv` writes version, `virtualenv` and `uv` version_info.
        matches!(key.trim(), "version" | "version_info").then(|| value.trim().to_owned())
    });
    if let Some(version) = version {
        let mut parts = version.split('.');
        return Some(format!("{}.{}", parts.next()?, parts.next()?));
    }
    let mut found: Vec<String> = fs::read_dir(prefix.join("lib"))
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("python")?.parse().ok())
        .filter(|version: &String| version.contains('.'))
        .collect();
    // Several versions in one prefix, as in /usr, say nothing.
    (found.len() == 1).then(|| found.remove(0))
}

/// The file of a mapped library, by the text of /proc/PID/maps.
fn loaded<'a>(maps: &'a str, library: &str) -> Option<&'a str> {
    let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    paths.into_iter().find(|path| path.rsplit('/').next().is_some_and(|file| file.starts_with(library)))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_mapped_library() {
        let maps = "7f00-7f01 r-xp 00000000 fe:00 12   /a b/lib/libpython3.11.so.1.0\n7fff-8000 rw-p 0 0:0 0 [stack]\n";
        assert_eq!(loaded(maps, "libpython"), Some("/a b/lib/libpython3.11.so.1.0"));
        assert_eq!(loaded(maps, "libperl"), None);
    }

    #[test]
    fn environments() {
        let dir = tempfile::tempdir().unwrap();
        let check = |sub: &str| {
            let check = environment(Some(("VIRTUAL_ENV", dir.path().join(sub))), "3.11");
            let text = format!("{} {} {}", check.state, check.detail, check.mend.unwrap_or_default());
            text.replace(&dir.path().display().to_string(), "DIR")
        };
        for (venv, config) in
            [("good", "home = /usr/bin\nversion = 3.11.7\n"), ("other", "version_info = 3.12.1.final.0\n")]
        {
            fs::create_dir_all(dir.path().join(venv).join("bin")).unwrap();
            fs::write(dir.path().join(venv).join("pyvenv.cfg"), config).unwrap();
            fs::write(dir.path().join(venv).join("bin/python"), "").unwrap();
        }
        fs::create_dir_all(dir.path().join("conda/lib/python3.12")).unwrap();
        fs::create_dir_all(dir.path().join("empty")).unwrap();
        let lines = ["good", "good/bin/python", "other", "conda", "empty", "none"].map(check);
        expect![[r#"
            ok VIRTUAL_ENV=DIR/good, Python 3.11 
            ok VIRTUAL_ENV=DIR/good/bin/python, Python 3.11 
            fail VIRTUAL_ENV=DIR/other is for Python 3.12, perf-prof is linked with Python 3.11 python3.11 -m venv VENV and activate it, or unset VIRTUAL_ENV
            fail VIRTUAL_ENV=DIR/conda is for Python 3.12, perf-prof is linked with Python 3.11 python3.11 -m venv VENV and activate it, or unset VIRTUAL_ENV
            warn VIRTUAL_ENV=DIR/empty: its Python version is unknown 
            fail VIRTUAL_ENV=DIR/none does not exist unset VIRTUAL_ENV"#]].assert_eq(&lines.join("\n"));
    }
}

//! Finds the CPython that is embedded, and makes its shared library findable at run time.
//!
//! An interpreter without a shared libpython cannot be embedded; saying so here, in one line with the way out, beats
//! the linker's page of symbols.

fn main() {
    #[cfg(feature = "script")]
    python();
}

#[cfg(feature = "script")]
fn python() {
    let config = pyo3_build_config::get();
    if !config.shared() {
        let python = config.executable().unwrap_or("python3");
        println!(
            "cargo::error={python} was built without a shared libpython, which perf-prof embeds: install one (Debian: \
             `apt install libpython3-dev`; pyenv: `PYTHON_CONFIGURE_OPTS=--enable-shared pyenv install 3.11`) or name \
             another interpreter with PYO3_PYTHON=/path/to/python3"
        );
    }
    if config.build_flags().0.iter().any(|flag| flag.to_string() == "Py_GIL_DISABLED") {
        println!(
            "cargo::error=perf-prof needs a CPython with its global lock; name another one with PYO3_PYTHON=/path/to/python3"
        );
    }
    // A libpython outside the loader's path (pyenv, conda) is found through an rpath.
    pyo3_build_config::add_libpython_rpath_link_args();
    println!("cargo::rustc-env=PERF_PROF_BUILD_PYTHON={}", config.executable().unwrap_or("python3"));
    println!("cargo::rustc-env=PERF_PROF_BUILD_PREFIX={}", base_prefix(config.executable().unwrap_or("python3")));
    let version = config.version();
    println!("cargo::rustc-env=PERF_PROF_BUILD_PYTHON_VERSION={}.{}", version.major, version.minor);
}

/// Where the interpreter's standard library lies. A virtual environment has none of its own, its base has.
#[cfg(feature = "script")]
fn base_prefix(python: &str) -> String {
    let answer = std::process::Command::new(python).args(["-c", "import sys; print(sys.base_prefix)"]).output();
    answer.ok().and_then(|answer| String::from_utf8(answer.stdout).ok()).unwrap_or_default().trim().to_owned()
}

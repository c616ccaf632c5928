//! Checks the CPython that perf-prof embeds, and passes its version and paths to the compiler.
//!
//! An interpreter without a shared libpython cannot be embedded. For such an interpreter, this build script prints one
//! line that says what to do. Without the check, the linker would print a page of undefined symbols.

fn main() {
    #[cfg(feature = "python")]
    python();
}

/// The oldest CPython that has all functions that perf-prof calls. `pyproject.toml` contains the same version.
#[cfg(feature = "python")]
const OLDEST: (u8, u8) = (3, 10);

#[cfg(feature = "python")]
fn python() {
    // Defines `cfg(Py_3_14)` and the other conditions for versions of Python.
    pyo3_build_config::use_pyo3_cfgs();
    let config = pyo3_build_config::get();
    let version = config.version();
    if (version.major, version.minor) < OLDEST {
        println!(
            "cargo::error=perf-prof needs CPython {}.{} or newer, and this one is {}.{}; name another one with \
             PYO3_PYTHON=/path/to/python3",
            OLDEST.0, OLDEST.1, version.major, version.minor
        );
    }
    // The extension module does not link libpython, because the process that imports it has an interpreter.
    println!("cargo::rerun-if-env-changed=PYO3_BUILD_EXTENSION_MODULE");
    let is_extension = std::env::var_os("PYO3_BUILD_EXTENSION_MODULE").is_some();
    if !is_extension && !config.shared() {
        let python = config.executable().unwrap_or("python3");
        println!(
            "cargo::error={python} was built without a shared libpython, which perf-prof needs: install a shared \
             libpython (Debian: `apt install libpython3-dev`; pyenv: `PYTHON_CONFIGURE_OPTS=--enable-shared pyenv \
             install 3.11`), or name another interpreter with PYO3_PYTHON=/path/to/python3"
        );
    }
    if config.build_flags().0.iter().any(|flag| flag.to_string() == "Py_GIL_DISABLED") {
        println!(
            "cargo::error=perf-prof needs a CPython with the GIL, and this one is free-threaded; name another one with \
             PYO3_PYTHON=/path/to/python3"
        );
    }
    println!("cargo::rustc-env=PERF_PROF_BUILD_PYTHON={}", config.executable().unwrap_or("python3"));
    println!("cargo::rustc-env=PERF_PROF_BUILD_PREFIX={}", base_prefix(config.executable().unwrap_or("python3")));
    println!("cargo::rustc-env=PERF_PROF_BUILD_PYTHON_VERSION={}.{}", version.major, version.minor);
}

/// Returns the prefix of the interpreter's standard library. A virtual environment has no standard library of its own.
/// For a virtual environment, returns the prefix of the interpreter from which the environment was made.
#[cfg(feature = "python")]
fn base_prefix(python: &str) -> String {
    let answer = std::process::Command::new(python).args(["-c", "import sys; print(sys.base_prefix)"]).output();
    answer.ok().and_then(|answer| String::from_utf8(answer.stdout).ok()).unwrap_or_default().trim().to_owned()
}

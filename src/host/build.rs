//! Makes the index of `perf-prof help WORD`. Checks the CPython that perf-prof embeds, and tells the linker where its
//! shared library is at run time.
//!
//! An interpreter without a shared libpython cannot be embedded. This build script reports that in one line, and says
//! what to do. Without the check, the linker would print a page of undefined symbols.

#[path = "build/documents.rs"]
mod documents;
#[path = "build/index.rs"]
mod index;
#[path = "build/package.rs"]
mod package;

use std::{env, fs, path::PathBuf};

fn main() {
    help_index();
    #[cfg(feature = "python")]
    python();
}

/// Writes the index of the documents, and that of the package `perf_prof` and the scripts, which need Python.
fn help_index() {
    println!("cargo::rerun-if-changed=src/host/build.rs");
    println!("cargo::rerun-if-changed=src/host/build");
    let folder = |name| PathBuf::from(env::var_os(name).unwrap_or_default());
    let (root, out) = (folder("CARGO_MANIFEST_DIR"), folder("OUT_DIR"));
    let documents = documents::sections(&root);
    let mut package = package::of_package(&root, &documents);
    package.extend(package::of_scripts(&root));
    for (name, sections) in [("documents.index", &documents), ("package.index", &package)] {
        if let Err(error) = fs::write(out.join(name), index::text(sections)) {
            println!("cargo::error=cannot write the index {name}: {error}");
        }
    }
}

#[cfg(feature = "python")]
fn python() {
    // `cfg(Py_3_14)` and the like.
    pyo3_build_config::use_pyo3_cfgs();
    let config = pyo3_build_config::get();
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
    // The rpath lets the loader find a libpython outside of its search path, for example one of pyenv or conda.
    pyo3_build_config::add_libpython_rpath_link_args();
    println!("cargo::rustc-env=PERF_PROF_BUILD_PYTHON={}", config.executable().unwrap_or("python3"));
    println!("cargo::rustc-env=PERF_PROF_BUILD_PREFIX={}", base_prefix(config.executable().unwrap_or("python3")));
    let version = config.version();
    println!("cargo::rustc-env=PERF_PROF_BUILD_PYTHON_VERSION={}.{}", version.major, version.minor);
}

/// Returns the prefix of the interpreter's standard library. A virtual environment has no standard library of its own,
/// so this is the prefix of the interpreter that it was made from.
#[cfg(feature = "python")]
fn base_prefix(python: &str) -> String {
    let answer = std::process::Command::new(python).args(["-c", "import sys; print(sys.base_prefix)"]).output();
    answer.ok().and_then(|answer| String::from_utf8(answer.stdout).ok()).unwrap_or_default().trim().to_owned()
}

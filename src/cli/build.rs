//! Writes the index of `perf-prof help WORD`, and tells the linker where the shared library of CPython is at run time.
//! The build script of the crate `python` checks that this library can be used.

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
    shipped_scripts();
    // With the rpath, the loader finds a libpython outside of its search path, for example a libpython of pyenv or
    // conda.
    #[cfg(feature = "python")]
    pyo3_build_config::add_libpython_rpath_link_args();
}

/// Writes the table of the scripts that are embedded in the program.
#[cfg(feature = "python")]
fn shipped_scripts() {
    let folder = |name| PathBuf::from(env::var_os(name).unwrap_or_default());
    let scripts = folder("CARGO_MANIFEST_DIR").join("scripts");
    println!("cargo::rerun-if-changed={}", scripts.display());
    let files = fs::read_dir(&scripts).into_iter().flatten().flatten().map(|file| file.path());
    let mut paths: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "py")).collect();
    paths.sort();
    let row = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default();
        format!("    Shipped {{ name: {name:?}, text: include_str!({path:?}) }},\n")
    };
    let rows: String = paths.iter().map(row).collect();
    if let Err(error) =
        fs::write(folder("OUT_DIR").join("shipped.rs"), format!("const SHIPPED: &[Shipped] = &[\n{rows}];\n"))
    {
        println!("cargo::error=cannot write the table of scripts: {error}");
    }
}

/// Writes two indexes: an index of the documents, and an index of the package `perf_prof` and the scripts. Only builds
/// with Python use the second index.
fn help_index() {
    println!("cargo::rerun-if-changed=src/cli/build.rs");
    println!("cargo::rerun-if-changed=src/cli/build");
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

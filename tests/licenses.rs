//! Checks that `THIRD-PARTY-LICENSES.md`, which is part of the wheel, contains the licences of all crates in the
//! executable and in the package's module. `UPDATE_EXPECT=1` writes the file.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    env, fs,
    path::Path,
    process::Command,
};

use serde_json::Value as Json;

use crate::harness::run::stdout;

/// The packages that users get.
const BUILT: [&str; 2] = ["perf-prof", "perf-prof-extension"];

#[test]
fn licenses_of_all_crates_that_users_get_are_in_the_package() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("THIRD-PARTY-LICENSES.md");
    let expected = text(&metadata());
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{} is old: run this test with UPDATE_EXPECT=1", path.display());
}

fn metadata() -> Json {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--locked", "--offline"]);
    command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&stdout(&command.output().unwrap())).unwrap()
}

/// Returns the ids of the crates that are part of these packages, without crates for tests and build scripts.
fn contained(metadata: &Json) -> BTreeSet<&str> {
    let nodes: HashMap<&str, &Json> =
        array(&metadata["resolve"]["nodes"]).map(|node| (node["id"].as_str().unwrap(), node)).collect();
    let is_built = |package: &&Json| BUILT.iter().any(|name| package["name"] == *name);
    let mut left: Vec<&str> =
        array(&metadata["packages"]).filter(is_built).map(|package| package["id"].as_str().unwrap()).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = left.pop() {
        if seen.insert(id) {
            let normal = |of: &&Json| array(&of["dep_kinds"]).any(|kind| kind["kind"].is_null());
            left.extend(array(&nodes[id]["deps"]).filter(normal).map(|of| of["pkg"].as_str().unwrap()));
        }
    }
    seen
}

fn array(json: &Json) -> impl Iterator<Item = &Json> {
    json.as_array().into_iter().flatten()
}

fn text(metadata: &Json) -> String {
    let contained = contained(metadata);
    let others = array(&metadata["packages"])
        .filter(|package| package["source"].is_string() && contained.contains(package["id"].as_str().unwrap()));
    let mut by_text: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut table = BTreeSet::new();
    for package in others {
        let name = format!("{} {}", package["name"].as_str().unwrap(), package["version"].as_str().unwrap());
        let license = package["license"].as_str().unwrap_or("see its files");
        table.insert(format!("| {name} | {license} |\n"));
        for text in license_texts(Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap(), license) {
            by_text.entry(text).or_default().insert(name.clone());
        }
    }
    let mut all = String::from(
        "# Licences of other software\n\nThe executable `perf-prof` and the module of the package contain these crates.\n\n\
         | crate | licence |\n|---|---|\n",
    );
    all.extend(table);
    let mut texts: Vec<(BTreeSet<String>, String)> = by_text.into_iter().map(|(text, names)| (names, text)).collect();
    texts.sort();
    for (names, text) in texts {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        all += &format!("\n## {names}\n\n```text\n{text}\n```\n");
    }
    all
}

/// Returns the licences in a crate's folder. For `MIT OR Apache-2.0`, returns only the MIT licence.
fn license_texts(folder: &Path, license: &str) -> Vec<String> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().to_uppercase();
    files.retain(|path| {
        path.is_file()
            && ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"]
                .iter()
                .any(|start| name(path).starts_with(start))
    });
    let is_mit =
        license.contains("MIT") && license.contains("OR") && files.iter().any(|path| name(path).contains("MIT"));
    let chosen = files.iter().filter(|path| !is_mit || name(path).contains("MIT") || name(path).starts_with("NOTICE"));
    // Three backticks in a licence would end the block of code.
    let read = |path: &std::path::PathBuf| fs::read_to_string(path).ok().map(|text| text.trim().replace("```", "'''"));
    chosen.filter_map(read).map(|text| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")).collect()
}

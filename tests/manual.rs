//! Checks the manual pages: each command has one, and neither man nor mandoc complains about them.

use std::{env, fs, path::Path, process::Command};

use crate::harness::{
    machine::{Need, needs, skip},
    run::tested_program,
};

fn pages(folder: &Path) -> Vec<String> {
    let mut command = Command::new(tested_program());
    assert!(command.arg("man").arg(folder).env("SOURCE_DATE_EPOCH", "86400").status().unwrap().success());
    names(folder)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns the lines of a page without the date of the last change in its title.
fn undated(page: &str) -> Vec<String> {
    let line = |line: &str| match line.starts_with(".TH ") {
        true => line.split(' ').enumerate().filter(|(at, _)| *at != 3).map(|(_, word)| word).collect(),
        false => line.to_owned(),
    };
    page.lines().map(line).collect()
}

/// The Python package installs pages from the repository, because its build cannot run the program. `UPDATE_EXPECT=1
/// cargo test --test integration generated_parts` writes pages that differ.
#[test]
fn generated_parts_of_the_package_are_what_the_program_writes() {
    needs([Need::Python]);
    let folder = tempfile::tempdir().unwrap();
    let installed = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/python/wheel/data/share/man/man1"));
    let mut man = Command::new(env!("CARGO_BIN_EXE_perf-prof"));
    assert!(man.arg("man").arg(folder.path()).status().unwrap().success());
    let written = names(folder.path());
    let update = env::var_os("UPDATE_EXPECT").is_some();
    for page in &written {
        let new = fs::read_to_string(folder.path().join(page)).unwrap();
        let old = fs::read_to_string(installed.join(page)).unwrap_or_default();
        if undated(&old) != undated(&new) {
            assert!(
                update,
                "{page} differs from what `perf-prof man` writes\n`UPDATE_EXPECT=1 cargo test --test integration \
                 generated_parts` updates it"
            );
            fs::write(installed.join(page), new).unwrap();
        }
    }
    for page in names(installed).iter().filter(|page| !written.contains(page)) {
        assert!(update, "{page} is the page of no command");
        fs::remove_file(installed.join(page)).unwrap();
    }
}

#[test]
fn every_command_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let names = pages(&folder.path().join("new/man1"));
    let help = Command::new(tested_program()).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands = commands.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let commands = commands.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next());
    let mut expected: Vec<String> = commands.map(|name| format!("perf-prof-{name}.1")).collect();
    expected.push("perf-prof.1".into());
    expected.sort();
    assert!(expected.len() > 8, "{help}");
    assert_eq!(names, expected);
}

#[test]
fn mandoc_finds_no_mistake() {
    let folder = tempfile::tempdir().unwrap();
    for page in pages(folder.path()) {
        let mut mandoc = Command::new("mandoc");
        let Ok(output) = mandoc.args(["-T", "lint", "-W", "warning"]).arg(folder.path().join(&page)).output() else {
            skip(Need::Programs, "mandoc is not installed");
        };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.is_empty(), "{page}: {said}");
    }
}

/// A page contains all lines that `--help` prints after the options, with their line breaks and columns.
#[test]
fn pages_have_the_examples_of_the_help() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = 0;
    for page in pages(folder.path()).iter().filter(|page| *page != "perf-prof.1") {
        let command = page.trim_start_matches("perf-prof-").trim_end_matches(".1");
        let help = Command::new(tested_program()).args([command, "--help"]).env("COLUMNS", "100").output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        let text = fs::read_to_string(folder.path().join(page)).unwrap().replace("\\-", "-").replace("\\&", "");
        assert!(text.starts_with(".ie") && text.contains(" 1970-01-02 "), "{page}: {text}");
        let examples = help.split("\nExamples").nth(1).unwrap_or_default();
        for line in examples.lines().skip(1).take_while(|line| line.starts_with(' ')) {
            lines += 1;
            let line = line.replace('\\', "\\e").replace('\'', "\\*(Aq");
            // The help breaks lines that are longer than the terminal.
            let has = |found: &str| found.starts_with(&line) || found.ends_with(line.trim());
            assert!(text.lines().any(has), "{page} lacks `{line}`:\n{text}");
        }
    }
    assert!(lines > 40, "{lines}");
}

//! The scripts that are part of the program are listed, and run by name.

use std::{fs, path::Path};

use crate::harness::{
    machine::{Need, needs},
    run::{perf_prof, printed, said, stdout},
};

#[test]
fn every_script_is_part_of_the_program() {
    needs([Need::Python]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let mut names: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|end| end == "py"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    let lines = printed(&perf_prof(&["scripts"]).output().unwrap());
    let listed: Vec<&str> = lines.iter().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(listed, names);
    assert!(
        lines.iter().all(|line| line.split_once("  ").is_some_and(|(_, about)| about.trim().len() > 10)),
        "{lines:?}"
    );
    for name in names {
        let text = stdout(&perf_prof(&["scripts", &name]).output().unwrap());
        assert_eq!(text.trim_end(), fs::read_to_string(folder.join(format!("{name}.py"))).unwrap().trim_end());
    }
}

#[test]
fn a_script_runs_by_its_name_with_the_events_of_its_first_line() {
    needs([Need::Python, Need::Tracefs]);
    let temporary = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| perf_prof(&["run"]).args(args).env("TMPDIR", temporary.path()).output().unwrap();
    let output = run(&["execsnoop", "--exec", "sh", "-c", "/bin/true; /bin/echo made"]);
    let text = stdout(&output);
    assert!(text.contains("/bin/true") && text.contains("/bin/echo"), "{text}{}", said(&output));
    let help = stdout(&run(&["execsnoop", "--help"]));
    assert!(help.contains("usage: execsnoop.py"), "{help}");
    let unknown = run(&["execsnop"]);
    assert_eq!(
        said(&unknown),
        "perf-prof: there is no script `execsnop`; did you mean `execsnoop`?\n`perf-prof scripts` lists the scripts\n"
    );
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
}

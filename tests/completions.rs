//! The completions of bash, zsh and fish, in the real shells. All shells must offer the same words.

use std::{fs, path::Path, process::Command};

use crate::harness::{
    machine::{Need, needs, skip},
    run::tested_program,
};

/// Calls the completion function as readline does, which splits words at : and =. `$1` is the command line.
const BASH: &str = r#"
source <(perf-prof completions bash)
COMP_LINE=$1 COMP_POINT=${#1}
mapfile -t COMP_WORDS < <(grep -oE '"[^"]*|[:=]+|[^ :="]+' <<<"$1")
[[ $1 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_perf_prof
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// Calls the completion function with the words as zsh splits them, and prints the offered words.
const ZSH: &str = r#"
autoload -U compinit && compinit -u -D
source <(perf-prof completions zsh)
compadd() { while [[ $1 == -* ]]; do [[ $1 == -[dS] ]] && shift; shift; done; for name; do print -rl -- ${(P)name}; done }
_files() { print files; }
words=("${(@s: :)1}") CURRENT=$#words PREFIX=$words[-1]
_perf-prof
"#;

const FISH: &str = r#"
source (perf-prof completions fish | psub)
complete --do-complete $argv[1]
"#;

fn shell(shell: &str, args: &[&str], folder: &Path) -> Vec<String> {
    let found = Path::new(tested_program()).parent().unwrap().to_str().unwrap().to_owned();
    let path = format!("{found}:{}", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(shell);
    let output = match command.args(args).env("PATH", path).env("HOME", folder).current_dir(folder).output() {
        Err(_) => skip(Need::Programs, format!("{shell} is not installed")),
        Ok(output) => output,
    };
    assert!(output.stderr.is_empty(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    // Some shells show a tab and an explanation after a word.
    let words = text.lines().map(|line| line.split('\t').next().unwrap_or_default().trim().to_owned());
    words.filter(|word| !word.is_empty()).collect()
}

/// Returns the words that each shell offers at the end of the line. All shells must offer the same words.
#[track_caller]
fn offered(line: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for file in ["recorded.data", "handlers.py"] {
        fs::write(folder.path().join(file), "").unwrap();
    }
    fs::create_dir(folder.path().join("tests")).unwrap();
    let run = |name, args: &[&str]| shell(name, &[args, &[line]].concat(), folder.path());
    let zsh = run("zsh", &["-f", "-c", ZSH, "zsh"]);
    let mut fish = run("fish", &["--no-config", "-c", FISH]);
    let mut sorted = zsh.clone();
    sorted.sort();
    fish.sort();
    assert_eq!(sorted, fish, "zsh and fish differ: {line}");
    // Readline replaces only the text after the last : or =. So bash offers only this text.
    let last = line.rsplit(' ').next().unwrap_or_default();
    let kept = last.rfind([':', '=']).map_or(0, |at| at + 1);
    let bash: Vec<String> = run("bash", &["--norc", "-c", BASH, "bash"]);
    let bash: Vec<String> = bash.iter().map(|word| last[..kept].to_owned() + word).collect();
    let mut in_bash = bash.clone();
    in_bash.sort();
    assert_eq!(in_bash, sorted, "bash and zsh differ: {line}");
    bash
}

#[test]
fn commands_options_and_fixed_values() {
    assert_eq!(offered("perf-prof re"), ["record", "report"]);
    assert_eq!(offered("perf-prof report --flam"), ["--flame"]);
    assert_eq!(offered("perf-prof completions "), ["bash", "zsh", "fish", "--help"]);
    assert_eq!(offered("perf-prof record --call-graph d"), ["dwarf"]);
    assert_eq!(offered("perf-prof help repo"), ["report"]);
    assert_eq!(offered("perf-prof help bucke"), ["bucket"]);
}

#[test]
fn events_of_this_kernel() {
    needs([Need::Tracefs]);
    assert_eq!(offered("perf-prof record -e sche"), ["sched:"]);
    assert_eq!(offered("perf-prof list sched:sched_swi"), ["sched:sched_switch"]);
    assert_eq!(offered("perf-prof stat --event=sched:sched_swi"), ["--event=sched:sched_switch"]);
    assert_eq!(offered("perf-prof stat -e page-faults,sched:sched_swi"), ["page-faults,sched:sched_switch"]);
    let mut named = offered("perf-prof record -e sched:");
    named.sort();
    let listed = Command::new(tested_program()).args(["list", "sched:*"]).output().unwrap();
    let mut listed: Vec<String> = String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect();
    listed.sort();
    assert!(listed.len() > 5, "{listed:?}");
    assert_eq!(named, listed);
}

#[test]
fn files_and_programs() {
    assert_eq!(offered("perf-prof report -i rec"), ["recorded.data"]);
    assert_eq!(offered("perf-prof record -o rec"), ["recorded.data"]);
    assert_eq!(offered("perf-prof report --input=rec"), ["--input=recorded.data"]);
    assert!(offered("perf-prof record -e page-faults -- mkdi").contains(&"mkdir".to_owned()));
}

/// The words of `python` are separated by perf-prof itself, and not by clap.
#[test]
fn words_of_python() {
    needs([Need::Python]);
    assert_eq!(offered("perf-prof python -e page-faults h"), ["handlers.py", "help"]);
    assert_eq!(offered("perf-prof python te"), ["tests/"]);
    assert_eq!(offered("perf-prof python -e page-faults handlers.py --orde"), ["--order"]);
    assert_eq!(offered("perf-prof python handlers.py rec"), ["recorded.data"]);
    assert!(offered("perf-prof python -e page-faults handlers.py --exec mkdi").contains(&"mkdir".to_owned()));
    assert_eq!(offered("perf-prof python -e page-faults handlers.py --exec cat rec"), ["recorded.data"]);
}

#[test]
fn scripts_of_perf() {
    needs([Need::Python]);
    let folder = tempfile::tempdir().unwrap();
    let wrappers = folder.path().join("scripts/python/bin");
    fs::create_dir_all(&wrappers).unwrap();
    fs::write(wrappers.join("sctop-report"), "# description: system calls\n").unwrap();
    let complete = |words: &[&str]| {
        let mut command = Command::new(tested_program());
        let output =
            command.args(["complete", "--"]).args(words).env("PERF_EXEC_PATH", folder.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete(&["perf-prof", "script", "report", "sc"]), "sctop\tsystem calls\n");
    assert_eq!(complete(&["perf-prof", "script", "sct"]), "sctop\tsystem calls\n");
}

/// A double quotation mark before the word stays.
#[test]
fn quoted_words() {
    needs([Need::Tracefs]);
    let folder = tempfile::tempdir().unwrap();
    let words = shell("bash", &["--norc", "-c", BASH, "bash", "perf-prof stat -e \"sched:sched_swi"], folder.path());
    assert_eq!(words, ["sched:sched_switch"]);
}

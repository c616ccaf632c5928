//! Python functions in what `report` and `top` make of a recording.

use std::fs;

use serde_json::Value as Json;
use tempfile::TempDir;

use super::python_frames::{BUSY, interpreters, record_busy};
use crate::harness::{
    machine::{Need, needs, skip},
    run::{perf_prof, said, stdout},
};

/// A recording of the busy program, and the folder that holds it.
struct Recorded {
    folder: TempDir,
    path: String,
}

impl Recorded {
    #[track_caller]
    fn new() -> Recorded {
        Recorded::of("profile")
    }

    #[track_caller]
    fn of(event: &str) -> Recorded {
        let Some(python) = interpreters().into_values().next() else {
            skip(Need::Python, "there is no CPython 3.11 to 3.15");
        };
        let folder = TempDir::new().unwrap();
        let path = record_busy(event, &format!("{} {BUSY}", python.display()), folder.path());
        Recorded { folder, path }
    }

    /// Returns what a command prints of the recording.
    #[track_caller]
    fn shown(&self, args: &[&str]) -> String {
        let output = perf_prof(args).args(["--input", &self.path]).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        stdout(&output)
    }

    /// Returns the file that `report --flame` writes.
    #[track_caller]
    fn flame(&self, name: &str, args: &[&str]) -> String {
        let path = self.folder.path().join(name);
        self.shown(&[&["report", "-q", "--flame", &path.display().to_string()], args].concat());
        fs::read_to_string(path).unwrap()
    }
}

#[test]
fn a_report_has_the_shares_of_python_functions_in_all_its_forms() {
    needs([Need::Bpf, Need::Python]);
    let recorded = Recorded::new();
    let json = recorded.shown(&["report", "--json", "--children", "--sort", "dso,symbol"]);
    let json: Json = serde_json::from_str(&json).unwrap();
    let lines = json["events"][0]["lines"].as_array().unwrap();
    let of = |symbol: &str, key: &str| {
        let is_function =
            |line: &&Json| line["dso"] == "busy_functions.py" && line["symbol"] == format!("[.] {symbol}");
        lines.iter().find(is_function).map_or(0.0, |line| line[key].as_f64().unwrap())
    };
    let turn = of("turn", "children");
    for (function, share) in [("half", 1. / 2.), ("third", 1. / 3.), ("sixth", 1. / 6.)] {
        let is = of(function, "children") / turn;
        assert!((is - share).abs() < 0.05, "{function}: {is}");
    }
    let is_loop = |line: &&Json| line["symbol"].as_str().unwrap().contains("_PyEval_EvalFrameDefault");
    let of_loop: f64 = lines.iter().filter(is_loop).map(|line| line["period"].as_f64().unwrap()).sum();
    // The samples in the main loop are those of the function that it runs.
    assert!(of("spin", "period") > 10.0 * of_loop, "{} {of_loop}", of("spin", "period"));

    let table = recorded.shown(&["report", "-g"]);
    let is_spin = |line: &&str| line.contains(" busy_functions.py ") && line.ends_with(" [.] spin");
    let tree: Vec<&str> =
        table.lines().skip_while(|line| !is_spin(line)).skip(1).take_while(|line| !line.is_empty()).collect();
    // The share of the others may be too small to be shown: while others trace system calls, most of the time goes to the
    // calls that read the clock.
    assert!(tree.iter().any(|line| line.ends_with(" half")), "{table}");
}

#[test]
fn a_table_by_lines_names_the_line_of_each_function() {
    needs([Need::Bpf, Need::Python]);
    let recorded = Recorded::new();
    let text = fs::read_to_string(BUSY).unwrap();
    let at = |function: &str, of: &str| {
        let line = 1 + text.lines().position(|line| line.trim().starts_with(of)).unwrap();
        format!("{function} (busy_functions.py:{line})_[python]")
    };
    let chain = [("<module>", "turn()"), ("turn", "half()"), ("half", "spin(0.03)"), ("spin", "while time")];
    let chain = chain.map(|(function, of)| at(function, of)).join(";");
    let table = recorded.shown(&["top", "--by", "stack_lines", "--python=only", "-n", "1000"]);
    let rows: Vec<&str> = table.lines().filter(|line| line.ends_with(&format!(" {chain}"))).collect();
    assert_eq!(rows.len(), 1, "{chain} {table}");
}

#[test]
fn flame_graphs_of_a_recording_have_python_functions_or_only_these_or_none() {
    needs([Need::Bpf, Need::Python]);
    let recorded = Recorded::new();
    let chain = "turn_[python];half_[python];spin_[python]";
    let folded = recorded.flame("x.folded", &[]);
    assert!(folded.contains(&format!(";{chain};")) && folded.contains(&format!(";{chain} ")), "{folded}");
    let only = recorded.flame("only.folded", &["--python=only"]);
    assert!(only.lines().any(|line| line.contains(&format!(";<module>_[python];{chain} "))), "{only}");
    assert!(!only.contains(&format!("{chain};")), "{only}");
    let none = recorded.flame("none.folded", &["--python=no"]);
    assert!(!none.contains("[python]") && none.contains("_PyEval_EvalFrameDefault"), "{none}");
    let picture = recorded.flame("x.svg", &[]);
    assert!(picture.contains("green: Python, ") && picture.contains("<title>half ("), "{}", picture.len());
}

#[test]
fn samples_are_selected_by_the_python_function_and_its_file() {
    needs([Need::Bpf, Need::Python]);
    let recorded = Recorded::new();
    let lines = |args: &[&str]| {
        let json = recorded.shown(&[&["report", "--json", "--sort", "dso,symbol"], args].concat());
        let json: Json = serde_json::from_str(&json).unwrap();
        let line = |line: &Json| {
            let text = |key: &str| line[key].as_str().unwrap().to_owned();
            (text("dso"), text("symbol"), line["period"].as_f64().unwrap())
        };
        json["events"][0]["lines"].as_array().unwrap().iter().map(line).collect::<Vec<_>>()
    };
    let all = lines(&[]);
    let of_spin: Vec<_> =
        all.iter().filter(|line| line.0 == "busy_functions.py" && line.1 == "[.] spin").cloned().collect();
    assert_eq!((of_spin.len(), lines(&["-S", "spin"])), (1, of_spin), "{all:?}");
    let of_file: Vec<_> = all.iter().filter(|line| line.0 == "busy_functions.py").cloned().collect();
    assert_eq!(lines(&["--dsos", "busy_functions.py"]), of_file, "{all:?}");
    assert_eq!(lines(&["--dsos", BUSY]), of_file, "{all:?}");
    assert!(lines(&["-S", "spin", "--python=no"]).is_empty());
}

/// The chains have no kernel frames, so they begin with Python's also where the sample is the kernel's.
#[test]
fn samples_in_the_kernel_are_not_selected_by_the_python_function_that_called_it() {
    needs([Need::Bpf, Need::Python]);
    let recorded = Recorded::of("profile/--no-kernel-callchain/");
    let all = recorded.shown(&["report", "--sort", "dso"]);
    assert!(all.contains(" [kernel.kallsyms]") && all.contains(" busy_functions.py"), "{all}");
    let of_spin = recorded.shown(&["report", "-S", "spin", "--sort", "dso"]);
    assert!(!of_spin.contains("[kernel.kallsyms]") && of_spin.contains("100.00%  busy_functions.py"), "{of_spin}");
}

#[test]
fn names_of_python_functions_and_their_files_are_suggested() {
    needs([Need::Bpf, Need::Python]);
    let recorded = Recorded::new();
    let folder = BUSY.strip_suffix("busy_functions.py").unwrap();
    let wrong = format!("{folder}busy_function.py");
    for (args, meant) in [
        (["-S", "spinn"], "; did you mean spin?\n"),
        (["--dsos", "busy_function.py"], "; did you mean busy_functions.py?\n"),
        (["--dsos", &wrong], &format!("; did you mean {BUSY}?\n")),
    ] {
        let output = perf_prof(&["report", "--input", &recorded.path]).args(args).output().unwrap();
        assert!(said(&output).ends_with(meant), "{}", said(&output));
    }
    // A path that exists is no mistake: it is the function that no sample has.
    let args = ["report", "--input", &recorded.path, "--dsos", BUSY, "-S", "xyz_none"];
    let said = said(&perf_prof(&args).output().unwrap());
    assert!(said.contains("none of ") && !said.contains("did you mean"), "{said}");
}

/// Prints the functions and files of the call chain of each sample, innermost first.
const PERF_SCRIPT: &str = "\
def process_event(event):
    print(*(f\"{frame.get('sym', {}).get('name')}@{frame.get('dso')}\" for frame in event['callchain']))
";

#[test]
fn texts_exports_and_scripts_of_perf_have_python_functions_if_the_user_wants_them() {
    needs([Need::Bpf, Need::Python]);
    let recorded = Recorded::new();
    let script = recorded.folder.path().join("chains.py");
    fs::write(&script, PERF_SCRIPT).unwrap();
    let script = script.display().to_string();
    let ndjson: &[&str] = &["export", "-o", "-", "--format", "ndjson"];
    let commands: [(&[&str], &str, &str); 3] = [
        (ndjson, "--python", "yes"),
        // `--python` of `script` selects the interpreter of the script.
        (&["script"], "--python-frames", "no"),
        (&["script", "-s", &script], "--python-frames", "no"),
    ];
    for (command, option, usual) in commands {
        let with = |value: &str| recorded.shown(&[command, &[&format!("{option}={value}")]].concat());
        let [yes, only, no] = ["yes", "only", "no"].map(with);
        let functions = |shown: &str| shown.matches("busy_functions.py").count();
        let found = [&yes, &only, &no].map(|shown| functions(shown));
        assert!(found[0] > 100 && found[0] == found[1] && found[2] == 0, "{command:?}: {found:?}");
        assert!(no.contains("_PyEval_EvalFrameDefault"), "{command:?}");
        assert!(only.len() < yes.len(), "{command:?}: {} {}", only.len(), yes.len());
        assert!(recorded.shown(command) == if usual == "yes" { yes } else { no }, "{command:?}");
    }
    let text = recorded.shown(&["script", "--python-frames=yes"]);
    let (spin, half) =
        (text.find(" spin (busy_functions.py:").unwrap(), text.find(" half (busy_functions.py:").unwrap());
    assert!(spin < half, "{text}");
    let error = perf_prof(&["script", "-s", &script, "-e", "profile", "--python-frames=yes"]).output().unwrap();
    let error = String::from_utf8_lossy(&error.stderr).into_owned();
    assert!(error.contains("-e and --python-frames cannot be combined"), "{error}");
}

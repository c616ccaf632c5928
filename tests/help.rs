//! `perf-prof help WORD` finds everything by its name, and by other words that users type.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::harness::{
    machine::{Need, needs},
    run::tested_program,
};

fn help(words: &[&str]) -> Output {
    Command::new(tested_program()).arg("help").args(words).env("COLUMNS", "100").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An entry that `--json` prints.
struct Entry {
    kind: String,
    name: String,
    place: String,
}

/// Returns what `help --json` prints with these arguments.
fn found(words: &[&str]) -> Vec<Entry> {
    let output = help(&[&["--json"], words].concat());
    let stdout = text(&output.stdout);
    let entries: Vec<serde_json::Value> =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{words:?}: {error}\n{stdout}"));
    let value = |entry: &serde_json::Value, key: &str| entry[key].as_str().unwrap().to_owned();
    let entry = |entry| Entry { kind: value(entry, "kind"), name: value(entry, "name"), place: value(entry, "place") };
    entries.iter().map(entry).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn files(folder: &str, ending: &str) -> Vec<String> {
    let names = fs::read_dir(root().join(folder)).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(ending)).map(|name| format!("{folder}/{name}")).collect()
}

/// Returns the names in the index, without parameters and values: `--pid` for `-p, --pid <LIST>`.
fn names(kinds: &[&str]) -> BTreeSet<String> {
    let all = found(&["--all"]).into_iter().filter(|entry| kinds.contains(&&*entry.kind));
    let parts = |name: &str| name.split(['(', '<', '=', ' ', ',']).map(str::to_owned).collect::<Vec<_>>();
    all.flat_map(|entry| parts(&entry.name).into_iter().chain([entry.name])).collect()
}

#[track_caller]
fn all_in(index: &BTreeSet<String>, expected: &[String]) {
    let missing: Vec<_> = expected.iter().filter(|name| !index.contains(*name)).collect();
    assert!(missing.is_empty(), "`perf-prof help` does not find {missing:?}");
}

#[test]
fn every_option_of_every_command_is_found() {
    let index = names(&["option"]);
    let commands: Vec<String> =
        found(&["--all"]).iter().filter_map(|entry| entry.name.strip_prefix("perf-prof ")).map(str::to_owned).collect();
    for command in commands.iter().filter(|command| !command.contains(' ')) {
        let output = Command::new(tested_program()).args([command, "--help"]).output().unwrap();
        let help = text(&output.stdout);
        // A line with more indentation that starts with `-` is an option in an example.
        let options = help.lines().filter(|line| line.trim_start().starts_with('-') && !line.starts_with("       "));
        let names =
            options.filter_map(|line| line.split([' ', ',', '=', '[', '.']).find(|word| word.starts_with("--")));
        let names = names.filter(|name| !["--help", "--version"].contains(name));
        all_in(&index, &names.map(str::to_owned).collect::<Vec<_>>());
    }
    assert!(commands.len() > 12 && index.len() > 100, "{commands:?}");
}

#[test]
fn every_source_with_its_fields_is_found() {
    let index = names(&["source"]);
    let listed = Command::new(tested_program()).args(["list", "--json", "-v"]).output().unwrap();
    let listed: Vec<serde_json::Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let mut expected = Vec::new();
    for source in listed.iter().filter(|event| event["about"].is_string()) {
        let name = source["event"].as_str().unwrap();
        expected.push(name.split(':').next().unwrap().to_owned());
        let fields = source["fields"].as_array().unwrap().iter().filter_map(|field| field["name"].as_str());
        expected.extend(fields.filter(|field| *field != "duration").map(str::to_owned));
    }
    assert!(expected.len() > 80, "{expected:?}");
    let without_place: BTreeSet<String> =
        index.iter().flat_map(|name| name.split([':', '/'])).map(str::to_owned).collect();
    all_in(&without_place, &expected);
}

#[test]
fn every_event_that_is_listed_is_found() {
    let index = names(&["event", "source"]);
    let expected =
        ["profile", "page-faults", "cpu-clock", "cycles", "LLC-load-misses", "offcpu", "mem:ADDR[/LEN][:rwx]"];
    all_in(&index, &expected.map(str::to_owned));
}

#[test]
fn every_script_with_its_options_is_found() {
    needs([Need::Python]);
    let index: BTreeSet<String> = found(&["--all"]).into_iter().map(|entry| entry.name).collect();
    let mut expected = Vec::new();
    for script in files("scripts", ".py") {
        for (_, option) in read(&script).split("add_argument(").skip(1).filter_map(|call| call.split_once('"')) {
            let option = option.split('"').next().unwrap();
            if option != "--usage" {
                expected.push(format!("{script} {option}"));
            }
        }
        expected.push(script);
    }
    let begins = |name: &String| index.iter().any(|found| found == name || found.starts_with(&format!("{name} ")));
    let missing: Vec<_> = expected.iter().filter(|name| !begins(name)).collect();
    assert!(missing.is_empty() && expected.len() > 60, "`perf-prof help` does not find {missing:?}");
}

#[test]
fn every_name_of_the_package_is_found() {
    needs([Need::Python]);
    let index = names(&["module", "aggregator", "member"]);
    let package = read("python/perf_prof/__init__.py");
    // The package exports a name with `import X as X`.
    let lines =
        package.lines().map(str::trim).filter(|line| !line.starts_with("from ") && !line.starts_with("except "));
    let imported = lines.filter_map(|line| line.split_once(" as "));
    let exported = imported.map(|(name, _)| name).filter(|name| !name.starts_with('_'));
    let mut expected: Vec<String> = exported.map(str::to_owned).collect();
    assert!(expected.len() > 60, "{expected:?}");
    for member in ["_pid", "_realtime", "_callchain", "text", "array", "branch_stack", "between"] {
        expected.push(format!("event.{member}"));
    }
    expected.extend(["Hist", "Log2Hist.add", "Parts.merge", "testing.make_event"].map(str::to_owned));
    all_in(&index, &expected);
}

#[test]
fn every_attribute_callback_and_variable_is_found() {
    let index = names(&["attribute", "environment"]);
    let refused =
        Command::new(tested_program()).args(["record", "-e", "sched:sched_wakeup//no-such/"]).output().unwrap();
    let refused = text(&refused.stderr);
    let (_, known) = refused.lines().next().unwrap().split_once("the known attributes are ").expect("attributes");
    let mut expected: Vec<String> =
        known.split([' ', ',']).filter_map(|word| word.split_once('=')).map(|(name, _)| name.to_owned()).collect();
    expected.extend(["stack", "min", "nested", "open", "key", "max-open"].map(str::to_owned));
    assert!(expected.len() > 10, "{known}");
    expected.extend(variables_in_the_code());
    all_in(&index, &expected);
    if names(&["option"]).contains("--executor") {
        let callbacks = ["__sample__", "__init__", "__exit__", "__interval__", "__lost__", "__partial__", "__merge__"];
        all_in(&names(&["callback"]), &callbacks.map(str::to_owned));
    }
}

/// Returns the environment variables that the code reads.
fn variables_in_the_code() -> BTreeSet<String> {
    fn read_folder(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                read_folder(&entry.path(), found);
            } else if let Ok(text) = fs::read_to_string(entry.path()) {
                for call in ["env::var(\"", "var_os(\"", "variable(\"", "const VARIABLE: &str = \"", "of_sudo(\""] {
                    let names = text.split(call).skip(1).filter_map(|rest| rest.split('"').next());
                    found.extend(names.filter(|name| !name.starts_with("PYO3_BUILD_EXTENSION")).map(str::to_owned));
                }
            }
        }
    }
    let mut found = BTreeSet::new();
    read_folder(&root().join("src"), &mut found);
    found.retain(|name| !["OUT_DIR", "CARGO_MANIFEST_DIR"].contains(&&**name));
    assert!(found.contains("PERF_PROF_COMPAT") && found.contains("NO_COLOR") && found.len() > 8, "{found:?}");
    found
}

/// Returns the anchors of the headings in a document, as GitHub makes them.
fn anchors(document: &str) -> Vec<String> {
    let mut fenced = false;
    let text = read(document);
    let headings = text.lines().filter(move |line| {
        fenced ^= line.starts_with("```");
        !fenced && line.starts_with('#') && line.trim_start_matches('#').starts_with(' ')
    });
    let anchor = |line: &str| {
        let kept = line.trim_start_matches('#').trim().chars();
        let kept = kept.filter(|&c| c.is_alphanumeric() || " -_".contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect::<String>()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_section_is_found_and_every_place_exists() {
    let places: BTreeSet<String> = found(&["--all"]).into_iter().map(|entry| entry.place).collect();
    let mut sections = BTreeSet::new();
    for document in files("docs", ".md").into_iter().chain(["README.md".to_owned()]) {
        sections.extend(anchors(&document).into_iter().map(|anchor| format!("{document}#{anchor}")));
    }
    let in_documents: BTreeSet<String> = places.into_iter().filter(|place| place.contains(".md")).collect();
    assert!(sections.len() > 200, "{sections:?}");
    assert_eq!(sections.difference(&in_documents).collect::<Vec<_>>(), Vec::<&String>::new(), "not in the index");
    assert_eq!(in_documents.difference(&sections).collect::<Vec<_>>(), Vec::<&String>::new(), "no such section");
}

/// Checks that a search shows entries with these names.
#[track_caller]
fn finds(words: &str, expected: &[&str]) {
    let hits = found(&words.split(' ').collect::<Vec<_>>());
    let has = |name: &&&str| hits.iter().any(|hit| hit.name.contains(**name) || hit.place.contains(**name));
    let missing: Vec<_> = expected.iter().filter(|name| !has(name)).collect();
    let names: Vec<_> = hits.iter().map(|hit| &hit.name).collect();
    assert!(missing.is_empty(), "help {words} does not find {missing:?}, but {names:?}");
}

#[test]
fn words_that_users_type_lead_to_what_exists() {
    finds("percent", &["--time", "perf-prof hist"]);
    finds("nginx", &["-e uprobe:FUNCTION@nginx", "-e function:FUNCTION@nginx", "pgrep"]);
    finds("bucket", &["perf-prof hist", "docs/reference.md#log2hist", "docs/writing-scripts.md#histograms"]);
    finds("latency", &["min=TIME", "docs/writing-scripts.md#pairs-of-events-latency"]);
    finds("flame", &["--flame", "docs/writing-scripts.md#flame-graphs"]);
    finds("slow", &["offcpu", "scripts/slowcalls.py -p PID"]);
    finds("memory", &["alloc", "--buffer", "scripts/memleak.py", "docs/security.md#what-bounds-memory"]);
    finds("lost", &["--mmap-pages", "docs/writing-scripts.md#is-it-complete", "docs/reference.md#losses"]);
    finds("histogram", &["perf-prof hist", "docs/writing-scripts.md#histograms"]);
    finds("container", &["--cgroups", "event.cgroup", "mnt_ns", "scripts/opensnoop.py"]);
    finds("cgroup", &["--cgroups", "--all-cgroups", "--for-each-cgroup", "event.cgroup"]);
    for words in ["CLOSE_WAIT", "leak connections"] {
        finds(words, &["tcp", "states", "scripts/tcplife.py"]);
    }
    for words in ["churn", "ECONNREFUSED", "ECONNRESET", "tcpconnect", "tcpretrans"] {
        finds(words, &["tcp", "scripts/tcplife.py"]);
    }
    finds("json", &["--json", "perf-prof export"]);
    finds("csv", &["perf-prof export"]);
    finds("time range", &["--time"]);
    for words in ["truncated", "killed"] {
        finds(words, &["docs/recordings.md#incomplete-recordings"]);
    }
    finds("rotate", &["--max-files"]);
    finds("thread", &["--tid"]);
    finds("call graph", &["--call-graph", "stack"]);
    finds("--mmap-pages", &["--mmap-pages"]);
    for words in ["iotop", "biotop", "O_DIRECT", "who dirtied", "dirty", "cold read"] {
        finds(words, &["block-io"]);
    }
    for words in ["iotop", "O_DIRECT", "who dirtied"] {
        finds(words, &["syscall/ret > 0/name=*write*/str/"]);
    }
    for words in ["queue depth", "iodepth", "in flight", "aqu-sz"] {
        finds(words, &["docs/sources.md#queue-depth", "block-io/op != \"flush\"/"]);
    }
    for words in ["sendfile", "copy_file_range", "splice"] {
        finds(words, &["syscall/ret > 0/name=*write*/str/"]);
    }
    finds("strace -r", &["--timestamps"]);
    finds("strace -Z", &["syscall/failed/"]);
    finds("strace -f", &["perf-prof trace"]);
    for words in ["exclude", "except", "leave out", "all but", "not", "ignore"] {
        finds(words, &["comm != \"x\""]);
    }
    for words in ["rotate", "max-size", "size limit", "split file"] {
        finds(words, &["--switch-output"]);
    }
    for words in ["io_uring", "uring"] {
        finds(words, &["docs/writing-scripts.md#pairs-of-events-latency"]);
    }
    for words in ["go", "golang"] {
        finds(words, &["docs/events-and-fields.md#before-you-use-probes"]);
    }
    finds("COMPRESSED2", &["docs/recordings.md#run-a-script-on-a-recording"]);
    finds("signal handler frame", &["docs/events-and-fields.md#call-chains"]);
    finds("folder", &["opensnoop", "syscall/str/"]);
    finds("inode", &["opensnoop"]);
    for words in ["watchpoint", "breakpoint", "memory write", "variable overwritten"] {
        finds(words, &["mem:ADDR/LEN:w"]);
    }
}

#[test]
fn words_lead_to_scripts_and_the_package() {
    needs([Need::Python]);
    finds("percent", &["--watermark", "Distribution.percentile"]);
    finds("--watermark", &["--watermark"]);
    finds("unix socket", &["--listen"]);
    finds("bucket", &["Log2Hist(", "Hist(value"]);
    finds("follow children", &["--exec"]);
    finds("slow", &["scripts/slowcalls.py", "scripts/offcpu.py"]);
    finds("flame", &["FlameGraph(", "scripts/profile.py --flame"]);
    finds("lost", &["__lost__("]);
    finds("unsigned", &["--signed"]);
    for words in ["unit test", "fake events", "mock"] {
        finds(words, &["testing.make_event(event, *, formats, **fields)"]);
    }
    finds("thread", &["event._tid"]);
    finds("cgroup", &["event._cgroup"]);
    finds("latency", &["scripts/runqlat.py", "scripts/uprobe_latency.py"]);
}

#[test]
fn hits_are_grouped_and_say_where_to_read_on() {
    let output = help(&["percent"]);
    let text = text(&output.stdout);
    let option = "  --watermark <PCT>  (perf-prof python --help)\n      Read a ring buffer when it is PCT percent full";
    assert!(text.contains("Options\n  "), "{text}");
    // A build without Python has no command with this option, so it is not in the index.
    assert!(text.contains(option) || names(&["option"]).iter().all(|name| name != "--watermark"), "{text}");
    assert!(text.lines().count() < 80 && text.contains("more: perf-prof help --all percent"), "{text}");
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn mistyped_words_find_what_was_meant() {
    let output = help(&["cgruops"]);
    assert!(text(&output.stdout).contains("--cgroups"), "{output:?}");
    assert_eq!(text(&output.stderr), "perf-prof: nothing matches `cgruops`; this is about `cgroups`\n");
}

#[test]
fn a_word_that_nothing_has_ends_with_similar_words_and_the_way_to_the_list() {
    let output = help(&["zebrafish"]);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty() && message.starts_with("perf-prof: nothing matches `zebrafish`"), "{message}");
    assert!(message.contains("`perf-prof help --all` lists everything"), "{message}");
    let listed = text(&help(&["--all"]).stdout);
    assert!(listed.starts_with("Commands\n  perf-prof  (perf-prof --help)\n"), "{listed:.200}");
}

#[test]
fn help_alone_and_with_a_command_is_what_the_option_prints() {
    let option = |words: &[&str]| Command::new(tested_program()).args(words).env("COLUMNS", "100").output().unwrap();
    let outputs = |output: Output| (text(&output.stdout), text(&output.stderr), output.status.code());
    assert_eq!(outputs(help(&[])), outputs(option(&["--help"])));
    let commands = found(&["--all"]).into_iter().filter(|entry| entry.kind == "command" && entry.name != "perf-prof");
    let mut checked = 0;
    for entry in commands {
        let command = entry.name.trim_start_matches("perf-prof ");
        assert_eq!(outputs(help(&[command])), outputs(option(&[command, "--help"])), "{command}");
        checked += 1;
    }
    assert!(checked > 12, "{checked}");
    // `--search` searches for a word that is also the name of a command.
    finds("--search top", &["perf-prof top"]);
}

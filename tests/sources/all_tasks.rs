//! Sources with a command and `-a`, or with selected tasks and `--all-cpus`. The spans of all tasks are delivered while
//! the command runs.

use std::process::{Child, Command};

use crate::harness::{
    awake::Awake,
    counting::objects,
    machine::{Need, needs},
    recording::Folder,
    run::{perf_prof, said, stdout},
    script::{Run, workload},
    task,
};

/// A process that naps beside the command.
struct Neighbour(Child);

impl Neighbour {
    fn start() -> Neighbour {
        needs([Need::Tracefs]);
        let words = workload(&format!("comm neighbour {}", "sleep-ms 20 ".repeat(2000)));
        Neighbour(Command::new(&words[0]).args(&words[1..]).spawn().unwrap())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Returns the name of the command of this test. The command of another test may run at the same time.
fn own_name() -> String {
    format!("own-{}", task::gettid())
}

/// Returns the operations of a command with this name.
fn command_named(name: &str) -> String {
    format!("comm {name} sleep-ms 300")
}

#[test]
fn a_command_with_all_cpus_shows_the_spans_of_all_tasks_while_it_runs() {
    let _awake = Awake::new();
    let _neighbour = Neighbour::start();
    let own = own_name();
    for (command, source) in [("top", "offcpu"), ("top", "syscall"), ("top", "runqueue"), ("hist", "offcpu")] {
        for (all, expected) in [(&[][..], false), (&["-a"][..], true)] {
            let output = perf_prof(&[command, source, "--by", "comm", "--json"])
                .args(all)
                .arg("--")
                .args(workload(&command_named(&own)))
                .output()
                .unwrap();
            let text = stdout(&output);
            let has_row = |name: &str| {
                let rows: Vec<_> = objects(&text)
                    .into_iter()
                    .flat_map(|table| table["rows"].as_array().cloned().unwrap_or_default())
                    .collect();
                rows.iter().any(|row| row["comm"] == name)
            };
            assert_eq!(
                (has_row(&own), has_row("neighbour")),
                (true, expected),
                "{command} {source} {all:?}: {text}{}",
                said(&output)
            );
        }
    }
}

#[test]
fn all_cpus_of_a_script_delivers_the_spans_of_all_tasks_and_selects_none() {
    let _awake = Awake::new();
    let _neighbour = Neighbour::start();
    let own = own_name();
    let script = format!(
        "
import perf_prof
seen = set()
def offcpu(e):
    if e.comm in ('{own}', 'neighbour'): seen.add((e.comm, perf_prof.is_target(e.pid)))
def __exit__(): print(sorted(seen))
"
    );
    let run = Run::script(&script)
        .event("offcpu")
        .options(["-q", "--all-cpus", "--record", "r.data"])
        .workload(&command_named(&own));
    let outcome = run.run();
    assert_eq!(outcome.stdout, format!("[('neighbour', False), ('{own}', True)]\n"), "{}", outcome.stderr);
    let pids = Run::script(&format!("def offcpu(e):\n    if e.comm == '{own}': print(e.begin._pid)\n")).event("offcpu");
    let pid = pids.options(["-q", "--input", run.path("r.data").to_str().unwrap()]).run().stdout;
    let options = ["-q", "--all-cpus", "-p", pid.lines().next().unwrap(), "--input"];
    let replayed = Run::script(&script).event("offcpu").options(options).options([run.path("r.data")]).run();
    assert_eq!(replayed.stdout, outcome.stdout, "{}", replayed.stderr);
}

#[test]
fn a_source_refuses_some_cpus_also_with_all_cpus() {
    let folder = Folder::new();
    let mut command = perf_prof(&["top", "offcpu//cpus=0/", "-a", "--", "true"]);
    let output = command.current_dir(folder.path("")).output().unwrap();
    assert!(said(&output).contains("needs the events of all CPUs"), "{}", said(&output));
}

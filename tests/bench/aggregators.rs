//! Measures aggregators, and handlers in Python that count the same: the time of a run minus the time of a run without
//! a handler, per event.

use super::{cpu::thread_ns, events, python, stacks, table::Table};

const EVENTS: u64 = 1_000_000;

/// For each row: its name, the aggregator, and the statement of a handler that counts the same.
const WAYS: [(&str, &str, &str); 5] = [
    ("one integer key", "Count('pid')", "counted[event.pid] += 1"),
    ("the field comm", "Count('comm')", "counted[event.comm] += 1"),
    ("comm and pid", "Count('comm', 'pid')", "counted[event.comm, event.pid] += 1"),
    ("a sum by pid", "Sum('prio', by='pid')", "counted[event.pid] += event.prio"),
    ("a histogram", "Hist('pid')", "log2.add(event.pid)"),
];
const START: &str = "    pass\n\nfrom collections import defaultdict\nfrom perf_prof import Count, Hist, Log2Hist, Stacks, Sum\n\
    counted = defaultdict(int)\nlog2 = Log2Hist()\n";
/// A script without handlers needs another callback.
const NOTHING: &str = "    pass\n\ndef __exit__():\n    pass\n\ndel sched__sched_wakeup\n";

pub fn rows(table: &mut Table) {
    let memory = events::Memory::new(table.effort.count(EVENTS), 1);
    let run = events::run(1);
    for (name, aggregator, function) in WAYS {
        let bodies = [
            NOTHING.to_owned(),
            format!("{START}sched__sched_wakeup = {aggregator}\n"),
            format!("{START}def sched__sched_wakeup(event):\n    {function}\n"),
        ];
        measure(table, name, aggregator, (&memory, &run), &bodies);
    }
    let name = format!("stacks of {} frames", stacks::FRAMES);
    match stacks::chains(table.effort.count(stacks::EVENTS)) {
        Ok((memory, run)) => {
            let graph = format!(
                "{START}from perf_prof import FlameGraph\ngraph = FlameGraph()\ndef sched__sched_wakeup(event):\n    graph.add(event)\n"
            );
            let bodies = [NOTHING.to_owned(), format!("{START}sched__sched_wakeup = Stacks(by='comm')\n"), graph];
            measure(table, &name, "Stacks(by='comm')", (&memory, &run), &bodies);
        }
        Err(reason) => {
            table.row(&format!("aggregator, {name}"), &[], "ns", &reason);
            table.row(&format!("in Python, {name}"), &[], "ns", &reason);
        }
    }
}

fn measure(
    table: &mut Table,
    name: &str,
    aggregator: &str,
    (memory, run): (&events::Memory, &std::sync::Arc<perf_prof_session::spine::About>),
    bodies: &[String; 3],
) {
    let mut programs = bodies.each_ref().map(|body| python::program(run.clone(), body));
    // The first delivery fills the tables and looks up the names.
    programs.iter_mut().for_each(|program| memory.deliver(program, run));
    let (mut native, mut in_python) = (Vec::new(), Vec::new());
    for _ in 0..table.effort.runs() {
        let times = programs.each_mut().map(|program| {
            let begun = thread_ns();
            memory.deliver(program, run);
            (thread_ns() - begun) as f64 / memory.events as f64
        });
        native.push(times[1] - times[0]);
        in_python.push(times[2] - times[0]);
    }
    programs.into_iter().for_each(perf_prof_python::script::Program::clear);
    let base = format!("aggregator, {name}");
    table.row(&base, &native, "ns", &format!("`{aggregator}`, over an event without a handler"));
    table.compared(&format!("in Python, {name}"), &in_python, (&base, &native), "ns", "the same in a function");
}

//! Measures the cost of each way to read an event: the time of a handler that reads ten times, minus the time of an
//! empty handler, per read.

use super::{cpu::thread_ns, events, python, table::Table};

const EVENTS: u64 = 200_000;
const TIMES: usize = 10;

pub fn rows(table: &mut Table) {
    let ways = [
        ("event.pid", "event.pid"),
        ("event.comm", "event.comm"),
        ("event['pid']", "event['pid']"),
        ("event.get('pid')", "event.get('pid')"),
        ("'pid' in event", "'pid' in event"),
        ("event.to_dict()", "event.to_dict()"),
        ("event.items()", "event.items()"),
        ("event.print()", "event.print()"),
        ("event.print() to a file", "event.print()"),
    ];
    let events = table.effort.count(EVENTS);
    let memory = events::Memory::new(events, 1);
    let mut empty = Vec::new();
    let nothing = "    pass\n".to_owned();
    for _ in 0..table.effort.runs() {
        empty.push(measure(&memory, &nothing));
    }
    for (name, expression) in ways {
        // The script replaces its stdout with an object that discards what `print` writes, or with a file whose
        // contents are discarded.
        let line = format!("    {expression}\n");
        let prelude = "    import sys\n    sys.stdout = null\n";
        let body = match name {
            "event.print() to a file" => format!(
                "    import sys\n    sys.stdout = null\n{}    sys.stdout = sys.__stdout__\n\nnull = open('/dev/null', 'w')\n",
                line.repeat(TIMES)
            ),
            "event.print()" => format!(
                "{prelude}{}    sys.stdout = sys.__stdout__\n\nclass null:\n    def write(text):\n        pass\n",
                line.repeat(TIMES)
            ),
            _ => line.repeat(TIMES),
        };
        let mut each = Vec::new();
        for without in &empty {
            each.push((measure(&memory, &body) - without) / TIMES as f64);
        }
        table.row(&format!("access {name}"), &each, "ns", "");
    }
}

fn measure(memory: &events::Memory, body: &str) -> f64 {
    let run = events::run(1);
    let mut program = python::program(run.clone(), body);
    let begun = thread_ns();
    memory.deliver(&mut program, &run);
    let time = (thread_ns() - begun) as f64 / memory.events as f64;
    program.clear();
    time
}

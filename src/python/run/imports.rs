//! Finds out, without running a script, whether it imports perf's Python module (`import perf`). Also finds signs of
//! perf's older interface, whose functions `perf script` calls.

use std::{io::Read, iter::Peekable, path::Path};

use perf_prof_system::file::open_regular;

/// The interface of perf for which a script was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The script has functions that are called with events, or it is not for perf at all.
    Handlers,
    /// The script imports perf's Python module, and opens its events itself.
    Program,
    /// The script imports the module, but also has signs of the older interface. The text names such a sign.
    Mixed(String),
}

/// The modules of perf for programs.
const MODULES: [&str; 2] = ["perf", "perf_live"];
/// Modules that only scripts of the older interface import.
const OLD_MODULES: [&str; 2] = ["perf_trace_context", "EventClass"];
/// The callbacks of scripts for `perf-prof python`.
const OTHER_CALLBACKS: [&str; 6] = ["__sample__", "__interval__", "__lost__", "__exit__", "__print_stat__", "__init__"];
/// Calls that import the module whose name is their argument, without the argument.
const IMPORTERS: [&str; 2] = ["import_module()", "__import__()"];
/// The second parameter of functions that the older interface calls with tracepoints.
const OLD_PARAMETER: &str = "context";
/// Other functions that the older interface calls by their names, and the start of the names of those for counts.
const OLD_FUNCTIONS: [&str; 4] = ["trace_begin", "trace_end", "trace_unhandled", "process_event"];
const OLD_COUNTS: &str = "stat__";

/// The largest part of a script that is searched for imports, in bytes.
const LARGEST_SCRIPT: u64 = 16 << 20;

/// Returns the interface for which the script at `path` was written. Returns `None` if the file cannot be read.
pub fn generation_of(path: &Path) -> Option<Generation> {
    let mut source = Vec::new();
    open_regular(path).ok()?.take(LARGEST_SCRIPT).read_to_end(&mut source).ok()?;
    Some(generation(&String::from_utf8_lossy(&source)))
}

/// Returns the interface for which a script was written. `source` is the text of the script.
fn generation(source: &str) -> Generation {
    let statements = statements(source.trim_start_matches('\u{feff}'));
    let imported: Vec<&str> = statements.iter().flat_map(|statement| imports(statement)).collect();
    if !imported.iter().any(|module| MODULES.contains(module)) && !imports_by_call(source, &statements) {
        return Generation::Handlers;
    }
    if let Some(module) = imported.iter().find(|module| OLD_MODULES.contains(module)) {
        return Generation::Mixed(format!("imports {module}, which belongs to perf's older interface"));
    }
    if let Some(function) = statements.iter().find_map(|statement| old_handler(statement)) {
        return Generation::Mixed(format!("has the handler {function}(event_name, context, ...)"));
    }
    match unused_function(&statements) {
        Some(function) => Generation::Mixed(format!("has the function {function}(), which it does not use itself")),
        None => Generation::Program,
    }
}

/// Returns the top-level names of the modules that a statement imports.
fn imports(statement: &str) -> Vec<&str> {
    let statement = statement.trim();
    let top = |name: &'_ str| -> usize { name.find(['.', ' ', '\t']).unwrap_or(name.len()) };
    if let Some(names) = statement.strip_prefix("import").filter(|names| names.starts_with([' ', '\t'])) {
        return names.split(',').map(str::trim).map(|name| &name[..top(name)]).collect();
    }
    match statement.strip_prefix("from").filter(|name| name.starts_with([' ', '\t'])) {
        Some(rest) => vec![rest.trim()].into_iter().map(|name| &name[..top(name)]).collect(),
        None => Vec::new(),
    }
}

/// Returns whether a function imports one of perf's modules: `importlib.import_module("perf")`. `statements` lack the
/// texts.
fn imports_by_call(source: &str, statements: &[String]) -> bool {
    let calls = |statement: &String| IMPORTERS.iter().any(|importer| statement.contains(importer));
    let is_named = |name: &str| source.contains(&format!("(\"{name}\")")) || source.contains(&format!("('{name}')"));
    statements.iter().any(calls) && MODULES.iter().any(|name| is_named(name))
}

/// Returns the name and the parameters of the function that a statement defines at the top level.
fn function(statement: &str) -> Option<(&str, &str)> {
    let (name, parameters) = statement.trim_start_matches(['\n', '\r']).strip_prefix("def ")?.split_once('(')?;
    Some((name.trim(), parameters))
}

/// Returns the name of a function at the top level that perf or `perf-prof python` would call by its name, and that the
/// script does not use. Ported scripts keep such names, but call the functions, pass them to a session, or decorate them.
fn unused_function(statements: &[String]) -> Option<&str> {
    let is_word = |of: char| of.is_alphanumeric() || of == '_';
    let times =
        |name: &str| statements.iter().flat_map(|of| of.split(|of| !is_word(of))).filter(|of| *of == name).count();
    statements.iter().enumerate().find_map(|(index, statement)| {
        let (name, _) = function(statement)?;
        let is_old = OLD_FUNCTIONS.contains(&name) || OTHER_CALLBACKS.contains(&name) || name.starts_with(OLD_COUNTS);
        let decorated = index > 0 && statements[index - 1].trim_start().starts_with('@');
        (is_old && !decorated && times(name) == 1).then_some(name)
    })
}

/// Returns the name of the function that a statement defines at the top level, if its parameters are those of the older
/// interface: `(event_name, context, ...)`.
fn old_handler(statement: &str) -> Option<&str> {
    let (name, parameters) = function(statement)?;
    let parameters: Vec<&str> = parameters.split(',').map(|name| name.trim_matches([' ', '\t', ')'])).collect();
    let has_old = parameters.get(1) == Some(&OLD_PARAMETER);
    let looks_old = name.contains("__") && !name.starts_with("__") && parameters.len() >= 8;
    (has_old || looks_old).then_some(name)
}

/// Returns the simple statements, and the first lines of the compound statements. Strings and comments are removed.
fn statements(source: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut statement = String::new();
    let mut depth = 0usize;
    let mut rest = source.chars().peekable();
    while let Some(next) = rest.next() {
        match next {
            '#' => while rest.next_if(|&of| of != '\n').is_some() {},
            '\'' | '"' => skip_string(next, &mut rest),
            '\\' => _ = rest.next_if_eq(&'\n'),
            '(' | '[' | '{' => {
                depth += 1;
                statement.push(next);
            }
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                statement.push(next);
            }
            '\n' | ';' | ':' if depth == 0 => all.push(std::mem::take(&mut statement)),
            '\n' => statement.push(' '),
            _ => statement.push(next),
        }
    }
    all.push(statement);
    all
}

/// Skips the rest of a string after its first quote.
fn skip_string(quote: char, rest: &mut Peekable<std::str::Chars<'_>>) {
    if rest.next_if_eq(&quote).is_none() {
        while let Some(next) = rest.next() {
            match next {
                '\\' => _ = rest.next(),
                _ if next == quote || next == '\n' => return,
                _ => {}
            }
        }
    }
    // Two quotes are an empty string. Three quotes begin a string of several lines.
    if rest.next_if_eq(&quote).is_none() {
        return;
    }
    let mut seen = 0;
    while let Some(next) = rest.next() {
        match next {
            '\\' => _ = rest.next(),
            _ if next == quote && seen == 2 => return,
            _ if next == quote => seen += 1,
            _ => seen = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_import_perf() {
        for source in [
            "import perf",
            "\u{feff}import\tperf",
            "import sys, perf as p\n",
            "def main():\n    from perf import evlist\n",
            "try: import perf\nexcept ImportError: pass\n",
            "x = [1,\n2]\nimport os; import perf\n",
            "'''import os'''\nimport \\\n  perf\n",
            "from perf_live import LiveSession\n",
            "import importlib\nperf = importlib.import_module('perf')\n",
            "perf = __import__(\"perf\")\n",
            "import perf\ndef __partial__(): return {}\ndef __merge__(parts): pass\n",
            "s = 'it\\'s'; import perf\n",
            "\"\"\"text with ' and \\\"\"\" in it\"\"\"\nimport perf\n",
        ] {
            assert_eq!(generation(source), Generation::Program, "{source}");
        }
    }

    #[test]
    fn texts_comments_and_other_modules_are_no_import_of_perf() {
        for source in [
            "",
            "'''\nimport perf\n'''\n",
            "# import perf\n",
            "x = 'a\\\nimport perf'\n",
            "import perf_trace_context\nimport perfetto\nfrom . import perf\n",
            "from perf_prof import perf\n",
            "import importlib\nx = importlib.import_module('json')\n",
            "x = importlib.import_module(name)\n# import_module('perf')\n",
            "important perf\n",
            "f(\"\"\"\nimport perf\"\"\")\n",
        ] {
            assert_eq!(generation(source), Generation::Handlers, "{source}");
        }
    }

    #[test]
    fn old_handlers_beside_import_perf_are_found() {
        let mixed = |source: &str| match generation(&format!("import perf\n{source}")) {
            Generation::Mixed(what) => what,
            other => panic!("{source}: {other:?}"),
        };
        assert!(mixed("from perf_trace_context import *\n").contains("perf_trace_context"));
        let handler = "def sched__sched_switch(event_name, context, common_cpu,\n\tcommon_secs): pass\n";
        assert!(mixed(handler).contains("sched__sched_switch"));
        assert!(mixed("def trace_unhandled(event_name, context, event_fields_dict):\n").contains("trace_unhandled"));
        assert!(mixed("def a__b(a, b, c, d, e, f, g, h, *rest): pass\n").contains("a__b"));
        for (name, parameters) in [
            ("process_event", "d"),
            ("trace_begin", ""),
            ("trace_end", ""),
            ("stat__x", "time"),
            ("__sample__", "event"),
            ("__exit__", ""),
        ] {
            let unused = format!("# {name}\ndef {name}({parameters}):\n    '{name}'\n");
            assert_eq!(mixed(&unused), format!("has the function {name}(), which it does not use itself"));
        }
        // Scripts that were ported to `import perf` keep the names of their functions.
        for ported in [
            "def irq__softirq_entry(sample): pass\ndef trace_begin(): pass\ntrace_begin()\n",
            "def process_event(sample): pass\nif True:\n    s = perf.session(perf.data(), sample=process_event)\n",
            "@register\ndef process_event(sample): pass\n",
            "class A:\n    def process_event(self, sample): pass\n",
        ] {
            assert_eq!(generation(&format!("import perf\n{ported}")), Generation::Program, "{ported}");
        }
        // The classes of ported scripts also keep words of the older interface.
        let class = "import perf\nclass Headers:\n    def __init__(self, context, common_cpu, common_secs): pass\n";
        assert_eq!(generation(class), Generation::Program);
    }
}

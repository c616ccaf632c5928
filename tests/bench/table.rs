//! The table of results. Each row contains the median of all runs, and the ratio if it is compared with another row.

use std::{fmt::Write, fs, process::Command};

/// How long the benchmark may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Short: only checks that everything runs.
    Quick,
    /// Long enough for meaningful figures.
    Full,
}

impl Effort {
    /// Returns the number of runs of each row. Runs of compared rows alternate, so a change of the machine's speed
    /// affects both rows.
    pub fn runs(self) -> usize {
        match self {
            Effort::Quick => 1,
            Effort::Full => 7,
        }
    }

    /// Returns `full` or, with little effort, a hundredth of it.
    pub fn count(self, full: u64) -> u64 {
        match self {
            Effort::Quick => full / 100,
            Effort::Full => full,
        }
    }
}

struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    ratio: Option<(f64, String)>,
    note: String,
}

pub struct Table {
    pub effort: Effort,
    rows: Vec<Row>,
}

impl Table {
    pub fn new(effort: Effort) -> Table {
        Table { effort, rows: Vec::new() }
    }

    /// Adds a row without a comparison.
    pub fn row(&mut self, name: &str, values: &[f64], unit: &'static str, note: &str) {
        self.rows.push(Row { name: name.into(), value: median(values), unit, ratio: None, note: note.into() });
    }

    /// Adds a row that is compared with another row from the same runs. The ratio is the median of the ratios of single
    /// runs.
    pub fn compared(&mut self, name: &str, values: &[f64], base: (&str, &[f64]), unit: &'static str, note: &str) {
        let ratios: Vec<f64> = values.iter().zip(base.1).map(|(value, base)| value / base).collect();
        let ratio = Some((median(&ratios), base.0.to_owned()));
        self.rows.push(Row { name: name.into(), value: median(values), unit, ratio, note: note.into() });
    }

    /// Checks that every expected row exists, with a figure or with the reason why there is none.
    pub fn check_rows(&self) {
        const ROWS: [&str; 106] = [
            "floor h0",
            "floor h1",
            "floor h3",
            "floor hs",
            "memory h0",
            "memory h1",
            "memory h3",
            "memory hs",
            "memory, no handler",
            "order, 2 rings",
            "order, 8 rings",
            "order, 64 rings",
            "keep all",
            "keep 1 in 1,000",
            "access event.pid",
            "access event.comm",
            "access event['pid']",
            "access event.get('pid')",
            "access 'pid' in event",
            "access event.to_dict()",
            "access event.items()",
            "access event.print()",
            "access event.print() to a file",
            "aggregator, one integer key",
            "in Python, one integer key",
            "aggregator, the field comm",
            "in Python, the field comm",
            "aggregator, comm and pid",
            "in Python, comm and pid",
            "aggregator, a sum by pid",
            "in Python, a sum by pid",
            "aggregator, a histogram",
            "in Python, a histogram",
            "aggregator, stacks of 20 frames",
            "in Python, stacks of 20 frames",
            "span, event of a short one",
            "span, event of one that is filtered out",
            "span, event of one that is delivered",
            "source syscall, event of a short one",
            "source syscall, event of one that is delivered",
            "memory of 1,000,000 open spans",
            "call chain of 20 kernel frames",
            "symbols of a large library, first touch",
            "symbols of 1,000 processes",
            "live h1",
            "live h3",
            "traced getppid, counted in perf-prof",
            "traced getppid, counted in the kernel",
            "traced getppid, counted by bpftrace",
            "perf-prof, counting in perf-prof",
            "perf-prof, counting in the kernel",
            "traced openat, through the ring",
            "traced openat, with its file name",
            "traced getppid, slow calls found in perf-prof",
            "traced getppid, slow calls found in the kernel",
            "traced getppid, slow calls found by bpftrace",
            "perf-prof, finding slow calls in perf-prof",
            "perf-prof, finding slow calls in the kernel",
            "traced getppid, by call chain in perf-prof",
            "traced getppid, by call chain in the kernel",
            "traced switch, offcpu in perf-prof",
            "traced switch, offcpu in the kernel",
            "traced switch, offcpu by bpftrace",
            "perf-prof, offcpu in perf-prof",
            "run of `true`, getppid in perf-prof",
            "run of `true`, getppid in the kernel",
            "run of `true`, offcpu in perf-prof",
            "run of `true`, offcpu in the kernel",
            "run of `true`, runqueue in perf-prof",
            "run of `true`, runqueue in the kernel",
            "floor, named arguments",
            "perf-prof script -s, named arguments",
            "perf script -s, named arguments",
            "perf-prof script -s, one process",
            "perf-prof script -s --jobs 2",
            "perf-prof script -s, perf_sample_dict",
            "perf script -s, perf_sample_dict",
            "perf-prof script -s, trace_unhandled",
            "perf script -s, trace_unhandled",
            "perf-prof script -s, call chains",
            "perf script -s, call chains",
            "perf-prof script -s, stackcollapse.py",
            "perf script -s, stackcollapse.py",
            "perf-prof script -s, syscall-counts.py",
            "perf script -s, syscall-counts.py",
            "perf record --threads -z",
            "record --threads -z",
            "read + order",
            "replay h1",
            "perf script -s",
            "replay of a large file",
            "replay of a large directory",
            "one process",
            "--jobs 2",
            "perf-prof parallel -j 1",
            "perf-prof parallel -j 2",
            "library, replay",
            "library, live",
            "import perf_prof",
            "files of the package",
            "columns, four integers",
            "columns, three integers and _comm",
            "columns, a list of integers",
            "columns, four integers, one CPU",
            "columns, four integers, two CPUs",
            "columns, memory",
        ];
        for name in ROWS {
            let row = self.rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row `{name}`"));
            assert!(
                row.value.is_finite() || row.note.starts_with("skipped") || row.note.starts_with("not measured"),
                "row `{name}` has no figure"
            );
        }
        println!("{} rows, {} expected", self.rows.len(), ROWS.len());
    }

    fn markdown(&self) -> String {
        let mut text = String::from("| row | ratio | of | median | note |\n|---|---|---|---|---|\n");
        for Row { name, value, unit, ratio, note } in &self.rows {
            let (ratio, of) =
                ratio.as_ref().map_or(Default::default(), |(ratio, of)| (format!("{ratio:.2}"), of.clone()));
            let _ = writeln!(text, "| {name} | {ratio} | {of} | {value:.1} {unit} | {note} |");
        }
        text
    }

    pub fn print(&self) {
        println!("\n{}", self.markdown());
    }

    /// Writes the table to `docs/benchmarks.md`.
    pub fn write(&self) {
        let said = |command: &str, arguments: &[&str]| {
            let output = Command::new(command).args(arguments).output().ok();
            let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
            text.unwrap_or_default()
        };
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("?");
        let text = format!(
            "# Benchmarks\n\n`cargo bench` writes this file. The figures are medians of {} runs. Times vary from run \
             to run, ratios vary less.\n\nA ratio compares a row with the row under `of`. `h0`, `h1`, `h3` and `hs` are \
             handlers: `pass`; `n += 1`; the same with\ntwo fields; the same with a string too. `floor` is the handler \
             alone, without perf-prof.\n\n\
             * machine: {}, {} CPUs, Linux {}\n* Python: {}\n* commit: {}\n* command: `cargo bench`\n\n{}",
            self.effort.runs(),
            model.trim_start_matches([' ', '\t', ':']),
            std::thread::available_parallelism().map_or(0, usize::from),
            said("uname", &["-r"]),
            perf_prof_python::script::interpreter_version(),
            said("git", &["describe", "--always", "--dirty"]),
            self.markdown()
        );
        fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/benchmarks.md"), text).unwrap();
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

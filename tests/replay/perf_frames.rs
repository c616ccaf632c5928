//! Compares the symbols, ranges and mappings of frames and addresses with what perf passes to Python scripts.

use std::{
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use perf_prof_events::event::{
    AlwaysEntered, Context, Deliver, EventType, Flow, PerfFrame, Sample, perf_address, perf_chain, perf_ip,
};
use perf_prof_session::{
    plan::{Input, RunPlan, Verbosity},
    spine::{ChosenRecording, Slice},
};
use perf_prof_symbols::symbol::{Demangle, Inline, Options};
use perf_prof_system::signals::Signals;

use crate::harness::{
    compile::{FRAMES, compile},
    machine::{Need, needs},
    older_perf,
    recording::{Folder, record},
    run::printed,
};

/// A script that prints where each sample and its data address are, and then the call chain.
const DUMP: &str = "
PLACE = ('dso', 'dso_bid', 'dso_map_start', 'dso_map_end', 'symbol', 'symoff')
def process_event(event):
    sample = event['sample']
    print(sample['ip'], *[event.get(key, '-') for key in PLACE])
    if 'addr_correlates_sym' in sample:
        print('addr', sample['addr'], *[sample.get('addr_' + key, '-') for key in PLACE])
    for frame in event['callchain']:
        symbol, shown = frame.get('sym'), ['-']
        if symbol:
            shown = [symbol['name'], symbol['start'], symbol['end'], symbol['binding'], frame['sym_off']]
        print('  ', frame['ip'], *shown, frame.get('sym_srcline', '-'), frame.get('dso', '-'))
";

/// A sink that formats the same lines.
struct Lines {
    types: Vec<EventType>,
    context: Arc<Context>,
    /// Whether the samples contain the addresses of page faults.
    has_addresses: bool,
    lines: Vec<String>,
}

impl AlwaysEntered for Lines {}

impl Deliver for Lines {
    fn sample(&mut self, event: usize, record: &[u8]) -> Flow {
        let sample = Sample { event: &self.types[event], record };
        let frame = perf_ip(&sample, &self.context).unwrap();
        self.lines.push(format!("{} {}", frame.ip, place(&frame)));
        if self.has_addresses {
            let addr = sample.event.layout.addr(record).unwrap();
            let frame = perf_address(&sample, addr, &self.context);
            self.lines.push(format!("addr {addr} {}", place(&frame)));
        }
        for frame in perf_chain(&sample, &self.context) {
            let symbol = frame.symbol.as_ref().map_or("-".to_owned(), |symbol| {
                let extent = symbol.extent;
                format!("{} {} {} {} {}", symbol.name, extent.start, extent.end, extent.binding, symbol.offset)
            });
            let (line, dso) = (frame.srcline.as_deref(), frame.map.as_ref().map(|map| &*map.dso));
            self.lines.push(format!("   {} {symbol} {} {}", frame.ip, line.unwrap_or("-"), dso.unwrap_or("-")));
        }
        Flow::Continue(())
    }
}

fn place(frame: &PerfFrame) -> String {
    let map = frame.map.as_ref();
    let map = map.map(|map| format!("{} {} {} {}", map.dso, map.build_id, map.start, map.end));
    let symbol = frame.symbol.as_ref().map(|symbol| format!("{} {}", symbol.name, symbol.offset));
    format!("{} {}", map.as_deref().unwrap_or("- - - -"), symbol.as_deref().unwrap_or("- -"))
}

/// Only one run loop at a time may handle signals.
pub(super) static RUNS: Mutex<()> = Mutex::new(());

fn ours(path: &Path, has_addresses: bool, inline: Inline) -> Vec<String> {
    let _alone = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    let input = Input { path: path.to_owned(), ..Input::default() };
    let options = Options { demangle: Demangle::NameOnly, inline, ..Options::default() };
    let plan = RunPlan { symbols: options, ..RunPlan::of_recording(&input, &[], Verbosity::Quiet) };
    let signals = Signals::install().unwrap();
    let session = ChosenRecording::select(&plan, &input).unwrap().open(Slice::Whole, &signals).unwrap();
    let (types, context) = (session.about().events.clone(), session.about().context.clone());
    let mut lines = Lines { types, context, has_addresses, lines: Vec::new() };
    session.run(&mut lines, &signals).report(&plan).unwrap();
    lines.lines
}

fn theirs(folder: &Folder, path: &Path) -> Vec<String> {
    let script = folder.write("dump.py", DUMP.as_bytes());
    let mut command = Command::new("perf");
    command.args(["script", "-s"]).arg(script).arg("-i").arg(path).stderr(Stdio::null());
    // For a place without a line, perf asks addr2line, if that is installed.
    printed(&command.output().unwrap()).iter().map(|line| line.replace(" ??:0 ", " - ")).collect()
}

/// Whether perf shows inlined functions in chains that the kernel recorded.
fn inline_in_recorded_chains() -> Inline {
    if older_perf::is_installed() { Inline::No } else { Inline::OnRequest }
}

/// A program with a function without a size, a local function, a weak function with an alias, and a function whose call
/// never returns.
const PROGRAM: &str = "
    #include <stdlib.h>
    #include <unistd.h>
    volatile long sink;
    static inline __attribute__((always_inline)) long inner(long n) { for (long i = 0; i < n; i++) sink += i; return n; }
    static inline __attribute__((always_inline)) long middle(long n) { return inner(n) + 1; }
    __attribute__((noinline)) long outer(long n) { long sum = middle(n); sink = sum; return sum + 1; }
    __attribute__((noinline)) static long local(long n) { long sum = outer(n); sink = sum; return sum + 1; }
    __attribute__((weak, noinline)) long weak(long n) { long sum = local(n); sink = sum; return sum + 1; }
    long alias(long n) __attribute__((alias(\"weak\")));
    long unsized_function(void);
    asm(\".globl unsized_function\\nunsized_function:\\npush %rbp\\nmov %rsp, %rbp\\nmov $20000000, %ecx\\n\"
        \"1: dec %ecx\\njnz 1b\\npop %rbp\\nret\\nnop\\n\");
    __attribute__((noreturn, noinline)) void last(void) { alias(10000000); for (int i = 0; i < 30000; i++) getppid(); _exit(0); }
    __attribute__((noinline)) void never_returns(void) { last(); }
    int main(void) { alias(10000000); unsized_function(); never_returns(); }
";

/// Compares the lines. Leaves out what perf does not know: the names of some entries in procedure linkage tables, and where BPF
/// programs lie, which run in all tasks while another test uses them.
#[track_caller]
fn assert_equal(ours: &[String], theirs: &[String]) {
    let known = |lines: &[String]| -> Vec<String> {
        let unnamed = |word| if str::ends_with(word, "@plt") { "@plt" } else { word };
        let lines = lines.iter().filter(|line| !line.contains("bpf_prog_"));
        lines.map(|line| line.split(' ').map(unnamed).collect::<Vec<_>>().join(" ")).collect()
    };
    let (ours, theirs) = (known(ours), known(theirs));
    let other = ours.iter().zip(&theirs).find(|(ours, theirs)| ours != theirs);
    assert_eq!((other, ours.len()), (None, theirs.len()));
}

#[test]
fn frames_and_addresses_are_those_of_perf() {
    needs([Need::Perf, Need::Compilers, Need::Vdso]);
    let folder = Folder::new();
    for (event, options) in
        [("cpu-clock", &["-pie", "-fPIE"][..]), ("task-clock", &["-no-pie"]), ("cpu-clock", &["-static", "-s"])]
    {
        // perf has no names for some entries of procedure linkage tables.
        let options = [FRAMES, &["-fno-plt"], options].concat();
        let program = compile(&folder.path(""), "program", PROGRAM, &options);
        let data = folder.path("perf.data");
        record(&data, &["-e", event, "-F", "999", "-g", "--", program.to_str().unwrap()]);
        let (ours, theirs) = (ours(&data, false, inline_in_recorded_chains()), theirs(&folder, &data));
        assert_equal(&ours, &theirs);
        let has = |name: &str| ours.iter().any(|line| line.split(' ').any(|word| word == name));
        let is_stripped = options.contains(&"-s");
        assert_eq!((has("unsized_function"), has("alias")), (!is_stripped, !is_stripped), "{options:?}");
    }
}

#[test]
fn recorded_chains_have_the_inlined_functions_of_programs_with_debug_information() {
    needs([Need::Perf, Need::Compilers, Need::Vdso]);
    let folder = Folder::new();
    let program = compile(&folder.path(""), "program", PROGRAM, &[FRAMES, &["-g", "-fno-plt"]].concat());
    let (data, name) = (folder.path("perf.data"), program.to_str().unwrap());
    record(&data, &["-e", "cpu-clock", "-F", "999", "-g", "--", name]);
    // As in the test below.
    let of_program = |lines: Vec<String>| -> Vec<String> {
        lines.iter().filter(|line| line.ends_with(name)).map(|line| line.replace(" alias ", " weak ")).collect()
    };
    let found = of_program(ours(&data, false, Inline::OnRequest));
    let is = |line: &String, function: &str| line.contains(&format!(" {function} ")) && line.contains(" program.c:");
    let inner = found.iter().position(|line| is(line, "inner")).unwrap_or_else(|| panic!("{found:?}"));
    assert!(is(&found[inner + 1], "middle") && is(&found[inner + 2], "outer"), "{found:?}");
    let without = of_program(ours(&data, false, Inline::No));
    assert!(without.iter().all(|line| !line.contains(" inner ") && !line.contains(".c:")), "{without:?}");
    if !older_perf::is_installed() {
        assert_equal(&found, &of_program(theirs(&folder, &data)));
    }
}

/// Frames that perf unwinds have different addresses than recorded frames.
#[test]
fn unwound_frames_are_those_of_perf() {
    needs([Need::Perf, Need::Compilers, Need::Vdso]);
    let folder = Folder::new();
    let program = compile(&folder.path(""), "program", PROGRAM, &["-O1", "-g", "-fomit-frame-pointer", "-fno-plt"]);
    let (data, name) = (folder.path("perf.data"), program.to_str().unwrap());
    record(&data, &["-e", "cpu-clock", "-F", "499", "--call-graph", "dwarf", "--", name]);
    // perf reads lines with the tool `addr2line`, which does not know the names of files that libc includes.
    // `alias` is `weak` there, as in the debug information.
    let of_program = |lines: Vec<String>| -> Vec<String> {
        lines.iter().filter(|line| line.ends_with(name)).map(|line| line.replace(" alias ", " weak ")).collect()
    };
    let (ours, theirs) = (of_program(ours(&data, false, Inline::OnRequest)), of_program(theirs(&folder, &data)));
    assert_equal(&ours, &theirs);
    let is_inlined = |line: &&String| line.contains(" inner ") && line.contains("program.c:");
    assert!(ours.iter().any(|line| is_inlined(&line)), "{ours:?}");
}

#[test]
fn addresses_of_page_faults_in_code_are_those_of_perf() {
    needs([Need::Perf, Need::Compilers, Need::Vdso]);
    let folder = Folder::new();
    let program = compile(&folder.path(""), "program", PROGRAM, FRAMES);
    let data = folder.path("perf.data");
    record(&data, &["-e", "page-faults", "-c", "1", "-d", "--", program.to_str().unwrap()]);
    let (ours, theirs) = (ours(&data, true, Inline::No), theirs(&folder, &data));
    assert_eq!(ours.len(), theirs.len());
    // Only mappings with code are kept, not mappings of data. perf has no names for some entries of procedure linkage
    // tables.
    let known = |line: &&(String, String)| !line.0.ends_with("- - - - - -") && !line.0.contains("@plt ");
    let pairs: Vec<(String, String)> = ours.into_iter().zip(theirs).collect();
    let addresses = pairs.iter().filter(|(ours, _)| ours.starts_with("addr ")).filter(known);
    assert!(addresses.clone().count() > 0);
    addresses.for_each(|(ours, theirs)| assert_eq!(ours, theirs));
}

//! Probes on functions of a program that the test compiles, of its library and of libc, also in a container.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
};

use expect_test::expect;
use perf_prof_symbols::symbol::elf;

use crate::harness::{
    machine::{Need, needs, skip},
    run::tested_program,
    script::{Outcome, Run, check},
};

/// A program that prints the addresses of its functions, and then calls them as often as its argument says.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int in_library(int n);
__attribute__((noinline)) int counted(int n) { __asm__ volatile(""); return n + 1; }
__attribute__((noinline)) int caller(int n) { int r = counted(n); __asm__ volatile(""); return r; }
/* The second instruction is a known one, and a function may begin anywhere. */
__asm__(".text\n.globl stepped\n.type stepped,@function\nstepped: nop\nnop\nret\n.size stepped, .-stepped\n");
void stepped(void);
int main(int argc, char **argv) {
    int times = atoi(argv[1]);
    printf("counted %p\nstepped %p\n", (void *)counted, (void *)stepped);
    fflush(stdout);
    for (int i = 0; i < times || times < 0; i++) {
        caller(i);
        stepped();
        in_library(i);
        getppid();
        if (times < 0)
            usleep(1000);
    }
    return 0;
}
"#;

const LIBRARY: &str = "int in_library(int n) { return n + 2; }";

const CALLS: usize = 1234;

/// A script that prints the number of events at each address, by event.
const COUNTS: &str = "
from collections import Counter
n = Counter()
def __sample__(e):
    at = e.get('__probe_ip')
    n[e._event, e['__probe_func'] if at is None else at] += 1
def __exit__():
    for (name, at), count in n.items(): print(f'{name} {at:#x} {count}')
";

/// What these tests need.
pub const PROBES: [Need; 3] = [Need::Tracefs, Need::Uprobes, Need::Compilers];

pub fn gcc(dir: &Path, args: &[&str]) {
    assert!(Command::new("gcc").args(args).current_dir(dir).status().unwrap().success(), "gcc {args:?}");
}

/// Compiles the program as `p`, with `libcounted.so`, in the folder of the run.
fn compiled(run: Run, flags: &[&str]) -> Run {
    let run = run.file("p.c", PROGRAM).file("l.c", LIBRARY);
    let dir = run.dir.path();
    gcc(dir, &["-O1", "-fno-omit-frame-pointer", "-shared", "-fPIC", "l.c", "-o", "libcounted.so"]);
    let library: &[&str] = if flags.iter().any(|flag| flag.starts_with("-static")) {
        &["l.c"]
    } else {
        &["-L.", "-lcounted", "-Wl,-rpath,$ORIGIN"]
    };
    gcc(dir, &[&["-O1", "-fno-omit-frame-pointer", "p.c", "-o", "p"], flags, library].concat());
    run
}

/// The address and the count of each event.
type Counts<'a> = BTreeMap<&'a str, (u64, usize)>;

/// The address and the count that the script printed for each event, and the addresses that the program printed.
fn counts(outcome: &Outcome) -> (Counts<'_>, BTreeMap<&str, u64>) {
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let (mut counts, mut told) = (BTreeMap::new(), BTreeMap::new());
    for line in outcome.stdout.lines() {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [name, at] => _ = told.insert(name, hex(at)),
            [name, at, count] => assert_eq!(counts.insert(name, (hex(at), count.parse().unwrap())), None, "{line}"),
            _ => panic!("{line}"),
        }
    }
    (counts, told)
}

#[track_caller]
fn succeeded(run: &Run) -> Outcome {
    let outcome = run.run();
    outcome.assert_civil();
    assert_eq!((outcome.status, outcome.complaints().as_str()), (0, ""), "{}", outcome.stdout);
    outcome
}

fn calls() -> String {
    CALLS.to_string()
}

#[test]
fn a_function_that_is_called_n_times_gives_n_events() {
    needs(PROBES);
    let kinds: [&[&str]; 4] = [&["-pie", "-fPIE"], &["-no-pie", "-fno-pie"], &["-static"], &["-static-pie", "-fPIE"]];
    for flags in kinds {
        let run = compiled(Run::script(COUNTS), flags);
        let address = elf::function(&run.path("p"), "counted").unwrap().address;
        let path = run.path("p").display().to_string();
        let events = [
            "uprobe:counted@./p".to_owned(),
            format!("uretprobe:counted@\"{path}\""),
            format!("uprobe:stepped+1@{path}"),
            format!("uprobe:{address:#x}@\"./p\"//alias=address/"),
            format!("uretprobe:./p:{address:#x}"),
            format!("uprobe:'{path}':counted//alias=file.first/"),
            "uprobe:stepped@./p//alias=aliased/".to_owned(),
        ];
        let outcome = succeeded(&run.event(events.join(",")).exec(["./p", &calls()]));
        let (counts, told) = counts(&outcome);
        let (counted, stepped) = ((told["counted"], CALLS), told["stepped"]);
        let expected = BTreeMap::from([
            ("uprobe:counted", counted),
            ("uretprobe:counted", counted),
            ("uprobe:stepped+0x1", (stepped + 1, CALLS)),
            ("uprobe:address", counted),
            ("uprobe:file.first", counted),
            ("uprobe:aliased", (stepped, CALLS)),
        ]);
        let mut counts = counts;
        assert_eq!(counts.remove(format!("uretprobe:{address:#x}").as_str()), Some(counted), "{flags:?}");
        assert_eq!(counts, expected, "{flags:?}");
    }
}

#[test]
fn functions_of_libraries_by_their_bare_names() {
    needs(PROBES);
    let run = compiled(Run::script(COUNTS), &[]);
    let folder = run.dir.path().to_owned();
    let run =
        run.env("LD_LIBRARY_PATH", folder).event("uprobe:in_library@libcounted,uretprobe:libcounted.so:in_library");
    let run = run.event("uprobe:getppid@libc,uretprobe:getppid@libc.so.6").exec(["./p", &calls()]);
    let outcome = succeeded(&run);
    let counts = counts(&outcome).0.into_iter().map(|(name, (_, count))| (name, count)).collect::<Vec<_>>();
    let events = ["uprobe:getppid", "uprobe:in_library", "uretprobe:getppid", "uretprobe:in_library"];
    assert_eq!(counts, events.map(|event| (event, CALLS)));
}

#[test]
fn an_address_is_the_functions_own_in_every_process() {
    needs(PROBES);
    let run = compiled(Run::script(COUNTS), &[]).event("uprobe:counted@./p").options(["-N", "100"]);
    let mut child = run.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The probe may not be attached yet, so the program makes more calls than the run waits for.
    let mut program = Looping::start(Command::new(run.path("p")).arg("-1"));
    assert!(child.wait().unwrap().success());
    let mut text = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut text).unwrap();
    assert_eq!(text, format!("uprobe:counted {:#x} 100\n", program.counted));
    program.end();
}

/// The program, which calls its functions in a loop.
struct Looping {
    child: Child,
    counted: u64,
}

impl Looping {
    fn start(command: &mut Command) -> Looping {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let counted = lines.next().unwrap().unwrap();
        let counted = u64::from_str_radix(counted.strip_prefix("counted 0x").unwrap(), 16).unwrap();
        Looping { child, counted }
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Looping {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn a_path_is_that_of_the_traced_process() {
    needs(PROBES);
    needs([Need::Namespaces]);
    let run = compiled(Run::script(COUNTS), &["-static"]).file("inside/p", "outside this is something else");
    let inside = run.path("inside").display().to_string();
    let shell = "mount -t tmpfs none \"$1\" && cp \"$2\" \"$1/p\" && ln -s \"$1/p\" \"$1/link\" && exec \"$1/p\" -1";
    let program = run.path("p");
    let mut command = Command::new("unshare");
    let program = Looping::start(command.args(["-m", "sh", "-c", shell, "sh", &inside]).arg(program));
    let pid = program.child.id().to_string();
    for file in [format!("{inside}/p"), format!("{inside}/link"), "p".to_owned(), format!("/proc/{pid}/exe")] {
        let run = Run::script(COUNTS).event(format!("uprobe:counted@\"{file}\"")).options(["-N", "50", "-p", &pid]);
        let outcome = succeeded(&run);
        assert_eq!(outcome.stdout, format!("uprobe:counted {:#x} 50\n", program.counted), "{file}");
    }
    // Outside of the container, another file has this path.
    let run = Run::script(COUNTS).event(format!("uprobe:counted@\"{inside}/p\""));
    let outcome = run.run();
    assert_eq!(outcome.status, 1);
    assert!(outcome.stderr.contains("/inside/p: not an ELF file"), "{}", outcome.stderr);
}

/// The probe must not be put on the new file, which the process never executes.
#[test]
fn a_library_that_was_replaced_is_probed_as_the_process_has_it() {
    needs(PROBES);
    let run = compiled(Run::script(COUNTS), &[]);
    let program = Looping::start(Command::new(run.path("p")).arg("-1"));
    let pid = program.child.id().to_string();
    let dir = run.dir.path();
    fs::write(dir.join("new.c"), format!("int before(void) {{ return 1; }}\n{LIBRARY}")).unwrap();
    gcc(dir, &["-O1", "-shared", "-fPIC", "new.c", "-o", "new.so"]);
    std::os::unix::fs::symlink("libcounted.so", dir.join("liblink.so")).unwrap();
    let probes = |file: &str| {
        let run = Run::script(COUNTS).event(format!("uprobe:in_library@\"{file}\"")).options(["-N", "20", "-p", &pid]);
        let outcome = succeeded(&run);
        assert!(
            outcome.stdout.starts_with("uprobe:in_library ") && outcome.stdout.ends_with(" 20\n"),
            "{file} {outcome:?}"
        );
    };
    let path = |name: &str| dir.join(name).display().to_string();
    let names = || [path("libcounted.so"), path("liblink.so"), "libcounted".to_owned()];
    names().iter().for_each(|name| probes(name));
    fs::rename(dir.join("new.so"), dir.join("libcounted.so")).unwrap();
    names().iter().for_each(|name| probes(name));
    fs::remove_file(dir.join("libcounted.so")).unwrap();
    ["libcounted".to_owned(), path("libcounted.so")].iter().for_each(|name| probes(name));
}

#[test]
fn a_call_chain_begins_at_the_function_and_has_its_callers() {
    needs(PROBES);
    let script = "
from collections import Counter
n = Counter()
def __sample__(e): n[e._event, *(f['symbol'] for f in e._callchain[:3]), *{f['kernel'] for f in e._callchain}] += 1
def __exit__():
    for key in sorted(n): print(*key, n[key])";
    let expected = "uprobe:counted counted caller main False 1234\nuretprobe:counted caller main ";
    for (options, flags) in
        [(["-g", "-m64M"], ["-O0", "-pie"]), (["--call-graph=dwarf", "-m64M"], ["-O2", "-fomit-frame-pointer"])]
    {
        let run = compiled(Run::script(script), &flags).options(options);
        let run = run.options(["--order"]).event("uprobe:counted@./p,uretprobe:counted@./p").exec(["./p", &calls()]);
        let outcome = succeeded(&run);
        assert!(outcome.stdout.contains(expected), "{options:?} {}", outcome.stdout);
    }
    // This run requests no call chains, so there are no frames.
    let run = compiled(Run::script(script), &["-O0"]).event("uprobe:counted@./p").exec(["./p", &calls()]);
    let outcome = succeeded(&run);
    assert!(outcome.stdout.ends_with("uprobe:counted 1234\n"), "{}", outcome.stdout);
}

#[test]
fn members_and_texts_of_a_probe() {
    needs(PROBES);
    let script = "
import copy, pickle, re
def uprobe__counted(e):
    global seen
    if seen: return
    seen = True
    print(*e.keys())
    print(e['__probe_ip'] == getattr(e, '__probe_ip') > 0, e._event, e._pid == e.common_pid, e.text('__probe_ip') == str(e['__probe_ip']))
    again = pickle.loads(pickle.dumps(e))
    print(again == e, again.to_dict() == e.to_dict(), isinstance(e['__probe_ip'], int))
    e.print()
def uretprobe__counted(e):
    global returned
    if returned: return
    returned = True
    print(*list(e)[-2:][0][:1], e['__probe_ret_ip'] != e['__probe_func'])
    e.print(timestamp=False)
seen = returned = False";
    let run = compiled(Run::script(script), &["-no-pie", "-fno-pie"]).options(["--order"]);
    let counted = elf::function(&run.path("p"), "counted").unwrap().address;
    let outcome = succeeded(&run.event("uprobe:counted@./p,uretprobe:counted@./p").exec(["./p", "1"]));
    let shown: String = outcome.stdout.replace(&format!("{counted:#x}"), "ENTRY");
    let lines: Vec<&str> = shown.lines().filter(|line| !line.contains(" 0x") && !line.contains(" ENTRY")).collect();
    let text: Vec<&str> = lines.iter().map(|line| line.split(": uprobe").last().unwrap()).collect();
    expect![[r#"
        _pid _tid _time _cpu _period common_type common_flags common_preempt_count common_pid _realtime _callchain _event __probe_ip
        True uprobe:counted True True
        True True True
        :counted: (ENTRY)
        __probe_func True"#]].assert_eq(&text.join("\n"));
    assert!(shown.contains(": uretprobe:counted: (0x4") && shown.contains(" <- ENTRY)"), "{shown}");
}

#[test]
fn a_filter_of_the_kernel_knows_the_common_fields() {
    needs(PROBES);
    let run = compiled(Run::script(COUNTS), &[]);
    let events = "uprobe:counted@\"./p\"/comm==\"p\"/alias=own/,uprobe:counted@\"./p\"/common_pid==0/alias=none/";
    let outcome = succeeded(&run.event(events).exec(["./p", &calls()]));
    let names: Vec<(&str, usize)> = counts(&outcome).0.into_iter().map(|(name, (_, count))| (name, count)).collect();
    assert_eq!(names, [("uprobe:own", CALLS)]);

    let run = compiled(Run::script(COUNTS), &[]);
    check(
        run.event("uprobe:counted@\"./p\"/number==1/").exec(["./p", "1"]),
        expect![[r#"
        --- stderr
        perf-prof: the kernel refuses the filter `number==1` of uprobe:counted: Invalid argument (os error 22)
        its fields: common_type (unsigned short), common_flags (unsigned char), common_preempt_count (unsigned char), common_pid (int)
        --- status 1
    "#]],
    );
}

#[test]
fn a_template_for_probes() {
    needs(PROBES);
    let run = compiled(Run::script(""), &[]).event("uprobe:counted@./p,uretprobe:stepped@./p//alias=s/").module("help");
    let outcome = succeeded(&run);
    let from = outcome.stdout.find("def uprobe__counted(").unwrap();
    let to = outcome.stdout.find("# [OPTIONAL] Called for every event").unwrap();
    expect![[r#"
        def uprobe__counted(event) -> None:
            """uprobe:counted

            Fields:
                __probe_ip : int    (C: unsigned long)
            """
            global events
            events += 1
            event.print()


        def uretprobe__s(event) -> None:
            """uretprobe:s (uretprobe:stepped)

            Fields:
                __probe_func : int    (C: unsigned long)
                __probe_ret_ip : int    (C: unsigned long)
            """
            global events
            events += 1
            event.print()


    "#]]
    .assert_eq(&outcome.stdout[from..to]);
}

#[test]
fn functions_that_probes_can_be_put_on_are_listed() {
    needs(PROBES);
    let run = compiled(Run::script(""), &[]);
    let list = |globs: &[&str]| {
        let output =
            Command::new(tested_program()).arg("list").args(globs).current_dir(run.dir.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
    };
    let counted = "uprobe:counted@\"./p\"           [function]\n";
    assert_eq!(list(&["uprobe:cou[mn]*@./p"]), (Some(0), counted.into()));
    let wakeup = "sched:sched_wakeup\n";
    assert_eq!(list(&["sched:sched_wakeup", "uprobe:./p:counted"]), (Some(0), format!("{counted}{wakeup}")));
    // The source `function` lists a name for each function, and the fields of its spans.
    let (status, text) = list(&["-v", "function:coun*@./p"]);
    assert!(text.starts_with("function:counted@\"./p\"         [built-in source]\n"), "{text}");
    let is_field = |name: &str| text.lines().any(|line| line.split_whitespace().next() == Some(name));
    assert!(status == Some(0) && ["duration", "name", "ret"].into_iter().all(is_field), "{text}");
    let none = "perf-prof: function:no*@./p: no function in the file has a name that matches\n";
    assert_eq!(list(&["function:no*@./p"]), (Some(1), none.into()));
    let none = "perf-prof: uprobe:no*@./p: no function in the file has a name that matches\n";
    assert_eq!(list(&["uprobe:no*@./p"]), (Some(1), none.into()));
}

#[test]
fn impossible_probes_are_reported_with_their_cause() {
    needs(PROBES);
    let run = compiled(Run::script(COUNTS), &["-Wl,-z,separate-code"]).file("text", "no ELF file");
    let dir = run.dir.path().to_owned();
    let size = elf::function(&run.path("p"), "counted").unwrap().size;
    let mut text = String::new();
    for selector in [
        "uprobe:countd@./p",
        "uprobe:counted+0x100000@./p",
        "uretprobe:counted+1@./p",
        "uprobe:0x10@./p",
        "uprobe:0xffffffffffffffff@./p",
        "uprobe:counted@./none",
        "uprobe:counted@no-such-program",
        "uprobe:counted@./text",
        "uprobe:counted@/dev/null",
        "uprobe:counted@/",
        "uprobe:counted@./p/common_pid>0/",
        "uprobe:counted",
        "uprobe:@./p",
        "uprobe:counted@\"./p",
    ] {
        let run = Run::script("def __sample__(e): pass").event(selector);
        let mut command = run.command();
        let output = command.current_dir(&dir).arg(run.path("s.py")).output().unwrap();
        assert_ne!(output.status.code(), Some(0), "{selector}");
        let line = String::from_utf8(output.stderr).unwrap().lines().next().unwrap().replacen("perf-prof: ", "", 1);
        // The address and the length of the code depend on the compiler.
        let line = line.split("the file has code at").next().unwrap().replace(&format!("{size:#x}"), "SIZE");
        text += &(line + "\n");
    }
    expect![[r#"
        uprobe:countd@./p: ./p has no function `countd`; did you mean counted?
        uprobe:counted+0x100000@./p: ./p: `counted` has SIZE bytes, so +0x100000 is not in it
        -e uretprobe:counted+1@./p: a return probe takes no offset; leave out `+0x1`
        uprobe:0x10@./p: ./p: there is no code at 0x10; 
        uprobe:0xffffffffffffffff@./p: ./p: there is no code at 0xffffffffffffffff; 
        uprobe:counted@./none: cannot open ./none: No such file or directory (os error 2)
        uprobe:counted@no-such-program: found no program or library no-such-program in PATH or the dynamic linker's folders; give its path
        uprobe:counted@./text: ./text: too short for an ELF file
        uprobe:counted@/dev/null: /dev/null is not a program or library: it is not a regular file
        uprobe:counted@/: / is not a program or library: it is not a regular file
        uprobe:counted@./p/common_pid>0/: cannot open ./p/common_pid>0/: Not a directory (os error 20); put the path in quotes if a filter follows
        -e uprobe:counted: a probe in user space needs a file; write uprobe:counted@"/path/or/name"
        -e uprobe:@./p: the function is missing; write uprobe:FUNCTION[+OFFSET]@"FILE" or uprobe:0xADDRESS@"FILE"
        -e uprobe:counted@"./p: the " is never closed
    "#]].assert_eq(&text);
}

/// Events of all kinds are delivered in the order of time.
#[test]
fn a_tracepoint_a_clock_faults_and_a_probe_come_in_one_order() {
    needs(PROBES);
    let script = "
from collections import Counter
n, last, disorder = Counter(), 0, 0
def __sample__(e):
    global last, disorder
    disorder += e._time < last
    last = e._time
    n[e._event] += 1
def __exit__(): print(n['syscalls:sys_enter_getppid'], n['uprobe:counted'], n['page-faults'] > 0, n['profile'] > 0, disorder)";
    let run = compiled(Run::script(script), &[]).options(["--order", "-m64M"]);
    let events = "syscalls:sys_enter_getppid,profile/--period 500000/,page-faults,uprobe:counted@./p";
    let outcome = succeeded(&run.event(events).exec(["./p", "5000"]));
    assert_eq!(outcome.stdout.lines().last(), Some("5000 5000 True True 0"), "{}", outcome.stdout);
}

/// A probe that is defined in tracefs until this value is dropped.
#[cfg(target_arch = "x86_64")]
pub struct Defined(String);

#[cfg(target_arch = "x86_64")]
impl Defined {
    const LIST: &str = "/sys/kernel/tracing/uprobe_events";

    pub fn new(group: String, definition: &str) -> Defined {
        let line = format!("p:{group}/numbered {definition}");
        let appended =
            fs::OpenOptions::new().append(true).open(Self::LIST).and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(error) = appended {
            skip(Need::Uprobes, format!("{}: {error}", Self::LIST));
        }
        Defined(group)
    }

    /// The event's name.
    pub fn event(&self) -> String {
        format!("{}:numbered", self.0)
    }
}

#[cfg(target_arch = "x86_64")]
impl Drop for Defined {
    fn drop(&mut self) {
        let line = format!("-:{}/numbered", self.0);
        let _ =
            fs::OpenOptions::new().append(true).open(Self::LIST).and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn probes_defined_in_tracefs_have_their_arguments_and_callers() {
    needs(PROBES);
    let group = format!("perf_prof_test_{}", std::process::id());
    let script = format!(
        "
numbers = []
def {group}__numbered(e):
    numbers.append(e.n)
    if len(numbers) == 1: print(e.keys()[-2:], [f['symbol'] for f in e._callchain[:3]])
def __exit__(): print(sum(numbers), len(numbers))"
    );
    let run = compiled(Run::script(&script), &["-O0"]);
    let offset = elf::function(&run.path("p"), "counted").unwrap().file_offset;
    let place = format!("{}:{offset:#x} n=%di:s32", run.path("p").display());
    let defined = Defined::new(group, &place);
    let outcome = succeeded(&run.event(defined.event()).options(["-g", "--order"]).exec(["./p", "100"]));
    let lines: Vec<&str> = outcome.stdout.lines().skip(2).collect();
    assert_eq!(lines, ["['__probe_ip', 'n'] ['counted', 'caller', 'main']", "4950 100"]);
}

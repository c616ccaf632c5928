//! Events other than tracepoints: `profile`, events with perf's names, PMUs, breakpoints.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use expect_test::expect;

use crate::harness::{
    calls::WORKLOAD,
    machine::{Need, needs, needs_samples, skip},
    script::{CALL, Run, check, finish, prints},
    task::pin_to_first,
};

#[test]
fn profile_samples_where_the_time_goes() {
    needs([Need::Tracefs]);
    needs_samples(997);
    // The kernel changes the period until the frequency is right, which takes some time in each process. So the script
    // adds up periods, and does not count samples.
    let script = "
from collections import Counter
n, periods = Counter(), Counter()
def profile(event):
    n[event._pid] += 1
    periods[event._pid] += event._period
def __exit__():
    (a, seventy), (b, thirty) = periods.most_common(2)
    share = seventy / (seventy + thirty)
    print('share', 0.6 < share < 0.8 or share, 'count', 300 < n[a] + n[b] < 3000 or n)";
    let run = Run::script(script).event("profile/-F 997/");
    let outcome = run.workload("fork-burn 0 700 fork-burn 1 300 wait-for-children").run();
    // The kernel may have lowered its limit during the run.
    needs_samples(997);
    outcome.assert_civil();
    assert_eq!((outcome.status, outcome.complaints().as_str()), (0, ""), "stdout: {}", outcome.stdout);
    expect![[r#"
        share True count True
    "#]]
    .assert_eq(&outcome.stdout);
}

#[test]
fn a_sample_has_the_members_of_its_sample_type() {
    let script = "
def cpu_clock(event):
    global seen
    if seen: return
    seen = True
    print(*event.keys())
    print(event._event, event.pid == event._pid, event.tid == event._tid, event.time == event._time, event.cpu == event._cpu)
    print(event.ip == event['ip'] > 0, event.id == event.identifier > 0, event.period, event._period == event.period)
    print(len(event) == len(dict(event)) == len(event.keys()), repr(event) == f'<PerfEvent cpu-clock cpu={event.cpu} pid={event.pid} time={event.time}>')
    print('_callchain' in event, event._callchain, 'addr' in event, event.get('addr'))
    print(type(event).__name__, type(event).__module__, [name for name in dir(event) if not name.startswith('_')])
    print(type(event).__doc__)
    import copy, pickle
    again = pickle.loads(pickle.dumps(event))
    print(again == event, hash(again) == hash(event), again.to_dict() == event.to_dict(), type(again) is type(event))
    try: event.addr
    except AttributeError as error: print(error)
    try: event['adr']
    except KeyError as error: print(error)
    try: event.array('ip')
    except TypeError as error: print(error)
    print(event.text('period'))
seen = False";
    prints(
        Run::script(script).event("cpu-clock//period=1000000/").workload("burn 50"),
        expect![[r#"
        _pid _tid _time _cpu _realtime _event identifier ip pid tid time id cpu period
        cpu-clock True True True True
        True True 1000000 True
        True True
        False [] False None
        cpu_clock perf_prof ['array', 'cpu', 'get', 'id', 'identifier', 'ip', 'items', 'keys', 'period', 'pid', 'print', 'text', 'tid', 'time', 'to_dict', 'values']
        cpu-clock

        Fields:
            identifier : int    (the event's id on its CPU or thread)
            ip : int    (address of the instruction)
            pid : int    (process id)
            tid : int    (thread id)
            time : int    (time in ns, of the perf clock)
            id : int    (id of the event or of its group's leader)
            cpu : int    (CPU)
            period : int    (number of counted events that this sample stands for)

        True True True True
        'perf_prof.cpu_clock' object has no attribute 'addr'
        "cpu-clock has no field 'adr'"
        field 'ip' is not an array of integers
        1000000
    "#]],
    );
}

#[test]
fn handlers_are_called_by_name_or_alias() {
    let script = "
from collections import Counter
n = Counter()
def page_faults(event): n['page_faults', event._event] += 1
def cpu_clock_u(event): n['cpu_clock_u', event._event] += 1
def mine(event): n['mine', event._event] += 1
def __sample__(event): n['sample', event._event] += 1
def __exit__(): print(*sorted(n), sep='\\n')";
    let events = "page-faults,minor-faults//alias=mine/,cpu-clock:u/period=1000000/,task-clock//c=1000000/";
    prints(
        Run::script(script).event(events).workload("faults 10 burn 30"),
        expect![[r#"
            ('cpu_clock_u', 'cpu-clock:u')
            ('mine', 'mine')
            ('page_faults', 'page-faults')
            ('sample', 'task-clock')
        "#]],
    );
}

#[test]
fn one_software_event_selected_twice_is_an_error() {
    check(
        Run::script("def __sample__(event): pass").event("page-faults,faults//alias=mine/").workload("faults 1"),
        expect![[r#"
            --- stderr
            perf-prof: page-faults and faults//alias=mine/ are the same software event; only one of them would get the samples; select the event once
            --- status 1
        "#]],
    );
}

/// If two programs count the same software event, the kernel gives samples of the older event the id of the newer
/// event.
#[test]
fn a_software_event_that_another_program_counts_too_is_still_delivered() {
    let script = "
import ctypes, mmap, os, struct, sys, perf_prof
libc, calls, faults = ctypes.CDLL(None, use_errno=True), 0, 0

def __interval__():
    global calls, other
    calls += 1
    if calls == 2:
        print(faults >= 1000)
        sys.exit()
    # type software, size 64, config page faults, period 1, sample_type IDENTIFIER and ID; of this thread, on any CPU.
    attr = struct.pack('<IIQQQ', 1, 64, 2, 1, 0x10040).ljust(64, b'\\0')
    other = libc.syscall(perf_prof.syscall_nr('perf_event_open'), attr, 0, -1, -1, 0)
    if other < 0: raise OSError(ctypes.get_errno(), 'perf_event_open')
    memory = mmap.mmap(-1, 1000 * mmap.PAGESIZE)
    for page in range(1000): memory[page * mmap.PAGESIZE] = 1

def __sample__(event):
    global faults
    faults += event._pid == os.getpid()
";
    // The rings are large enough for the page faults of all other programs.
    let run =
        |events: &str| Run::script(script).options(["-i", "500", "-m", "8M", "--include-self"]).event(events).run();
    needs([Need::Tracefs]);
    let alone = run("page-faults");
    assert_eq!((alone.stdout.as_str(), alone.complaints().as_str()), ("True\n", ""));
    // With two events, perf-prof cannot know to which event a sample without an id belongs.
    let two = run("page-faults,context-switches");
    assert!(
        two.stdout == "True\n" || two.complaints().contains("events were not delivered: another program"),
        "{two:?}"
    );
}

#[test]
fn page_faults_say_which_page_was_missing() {
    let script = "
pages = []
def page_faults_u(event): pages.append(event.addr >> 12)
def __exit__():
    runs = [at for at in range(1, len(pages)) if pages[at] == pages[at - 1] + 1]
    print(len(runs) >= 199, all(page > 0 for page in pages))";
    prints(Run::script(script).event("page-faults:u").workload("faults 200"), expect!["True True\n"]);
}

#[test]
fn context_switches_and_minor_faults_are_counted_one_by_one() {
    let script = "
from collections import Counter
n = Counter()
def __sample__(event): n[event._event] += event.period
def __exit__(): print(n['context-switches'] >= 3, n['minor-faults'] >= 20)";
    prints(
        Run::script(script)
            .event("context-switches,minor-faults")
            .workload("faults 20 sleep-ms 2 sleep-ms 2 sleep-ms 2"),
        expect!["True True\n"],
    );
}

/// The workload causes major faults. Without them, the test could not notice that the event does not work.
#[test]
fn major_faults_come_where_a_file_is_read_from_its_disk() {
    needs([Need::Tracefs]);
    let script = "
n = 0
def major_faults(event):
    global n
    n += event.period
def __exit__(): print('seen', n)";
    let run = Run::script(script).file("pages", [1; 64 * 4096]).event("major-faults");
    let outcome = run.workload("read-mapped pages").run();
    let number = |name: &str| -> u64 {
        let line =
            outcome.stdout.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{outcome:?}"));
        line.trim().parse().unwrap()
    };
    // Pages of the program itself may cause further major faults.
    match number("own") {
        0 => skip(Need::Storage, "what was written to the test's folder stays in memory"),
        own => assert!(number("seen") >= own, "{outcome:?}"),
    }
}

#[test]
fn events_that_never_come_can_be_selected() {
    // A task that is bound to one CPU does not migrate. The command inherits the binding.
    pin_to_first();
    let script = "
def __sample__(event): print(event._event)
def __exit__(): print('ran')";
    let events = "bpf-output,alignment-faults,emulation-faults,dummy,cpu-migrations//alias=m/cpus=0/";
    prints(Run::script(script).event(events).options(["-N1"]).workload("exit 0"), expect!["ran\n"]);
}

#[test]
fn a_breakpoint_counts_each_access() {
    needs([Need::Tracefs]);
    let mut target = Command::new(std::env::current_exe().unwrap())
        .args([WORKLOAD, "tell", "wait-for-input", "stores", "1000"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(target.stdout.take().unwrap()).lines();
    let address = told.next().unwrap().unwrap();
    let script = format!(
        "
n = 0
def mem(event):
    global n
    n += event.addr == {address} and event.period == 1
def __interval__(): print('ready')
def __exit__(): print('accesses', n)"
    );
    let run = Run::script(&script).event(format!("mem:{address}/8:w"));
    let run = run.options(["-p", &target.id().to_string(), "-i", "20"]);
    let (child, mut lines) = run.start();
    let first = lines.next();
    target.stdin.take().unwrap().write_all(b"x").unwrap();
    target.wait().unwrap();
    let last = lines.last();
    let outcome = finish(child, run.dir.path());
    assert_eq!((outcome.complaints().as_str(), outcome.status), ("", 0));
    assert_eq!((first.as_deref(), last.as_deref()), (Some("ready"), Some("accesses 1000")));
}

#[test]
fn all_breakpoint_slots_in_use_is_an_error_that_says_so() {
    let events: Vec<String> = (0..40).map(|at| format!("mem:{:#x}/8:w", 0x10000 + 8 * at)).collect();
    check(
        Run::script("def __sample__(event): pass").event(events.join(",")).workload("exit 0"),
        expect![[r#"
        --- stderr
        perf-prof: cannot open mem: all breakpoint registers of a CPU are in use (most CPUs have 4, and debuggers use them too); select fewer mem: events
        --- status 1
    "#]],
    );
}

#[test]
fn kinds_are_delivered_in_one_order() {
    let script = "
from collections import Counter
n, last, disordered, ids = Counter(), 0, 0, Counter()
def __sample__(event):
    global last, disordered
    disordered += event._time < last
    last = event._time
    n[event._event] += 1
def syscalls__sys_enter_getpgid(event):
    __sample__(event)
    assert event.pid == n[event._event] and '_callchain' in event and event._callchain == []
def __exit__():
    print(disordered, n['syscalls:sys_enter_getpgid'], n['profile'] > 10, n['page-faults'] > 90)";
    let events = format!("profile/--period 1000000 -g/,{CALL},page-faults//sample=regs_user+read/stack/");
    prints(
        Run::script(script)
            .event(events)
            .options(["--order"])
            .workload("calls 50 burn 100 faults 100 calls 50 burn 20"),
        expect!["0 100 True True\n"],
    );
}

#[test]
fn members_that_are_asked_for_are_there() {
    let script = "
import sys
def page_faults_u(event):
    global seen
    if seen: return
    seen = True
    print(*event.keys())
    print(sorted(event.read), event.read['value'] > 0, event.read['time_enabled'] >= event.read['time_running'] > 0)
    print(event.read['id'] == event.identifier, event.read['lost'])
    registers = event.regs_user
    print(registers['abi'], len(registers) > 20, next(iter(registers)), registers.get('ip', registers.get('pc')) == event.ip)
    print(event.regs_intr['abi'], len(event.stack_user) == 8 + int.from_bytes(event.stack_user[:8], sys.byteorder) > 8)
    print({type(event[name]) for name in ('phys_addr', 'cgroup', 'data_page_size', 'code_page_size')}, event.stream_id > 0)
    print([frame['kernel'] for frame in event.callchain][:1], event.callchain is event.callchain == event._callchain)
    print(event.weight, type(event.data_src), event.transaction, event.raw)
seen = False";
    let members = "regs_user+regs_intr+stack_user+read+phys_addr+cgroup+data_page_size+code_page_size+stream_id+callchain+\
                   weight+data_src+transaction+raw";
    let event = format!("page-faults:u//sample={members}/");
    prints(
        // The rings are large, because each sample contains a copy of the stack.
        Run::script(script).event(event).options(["-m16M"]).workload("faults 50"),
        expect![[r#"
        _pid _tid _time _cpu _realtime _event identifier ip pid tid time addr id stream_id cpu period callchain raw read regs_user stack_user weight data_src transaction regs_intr phys_addr cgroup data_page_size code_page_size
        ['id', 'lost', 'time_enabled', 'time_running', 'value'] True True
        True 0
        2 True abi True
        2 True
        {<class 'int'>} True
        [False] True
        0 <class 'int'> 0 b'\x00\x00\x00\x00'
    "#]],
    );
}

#[test]
fn the_line_of_a_sample_shows_where_it_was() {
    let script = "
import re, io, sys
def page_faults_u(event):
    global seen
    if seen: return
    seen = True
    out, sys.stdout = sys.stdout, io.StringIO()
    event.print(timestamp=False, callchain=False)
    text, sys.stdout = sys.stdout.getvalue(), out
    head = r'\\S+ +\\d+ \\.\\.\\.\\. \\[\\d{3}\\] \\d+\\.\\d{6}: page-faults:u: '
    print(bool(re.fullmatch(head + r'ip=[0-9a-f]+ \\S+ \\(\\S+\\) addr=0x[0-9a-f]+ period=1\\n', text.lstrip())) or text)
seen = False";
    prints(Run::script(script).event("page-faults:u").workload("faults 5"), expect!["True\n"]);
}

#[test]
fn hardware_events_where_there_are_any() {
    needs([Need::Tracefs]);
    needs_samples(997);
    let script = "
from collections import Counter
n = Counter()
def __sample__(event): n[event._event] += 1
def __exit__(): print(n['cycles:u'] > 10, n['instructions:u'] > 10)";
    let run = Run::script(script).event("cycles:u,instructions:u").options(["-F", "997"]).workload("burn 100");
    let outcome = run.run();
    outcome.assert_civil();
    if outcome.stderr.contains("does not have the hardware event") {
        skip(Need::Pmu, &outcome.stderr);
    }
    assert_eq!((outcome.stdout.as_str(), outcome.status), ("True True\n", 0), "{}", outcome.stderr);
}

#[test]
fn a_template_shows_the_members() {
    needs([Need::Tracefs]);
    let run = Run::script("").event("profile/-g/,page-faults//alias=f/").module("help");
    let outcome = run.run();
    let from = outcome.stdout.find("def profile(").unwrap();
    let to = outcome.stdout.find("# [OPTIONAL] Called for every event").unwrap();
    expect![[r#"
        def profile(event) -> None:
            """profile

            Fields:
                identifier : int    (the event's id on its CPU or thread)
                ip : int    (address of the instruction)
                pid : int    (process id)
                tid : int    (thread id)
                time : int    (time in ns, of the perf clock)
                id : int    (id of the event or of its group's leader)
                cpu : int    (CPU)
                period : int    (number of counted events that this sample stands for)
                callchain : list    (call chain, innermost first)
            """
            global events
            events += 1
            event.print()


        def f(event) -> None:
            """f (page-faults)

            Fields:
                identifier : int    (the event's id on its CPU or thread)
                ip : int    (address of the instruction)
                pid : int    (process id)
                tid : int    (thread id)
                time : int    (time in ns, of the perf clock)
                addr : int    (address of the accessed data or of the page fault)
                id : int    (id of the event or of its group's leader)
                cpu : int    (CPU)
                period : int    (number of counted events that this sample stands for)
            """
            global events
            events += 1
            event.print()


    "#]]
    .assert_eq(&outcome.stdout[from..to]);
}

/// Without a message, missing samples would look as if nothing had happened.
#[test]
fn throttled_sampling_is_reported() {
    needs([Need::Tracefs]);
    let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").unwrap_or_default();
    // A clock gives at most one sample every 10 us (`perf_swevent_start_hrtimer()` in kernel/events/core.c).
    if limit.trim().parse().is_ok_and(|limit: u64| limit > 50_000) {
        skip(Need::SampleRate, format!("kernel.perf_event_max_sample_rate is {limit}"));
    }
    let run = Run::script("def __sample__(event): pass").event("cpu-clock/period=10000/").options(["-m4M"]);
    let outcome = run.workload("fork-burn 0 300").run();
    assert!(outcome.stderr.contains("the kernel throttled sampling "), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("sample less often (-F, -c)"), "{}", outcome.stderr);
}

//! Runs the same Python scripts in perf and in perf-prof on the same recordings. Both programs must print the same
//! text.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::harness::{
    machine::{Need, needs, skip},
    older_perf,
    recording::{Folder, record},
    run::{perf_prof, said, stdout},
};

/// A script that prints each call with all arguments. The repr of a dict shows the order of its keys and the types of
/// its values.
const PRINT_ALL: &str = r#"
def printer(name):
    def print_call(*arguments):
        print(name, arguments)
    return print_call

for name in ("trace_begin", "trace_end", "throttle", "unthrottle", "context_switch", "define_flag_field",
             "define_flag_value", "define_symbolic_field", "define_symbolic_value", "stat__interval", "stat__task-clock",
             "stat__page-faults", "stat__page-faults_u"):
    globals()[name] = printer(name)

def trace_unhandled(event_name, context, fields, sample):
    print(event_name, fields, sample)

def process_event(param_dict):
    # perf has no names for some entries of procedure linkage tables.
    if param_dict.get('symbol', '').endswith('@plt'):
        del param_dict['symbol'], param_dict['symoff']
    for frame in param_dict['callchain']:
        if frame.get('sym', {}).get('name', '').endswith('@plt'):
            del frame['sym'], frame['sym_off']
    print(param_dict)
"#;

/// A script that prints the fields of tracepoints.
const PRINT_FIELDS: &str = r#"
def trace_unhandled(event_name, context, fields):
    print(event_name, fields)
"#;

/// A script that prints each call of the database export.
const PRINT_EXPORT: &str = r#"
perf_db_export_mode = True
perf_db_export_callchains = True

def printer(name):
    def print_call(*arguments):
        print(name, arguments)
    return print_call

for name in ("trace_begin", "trace_end", "evsel_table", "machine_table", "thread_table", "comm_table",
             "comm_thread_table", "dso_table", "symbol_table", "branch_type_table", "sample_table", "call_path_table",
             "context_switch_table"):
    globals()[name] = printer(name)
"#;

/// A shell that creates directories and child processes.
const SHELL: [&str; 4] =
    ["--", "sh", "-c", "mkdir made; sleep 0.01; kill -0 $$; (exit 0); rmdir made; ls / >/dev/null"];
/// A shell that uses the CPU.
const BUSY: [&str; 4] =
    ["--", "sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); [ -d / ]; done; echo /usr/share/*/* >/dev/null"];

/// Ends the test as ignored unless perf and perf-prof can run Python scripts.
fn needs_scripts() {
    needs([Need::Perf, Need::Python, Need::Programs]);
    let options = Command::new("perf").args(["version", "--build-options"]).output().unwrap();
    if !stdout(&options).lines().any(|line| line.contains("libpython") && line.contains("[ on")) {
        skip(Need::Perf, "this perf runs no Python scripts");
    }
}

/// A folder with a recording of perf.
struct Recorded(Folder);

impl Recorded {
    /// Records with these arguments of `perf record`. perf 6.1 shows the name `@plt` for entries of libc's procedure linkage table
    /// that have none. A sample in one of them is rare, so the command is recorded again then.
    #[track_caller]
    fn new(args: &[&[&str]]) -> Recorded {
        needs_scripts();
        let folder = Folder::new();
        let path = folder.path("perf.data");
        for _ in 0..8 {
            record(&path, &args.concat());
            let lines = Command::new("perf").args(["script", "-i"]).arg(&path).output().unwrap().stdout;
            if !String::from_utf8_lossy(&lines).contains(" @plt") {
                break;
            }
        }
        Recorded(folder)
    }

    /// Records counts with `perf stat record` and these arguments.
    #[track_caller]
    fn counts(args: &[&str]) -> Recorded {
        needs_scripts();
        let folder = Folder::new();
        let events = ["-e", "cpu-clock/name=cycles/,task-clock/name=instructions/,page-faults:u", "-o", "perf.data"];
        let mut perf = Command::new("perf");
        perf.args(["stat", "record"]).args(events).args(args).current_dir(folder.path("")).stdout(Stdio::null());
        stdout(&perf.output().unwrap());
        Recorded(folder)
    }

    /// Runs a script on the recording with `perf` or `perf-prof`.
    fn run(&self, mut program: Command, script: &Path, args: &[&str]) -> Output {
        let program = program.arg("-s").arg(script).args(["-i", "perf.data"]).args(args);
        program.current_dir(self.0.path("")).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a script in both programs. Checks that both print the same text, and returns it.
    #[track_caller]
    fn same(&self, script: &Path, args: &[&str]) -> String {
        self.same_as(script, script, args)
    }

    /// Runs one script in perf, and another script in perf-prof. Checks that both print the same text, and returns it.
    #[track_caller]
    fn same_as(&self, theirs: &Path, ours: &Path, args: &[&str]) -> String {
        let mut perf = Command::new("perf");
        perf.arg("script");
        let expected = without_note(&stdout(&self.run(perf, theirs, args)));
        let printed = stdout(&self.run(perf_prof(older_perf::script_words()), ours, args));
        // For a place without a line, perf asks addr2line, if that is installed.
        let expected = expected.replace(", 'sym_srcline': '??:0'", "");
        let (expected, printed) = older_perf::comparable_samples(with_names_once(&expected), with_names_once(&printed));
        let pairs = expected.lines().zip(printed.lines()).enumerate();
        for (at, (perf, ours)) in pairs {
            // Lines with whole samples are long, so only the part around the difference is shown.
            let same = perf.chars().zip(ours.chars()).take_while(|(perf, ours)| perf == ours).count();
            let part = |line: &str| -> String { line.chars().skip(same.saturating_sub(80)).take(200).collect() };
            assert!(perf == ours, "line {}:\nperf {}\nours {}", at + 1, part(perf), part(ours));
        }
        assert_eq!(printed, expected);
        expected
    }

    /// Runs a script of this text in both programs.
    #[track_caller]
    fn same_text(&self, script: &str) -> String {
        self.same(&self.0.write("script.py", script.as_bytes()), &[])
    }

    /// Runs perf's template for the recording in both programs.
    #[track_caller]
    fn same_template(&self) -> String {
        let generate = Command::new("perf").args(["script", "-g", "python"]).current_dir(self.0.path("")).output();
        let generated = generate.unwrap();
        assert!(generated.status.success(), "{}", said(&generated));
        self.same(&self.0.path("perf-script.py"), &[])
    }
}

/// Removes the calls of `define_flag_value` and the like that were made before. Since version 6.12, perf makes them for each
/// event.
fn with_names_once(text: &str) -> String {
    let mut known = HashSet::new();
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.starts_with("define_") || known.insert(line.to_owned())).collect()
}

/// Removes the note that perf's module `Util` prints if the module `audit` is missing. perf-prof knows the names of
/// system calls without this module.
fn without_note(text: &str) -> String {
    // The first name is that of perf 7.2.
    let package = ["python-audit", "audit-libs-python"];
    let start = package.iter().find_map(|package| text.find(&format!("Install the {package} package")));
    match (start, text.find("  etc.\n\n")) {
        (Some(start), Some(end)) if start < end => [&text[..start], &text[end + "  etc.\n\n".len()..]].concat(),
        _ => text.to_owned(),
    }
}

/// Returns the path of one of perf's own scripts.
fn script_of_perf(name: &str) -> PathBuf {
    let path = Command::new("perf").arg("--exec-path").output().unwrap();
    let path = Path::new(stdout(&path).trim()).join("scripts/python").join(name);
    if !path.exists() {
        skip(Need::Perf, format!("{} is not installed", path.display()));
    }
    path
}

#[test]
fn tracepoints_with_fields_of_all_kinds() {
    let events = "sched:sched_process_*,raw_syscalls:*,signal:*,syscalls:sys_enter_mkdir,syscalls:sys_enter_execve,\
                  syscalls:sys_exit_mkdir,kmem:mm_page_alloc,exceptions:page_fault_user,filelock:*,task:task_newtask";
    let recorded = Recorded::new(&[&["-e", events], &SHELL]);
    let printed = recorded.same_text(PRINT_ALL);
    for part in ["'filename': '/", "bytearray(b'", "define_flag_field (", "'parent_comm': 'sh'", "'raw_buf': b'"] {
        assert!(printed.contains(part), "{part} in {printed}");
    }
    recorded.same_text(PRINT_FIELDS);
    recorded.same_template();
}

#[test]
fn tracepoints_with_call_chains() {
    let recorded = Recorded::new(&[&["-g", "-e", "sched:sched_process_exit,syscalls:sys_enter_mkdir"], &SHELL]);
    let printed = recorded.same_text(PRINT_ALL);
    assert!(printed.contains("'binding': 1, 'name': 'do_exit'}"), "{printed}");
    recorded.same_template();
}

/// perf has different options for text and for scripts. Options that perf ignores for scripts have no effect in
/// perf-prof either.
#[test]
fn options_of_perf_script() {
    let recorded =
        Recorded::new(&[&["-g", "-e", "cpu-clock", "-c", "1000000", "-e", "sched:sched_process_exit"], &BUSY]);
    let script = recorded.0.write("script.py", PRINT_ALL.as_bytes());
    let all = recorded.same(&script, &[]);
    let cut = recorded.same(&script, &["--max-stack", "1"]);
    // In programs, inlined functions do not count.
    let second = "'dso': '[kernel.kallsyms]'}, {'ip': ";
    assert!(all.contains(second) && cut.contains("'callchain': [{'ip': ") && !cut.contains(second), "{cut}");
    let without = recorded.same(&script, &["-G"]);
    assert!(without.contains("'callchain': []") && !without.contains("{'ip': "), "{without}");
    for args in [&["-F", "comm,ip"][..], &["-F", "sw:comm", "-F", "+pid"], &["--ns", "-v"]] {
        assert_eq!(recorded.same(&script, args), all, "{args:?}");
    }
    let of_shell = recorded.same(&script, &["-c", "sh", "--dsos", "[kernel.kallsyms]"]);
    assert!(of_shell.contains("'dso': '[kernel.kallsyms]'") && of_shell.len() < all.len(), "{of_shell}");
    let count = |part: &str| of_shell.matches(part).count();
    assert_eq!(count("'dso': '[kernel.kallsyms]', 'dso_bid'"), count("'dso_bid'"), "{of_shell}");
}

#[test]
fn events_other_than_tracepoints() {
    let recorded = Recorded::new(&[&["-e", "cpu-clock,page-faults,context-switches", "-c", "1000000"], &BUSY]);
    let printed = recorded.same_text(PRINT_ALL);
    assert!(printed.contains("'ev_name': 'cpu-clock'") && printed.contains("'dso_bid': '"), "{printed}");
}

#[test]
fn call_chains_of_events_other_than_tracepoints() {
    let recorded = Recorded::new(&[&["-g", "-e", "cpu-clock", "-c", "1000000"], &BUSY]);
    let printed = recorded.same_text(PRINT_ALL);
    assert!(printed.contains("'callchain': [{'ip': "), "{printed}");
    recorded.same_text(PRINT_EXPORT);
}

#[test]
fn addresses_and_data_sources() {
    // perf has no names for some entries of procedure linkage tables.
    const PRINT: &str = "def process_event(param_dict):\n    sample = param_dict['sample']\n    is_linkage = \
                         '@plt' in sample.get('addr_symbol', '')\n    print({name: value for name, value in sample.items() \
                         if not (is_linkage and name.startswith('addr_sym'))}, param_dict['ev_name'])\n";
    let options = ["-d", "-T", "-P", "-W", "--phys-data", "--sample-cpu", "-e", "page-faults,cpu-clock", "-c", "10"];
    let printed = Recorded::new(&[&options, &SHELL]).same_text(PRINT);
    // Data of files, anonymous memory, and the stack.
    for dso in ["'/", "'//anon'", "'[stack]'"] {
        assert!(printed.contains(&format!("'addr_correlates_sym': True, 'addr_dso': {dso}")), "{dso}: {printed}");
    }
    assert!(printed.contains("'addr_symbol': '"), "{printed}");
    assert!(printed.contains(", 'cpumode': 1} cpu-clock\n"), "{printed}");
}

#[test]
fn registers() {
    let registers = ["--user-regs=ip,sp,ax,bx", "--intr-regs=ip,sp,flags,cx", "-e", "cpu-clock", "-c", "1000000"];
    let printed = Recorded::new(&[&registers, &BUSY]).same_text(PRINT_ALL);
    assert!(printed.contains("'iregs': '   CX:0x"), "{printed}");
}

#[test]
fn groups_that_are_read_together() {
    let group = ["-e", "{cpu-clock,page-faults,context-switches}:S", "-c", "1000000"];
    let printed = Recorded::new(&[&group, &BUSY]).same_text(PRINT_ALL);
    assert!(printed.contains("'ev_name': 'page-faults'"), "{printed}");
}

#[test]
fn context_switches() {
    let recorded = Recorded::new(&[&["--switch-events", "-e", "cpu-clock", "-c", "1000000"], &SHELL]);
    let printed = recorded.same_text(PRINT_ALL);
    assert!(printed.contains("context_switch ("), "{printed}");
    recorded.same_text(PRINT_EXPORT);
}

#[test]
fn samples_that_the_kernel_lost() {
    let calls = "i=0; while [ $i -lt 3000 ]; do [ -d / ]; i=$((i + 1)); done";
    let options = ["-m", "1", "-e", "raw_syscalls:*", "--", "sh", "-c", calls];
    // Whether samples are lost depends on how soon perf reads the small rings.
    for _ in 0..5 {
        let recorded = Recorded::new(&[&options]);
        recorded.same_text(PRINT_FIELDS);
        let script = recorded.0.path("script.py");
        if said(&recorded.run(perf_prof(&["script"]), &script, &[])).contains("perf-prof: lost ") {
            return;
        }
    }
    skip(Need::SampleRate, "the kernel lost no samples");
}

#[test]
fn names_of_tasks_with_any_characters() {
    let name = "import ctypes, os\nfor name in ('two words', 'qu\\'ote', 'd\"q', 'back\\\\', '\u{e9}', 'tab\\there', 'new\\nline', \
                '\\x1b[1m', '%s', '{}', ' x '):\n  ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)\n  os.getppid()";
    let recorded = Recorded::new(&[&["-e", "syscalls:sys_enter_getppid", "--", "/usr/bin/python3", "-c", name]]);
    let printed = recorded.same_text(PRINT_ALL);
    assert!(printed.contains("'comm': \"qu'ote\"") && printed.contains("'\u{e9}'"), "{printed}");
    recorded.same_template();
}

#[test]
fn recordings_of_perf_stat() {
    for options in [&["-I", "20"][..], &["-a", "-A"]] {
        let recorded = Recorded::counts(&[options, &["--", "sleep", "0.1"]].concat());
        let printed = recorded.same_text(PRINT_ALL);
        assert!(printed.contains("stat__interval (") && printed.contains("stat__page-faults_u ("), "{printed}");
        let printed = recorded.same(&script_of_perf("stat-cpi.py"), &[]);
        assert!(printed.contains(" -> cpi "), "{printed}");
    }
}

/// perf's scripts print the numbers of system calls if the module `audit` is missing. perf-prof prints names. So this
/// test supplies the module.
#[test]
fn scripts_of_perf_that_count_system_calls() {
    const AUDIT: &str = "import re\nNAMES = {int(number): name for name, number in re.findall(r'__NR_(\\w+) (\\d+)', \
                         open('/usr/include/x86_64-linux-gnu/asm/unistd_64.h').read())}\n\
                         def audit_syscall_to_name(number, machine):\n    return NAMES.get(number)\n\
                         def __getattr__(name):\n    return 0\n";
    let header = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
    if !Path::new(header).exists() {
        skip(Need::Programs, format!("{header} is not installed"));
    }
    let recorded = Recorded::new(&[&["-e", "raw_syscalls:*"], &SHELL]);
    recorded.0.write("audit.py", AUDIT.as_bytes());
    for name in ["syscall-counts.py", "syscall-counts-by-pid.py", "failed-syscalls-by-pid.py"] {
        // perf finds the module `audit` in the folder of the script.
        let script = recorded.0.write(name, &fs::read(script_of_perf(name)).unwrap());
        for args in [&[][..], &["sh"]] {
            let printed = recorded.same(&script, args);
            // The environment of the test determines which calls fail.
            let expected = if name.starts_with("failed") { "err = ENOENT" } else { "openat" };
            assert!(printed.contains(expected), "{name}: {printed}");
        }
    }
}

#[test]
fn scripts_of_perf_that_show_call_chains() {
    let recorded = Recorded::new(&[&["-g", "-e", "cpu-clock", "-c", "500000"], &BUSY]);
    let stacks = recorded.same(&script_of_perf("stackcollapse.py"), &["--", "--include-tid", "--kernel"]);
    assert!(stacks.contains(";_[k]") || stacks.contains("_[k];"), "{stacks}");
    recorded.same(&script_of_perf("flamegraph.py"), &["--", "-f", "json", "-o", "-", "-i", "perf.data"]);
    recorded.same(&script_of_perf("intel-pt-events.py"), &[]);
}

#[test]
fn the_script_of_perf_for_futexes() {
    // perf's script counts FUTEX_WAIT only. The locks of libc and of Python have other waits (FUTEX_WAIT_BITSET) too.
    let contend = "import ctypes, threading\ncall = ctypes.CDLL(None).syscall\nlock = ctypes.c_uint32(7)\n\
                   timeout = (ctypes.c_long * 2)(0, 1_000_000)\ndef wait():\n  for _ in range(20):\n    \
                   call(202, ctypes.byref(lock), 0, 7, timeout)\n\
                   threads = [threading.Thread(target=wait) for _ in range(4)]\n\
                   [thread.start() for thread in threads]\n[thread.join() for thread in threads]";
    let events = ["-e", "syscalls:sys_enter_futex,syscalls:sys_exit_futex", "--", "/usr/bin/python3", "-c", contend];
    let printed = Recorded::new(&[&events]).same(&script_of_perf("futex-contention.py"), &[]);
    assert_eq!(printed.matches(" contended 20 times").count(), 4, "{printed}");
}

#[test]
fn the_script_of_perf_for_the_compaction_of_memory() {
    let compact = "echo 1 >/proc/sys/vm/compact_memory";
    let recorded = Recorded::new(&[&["-e", "compaction:mm_compaction_*", "--", "sh", "-c", compact]]);
    let script = script_of_perf("compaction-times.py");
    for args in [&[][..], &["--", "-p"], &["--", "-pv"], &["--", "-t"], &["--", "-m", "-fs"], &["--", "-h"]] {
        recorded.same(&script, args);
    }
}

/// perf aborts in these scripts, because the kernel has more fields than they expect. So perf runs a copy with the
/// fields of this kernel, and perf-prof runs the script itself.
#[test]
fn scripts_of_perf_with_other_fields_than_the_kernel() {
    let traffic = "import socket\na = socket.create_server(('127.0.0.1', 0))\nb = socket.create_connection(a.getsockname())\n\
                   c, _ = a.accept()\nfor _ in range(9):\n  b.send(b'x' * 99)\n  c.recv(99)\n\
                   d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nd.sendto(b'x', ('127.0.0.1', 9))";
    let events = "skb:*,net:net_dev_xmit,net:net_dev_queue,net:netif_receive_skb,net:netif_rx,napi:napi_poll,irq:softirq_*,\
                  irq:irq_handler_*,kmem:kmalloc";
    let recorded = Recorded::new(&[&["-e", events, "--", "/usr/bin/python3", "-c", traffic]]);
    for (name, handlers) in [
        ("net_dropmonitor.py", &["skb__kfree_skb"][..]),
        ("check-perf-trace.py", &["kmem__kmalloc"]),
        ("netdev-times.py", &["skb__kfree_skb", "skb__consume_skb"]),
    ] {
        let script = script_of_perf(name);
        let mut text = fs::read_to_string(&script).unwrap();
        for handler in handlers {
            let fields = fields_of(&handler.replace("__", "/")).join(", ");
            let start = text.find(&format!("def {handler}(")).unwrap();
            let first = start + text[start..].find("callchain,").unwrap() + "callchain,".len();
            let end = first + text[first..].find("):").unwrap();
            text.replace_range(first..end, &fields);
        }
        let corrected = recorded.0.write(name, text.as_bytes());
        let printed = recorded.same_as(&corrected, &script, &[]);
        assert!(printed.lines().count() > 3, "{name}: {printed}");
    }
}

fn fields_of(event: &str) -> Vec<String> {
    let format = fs::read_to_string(format!("/sys/kernel/tracing/events/{event}/format")).unwrap();
    let names = format.lines().filter_map(|line| line.trim().strip_prefix("field:")?.split(';').next());
    let names = names.filter_map(|field| field.rsplit([' ', '*']).next()?.split('[').next());
    names.filter(|name| !name.starts_with("common_")).map(str::to_owned).collect()
}

/// perf crashes when it runs a script on a recording with a comm that is not UTF-8.
#[test]
fn names_of_tasks_that_are_not_utf_8() {
    let name = "import ctypes, os\nctypes.CDLL(None).prctl(15, b'\\xff\\xfe', 0, 0, 0)\nos.getppid()";
    let recorded = Recorded::new(&[&["-e", "syscalls:sys_enter_getppid", "--", "/usr/bin/python3", "-c", name]]);
    let script = recorded.0.write("script.py", PRINT_ALL.as_bytes());
    let printed = stdout(&recorded.run(perf_prof(&["script"]), &script, &[]));
    assert!(printed.contains("'common_comm': '\\udcff\\udcfe'"), "{printed}");
}

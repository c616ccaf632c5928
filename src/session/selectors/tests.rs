//! Tests how selectors become requests, on simulated machines.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use expect_test::{Expect, expect};
use perf_prof_capture::Config;
use perf_prof_format::spec::parse_events;
use perf_prof_system::{CallError, pmu::Pmu, probe_definition::ProbedCode};

use super::*;

/// A machine with a core PMU that supports precise sampling, and a PMU outside of the cores.
struct FakeMachine {
    cycles: bool,
}

impl Machine for FakeMachine {
    fn pmu(&self, name: &str) -> Result<Option<Pmu>, CallError> {
        let texts = |rows: &[(&str, &str)]| rows.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        Ok(match name {
            "cpu" => Some(Pmu {
                name: "cpu".into(),
                kind: 4,
                format: texts(&[
                    ("event", "config:0-7,32-35"),
                    ("umask", "config:8-15"),
                    ("inv", "config:23"),
                    ("offcore", "config1:0-63"),
                ]),
                events: texts(&[("cache-misses", "event=0x164,umask=0x9"), ("slots", "event=0x0,umask=0x4,scale=1")]),
                cpus: None,
                max_precise: 2,
            }),
            "kprobe" | "uprobe" => Some(Pmu {
                name: name.into(),
                kind: if name == "kprobe" { 6 } else { 7 },
                format: texts(&[("ref_ctr_offset", "config:32-63"), ("retprobe", "config:0")]),
                ..Pmu::default()
            }),
            "uncore" => Some(Pmu { name: "uncore".into(), kind: 20, cpus: "0,8".parse().ok(), ..Pmu::default() }),
            _ => None,
        })
    }
    fn pmus(&self) -> Vec<String> {
        vec!["cpu".into(), "uncore".into()]
    }
    fn can_sample(&self, kind: u32, config: u64) -> bool {
        self.cycles && (kind, config) == (PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES)
    }
    fn max_precise(&self) -> u8 {
        2
    }
    fn max_sample_rate(&self) -> Option<u64> {
        Some(12500)
    }
}

fn show(list: &str, rate: Option<Rate>, machine: &dyn Machine) -> String {
    let spec = parse_events(list).unwrap().remove(0);
    let Source { request, stacks, tasks, .. } = match source(&spec, rate, machine) {
        Ok(source) => source,
        Err(error) => return format!("error: {error}"),
    };
    let mut text = show_request(&request);
    if stacks != Stacks::default() {
        text += &format!(" {stacks:?}");
    }
    if tasks != Tasks::Inherit {
        text += &format!(" {tasks:?}");
    }
    text
}

fn show_request(request: &EventRequest) -> String {
    let PerfEvent { kind, config, config1, config2, breakpoint, .. } = &request.event;
    let mut text = format!("{} type={kind} config={config:#x}", request.name);
    match config1 {
        Config::Number(0) => {}
        Config::Number(number) => text += &format!(" config1={number:#x}"),
        Config::Text(name) => text += &format!(" config1={name:?}"),
    }
    if *config2 != 0 {
        text += &format!(" config2={config2:#x}");
    }
    if *breakpoint != 0 {
        text += &format!(" bp_type={breakpoint}");
    }
    text += &format!(" {:?}", request.sampling);
    let Excluded { user, kernel, hv, host, guest, idle } = request.excluded;
    let places = [(user, "user"), (kernel, "kernel"), (hv, "hv"), (host, "host"), (guest, "guest"), (idle, "idle")];
    let places: Vec<&str> = places.into_iter().filter(|&(on, _)| on).map(|(_, name)| name).collect();
    if !places.is_empty() {
        text += &format!(" not in {}", places.join(","));
    }
    if request.precise != 0 {
        text += &format!(" precise={}", request.precise);
    }
    let members: Vec<&str> = perf_prof_format::record::SampleMember::of_sample_type(request.samples.sample_type)
        .map(|member| member.name())
        .collect();
    text += &format!(" samples {}", members.join(","));
    if let Some(cpus) = &request.cpus {
        text += &format!(" on {cpus}");
    }
    text
}

#[track_caller]
fn check(selectors: &[&str], expected: Expect) {
    let lines: Vec<String> = selectors.iter().map(|list| show(list, None, &FakeMachine { cycles: true })).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn named_events() {
    check(
        &[
            "cpu-clock",
            "page-faults:u",
            "faults//alias=f/",
            "context-switches",
            "bpf-output",
            "cycles",
            "cycles:upp",
            "instructions/period=100000,name=insn/",
            "r01c2:kP",
            "L1-dcache-load-misses//F=99/",
            "cycles:G",
            "cycles:GH",
            "cpu-clock:I",
        ],
        expect![[r#"
            cpu-clock type=1 config=0x0 Frequency(997) samples ip
            page-faults:u type=1 config=0x2 Period(1) not in kernel,hv samples ip,addr
            faults type=1 config=0x2 Period(1) samples ip,addr
            context-switches type=1 config=0x3 Period(1) samples ip
            bpf-output type=1 config=0xa Period(1) samples ip,raw
            cycles type=0 config=0x0 Frequency(997) not in guest samples ip
            cycles:upp type=0 config=0x0 Frequency(997) not in kernel,hv,guest precise=2 samples ip
            insn type=0 config=0x1 Period(100000) not in guest samples ip
            r01c2:kP type=4 config=0x1c2 Frequency(997) not in user,hv,guest precise=2 samples ip
            L1-dcache-load-misses type=3 config=0x10000 Frequency(99) not in guest samples ip
            cycles:G type=0 config=0x0 Frequency(997) not in host samples ip
            cycles:GH type=0 config=0x0 Frequency(997) samples ip
            cpu-clock:I type=1 config=0x0 Frequency(997) not in idle samples ip"#]],
    );
}

#[test]
fn pmus_and_their_terms() {
    check(
        &[
            "cpu/event=0x1c2,umask=0x3,inv/",
            "cpu/cache-misses,period=50/u",
            "cpu/slots/",
            "cpu/offcore=0x12345,config=1/",
            "uncore/config=1/",
            "cpu/evnt=1/",
            "cpu/event=0x12345/",
            "cpu/event=x/",
            "nothing/event=1/",
            "nothing",
            "fsync/min=1ms/",
            "fsync/ret < 0/",
            "cycles/event=1/",
            "cycles/period=0/",
        ],
        expect![[r#"
            cpu type=4 config=0x1008003c2 Frequency(997) not in guest samples ip
            cpu:u type=4 config=0x100000964 Period(50) not in kernel,hv,guest samples ip
            cpu type=4 config=0x400 Frequency(997) not in guest samples ip
            cpu type=4 config=0x1 config1=0x12345 Frequency(997) not in guest samples ip
            uncore type=20 config=0x1 Frequency(997) samples ip on 0,8
            error: cpu: unknown term `evnt` (did you mean event?); it accepts event, umask, inv, offcore, cache-misses, slots, config, config1, config2, config3, period, freq, name
            error: cpu: `0x12345` is not a valid value of event: it has only the bits config:0-7,32-35
            error: cpu: `x` is not a valid value of event: it has to be a number such as 12 or 0x1f
            error: there is no PMU nothing; this machine has the PMUs cpu, uncore
            error: unknown event nothing
            error: fsync is a system call, and its options belong to the source of system calls: write 'syscall/name=fsync,min=1ms/'
            error: fsync is a system call, and its options belong to the source of system calls: write 'syscall/name == "fsync" && ret < 0/'
            error: cycles: unknown term `event`; it accepts period, freq, name
            error: cycles: `0` is not a valid value of period: it has to be a number above 0"#]],
    );
}

#[test]
fn breakpoints() {
    check(
        &["mem:0x601040", "mem:0x601040/8:w:u", "mem:0x401000:x", "mem:0x10/1:r/period=2,name=m/"],
        expect![[r#"
        mem type=5 config=0x0 config1=0x601040 config2=0x4 bp_type=3 Period(1) samples ip,addr
        mem type=5 config=0x0 config1=0x601040 config2=0x8 bp_type=2 Period(1) not in kernel,hv samples ip,addr
        mem type=5 config=0x0 config1=0x401000 config2=0x8 bp_type=4 Period(1) samples ip,addr
        m type=5 config=0x0 config1=0x10 config2=0x1 bp_type=1 Period(2) samples ip,addr"#]],
    );
}

#[test]
fn profile_and_its_options() {
    check(
        &[
            "profile",
            "profile/-F 99 -g/",
            "profile/-F99 --exclude-kernel -C 0-1/alias=p/",
            "profile/--freq=max --user-callchain --no-kernel-callchain/",
            "profile/--period 1000000 -p 1,2/",
            "profile/-t 7/",
            "profile/-F 0/",
            "profile/-F/",
            "profile/-x/",
            "profile/-gx/",
            "profile/--exclude-user --exclude-kernel/",
            "profile/-C x/",
            "profile/-p 0/",
        ],
        expect![[r#"
            profile type=0 config=0x0 Frequency(997) not in guest samples ip
            profile type=0 config=0x0 Frequency(99) not in guest samples ip Stacks { asked: true, user: None, kernel: None }
            profile type=0 config=0x0 Frequency(99) not in kernel,guest samples ip on 0-1
            profile type=0 config=0x0 Frequency(12500) not in guest samples ip Stacks { asked: true, user: Some(Sampled), kernel: Some(Excluded) }
            profile type=0 config=0x0 Period(1000000) not in guest samples ip Processes([1, 2])
            profile type=0 config=0x0 Frequency(997) not in guest samples ip Threads([7])
            error: profile: the option -F needs a number above 0 or `max`, not `0`
            error: profile: the option -F needs a number above 0 or `max`, not ``
            error: profile: unknown option `-x`; the options are -F/--freq HZ, --period N, -N/--exit-N N, -g/--call-graph, --[no-]user-callchain, --[no-]kernel-callchain, --exclude-user, --exclude-kernel, -C/--cpus LIST, -p/--pids LIST, -t/--tids LIST
            error: profile: unknown option `-gx`; the options are -F/--freq HZ, --period N, -N/--exit-N N, -g/--call-graph, --[no-]user-callchain, --[no-]kernel-callchain, --exclude-user, --exclude-kernel, -C/--cpus LIST, -p/--pids LIST, -t/--tids LIST
            error: profile: with both --exclude-user and --exclude-kernel, nothing is sampled
            error: profile: -C: `x` is neither a CPU number nor a range; a list of CPUs looks like `0-3,7`
            error: profile: the option -p needs task ids such as `12,34`, not `0`"#]],
    );
    let clock = show("profile", None, &FakeMachine { cycles: false });
    expect!["profile type=1 config=0x0 Frequency(997) not in idle samples ip"].assert_eq(&clock);
}

#[test]
fn rates_go_from_the_nearest_to_the_farthest() {
    let at = |list: &str| show(list, Some(Rate::Frequency(7)), &FakeMachine { cycles: true });
    for (list, sampling) in [
        ("cycles", "Frequency(7)"),
        ("page-faults", "Frequency(7)"),
        ("cycles//c=5/", "Period(5)"),
        ("cycles/period=3/c=5/", "Period(3)"),
        ("profile/-F 9/", "Frequency(9)"),
        ("cycles//F=max/", "Frequency(12500)"),
    ] {
        assert!(at(list).contains(sampling), "{list}: {}", at(list));
    }
}

#[test]
fn members_to_be_sampled() {
    check(
        &[
            "cpu-clock//sample=regs_user+stack_user+read/",
            "cycles//sample=weight+data_src+phys_addr/",
            "cycles//sample=weight_struct+branch_stack/",
            "cycles//sample=callchain/",
            "cycles//sample=adr/",
        ],
        expect![[r#"
            cpu-clock type=1 config=0x0 Frequency(997) samples ip,read,regs_user,stack_user
            cycles type=0 config=0x0 Frequency(997) not in guest samples ip,weight,data_src,phys_addr
            cycles type=0 config=0x0 Frequency(997) not in guest samples ip,branch_stack,weight
            cycles type=0 config=0x0 Frequency(997) not in guest samples ip Stacks { asked: true, user: None, kernel: None }
            error: sample=adr: samples have no such member (did you mean addr?); the members are identifier ip pid tid time addr id stream_id cpu period callchain raw read branch_stack regs_user stack_user weight data_src transaction regs_intr phys_addr aux cgroup data_page_size code_page_size weight_struct"#]],
    );
}

fn show_probe(list: &str, machine: &dyn Machine) -> String {
    let EventKind::Probe(asked) = parse_events(list).unwrap().remove(0).kind else { panic!("{list} is not a probe") };
    match probe(&asked, &[], &[], machine) {
        Ok(resolved) => {
            let ResolvedProbe { request, format, .. } = &resolved[0];
            format!("{} fields={}", show_request(request), format.fields().len())
        }
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn probes_in_the_kernel_by_symbol_offset_and_address() {
    let selectors = ["kprobe:vfs_read", "kprobe:vfs_read+0x10", "kprobe:0xffffffff81000000", "kretprobe:xfs:xfs_read"];
    let lines = selectors.map(|list| show_probe(list, &FakeMachine { cycles: true }));
    expect![[r#"
        kprobe:vfs_read type=6 config=0x0 config1="vfs_read" Period(1) samples raw fields=1
        kprobe:vfs_read+0x10 type=6 config=0x0 config1="vfs_read" config2=0x10 Period(1) samples raw fields=1
        kprobe:0xffffffff81000000 type=6 config=0x0 config2=0xffffffff81000000 Period(1) samples raw fields=1
        kretprobe:xfs:xfs_read type=6 config=0x1 config1="xfs:xfs_read" Period(1) samples raw fields=2"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn a_probe_in_a_program_names_its_file_and_offset() {
    let this = std::env::current_exe().unwrap();
    let function =
        perf_prof_symbols::symbol::elf::functions(&this).unwrap().into_iter().find(|function| function.name == "main");
    let function = function.unwrap().offset;
    let opened = perf_prof_system::file::SharedFile::open(&this).unwrap();
    for (place, name) in [("main", "main".to_owned()), ("", format!("{:#x}", function.address))] {
        let place = if place.is_empty() { &name } else { place };
        let shown = show_probe(&format!("uretprobe:{place}@\"{}\"", this.display()), &FakeMachine { cycles: true });
        let (path, offset) = (opened.path(), function.file_offset);
        let config = format!("config=0x1 config1={:?} config2={offset:#x}", path.display().to_string());
        assert_eq!(shown, format!("uretprobe:{name} type=7 {config} Period(1) samples raw fields=2"));
    }
}

/// The owner of a file can replace it after its symbols were read. In the new file, the offset could be in the middle
/// of an instruction.
#[test]
fn the_kernel_gets_the_file_whose_symbols_were_read() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("program"), folder.path().join("other"));
    fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
    fs::write(&other, "another program").unwrap();
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let read = inode(&path);
    let list = format!("uprobe:main@\"{}\"", path.display());
    let EventKind::Probe(asked) = parse_events(&list).unwrap().remove(0).kind else { panic!("{list} is not a probe") };
    let request = probe(&asked, &[], &[], &FakeMachine { cycles: true }).unwrap().remove(0).request;
    fs::rename(&other, &path).unwrap();
    let Config::Text(config) = &request.event.config1 else { panic!("{:?}", request.event.config1) };
    assert_eq!(inode(Path::new(config.to_str().unwrap())), read);
    let Some(ProbedCode::File(file)) = request.definition.map(|definition| definition.probed) else { panic!() };
    assert_eq!(inode(&file.path()), read);
    assert_ne!(inode(&path), read);
}

#[test]
fn a_kernel_without_probes() {
    struct Without;
    impl Machine for Without {
        fn pmu(&self, _: &str) -> Result<Option<Pmu>, CallError> {
            Ok(None)
        }
        fn pmus(&self) -> Vec<String> {
            Vec::new()
        }
        fn can_sample(&self, _: u32, _: u64) -> bool {
            false
        }
        fn max_precise(&self) -> u8 {
            0
        }
        fn max_sample_rate(&self) -> Option<u64> {
            None
        }
    }
    let lines = ["kprobe:f", "kretprobe:f", "uprobe:f@x"].map(|list| show_probe(list, &Without));
    expect![[r#"
        error: this kernel does not support kprobe probes (they need CONFIG_KPROBE_EVENTS); use a nearby tracepoint instead (`perf-prof list` lists tracepoints)
        error: this kernel does not support kprobe probes (they need CONFIG_KPROBE_EVENTS); use a nearby tracepoint instead (`perf-prof list` lists tracepoints)
        error: this kernel does not support uprobe probes (they need CONFIG_UPROBE_EVENTS); use `cpu-clock` or `profile` to see what programs execute"#]].assert_eq(&lines.join("\n"));
}

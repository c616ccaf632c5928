//! Recordings in one file.

use std::{collections::HashMap, fs::File, io::BufReader};

use linux_perf_data::{PerfFileReader, PerfFileRecord};
use perf_prof_format::{abi::PERF_RECORD_LOST, record::Record};

use crate::harness::{
    machine::{Need, needs},
    recorder::{CALL, command, counting_generator_words, finished, record, record_calls, with_calls},
    recording::python,
    run::stdout,
};

#[test]
fn every_call_is_recorded_once() {
    needs([Need::Tracefs, Need::Perf]);
    // The rings have room for all samples, because on a busy machine the recorder may run too late.
    let recorded = record_calls(&["-e", CALL, "-m", "32M"], 50_000);
    assert_eq!(recorded.status, 0, "{}", recorded.said);
    let lost = recorded.said_number("lost");
    assert_eq!(recorded.said_number("samples") + lost, 50_000, "{}", recorded.said);
    assert_eq!(recorded.samples() + lost, 50_000);
}

/// The kernel gives the samples of this event the id of the other program's event. The recording has to contain this
/// id.
#[test]
fn a_software_event_that_another_program_counts_too_is_recorded() {
    needs([Need::Tracefs, Need::Perf]);
    for form in [&[][..], &["-z"], &["--threads=cpu"]] {
        let dir = tempfile::tempdir().unwrap();
        let mut command = command(&dir, &[&["-e", "page-faults/period=1/", "-e", CALL], form, &["--"]].concat());
        let output = with_calls(command.args(counting_generator_words()), 3000).output().unwrap();
        let recorded = finished(dir, &output);
        let samples = recorded.said_number("samples");
        assert!(recorded.status == 0 && samples >= 3000, "{}", recorded.said);
        assert_eq!(recorded.samples(), samples, "{form:?}");
    }
}

/// If there are several software events, it is not known to which event such a sample belongs. perf must still accept
/// the recording.
#[test]
fn perf_reads_several_software_events_if_another_program_counts_one() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = tempfile::tempdir().unwrap();
    let mut command = command(&dir, &["-e", "page-faults/period=1/,context-switches", "--"]);
    let output = with_calls(command.args(counting_generator_words()), 3000).output().unwrap();
    let recorded = finished(dir, &output);
    let samples = recorded.said_number("samples");
    let left_out = recorded.said.contains("are not in 'perf.data': another program counts the same software event");
    assert!(recorded.status == 0 && (samples >= 3000 || left_out), "{}", recorded.said);
    assert_eq!(recorded.samples(), samples);
}

#[test]
fn losses_are_counted_where_rings_are_small() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", CALL, "-m", "1", "--buffer", "4K"], 300_000);
    let (mut samples, mut told, mut lost) = (0, 0, 0);
    recorded.for_each_record(|kind, record| match record {
        Record::Sample => samples += 1,
        Record::Lost { lost: more } if kind == PERF_RECORD_LOST => told += more,
        Record::Lost { lost: more } => lost += more,
        _ => {}
    });
    let said = recorded.said_number("lost");
    assert_eq!((samples, samples + said), (recorded.said_number("samples"), 300_000), "{}", recorded.said);
    // At its end, the recording contains the number of lost samples of each event. At each gap, it contains the number
    // of lost records of the ring, which include exits of tasks.
    assert_eq!(lost, said, "{}", recorded.said);
    assert!((said..said + 20).contains(&told), "{told}: {}", recorded.said);
}

/// The rings lost samples of two events. A replay of one event reports only the losses of this event, also for each
/// CPU.
#[test]
fn losses_of_cpus_are_those_of_the_selected_events() {
    needs([Need::Tracefs, Need::Python]);
    let exit = "syscalls:sys_exit_getppid";
    let recorded = record_calls(&["-e", CALL, "-e", exit, "-m", "1", "--buffer", "4K"], 300_000);
    let script = recorded.dir.path().join("s.py");
    let text = "import perf_prof\ndef __sample__(event): pass\ndef __exit__():\n    stats = perf_prof.stats()\n    \
                print(stats['delivered'] + stats['lost'], sum(cpu['lost'] for cpu in stats['cpus'].values()) - stats['lost'])\n";
    std::fs::write(&script, text).unwrap();
    let data = recorded.dir.path().join("perf.data");
    let replayed =
        |events| stdout(&python(&["-q", "-e", events, "--input", data.to_str().unwrap(), script.to_str().unwrap()]));
    assert!(recorded.said_number("lost") > 0, "{}", recorded.said);
    assert_eq!(replayed(CALL), "300000 0\n");
    assert_eq!(replayed(&format!("{CALL},{exit}")), "600000 0\n");
}

#[test]
fn perf_reads_events_and_features() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", CALL, "-e", "sched:sched_process_exit", "-e", "cpu-clock", "-a"], 2000);
    assert_eq!(recorded.status, 0, "{}", recorded.said);
    let script = recorded.perf(&["script"]);
    let of_generator = script.lines().filter(|line| line.contains("getppid") && line.contains("generator"));
    assert!(of_generator.count() as u64 + recorded.said_number("lost") >= 2000, "{}", recorded.said);
    assert!(script.contains("sched_process_exit: comm=generator"), "{script}");
    assert!(recorded.perf(&["report", "--stdio"]).contains("Samples:"));
    let events = recorded.perf(&["evlist", "-v"]);
    for text in [CALL, "sched:sched_process_exit", "cpu-clock", "sample_id_all: 1"] {
        assert!(events.contains(text), "{events}");
    }
    let ids = recorded.perf(&["buildid-list"]);
    let own = std::env::current_exe().unwrap();
    assert!(ids.contains("[kernel.kallsyms]") && ids.contains(own.to_str().unwrap()), "{ids}");
    let header = recorded.perf(&["report", "--header-only", "-I"]);
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let parts = ["hostname : ", hostname.trim(), "cmdline : ", "nrcpus online : ", "sibling threads", "node0 cpu list"];
    for text in parts.into_iter().chain(["time of first sample", "software = 1", "tracepoint = 2", "perf-prof"]) {
        assert!(header.contains(text), "no `{text}` in {header}");
    }
}

/// If samples contain their period, the kernel samples each occurrence of a software event, whatever period was
/// requested. perf-prof has to record only every nth.
#[test]
fn with_a_period_every_nth_software_event_is_recorded() {
    needs([Need::Tracefs, Need::Perf]);
    // Nearly all page faults are minor faults.
    let events = ["-e", "page-faults/period=10/", "-e", "minor-faults"];
    let busy = "i=0; while [ $i -lt 50 ]; do /bin/true; i=$((i + 1)); done";
    let recorded = record(&[&events[..], &["--", "sh", "-c", busy]].concat());
    assert_eq!(recorded.status, 0, "{}", recorded.said);
    let script = recorded.perf(&["script", "-F", "period"]);
    let with_period = |period: &str| script.lines().filter(|line| line.trim() == period).count();
    let (tenths, all) = (with_period("10"), with_period("1"));
    assert_eq!(tenths + all, script.lines().count(), "{script}");
    // The last faults of each process are fewer than a period.
    assert!(all > 1000 && tenths * 10 > all / 2 && tenths * 10 < all * 2, "{tenths} of {all}");
    let mut evlist = std::process::Command::new(crate::harness::run::tested_program());
    let evlist = evlist.args(["evlist", "-v", "-i"]).arg(recorded.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&evlist.stdout).contains("one in 10 sampled"));
}

/// The build ids of the kernel and of running programs are the same as in a recording of perf.
#[test]
fn build_ids_are_those_that_perf_records() {
    needs([Need::Tracefs, Need::Perf]);
    // Samples must be in libc, also on an idle machine.
    let command =
        ["-e", "cpu-clock", "--", "sh", "-c", "i=0; while [ $i -lt 200 ]; do ls / >/dev/null; i=$((i + 1)); done"];
    let ours = record(&command);
    let theirs = ours.dir.path().join("theirs.data");
    // perf asks the kernel for build ids too: where it does not, while another program on the machine does, perf 6.1 takes
    // numbers of devices for sizes of build ids and aborts.
    let perf = std::process::Command::new("perf")
        .args(["record", "-q", "--buildid-mmap", "-o", theirs.to_str().unwrap()])
        .args(command)
        .env("HOME", ours.dir.path())
        .output()
        .unwrap();
    assert!(perf.status.success(), "{}", String::from_utf8_lossy(&perf.stderr));
    let ids = |path| -> HashMap<String, String> {
        let text = crate::harness::recorder::perf(path, &["buildid-list"]);
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.map(|(id, name)| (name.to_owned(), id.to_owned())).collect()
    };
    let (ours, theirs) = (ids(&ours.path()), ids(&theirs));
    let common: Vec<&String> = theirs.keys().filter(|name| ours.contains_key(*name)).collect();
    assert!(common.iter().any(|name| name.contains("libc.so")), "{ours:?} {theirs:?}");
    for name in common {
        assert_eq!(ours[name], theirs[name], "{name}");
    }
}

#[test]
fn kernel_and_user_frames_have_names() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", "task:task_rename", "-g"], 1);
    let script = recorded.perf(&["script"]);
    assert!(script.contains("__set_task_comm") || script.contains("do_syscall_64"), "{script}");
    assert!(script.contains("prctl"), "{script}");
}

/// perf can only unwind these stacks under two conditions. The recording must contain the mappings of a file that are
/// not code. It must not contain the mappings of the command's process before its exec.
#[test]
fn stacks_are_unwound_through_programs_without_frame_pointers() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", CALL, "--call-graph", "dwarf"], 20);
    let script = recorded.perf(&["script", "-F", "comm,ip,sym"]);
    let stacks: Vec<&str> = script.split("\n\n").filter(|stack| stack.contains("generator")).collect();
    let unwound = stacks.iter().filter(|stack| stack.contains("start_thread")).count();
    assert!(stacks.len() == 20 && unwound == 20, "{unwound} of {}: {script}", stacks.len());
}

#[test]
fn the_chosen_clock_is_in_the_header() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", CALL, "-k", "mono"], 5);
    let header = recorded.perf(&["report", "--header-only"]);
    assert!(header.contains("clockid: CLOCK_MONOTONIC (1)") || header.contains("clockid: monotonic (1)"), "{header}");
    assert!(header.contains("reference time"), "{header}");
    assert_eq!(recorded.samples(), 5);
}

/// `linux-perf-data` reads recordings independently of perf.
#[test]
fn linux_perf_data_reads_it() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record_calls(&["-e", CALL, "-g"], 3000);
    let file = BufReader::new(File::open(recorded.path()).unwrap());
    let PerfFileReader { mut perf_file, mut record_iter } = PerfFileReader::parse_file(file).unwrap();
    let mut kinds: HashMap<String, u64> = HashMap::new();
    while let Some(record) = record_iter.next_record(&mut perf_file).unwrap() {
        let kind = match record {
            PerfFileRecord::EventRecord { record, .. } => format!("{:?}", record.record_type),
            PerfFileRecord::UserRecord(_) => "of perf's".to_owned(),
        };
        *kinds.entry(kind).or_default() += 1;
    }
    assert_eq!(kinds["SAMPLE"] + recorded.said_number("lost"), 3000, "{kinds:?}");
    assert!(kinds["MMAP2"] > 3 && kinds["COMM"] > 0, "{kinds:?}");
    assert_eq!(perf_file.event_attributes()[0].name(), Some(CALL));
    assert_eq!(
        perf_file.hostname().unwrap().map(str::len),
        Some(std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().len())
    );
    assert!(perf_file.build_ids().unwrap().values().any(|dso| dso.path == b"[kernel.kallsyms]"));
}

#[test]
fn an_existing_recording_is_renamed() {
    needs([Need::Tracefs, Need::Perf]);
    let dir = tempfile::tempdir().unwrap();
    let run = || assert!(command(&dir, &["-q", "-e", CALL, "--", "true"]).status().unwrap().success());
    run();
    let first = std::fs::read(dir.path().join("perf.data")).unwrap();
    run();
    assert_eq!(std::fs::read(dir.path().join("perf.data.old")).unwrap(), first);
    assert!(dir.path().join("perf.data").exists());
}

/// `-v` prints the rings, events and targets in addition.
#[test]
fn verbose_says_what_is_captured() {
    needs([Need::Tracefs, Need::Perf]);
    let recorded = record(&["-v", "-e", CALL, "-a", "-m", "64", "--", "true"]);
    assert!(
        recorded.said.contains("1 events, ") && recorded.said.contains(" rings of 256 KiB, at most "),
        "{}",
        recorded.said
    );
}

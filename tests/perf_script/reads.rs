//! Handlers get the same values whether they read all or few arguments, and whether they keep or change them.

use std::{path::PathBuf, process::Output};

use crate::harness::{
    machine::{Need, needs},
    recording::{Folder, record_here},
    run::{perf_prof, said, stdout},
};

/// The definition of a handler with its parameters. `DICT` is replaced by `perf_sample_dict`.
const WAKEUP: &str = "def sched__sched_wakeup(event_name, context, common_cpu, common_secs, common_nsecs, common_pid, \
                      common_comm, common_callchain, comm, pid, perf_sample_dict):";

/// A recording of wakeups by a pipe, with call chains.
struct Recorded {
    folder: Folder,
    data: PathBuf,
}

impl Recorded {
    fn new() -> Recorded {
        needs([Need::Tracefs, Need::Python, Need::Programs]);
        let folder = Folder::new();
        let data = folder.path("wakeups.data");
        let shell = "i=0; while [ $i -lt 60 ]; do i=$((i + 1)); echo $i | cat; done";
        record_here(&data, &["-g", "-e", "sched:sched_wakeup", "--", "sh", "-c", shell]);
        Recorded { folder, data }
    }

    fn run(&self, script: &str) -> Output {
        let script = self.folder.write("s.py", script.replace("WAKEUP", WAKEUP).as_bytes());
        perf_prof(&["script", "-i"]).arg(&self.data).arg("-s").arg(script).output().unwrap()
    }

    /// Runs a script that must succeed, and returns what it prints.
    #[track_caller]
    fn printed(&self, script: &str) -> String {
        let output = self.run(script);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let printed = stdout(&output);
        assert!(printed.lines().count() > 4, "{printed}");
        printed
    }
}

#[test]
fn what_a_handler_reads_does_not_change_what_it_gets() {
    let recorded = Recorded::new();
    let shown = "common_cpu, common_secs, common_nsecs, common_pid, common_comm, comm, pid, s['comm'], s['symbol'], \
                 s['dso'], s['sample']['pid'], s['sample']['time'], s['sample']['values'], 'dso' in s, 'no' in s, \
                 s.get('no', 7), [e['ip'] for e in s['callchain']], common_callchain";
    let little = format!(
        "WAKEUP\n    print({})\n",
        shown
            .replace("s[", "perf_sample_dict[")
            .replace(" in s,", " in perf_sample_dict,")
            .replace(" s.get", " perf_sample_dict.get")
    );
    let all = format!("WAKEUP\n    s = dict(perf_sample_dict); locals()\n    print({shown})\n");
    assert_eq!(recorded.printed(&little), recorded.printed(&all));
}

#[test]
fn the_dict_of_fields_has_the_values_of_its_event() {
    let recorded = Recorded::new();
    let handler = "def trace_unhandled(event_name, context, fields):\n    ";
    let little = format!("{handler}print(fields['comm'], fields['common_comm'], fields['common_ns'], fields['pid'])\n");
    let all = format!("{handler}f = fields\n    print(f['comm'], f['common_comm'], f['common_ns'], f['pid'])\n");
    let arguments = "WAKEUP\n    print(comm, common_comm, common_nsecs, pid)\n";
    let expected = recorded.printed(arguments);
    assert_eq!(recorded.printed(&little), expected);
    assert_eq!(recorded.printed(&all), expected);
}

/// The script keeps and changes the dicts and lists of every second event. At the end, these are still as the script
/// left them. The events in between have their own values.
#[test]
fn dicts_and_lists_that_a_script_keeps_or_changes_stay_its_own() {
    let recorded = Recorded::new();
    let script = "
import copy, json, pickle

kept = []
count = 0

def both(sample, chain, fields):
    global count
    count += 1
    assert type(sample) is dict and type(sample['sample']) is dict and type(chain) is list, sample
    assert not any('mine' in part for part in (sample, sample['sample'], fields, *chain)), sample
    assert not any('mine' in entry.get('sym', ()) for entry in chain), chain
    assert sample['brstack'] == [] and sample['sample']['values'] == [(0, 0, 0)], sample
    assert pickle.loads(pickle.dumps(sample)) == sample and copy.copy(sample) == sample
    assert list(sample) == list(sample.keys()) and len(sample) == len(list(sample.items()))
    json.dumps(sample['sample'])
    if count % 2:
        for part in (sample, sample['sample'], fields, *chain):
            part['mine'] = count
        for entry in chain:
            entry.setdefault('sym', {})['mine'] = count
        sample['brstack'].append(count)
        sample['sample']['values'].append(count)
        chain.append({})
        kept.append((sample, chain, fields, repr((sample, chain, fields))))
    elif count % 4:
        kept.append((sample['sample'], chain, sample['callchain'], repr((sample['sample'], chain, sample['callchain']))))
    print(count, chain[0]['ip'], sample['sample']['time'], fields.get('pid'))

WAKEUP
    both(perf_sample_dict, common_callchain, {'pid': pid})

def trace_end():
    for *parts, text in kept:
        assert repr(tuple(parts)) == text, (parts, text)
    print(len(kept), count)
";
    let unhandled = script.replace(
        "WAKEUP\n    both(perf_sample_dict, common_callchain, {'pid': pid})",
        "def trace_unhandled(event_name, context, fields, sample):\n    both(sample, fields['common_callchain'], fields)",
    );
    assert_eq!(recorded.printed(script), recorded.printed(&unhandled));
}

#[test]
fn a_script_that_looks_at_frames_sees_the_arguments() {
    let recorded = Recorded::new();
    let plain = recorded.printed("WAKEUP\n    print(common_comm, pid, perf_sample_dict['sample']['time'])\n");
    let look = "
import sys
def look():
    names = sys._getframe(1).f_locals
    print(names['common_comm'], names['pid'], names['perf_sample_dict']['sample']['time'])
WAKEUP
    look()
";
    assert_eq!(recorded.printed(look), plain);
}

#[test]
fn a_function_that_gets_other_code_gets_what_that_code_reads() {
    let recorded = Recorded::new();
    let script = "
def other(*values):
    print(values[9], values[4])
WAKEUP
    sched__sched_wakeup.__code__ = other.__code__
    print(pid, common_nsecs)
";
    assert_eq!(recorded.printed(script), recorded.printed("WAKEUP\n    print(pid, common_nsecs)\n"));
    let same_parameters = "
import types
code = None
WAKEUP
    global code
    sched__sched_wakeup.__code__ = later.__code__
    print(0)
WAKEUP2
    print(pid, common_nsecs)
";
    let later = same_parameters.replace("WAKEUP2", &WAKEUP.replace("sched__sched_wakeup", "later"));
    let (printed, all) = (recorded.printed(&later), recorded.printed("WAKEUP\n    print(pid, common_nsecs)\n"));
    assert_eq!(printed.lines().skip(1).collect::<Vec<_>>(), all.lines().skip(1).collect::<Vec<_>>());
}

/// As in a dict, the last of several values with one name counts, even if only earlier values change.
#[test]
fn a_name_that_two_fields_have_stands_for_the_last_one() {
    needs([Need::Tracefs, Need::Python, Need::Programs]);
    let folder = Folder::new();
    let data = folder.path("switches.data");
    let shell = "i=0; while [ $i -lt 60 ]; do i=$((i + 1)); echo $i | cat; done";
    record_here(&data, &["-e", "sched:sched_switch", "--", "sh", "-c", shell]);
    let mut bytes = std::fs::read(&data).unwrap();
    let (field, twice) = (b"field:char prev_comm[16];", b"field:char next_prio[16];");
    let at = bytes.windows(field.len()).position(|found| found == field).unwrap();
    bytes[at..at + field.len()].copy_from_slice(twice);
    let changed = folder.write("changed.data", &bytes);
    let printed = |data: &PathBuf| {
        let script =
            "def trace_unhandled(event_name, context, fields, sample):\n    print(dict(fields)['next_prio'])\n";
        let script = folder.write("s.py", script.as_bytes());
        stdout(&perf_prof(&["script", "-i"]).arg(data).arg("-s").arg(script).output().unwrap())
    };
    let expected = printed(&data);
    assert!(expected.lines().count() > 60, "{expected}");
    assert_eq!(printed(&changed), expected);
}

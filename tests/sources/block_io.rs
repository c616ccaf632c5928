//! The source `block-io`, on requests of known sectors and sizes to a loop device.

use std::{ffi::OsStr, path::Path, process::Command};

use super::{command_live_and_recorded, replay, rows};
use crate::harness::{
    awake::Awake,
    counting::objects,
    loop_device::LoopDevice,
    machine::{Need, needs},
    run::{perf_prof, said, stdout},
};

/// A program that makes requests one after the other, and prints for each `truth OP SECTOR BYTES ERROR NS`. NS is the
/// time of the call. The arguments are the device and the file behind it.
const REQUESTS: &str = r#"
import fcntl, mmap, os, struct, sys, threading, time
device, image = sys.argv[1:]
open('/proc/self/comm', 'w').write('io-truth')
memory = memoryview(mmap.mmap(-1, 1 << 16))
direct = os.open(device, os.O_RDWR | os.O_DIRECT)
cached = os.open(device, os.O_RDWR)
BLKDISCARD = 0x1277

def request(op, offset, size, call, *arguments):
    begin, error = time.monotonic_ns(), '-'
    try:
        call(*arguments)
    except OSError as failed:
        error = {5: 'EIO'}[failed.errno]
    print('truth', op, offset // 512, size, error, time.monotonic_ns() - begin, flush=True)

for size in 4096, 8192, 65536:
    request('write', 3 * size, size, os.pwrite, direct, memory[:size], 3 * size)
request('flush', 0, 0, os.fsync, direct)
# The first sector is that of flushes too.
request('write', 0, 512, os.pwrite, direct, memory[:512], 0)
request('read', 65536, 4096, os.preadv, direct, [memory[:4096]], 65536)
request('discard', 1 << 20, 65536, fcntl.ioctl, direct, BLKDISCARD, struct.pack('QQ', 1 << 20, 65536))
# These pages are written by one request.
for at in range(8):
    os.pwrite(cached, b'x' * 4096, (2 << 20) + 4096 * at)
request('write', 2 << 20, 32768, os.fdatasync, cached)
print('truth flush 0 0 - 1000000000000')
os.truncate(image, 4096)
request('read', 3 << 20, 4096, os.preadv, direct, [memory[:4096]], 3 << 20)
# A flush that comes while another one is open waits for it. Each has its own begin.
def flushes():
    open('/proc/thread-self/comm', 'w').write('io-flush')
    for _ in range(50):
        os.fsync(direct)
threads = [threading.Thread(target=flushes) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"#;

const SCRIPT: &str = "
import perf_prof

flushes = []

def block_io(e):
    if e.comm == 'io-flush':
        flushes.append((e.op, e.begin._time, e._time, e._tid))
        return
    print('seen', e.op, e.sector, e.bytes, e.errno or '-')
    print('check', e.duration, e.queued + e.device == e.duration, e.device > 0, e.pid == e._pid > 0, e.rwbs)

def __exit__():
    ends = [flush[2] for flush in flushes]
    begins = [flush[1] for flush in flushes]
    of_threads = {}
    overlap = False
    for op, begin, end, tid in flushes:
        overlap |= of_threads.get(tid, 0) > begin
        of_threads[tid] = end
    print('flushes', len(flushes), {flush[0] for flush in flushes}, begins == sorted(begins), ends == sorted(ends), overlap)
    counts = perf_prof.stats()['events']['block-io']
    print('counts', counts['opened'] == counts['ended'] + counts['open'] + counts['dropped'])
";

#[test]
fn a_request_has_its_sector_its_size_and_its_task() {
    needs([Need::Tracefs, Need::LoopDevices]);
    let folder = tempfile::tempdir().unwrap();
    let [image, program] = ["image", "requests.py"].map(|name| folder.path().join(name));
    std::fs::write(&program, REQUESTS).unwrap();
    std::fs::File::create(&image).unwrap().set_len(4 << 20).unwrap();
    let device = LoopDevice::new(&image);
    let number = device.minor();
    let command = [OsStr::new("python3"), program.as_os_str(), OsStr::new(&device.0), image.as_os_str()];
    let out = command_live_and_recorded(SCRIPT, &format!("block-io/dev=7:{number}, comm=io-*/"), &command);
    let (seen, truths) = (rows(&out, "seen"), rows(&out, "truth"));
    let of_truths: Vec<&[&str]> = truths.iter().map(|truth| &truth[..4]).collect();
    assert_eq!(seen, of_truths, "{out}");
    for (check, truth) in rows(&out, "check").iter().zip(&truths) {
        let [duration, took] = [check[0], truth[4]].map(|ns| ns.parse::<u64>().unwrap());
        assert!(duration > 0 && duration <= took, "{truth:?}: {out}");
        assert_eq!(check[1..4], ["True"; 3], "{truth:?}: {out}");
    }
    assert_eq!(rows(&out, "flushes"), [["200", "{'flush'}", "True", "True", "False"]], "{out}");
    assert_eq!(rows(&out, "counts"), [["True"]], "{out}");
}

/// Returns selectors of the events from which `block-io` makes the requests to one device. Of their completions, only those that
/// pass a filter are selected; all of them if it is empty. The disk of a busy machine has flushes whose ends cannot be distinguished: spans are then missing,
/// whatever device is selected.
fn events_of(device: &LoopDevice, completions: &str) -> String {
    let dev = 7 << 20 | device.minor();
    let others = ["io_start", "bio_frontmerge", "rq_merge", "rq_requeue", "rq_insert", "rq_issue"];
    let others = others.map(|name| format!("block:block_{name}/dev == {dev}/")).join(",");
    let also = if completions.is_empty() { String::new() } else { format!(" && {completions}") };
    format!("{others},block:block_rq_complete/dev == {dev}{also}/")
}

/// The recording lacks the completions of reads of four sectors. On some machines, completions in interrupts of an idle
/// CPU are missing in the same way.
#[test]
fn requests_whose_completions_were_not_delivered_are_missing() {
    needs([Need::Tracefs, Need::LoopDevices]);
    let _awake = Awake::new();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(4 << 20).unwrap();
    let device = LoopDevice::new(&image);
    let reads = format!("dd if={} of=/dev/null bs=64K count=10 iflag=direct", device.0);
    let reads = format!("exec 2>/dev/null; {reads}; sleep 2; {reads} skip=20");
    for (filter, missing) in [("sector >= 512", 4), ("", 0)] {
        let path = folder.path().join("events.data");
        let events = events_of(&device, filter);
        let mut record = perf_prof(&["record", "-q", "-a", "-e", &events, "-o"]);
        let output = record.arg(&path).args(["--", "sh", "-c", &reads]).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let top = |more: &[&str]| {
            perf_prof(&["top", "block-io/comm=dd/"]).args(more).arg("--input").arg(&path).output().unwrap()
        };
        let (text, json) = (top(&[]), top(&["--json"]));
        let total = objects(&stdout(&json)).pop().unwrap();
        // `dd` also reads other sectors.
        assert!(total["events"].as_u64() >= Some(20 - missing), "{total}");
        assert_eq!(total["partial"], missing != 0, "{total}");
        assert_eq!(stdout(&text).starts_with("total: at least "), missing != 0, "{}", stdout(&text));
        let line = " spans began, and their ends were not seen: ";
        assert_eq!(said(&text).contains(line), missing != 0, "{}", said(&text));
        let counted = total.get("missing").map_or(0, |missing| missing.as_u64().unwrap());
        assert!(counted >= missing && (counted == 0) == (missing == 0), "{total}");
    }
}

/// A program that writes to a device without FUA. Each write needs a flush after its data, and the call itself makes
/// another one. Then it appends to a file on ext4, whose journal writes need a flush before and after their data. It
/// prints what the kernel counted: the flushes of the device, and their time in ms.
const FLUSHES: &str = r#"
import mmap, os, subprocess, sys
device, folder = sys.argv[1:]
open('/proc/self/comm', 'w').write('io-truth')
memory = memoryview(mmap.mmap(-1, 4096))
def counted():
    fields = [line.split() for line in open('/proc/diskstats')]
    return next([int(row[18]), int(row[19])] for row in fields if row[2] == os.path.basename(device))
def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
before = counted()
direct = os.open(device, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
for at in range(20):
    os.pwrite(direct, memory, 65536 * (at + 1))
os.close(direct)
run('mkfs.ext4', '-q', '-F', device)
run('mount', device, folder)
try:
    with open(folder + '/file', 'wb', buffering=0) as file:
        for _ in range(20):
            file.write(memory)
            os.fsync(file)
finally:
    run('umount', folder)
print('truth', *(after - earlier for after, earlier in zip(counted(), before)))
"#;

const FLUSH_SCRIPT: &str = "
from collections import Counter

flushes, times, writes, waits = Counter(), Counter(), Counter(), []

def block_io(e):
    assert (e.queued or 0) + e.flush + e.device == e.duration and (e.queued is None) == (e.rwbs == 'FF'), e
    if e.op == 'flush':
        flushes[e.rwbs] += 1
        times[e.rwbs] += e.duration
        waits.append((e.begin._time, e._time, e.rwbs))
    elif e.op == 'write' and 'F' in e.rwbs and e.sector:
        writes[e.rwbs] += 1
        within = sum(end - begin for begin, end, rwbs in waits if rwbs == 'FF' and e.begin._time <= begin and end <= e._time)
        # A write waits for at least one flush, and for little else.
        assert within and within <= e.flush <= within + 10**8, (within, e)
        assert e.queued < 10**8, e

def __exit__():
    print('flushes', flushes['FF'], times['FF'])
    print('writes', writes['WFS'], writes['FWFSM'])
";

#[test]
fn a_flush_for_a_journal_is_a_request_and_the_write_that_needs_it_waits_for_it() {
    needs([Need::Tracefs, Need::LoopDevices, Need::Namespaces]);
    let folder = tempfile::tempdir().unwrap();
    let [image, program, mount] = ["image", "flushes.py", "mount"].map(|name| folder.path().join(name));
    std::fs::write(&program, FLUSHES).unwrap();
    std::fs::create_dir(&mount).unwrap();
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let device = LoopDevice::new(&image);
    let number = device.minor();
    // Kernel threads make the flushes and write the journal, so all tasks are recorded.
    let path = folder.path().join("events.data");
    let mut record = perf_prof(&["record", "-q", "-a", "-e", "block-io", "-o"]);
    let record = record.arg(&path).args(["--", "python3"]).args([program.as_path(), Path::new(&device.0), &mount]);
    let recorded = record.output().unwrap();
    assert!(recorded.status.success(), "{}", said(&recorded));
    let replayed = replay(FLUSH_SCRIPT, &format!("block-io/dev=7:{number}/"), &path, &[]);
    assert_eq!(replayed.status, 0, "{}", replayed.stderr);
    let out = stdout(&recorded) + &replayed.stdout;
    let numbers = |row: &str| -> Vec<u64> { rows(&out, row)[0].iter().map(|word| word.parse().unwrap()).collect() };
    let [counted, ms] = numbers("truth")[..] else { panic!("{out}") };
    let [seen, ns] = numbers("flushes")[..] else { panic!("{out}") };
    assert_eq!(seen, counted, "{out}");
    // The kernel counts from the start of a flush, and rounds each time down.
    assert!(ns / 1_000_000 <= ms + 1 && ns / 1_000_000 + ms / 5 + 100 >= ms, "{out}");
    let [after, before_and_after] = numbers("writes")[..] else { panic!("{out}") };
    assert!(after >= 20 && before_and_after >= 20, "{out}");
}

/// A program that writes to the device and flushes it, 20 times.
const SYNCS: &str = "
import os, sys
device = os.open(sys.argv[1], os.O_RDWR)
for at in range(20):
    os.pwrite(device, b'x' * 4096, 4096 * at)
    os.fsync(device)
";

/// The recording lacks the ends of flushes and of waits for them. On some machines, ends in interrupts of an idle CPU
/// are missing in the same way.
#[test]
fn flushes_whose_ends_were_not_delivered_are_missing_and_no_other_end_is_theirs() {
    needs([Need::Tracefs, Need::LoopDevices]);
    let _awake = Awake::new();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(4 << 20).unwrap();
    let device = LoopDevice::new(&image);
    let number = device.minor();
    for (filter, seen) in [("nr_sector > 0", 0), ("", 20)] {
        let path = folder.path().join("events.data");
        let events = events_of(&device, filter);
        let mut record = perf_prof(&["record", "-q", "-a", "-e", &events, "-o"]);
        let recorded = record.arg(&path).args(["--", "python3", "-c", SYNCS, &device.0]).output().unwrap();
        assert!(recorded.status.success(), "{}", said(&recorded));
        let selector = format!("block-io/dev=7:{number},op=flush/");
        let mut top = perf_prof(&["top", "--json", &selector, "--by", "rwbs", "--input"]);
        let total = objects(&stdout(&top.arg(&path).output().unwrap())).pop().unwrap();
        assert_eq!(total["partial"], seen == 0, "{total}");
        // The task's waits for flushes are spans too, as many as flushes.
        assert_eq!(total["events"], 2 * seen, "{total}");
        if seen == 0 {
            // No later flush shows that the last flush is over.
            let tasks = total["incomplete_tasks"].as_array().unwrap();
            let of_python = tasks.iter().find(|task| task["comm"] == "python3").unwrap();
            assert!((19..=20).contains(&of_python["missing"].as_u64().unwrap()), "{total}");
        }
    }
}

/// Prints what scripts see of requests whose time in the queue is not known.
const UNKNOWN_SCRIPT: &str = "
from perf_prof import Hist, Sum

hist, total, flushes = Hist('queued', by='rwbs'), Sum('queued', by='rwbs'), set()

def count(e):
    if e.rwbs == 'FF':
        flushes.add((e.queued, e.to_dict()['queued']))

block_io = hist, total, count

def __exit__():
    empty = hist['FF']
    print('seen', flushes, 'FF' in total, 'FF' in hist, empty.count, empty.mean)
    print(hist)
";

#[test]
fn a_time_in_the_queue_that_is_not_known_is_no_value_anywhere() {
    needs([Need::Tracefs, Need::LoopDevices]);
    let _awake = Awake::new();
    let folder = tempfile::tempdir().unwrap();
    let [image, path, exported] = ["image", "events.data", "spans.ndjson"].map(|name| folder.path().join(name));
    std::fs::File::create(&image).unwrap().set_len(4 << 20).unwrap();
    let device = LoopDevice::new(&image);
    let number = device.minor();
    let events = events_of(&device, "");
    let mut record = perf_prof(&["record", "-q", "-a", "-e", &events, "-o"]);
    let recorded = record.arg(&path).args(["--", "python3", "-c", SYNCS, &device.0]).output().unwrap();
    assert!(recorded.status.success(), "{}", said(&recorded));
    let device = format!("block-io/dev=7:{number}/");
    let run = |command: &str, selector: &str, options: &[&str]| {
        let output = perf_prof(&[command, selector]).args(options).arg("--input").arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        stdout(&output)
    };
    let row = |text: &str, key: &str| -> Vec<String> {
        let words = text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        words
            .into_iter()
            .find(|words| words.first().is_some_and(|word| word == key))
            .unwrap_or_else(|| panic!("{text}"))
    };

    // The number of flushes is known, and the time that they were queued is not.
    for sums in ["queued,bytes", "bytes,queued"] {
        let text = run("top", &device, &["--by", "rwbs", "--sum", sums]);
        let cells = row(&text, "FF");
        let queued = if sums.starts_with("queued") { 2 } else { 3 };
        assert_eq!((&*cells[1], &*cells[queued], &*cells[5 - queued]), ("20", "-", "0"), "{text}");
        assert!(text.contains("\n20 events are not added up: their `queued` is not known\n"), "{text}");
        let json = objects(&run("top", &device, &["--by", "rwbs", "--sum", sums, "--json"])).pop().unwrap();
        let row = json["rows"].as_array().unwrap().iter().find(|row| row["rwbs"] == "FF").unwrap();
        assert_eq!((&row["count"], &row["sums"]), (&20.into(), &serde_json::json!({ "queued": null, "bytes": 0 })));
        assert_eq!(json["without_value"], serde_json::json!({ "queued": 20 }), "{json}");
    }
    let text = run("hist", &device, &["--value", "queued", "--by", "rwbs"]);
    assert_eq!(row(&text, "FF"), ["FF", "0", "-", "-", "-", "-", "-"], "{text}");
    assert!(text.contains("\nrwbs=FF: 0 values\n"), "{text}");
    let text = run("top", &device, &["--by", "queued", "-n", "1000"]);
    assert_eq!(row(&text, "-")[..2], ["-", "20"], "{text}");
    let own = format!("block-io/dev=7:{number},rwbs=FF/");
    let traced = stdout(&perf_prof(&["trace", "-e", &own, "--input"]).arg(&path).output().unwrap());
    assert!(traced.lines().all(|line| line.contains(" queued=- flush=0.000 ms device=")), "{traced}");
    assert_eq!(traced.lines().count(), 20, "{traced}");
    let mut export = perf_prof(&["export", "-e", &own, "-o"]);
    assert!(export.arg(&exported).arg("-i").arg(&path).output().unwrap().status.success());
    let spans = objects(&std::fs::read_to_string(&exported).unwrap());
    let is_unknown = |span: &serde_json::Value| {
        span["queued"].is_null() && span["flush"] == 0 && span["_text"].as_str().unwrap().contains(" queued=- flush=0 ")
    };
    assert!(spans.len() == 20 && spans.iter().all(is_unknown), "{spans:?}");

    // A comparison and its opposite select only requests with a value.
    for filter in ["queued >= 0", "!(queued >= 0)", "queued != 7"] {
        let selector = format!("block-io/dev == \"7:{number}\" && rwbs == \"FF\" && ({filter})/");
        assert!(run("top", &selector, &[]).starts_with("total: 0 spans"), "{filter}");
    }
    let replayed = replay(UNKNOWN_SCRIPT, &device, &path, &[]);
    assert_eq!(rows(&replayed.stdout, "seen"), [["{(None,", "None)}", "False", "True", "0", "None"]]);
    assert!(
        replayed.stdout.ends_with("20 events are not added up: their `queued` is not known\n"),
        "{}",
        replayed.stdout
    );
}

/// A program that flushes a device 20 times, from two CPUs in turn.
const SYNCS_OF_TWO_CPUS: &str = "
import os, sys
device = os.open(sys.argv[1], os.O_RDWR)
cpus = sorted(os.sched_getaffinity(0))
for at in range(20):
    os.sched_setaffinity(0, {cpus[at % 2]})
    os.pwrite(device, b'x' * 4096, 4096 * at)
    os.fsync(device)
";

/// Changes `rwbs` of every second end of a flush of the device in a recording, so that replays do not see this end. Returns
/// the number of ends of which they see nothing, and that of the others.
fn hide_ends_of_flushes(path: &Path, dev: u32) -> [u64; 2] {
    // When a flush ends, its sector is the largest number, and nr_sector and error are 0. The text of rwbs follows. The
    // device is 8 bytes before the sector.
    let mut bytes = std::fs::read(path).unwrap();
    let is_end = |at: &usize| {
        let after = &bytes[at + 8..];
        bytes[*at..].starts_with(&dev.to_ne_bytes())
            && after.starts_with(&[[0xff; 8], [0; 8]].concat())
            && after[16..24].windows(3).any(|rwbs| rwbs == b"FF\0")
    };
    let ends: Vec<usize> = (0..bytes.len() - 40).filter(is_end).collect();
    let hidden: Vec<usize> = ends.iter().step_by(2).copied().collect();
    for at in &hidden {
        let rwbs = at + 24 + bytes[at + 24..].iter().position(|byte| *byte == b'F').unwrap();
        bytes[rwbs..rwbs + 2].copy_from_slice(b"--");
    }
    std::fs::write(path, bytes).unwrap();
    [hidden.len(), ends.len() - hidden.len()].map(|count| count as u64)
}

/// With one queue, each issue of a flush shows that the flush before is over, whatever CPU issues it.
#[test]
fn a_replay_knows_how_many_queues_a_device_had() {
    needs([Need::Tracefs, Need::LoopDevices, Need::TwoCpus]);
    let _awake = Awake::new();
    let folder = tempfile::tempdir().unwrap();
    let [image, path, older] = ["image", "events.data", "older.data"].map(|name| folder.path().join(name));
    std::fs::File::create(&image).unwrap().set_len(4 << 20).unwrap();
    let device = LoopDevice::new(&image);
    let number = device.minor();
    let mut record = perf_prof(&["record", "-q", "-a", "-e", "block-io", "-o"]);
    let recorded = record.arg(&path).args(["--", "python3", "-c", SYNCS_OF_TWO_CPUS, &device.0]).output().unwrap();
    assert!(recorded.status.success(), "{}", said(&recorded));
    let [hidden, seen] = hide_ends_of_flushes(&path, 7 << 20 | number);
    assert_eq!(hidden + seen, 20);
    let flushes = |path: &Path| {
        let mut top = perf_prof(&["top", "--json", &format!("block-io/dev=7:{number},rwbs=FF/"), "--input"]);
        objects(&stdout(&top.arg(path).output().unwrap())).pop().unwrap()
    };
    let total = flushes(&path);
    assert_eq!((&total["events"], &total["partial"]), (&seen.into(), &true.into()), "{total}");
    // The number of queues is behind the part of the file that perf reads. Without it, flushes of two CPUs may be at the
    // same time, and those are left out.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - 8);
    std::fs::write(&older, bytes).unwrap();
    let total = flushes(&older);
    assert!(total["events"].as_u64() <= Some(seen), "{total}");
}

/// `perf inject` copies what it knows of a recording into another one.
#[test]
fn perf_reads_a_recording_that_holds_the_queues_of_block_devices() {
    needs([Need::Tracefs, Need::LoopDevices, Need::Perf]);
    // perf warns of events that were lost in interrupts of idle CPUs.
    let _awake = Awake::new();
    let folder = tempfile::tempdir().unwrap();
    let [image, path, injected] = ["image", "events.data", "injected.data"].map(|name| folder.path().join(name));
    std::fs::File::create(&image).unwrap().set_len(4 << 20).unwrap();
    let device = LoopDevice::new(&image);
    let number = device.minor();
    for options in [&[][..], &["-z"]] {
        let mut record = perf_prof(&["record", "-q", "-a", "-e", "block:*"]);
        let record = record.args(options).arg("-o").arg(&path).args(["--", "python3", "-c", SYNCS, &device.0]);
        let recorded = record.output().unwrap();
        assert!(recorded.status.success(), "{}", said(&recorded));
        assert!(std::fs::read(&path).unwrap().ends_with(b"blocks\0\x02"), "{options:?}");
        let perf = |args: &[&str], path: &Path| {
            let output = Command::new("perf").args(args).arg("-i").arg(path).output().unwrap();
            assert!(output.status.success() && said(&output).is_empty(), "{args:?}: {}", said(&output));
            stdout(&output)
        };
        let events = |path: &Path| perf(&["script"], path);
        perf(&["inject", "-b", "-o", injected.to_str().unwrap()], &path);
        let text = events(&path);
        assert!(text.contains(&format!(" 7,{number} FF ")) && text == events(&injected), "{text}");
        assert!(perf(&["report", "--header-only"], &path).contains("# hostname : "));
    }
}

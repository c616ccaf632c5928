//! Scripts about block devices, connections and files, on known requests, connections and files.

use std::{fs, process::Command};

use crate::harness::{
    awake::Awake,
    loop_device::LoopDevice,
    machine::{Need, needs, needs_paths},
    scripts::{objects, row, script, text},
};

/// A program that writes 5 times 8192 bytes to a device, one after the other, and flushes the device twice. Then a read
/// fails, because the file of the device is empty.
const WRITES: &str = "
import mmap, os, sys
open('/proc/self/comm', 'w').write('bio-truth')
device, image = sys.argv[1:]
fd = os.open(device, os.O_RDWR | os.O_DIRECT)
memory = memoryview(mmap.mmap(-1, 8192))
for at in range(5):
    os.pwrite(fd, memory, 65536 * (at + 1))
for _ in range(2):
    os.fsync(fd)
os.truncate(image, 4096)
try:
    os.preadv(fd, [memory], 65536)
except OSError:
    pass
";

fn on_device(name: &str, options: impl Fn(&str) -> Vec<String>) -> (String, String) {
    needs([Need::Tracefs, Need::LoopDevices]);
    // Other devices interrupt CPUs, and events in interrupts of idle CPUs may be lost.
    let _awake = Awake::new();
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(4 << 20).unwrap();
    let device = LoopDevice::new(image.path());
    let path = &device.0;
    let mut command = script(name);
    command.args(options(path)).args(["--exec", "python3", "-c", WRITES]).arg(path).arg(image.path());
    (text(command.output().unwrap()), path.strip_prefix("/dev/").unwrap().to_owned())
}

#[test]
fn biosnoop_shows_each_request() {
    let (out, device) = on_device("biosnoop.py", |path| vec!["--dev".to_owned(), path.replace("/dev/", "")]);
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    let of_task: Vec<&Vec<&str>> = rows.iter().filter(|row| row.get(1) == Some(&"bio-truth")).collect();
    let seen: Vec<String> = of_task.iter().map(|row| format!("{} {} {}", row[4], row[5], row[6])).collect();
    let write = |at: usize| format!("write {} 8192", 128 * (at + 1));
    let mut expected: Vec<String> = (0..5).map(write).collect();
    expected.extend(["flush 0 0".to_owned(), "flush 0 0".to_owned(), "read 128 8192".to_owned()]);
    assert_eq!(seen, expected, "{out}");
    assert!(of_task.iter().all(|row| row[3] == device), "{out}");
    let errors: Vec<&str> = of_task.iter().filter_map(|row| row.get(10).copied()).collect();
    assert_eq!(errors, ["EIO"], "{out}");
    let (failed, _) =
        on_device("biosnoop.py", |path| vec!["--failed".to_owned(), "--dev".to_owned(), path.replace("/dev/", "")]);
    assert_eq!(failed.lines().count(), 2, "{failed}");
}

#[test]
fn biolatency_has_a_histogram_for_each_operation() {
    for of in ["duration", "device"] {
        let (out, device) = on_device("biolatency.py", |_| ["--by", "dev", "--of", of].map(str::to_owned).to_vec());
        let number = device.strip_prefix("loop").unwrap();
        // The count follows the name of each histogram.
        assert_eq!(row(&out, &format!("7:{number}"))[1], "8", "{out}");
    }
    let (out, _) = on_device("biolatency.py", |_| ["--by", "op"].map(str::to_owned).to_vec());
    assert!(row(&out, "write")[1].parse::<u64>().unwrap() >= 5, "{out}");
    let flushes = row(&out, "flush")[1];
    assert!(flushes.parse::<u64>().unwrap() >= 2, "{out}");
    // The table comes first. The rows of each histogram add up to the count.
    let histogram = out.split_once(&format!("\nflush: {flushes} values\n")).unwrap().1;
    let rows =
        histogram.lines().skip(1).map_while(|line| line.split_once(" : ")?.1.split(' ').next()?.parse::<u64>().ok());
    assert_eq!(rows.sum::<u64>().to_string(), flushes, "{out}");
}

#[test]
fn biolatency_has_a_histogram_for_each_task_by_both_of_its_names() {
    for by in ["task", "comm"] {
        let (out, _) = on_device("biolatency.py", |_| ["--by", by].map(str::to_owned).to_vec());
        assert!(row(&out, "bio-truth")[1].parse::<u64>().unwrap() >= 7, "{by}: {out}");
    }
}

/// A program that makes three connections, and tries a fourth that is refused. It prints its ports.
const CONNECTIONS: &str = "
import socket
listener = socket.create_server(('127.0.0.1', 0))
for _ in range(3):
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    client.close()
    server.recv(1)
    server.close()
closed = socket.socket()
closed.bind(('127.0.0.1', 0))
try:
    socket.create_connection(closed.getsockname())
except ConnectionRefusedError:
    pass
print('\\nports', listener.getsockname()[1], closed.getsockname()[1])
";

#[test]
fn tcplife_shows_both_ends_of_each_connection() {
    needs([Need::Tracefs]);
    let run = |options: &[&str]| {
        let mut command: Command = script("tcplife.py");
        let out = text(command.args(options).args(["--exec", "python3", "-c", CONNECTIONS]).output().unwrap());
        let ports: Vec<String> = row(&out, "ports")[1..].iter().map(|port| format!("127.0.0.1:{port}")).collect();
        (out, ports)
    };
    let (out, ports) = run(&["--states"]);
    let lines = |with: &[&str]| out.lines().filter(|line| with.iter().all(|part| line.contains(part))).count();
    for role in [" client ", " server "] {
        assert_eq!(lines(&[role, &ports[0], " closed"]), 3, "{out}");
    }
    assert_eq!(lines(&[" server ", &ports[0], " - "]), 3, "{out}");
    assert_eq!(lines(&[" client ", &ports[1], " - ", " reset received"]), 1, "{out}");
    assert!(lines(&["SYN_SENT ", ", ESTABLISHED ", ", FIN_WAIT1 "]) >= 3, "{out}");
    let (bad, ports) = run(&["--bad"]);
    assert!(!bad.contains(&ports[0]) && bad.contains(&ports[1]), "{bad}");
    // A client that was refused counts with its life.
    let (slow, ports) = run(&["--slow", "0"]);
    let clients = |port: &String| slow.lines().filter(|line| line.contains(" client ") && line.contains(port)).count();
    assert_eq!((clients(&ports[0]), clients(&ports[1])), (3, 1), "{slow}");
    assert!(!slow.contains(" server "), "{slow}");
    let (slow, _) = run(&["--slow", "3600000"]);
    assert!(!slow.contains(" client "), "{slow}");
}

/// A server that does not read what it receives, so its close() sends a reset. It prints its port.
const UNREAD: &str = "
import select, socket
listener = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
client.sendall(b'unread')
select.select([server], [], [])
server.close()
try:
    client.recv(1)
except ConnectionResetError:
    pass
print('\\nports', listener.getsockname()[1])
";

#[test]
fn tcplife_shows_the_connections_that_a_server_resets_with_the_task_that_does_so() {
    needs([Need::Tracefs]);
    let mut command = script("tcplife.py");
    let out = text(command.args(["--states", "--exec", "python3", "-c", UNREAD]).output().unwrap());
    let port = format!(" 127.0.0.1:{} ", row(&out, "ports")[1]);
    let lines: Vec<&str> = out.lines().filter(|line| line.contains(&port)).collect();
    let line = |role: &str| lines.iter().find(|line| line.contains(role)).unwrap_or_else(|| panic!("{out}"));
    assert!(line(" server ").contains(" python3 ") && line(" server ").ends_with(" reset sent"), "{out}");
    assert!(line(" client ").ends_with(" reset received"), "{out}");
    let json = text(script("tcplife.py").args(["--json", "--exec", "python3", "-c", UNREAD]).output().unwrap());
    let lines: String = json.lines().filter(|line| line.starts_with('{')).flat_map(|line| [line, "\n"]).collect();
    let server =
        objects(&lines).into_iter().find(|object| object["role"] == "server").unwrap_or_else(|| panic!("{json}"));
    assert!(server["end"] == "reset sent" && server["states"]["ESTABLISHED"].is_number(), "{json}");
}

/// A program that creates and removes files, some in another process. Its argument is the folder.
const FILES: &str = "
import ctypes, os, sys, time
os.chdir(sys.argv[1])
folder = os.getcwd()
def create(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
create(folder + '/fl-own')
time.sleep(1)
os.unlink(folder + '/fl-own')
create('fl-relative')
os.remove(folder + '/fl-relative')
create(folder + '/fl-other')
if os.fork() == 0:
    open('/proc/self/comm', 'w').write('fl-remover')
    os.unlink(folder + '/fl-other')
    os._exit(0)
os.wait()
# The removal fails, so the file lives on.
create(folder + '/fl-kept')
os.mkdir(folder + '/fl-folder')
try:
    os.unlink(folder + '/fl-folder')
except OSError:
    pass
try:
    os.unlink(folder + '/fl-missing')
except FileNotFoundError:
    pass
# A removal that libc does not make.
create('fl-itself')
assert ctypes.CDLL(None).syscall(87, b'fl-itself') == 0
os.unlink('fl-before')
create('fl-at')
os.unlink('fl-at', dir_fd=os.open('.', os.O_RDONLY))
# A log is renamed and created again, and a new file replaces the old log.
create('fl-log')
time.sleep(0.3)
os.rename(folder + '/fl-log', folder + '/fl-log.1')
create('fl-log')
os.unlink('fl-log')
create('fl-new')
os.rename('fl-new', 'fl-log.1')
os.unlink('fl-log.1')
# Another name for the folder hides that the first file is removed.
create('fl-again')
os.symlink('.', 'fl-link')
os.unlink('fl-link/fl-again')
time.sleep(0.2)
os.close(os.open('fl-again', os.O_CREAT | os.O_EXCL))
os.unlink('fl-again')
# The folder of the new name is that of a descriptor.
create('fl-moved')
os.rename('fl-moved', 'fl-moved', dst_dir_fd=os.open('fl-folder', os.O_RDONLY))
time.sleep(0.2)
os.unlink('fl-folder/fl-moved')
os.unlink('fl-link')
";

#[test]
fn filelife_shows_files_that_are_removed_and_counts_the_removals_that_it_cannot_show() {
    needs_paths();
    let folder = tempfile::tempdir().unwrap();
    let run = |options: &[&str]| {
        fs::write(folder.path().join("fl-before"), "").unwrap();
        let mut command = script("filelife.py");
        let command = command.args(options).args(["--name", "fl-", "--exec", "python3", "-c", FILES]);
        let out = text(command.arg(folder.path()).output().unwrap());
        fs::remove_dir(folder.path().join("fl-folder")).unwrap();
        out
    };
    let out = run(&[]);
    let lines: Vec<Vec<&str>> = out.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let paths: Vec<&str> = lines.iter().take(10).map(|words| words[6]).collect();
    // A path may be relative in the call that creates the file, and absolute in the call that removes it.
    let names = [
        "fl-own",
        "fl-relative",
        "fl-other",
        "fl-itself",
        "fl-at",
        "fl-log",
        "fl-log.1",
        "fl-log.1",
        "fl-again",
        "fl-folder/fl-moved",
    ];
    assert_eq!(paths, names.map(path), "{out}");
    let ages: Vec<f64> = lines.iter().take(8).map(|words| words[1].parse().unwrap()).collect();
    assert!(ages[0] >= 1000.0, "{out}");
    // The old log is removed by the file that replaces it, and is older than the new one with its first name.
    assert!(ages[6] >= 300.0 && ages[5] < ages[6], "{out}");
    // open() for writing also opens a file that exists. A second creation that takes no such file is a new file.
    assert_eq!((lines[0][2], lines[0][3]), (lines[0][4], &*format!("{}?", lines[0][5])), "{out}");
    assert_eq!((lines[2][3], lines[2][4]), (lines[0][3], "fl-remover"), "{out}");
    let (exclusive, moved) = (lines[8][3], lines[9][1].parse::<f64>().unwrap());
    assert!(exclusive == lines[8][5] && lines[8][1].parse::<f64>().unwrap() < 150.0 && moved >= 150.0, "{out}");
    let untold: Vec<&str> = out.lines().skip(11).collect();
    assert_eq!(untold, ["(removals that are not shown, of files whose creation was not seen: 3)"], "{out}");
    let short = run(&["--max", "990", "--json"]);
    let objects = objects(&short);
    let paths: Vec<&str> = objects.iter().filter_map(|object| object["path"].as_str()).collect();
    assert_eq!(paths, names[1..].iter().map(|name| path(name)).collect::<Vec<_>>(), "{short}");
    assert_eq!(objects.iter().filter(|object| object.get("note").is_some()).count(), 1, "{short}");
}

//! The source `tcp`, on connections that begin and end in known ways.

use std::{
    ffi::OsStr,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value as Json;

use super::{command_live_and_recorded, replay, rows};
use crate::harness::{
    awake::Awake,
    counting::objects,
    machine::{Need, needs},
    recording::{Folder, record_here},
    run::{perf_prof, said, stdout},
    script::Run,
    scripts::script,
};

/// A program that makes connections, and prints for each end: `truth ROLE SADDR SPORT DADDR DPORT STATES RESET
/// RETRANSMITS`. The first argument is the address of all connections.
const CONNECTIONS: &str = r#"
import select, socket, struct, sys, time
host = sys.argv[1]

def truth(role, own, other, states, reset='-', retransmits=0):
    print('truth', role, *own[:2], *other[:2], states, reset, retransmits, flush=True)

def connected(family=socket.AF_INET, host=host):
    listener = socket.socket(family)
    listener.bind((host, 0))
    listener.listen()
    client = socket.socket(family)
    client.bind((host, 0))
    client.connect(listener.getsockname())
    server = listener.accept()[0]
    listener.close()
    return client, server, client.getsockname(), server.getsockname()

ACTIVE = ',ESTABLISHED,FIN_WAIT1,FIN_WAIT2'
PASSIVE = ',ESTABLISHED,CLOSE_WAIT,LAST_ACK'

# Sockets of IPv6 that use IPv4 have its addresses.
plain = lambda end: (end[0].removeprefix('::ffff:'), *end[1:])
for family, address in (socket.AF_INET, host), (socket.AF_INET6, '::ffff:' + host):
    for first in 'client', 'server':
        client, server, own, other = connected(family, address)
        client.sendall(b'x' * 1000)
        server.recv(2000)
        time.sleep(0.03)
        ends = [client, server] if first == 'client' else [server, client]
        ends[0].close()
        ends[1].recv(1)
        ends[1].close()
        by = (ACTIVE, PASSIVE) if first == 'client' else (PASSIVE, ACTIVE)
        truth('client', plain(own), plain(other), 'SYN_SENT' + by[0])
        truth('server', plain(other), plain(own), 'SYN_RECV' + by[1])

# The client's close() sends a reset.
client, server, own, other = connected()
client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
client.close()
try:
    server.recv(1)
except ConnectionResetError:
    pass
server.close()
truth('client', own, other, 'SYN_SENT,ESTABLISHED', 'sent')
truth('server', other, own, 'SYN_RECV,ESTABLISHED', 'received')

# The server's close() sends a reset, because data is unread or because of SO_LINGER.
for is_unread in True, False:
    client, server, own, other = connected()
    if is_unread:
        client.sendall(b'x')
        select.select([server], [], [])
    else:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    server.close()
    try:
        client.recv(1)
    except ConnectionResetError:
        pass
    client.close()
    truth('client', own, other, 'SYN_SENT,ESTABLISHED', 'received')
    truth('server', other, own, 'SYN_RECV,ESTABLISHED', 'sent')

# Nobody listens.
closed = socket.socket()
closed.bind((host, 0))
client = socket.socket()
client.bind((host, 0))
own, other = client.getsockname(), closed.getsockname()
try:
    client.connect(other)
except ConnectionRefusedError:
    pass
truth('client', own, other, 'SYN_SENT', 'received')

# The queue of the listener has room for one connection. The first packet of a second one is sent again after a second.
listener = socket.socket()
listener.bind((host, 0))
listener.listen(0)
other = listener.getsockname()
queued = socket.create_connection(other)
client = socket.socket()
client.bind((host, 0))
client.setblocking(False)
client.connect_ex(other)
retransmits = lambda: struct.unpack_from('I', client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 100)[0]
until = time.monotonic() + 20
while not retransmits() and time.monotonic() < until:
    time.sleep(0.01)
own, count = client.getsockname(), retransmits()
client.close()
truth('client', own, other, 'SYN_SENT', '-', count)
"#;

/// A script that prints the members of each connection. The names of states are printed without times.
const SCRIPT: &str = "
import perf_prof

def tcp(e):
    states = [state.split('=') for state in e.states.split()]
    is_whole = sum(int(ns) for _, ns in states) == e.duration
    established = sum(int(ns) for name, ns in states if name == 'ESTABLISHED')
    print('seen', e.role, e.saddr, e.sport, e.daddr, e.dport, ','.join(name for name, _ in states), e.reset or '-', e.retransmits)
    print('check', is_whole, (e.connect is not None) == (e.role == 'client' and established > 0), (e.connect or 0) + established <= e.duration, e.pid > 0, e.comm, established >= 30_000_000)

def __exit__():
    counts = perf_prof.stats()['events']['tcp']
    print('counts', counts['opened'] == counts['ended'] + counts['open'] + counts['dropped'])
";

/// Returns an address that no other run of the test uses.
fn address() -> String {
    address_in(77)
}

/// Like `address`, for a test with a network of its own.
fn address_in(net: u8) -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.{net}.{high}.{low}")
}

#[test]
fn a_connection_has_both_ends_and_its_states() {
    needs([Need::Tracefs]);
    // A timer in a soft interrupt sends a packet again.
    let _awake = Awake::new();
    let host = address();
    let file = tempfile::NamedTempFile::with_suffix(".py").unwrap();
    std::fs::write(file.path(), CONNECTIONS).unwrap();
    let command = [OsStr::new("python3"), file.path().as_os_str(), OsStr::new(&host)];
    // The first end of the queued connection has no process.
    let selector = format!("tcp/saddr == \"{host}\" && pid > 0/");
    let out = command_live_and_recorded(SCRIPT, &selector, &command);
    let (seen, truths) = (rows(&out, "seen"), rows(&out, "truth"));
    assert_eq!(truths.len(), 16, "{out}");
    let retransmits = truths[15][7].parse::<u32>().unwrap();
    assert!(retransmits > 0, "{out}");
    for truth in &truths {
        // The other end's reset closed the server's end, so no event shows its process.
        let is_without_owner = truth[0] == "server" && truth[6] == "received";
        assert_eq!(seen.iter().filter(|row| row == &truth).count(), usize::from(!is_without_owner), "{truth:?}: {out}");
    }
    for (check, row) in rows(&out, "check").iter().zip(&seen) {
        // The connection that is never accepted is reset when the program ends and closes the listener.
        let is_queued = row[0] == "server" && row[3] == "127.0.0.1";
        let has_slept = row[5].contains("FIN_WAIT2") || row[5].contains("LAST_ACK") || is_queued;
        let slept = if has_slept { "True" } else { "False" };
        assert_eq!((&check[..4], check[5]), (&["True"; 4][..], slept), "{row:?}: {out}");
    }
    assert_eq!(rows(&out, "counts"), [["True"]], "{out}");
}

#[test]
fn a_connection_that_the_other_end_reset_has_no_process() {
    needs([Need::Tracefs]);
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    let host = format!("127.78.{high}.{low}");
    let live = Run::script(SCRIPT).event(format!("tcp/saddr={host}/")).options(["--record", "r.data"]);
    let live = live.file("connections.py", CONNECTIONS);
    let program = live.path("connections.py");
    let live = live.exec([OsStr::new("python3"), program.as_os_str(), OsStr::new(&host)]);
    let outcome = live.run();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let truths = rows(&outcome.stdout, "truth");
    let truth = truths.iter().find(|row| row[0] == "server" && row[6] == "received").unwrap();
    // The selected task is not known to own this connection, so it is not shown. The recording contains all
    // connections.
    assert!(!rows(&outcome.stdout, "seen").contains(truth), "{}", outcome.stdout);
    let selector = format!("tcp/saddr == \"{host}\" && pid == -1 && comm == \"\"/");
    let replayed = replay(SCRIPT, &selector, &live.path("r.data"), &[]);
    assert_eq!(rows(&replayed.stdout, "seen").iter().filter(|row| row == &truth).count(), 1, "{}", replayed.stdout);
}

/// A program that opens connections to a listener whose queue is full, so that their first packets are sent again. Prints how
/// many packets were sent again. The arguments are the address and the port. A third argument is a number of calls of
/// `getpgid` that follow.
const SENT_AGAIN: &str = r#"
import os, socket, struct, sys, time
host, port = sys.argv[1], int(sys.argv[2])
listener = socket.socket()
listener.bind((host, port))
listener.listen(0)
queued = socket.create_connection((host, port))
clients = []
for cpu in os.sched_getaffinity(0):
    os.sched_setaffinity(0, {cpu})
    for _ in range(5):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex((host, port))
        clients.append(client)
retransmits = lambda client: struct.unpack_from('I', client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 100)[0]
time.sleep(1.5)
print('truth', sum(map(retransmits, clients)), flush=True)
for client in clients:
    client.close()
for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 0):
    try:
        os.getpgid(1 << 30)
    except ProcessLookupError:
        pass
"#;

/// Some virtual machines hide the interrupts of idle CPUs: the kernel counts the events there, but writes no samples. Here the
/// CPUs may idle.
#[test]
fn every_retransmit_is_delivered_or_counted_as_lost() {
    needs([Need::Tracefs]);
    let script = "
import perf_prof
def __exit__():
    counts = perf_prof.stats()['events']['tcp:tcp_retransmit_skb']
    lost = counts['lost'] or 0
    print('seen', counts['delivered'] + lost)
    print('parts', lost, lost == perf_prof.stats()['lost'], bool(lost) == bool(perf_prof.missing()))
";
    let port = (20_000 + std::process::id() % 10_000).to_string();
    let selector = format!("tcp:tcp_retransmit_skb/dport == {port}/");
    let run = Run::script(script).event(&selector).options(["--all-cpus", "--record", "r.data"]);
    let run = run.file("program.py", SENT_AGAIN);
    let program = run.path("program.py");
    let host = address();
    let run = run.exec([OsStr::new("python3"), program.as_os_str(), OsStr::new(&host), OsStr::new(&port)]);
    let outcome = run.run();
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    let (seen, truth) = (rows(&outcome.stdout, "seen"), rows(&outcome.stdout, "truth"));
    assert_eq!(seen, truth, "{}", outcome.stdout);
    assert!(truth[0][0].parse::<u32>().unwrap() > 0, "{}", outcome.stdout);
    let parts = rows(&outcome.stdout, "parts");
    assert_eq!(parts[0][1..], ["True", "True"], "{}", outcome.stdout);
    let has_lost = parts[0][0] != "0";
    assert_eq!(outcome.stderr.contains("wrote no sample"), has_lost, "{}", outcome.stderr);
    // The recording says the same.
    let replayed = replay(script, &selector, &run.path("r.data"), &[]);
    assert_eq!(rows(&replayed.stdout, "parts"), parts, "{}", replayed.stdout);
    assert_eq!(rows(&replayed.stdout, "seen"), truth, "{}", replayed.stdout);
}

/// As above, in a run that calls end: at a limit, or because the script exits.
#[test]
fn a_run_that_ends_early_counts_events_without_a_sample() {
    needs([Need::Tracefs]);
    let port = (10_000 + std::process::id() % 10_000).to_string();
    let host = address();
    let calls = "syscalls:sys_enter_getpgid/pid == 1073741824/";
    for (body, options) in [("pass", &["-N", "5000"][..]), ("sys.exit(0)", &[])] {
        let script = format!(
            "
import sys, perf_prof
def syscalls__sys_enter_getpgid(event):
    {body}
def __exit__():
    counts = perf_prof.stats()['events']['tcp:tcp_retransmit_skb']
    lost = counts['lost'] or 0
    print('seen', counts['delivered'] + lost)
    print('lost', lost, bool(lost) == bool(perf_prof.missing()))
"
        );
        let run = Run::script(&script).event(format!("tcp:tcp_retransmit_skb/dport == {port}/")).event(calls);
        let run = run.options([&["--all-cpus"], options].concat()).file("program.py", SENT_AGAIN);
        let program = run.path("program.py");
        let command =
            [OsStr::new("python3"), program.as_os_str(), OsStr::new(&host), OsStr::new(&port), OsStr::new("10000")];
        let outcome = run.exec(command).run();
        let (seen, truth) = (rows(&outcome.stdout, "seen"), rows(&outcome.stdout, "truth"));
        assert_eq!(seen, truth, "{outcome:?}");
        let lost = &rows(&outcome.stdout, "lost")[0];
        assert_eq!(lost[1], "True", "{outcome:?}");
        let has_lost = lost[0] != "0";
        assert_eq!(outcome.stderr.contains(&format!("lost up to {} of ", lost[0])), has_lost, "{outcome:?}");
        assert_eq!(outcome.stderr.contains("wrote no sample"), has_lost, "{outcome:?}");
    }
}

/// A program that ends with three connections open, and two that have ended, of which its clients have the address in the first
/// argument. Another process holds the open ones while a file exists, the second argument.
const HELD: &str = r#"
import os, socket, sys, time
host, path = sys.argv[1:]
listener = socket.create_server((host, 0))
pairs = []
for _ in range(5):
    client = socket.create_connection(listener.getsockname(), source_address=(host, 0))
    pairs.append((client, listener.accept()[0]))
for client, server in pairs[3:]:
    client.close()
    server.recv(1)
    server.close()
if os.fork() == 0:
    os.setsid()
    for fd in range(3):
        os.close(fd)
    until = time.monotonic() + 300
    while os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.05)
"#;

#[test]
fn tables_say_how_many_connections_had_not_ended() {
    needs([Need::Tracefs]);
    let _awake = Awake::new();
    let host = address();
    let folder = Folder::new();
    let (program, held, path) = (folder.path("held.py"), folder.path("held"), folder.path("tcp.data"));
    std::fs::write(&program, HELD).unwrap();
    std::fs::write(&held, "").unwrap();
    let words = |path: &Path| path.to_str().unwrap().to_owned();
    let command = ["--", "python3", &words(&program), &host, &words(&held)].map(str::to_owned);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    record_here(&path, &[&["-a", "-e", "tcp"][..], &command].concat());
    let clients = format!("tcp/saddr={host}, role=client/");
    let slow = format!("tcp/saddr == \"{host}\" && role == \"client\" && connect > 1000000000000/");
    let open = format!("tcp/saddr={host}, role=client, open/");
    let recorded = ["--input".to_owned(), words(&path)];
    let recorded: Vec<&str> = recorded.iter().map(String::as_str).collect();
    let line = "tcp: 3 connections had not ended and are not in this table; the option `open` adds them (`tcp/open/`)";
    for source in [&command, &recorded] {
        let shown = |name: &str, selector: &str, more: &[&str]| {
            let args = [&[name, selector][..], more, source].concat();
            stdout(&perf_prof(&args).output().unwrap())
        };
        for name in ["top", "hist"] {
            let text = shown(name, &clients, &[]);
            assert!(text.starts_with("total: 2 spans ") && text.lines().any(|of| of == line), "{text}");
            for (selector, events, not_ended) in
                [(&clients, 2, Json::from(3)), (&slow, 0, 0.into()), (&open, 5, Json::Null)]
            {
                let object = objects(&shown(name, selector, &["--json"])).pop().unwrap();
                assert_eq!((&object["events"], &object["not_ended"]), (&events.into(), &not_ended), "{object}");
                assert_eq!(object["partial"], not_ended.is_null(), "{object}");
            }
            assert!(!shown(name, &open, &[]).contains("not in this table"));
        }
    }
}

/// A program whose server closes three connections, and whose clients reset two. The argument is the address of all.
const RESET: &str = r#"
import socket, struct, sys
host = sys.argv[1]
listener = socket.create_server((host, 0))
for is_reset in False, False, False, True, True:
    client = socket.create_connection(listener.getsockname(), source_address=(host, 0))
    server = listener.accept()[0]
    if is_reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        client.close()
    server.close()
    client.close()
"#;

#[test]
fn tables_of_selected_tasks_say_how_many_connections_have_no_known_task() {
    needs([Need::Tracefs]);
    let _awake = Awake::new();
    let folder = Folder::new();
    let (program, host) = (folder.path("reset.py"), address_in(79));
    std::fs::write(&program, RESET).unwrap();
    let program = program.to_str().unwrap();
    let output = |selector: &str, options: &[&str]| {
        let command = ["top", selector, "--by", "role"];
        let output = perf_prof(&[&command, options, &["--", "python3", program, &host]].concat()).output().unwrap();
        (stdout(&output), said(&output))
    };
    let servers = format!("tcp/saddr={host}, role=server/");
    let (text, told) = output(&servers, &[]);
    assert!(text.starts_with("total: at least 3 spans "), "{text}");
    assert!(text.contains("\n(at least: 2 spans whose task is not known are left out)\n"), "{text}");
    assert!(told.contains("2 spans whose task is not known are left out; without a selection of tasks (-p)"), "{told}");
    let clients = format!("tcp/saddr={host}, role=client/");
    for (selector, events, without_task) in [(&servers, 3, Json::from(2)), (&clients, 5, Json::Null)] {
        let object = objects(&output(selector, &["--json"]).0).pop().unwrap();
        assert_eq!((&object["events"], &object["without_task"]), (&events.into(), &without_task), "{object}");
        assert_eq!(object["partial"], !without_task.is_null(), "{object}");
    }
    // The option `open` would add nothing.
    let none = output(&format!("tcp/saddr={host}, reset=received/"), &[]);
    assert!(none.0.contains("(at least: 2 spans ") && !none.1.contains("`open`"), "{none:?}");
}

/// A program that has three connections before it writes to the first pipe in its arguments. Then it reads from the second pipe,
/// closes its sockets, also two that have no connection, and writes to the third one.
const OLD: &str = r#"
import socket, struct, sys
host, ready, go, done = sys.argv[1:]
listener = socket.create_server((host, 0))
sockets = [socket.socket(), listener]
for _ in range(3):
    client = socket.create_connection(listener.getsockname(), source_address=(host, 0))
    sockets += [client, listener.accept()[0]]
sockets[2].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
open(ready, 'w').close()
open(go).close()
for one in sockets[::-1]:
    one.close()
open(done, 'w').close()
"#;

/// Runs a command while an older program goes on. The program writes to the first pipe in its arguments, reads from the second
/// one, and writes to the third one when it is done. Returns what the command and the program print.
fn beside_older(program: &str, host: &str, command: &mut Command) -> [Output; 2] {
    let folder = Folder::new();
    let pipes = ["ready", "go", "done"].map(|name| folder.path(name).to_str().unwrap().to_owned());
    assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
    let mut older = Command::new("python3");
    older.args(["-c", program, host]).args(&pipes).stdin(Stdio::piped()).stdout(Stdio::piped());
    let older = older.spawn().unwrap();
    std::fs::read(&pipes[0]).unwrap();
    let output = command.args(["sh", "-c", ": > $0; : < $1", &pipes[1], &pipes[2]]).output().unwrap();
    [output, older.wait_with_output().unwrap()]
}

#[test]
fn connections_that_ended_and_had_begun_before_the_run_are_told() {
    needs([Need::Tracefs]);
    let _awake = Awake::new();
    let host = address_in(80);
    let selector = format!("tcp/saddr={host}/");
    let [output, _] = beside_older(OLD, &host, &mut perf_prof(&["top", &selector, "-a", "--json", "--"]));
    let object = objects(&stdout(&output)).pop().unwrap();
    let counts = (&object["events"], &object["begun_before"], &object["partial"]);
    assert_eq!(counts, (&0.into(), &6.into(), &false.into()), "{object}");
    assert!(said(&output).contains("6 spans ended that began before the run: they are not counted"), "{output:?}");
    let [output, _] = beside_older(OLD, &host, script("tcplife.py").args(["--bad", "--exec"]));
    assert!(stdout(&output).contains("(not shown, as they began before: "), "{output:?}");
}

/// A program that asks for three connections of a listener whose queue is full, before it writes to the first pipe in its
/// arguments. After it has read from the second one, it waits until the first packet of each is sent again, and prints how often that
/// happened, since then and in all. Then it writes to the third one. Its connections end when it reads the end of its stdin.
const ASKS: &str = r#"
import socket, struct, sys, time
host, ready, go, done = sys.argv[1:]
listener = socket.socket()
listener.bind((host, 0))
listener.listen(0)
queued = socket.create_connection(listener.getsockname())
clients = [socket.socket() for _ in range(3)]
for client in clients:
    client.setblocking(False)
    client.connect_ex(listener.getsockname())
info = lambda client: client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
sent_again = lambda: [struct.unpack_from('I', info(client), 100)[0] for client in clients]
open(ready, 'w').close()
open(go).close()
before = sent_again()
until = time.monotonic() + 20
while any(a >= b for a, b in zip(before, sent_again())) and time.monotonic() < until:
    time.sleep(0.01)
print(sum(sent_again()) - sum(before), sum(sent_again()), listener.getsockname()[1], flush=True)
open(done, 'w').close()
sys.stdin.read()
"#;

#[test]
fn packets_that_are_sent_again_in_connections_from_before_the_run_are_told() {
    needs([Need::Tracefs]);
    let _awake = Awake::new();
    let host = address_in(81);
    for (filter, is_told) in [(format!("daddr={host}"), true), ("daddr=127.81.255.255".to_owned(), false)] {
        let selector = format!("tcp/{filter}/");
        let [output, program] = beside_older(ASKS, &host, &mut perf_prof(&["top", &selector, "-a", "--json", "--"]));
        let object = objects(&stdout(&output)).pop().unwrap();
        let number = object["begun_before_events"].as_u64().unwrap();
        let truth: Vec<u64> = stdout(&program).split_whitespace().map(|number| number.parse().unwrap()).collect();
        let told = said(&output);
        let line = format!("{number} packets were sent again in 3 connections whose begin was not seen ");
        assert_eq!((&object["events"], told.contains(&line)), (&0.into(), is_told), "{object} {told}");
        match is_told {
            true => assert!((truth[0]..=truth[1]).contains(&number) && truth[0] >= 3, "{truth:?} {object}"),
            false => assert_eq!(number, 0, "{truth:?} {object}"),
        }
    }
    let [output, _] = beside_older(ASKS, &host, script("tcplife.py").args(["--bad", "--open", "--exec"]));
    let note = "(packets sent again in connections that began before, which are not shown: ";
    assert!(stdout(&output).contains(note) && said(&output).contains(" in 3 connections "), "{output:?}");
    // The command that the line names.
    let keys = "saddr,sport,daddr,dport,daddr_v6";
    let command = ["top", "tcp:tcp_retransmit_skb/err == 0/", "--by", keys, "-a", "--json", "--"];
    let [output, program] = beside_older(ASKS, &host, &mut perf_prof(&command));
    let object = objects(&stdout(&output)).pop().unwrap();
    let port = stdout(&program).split_whitespace().nth(2).unwrap().parse::<u64>().unwrap();
    let rows = object["rows"].as_array().unwrap().iter().filter(|row| row["dport"] == port);
    let rows: Vec<_> = rows.map(|row| ["saddr", "daddr", "daddr_v6"].map(|name| row[name].clone())).collect();
    let expected = ["127.0.0.1", &host, &format!("::ffff:{host}")].map(Json::from);
    assert_eq!(rows, [&expected[..]; 3], "{object}");
}

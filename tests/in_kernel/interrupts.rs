//! Events in interrupts that programs add up: those that interrupt perf-prof count too, because they are not its own.

use std::{sync::atomic::AtomicBool, thread};

use serde_json::Value as Json;

use super::{json, needs_bpf, run, scheduler::read_on};
use crate::harness::{
    awake::Awake,
    counting::objects,
    run::stdout,
    script::Run,
    task::{allowed_cpus, pin},
    wait::EndsThreads,
    workload::words,
};

/// Sends packets to itself, so soft interrupts run in perf-prof. Prints whether the tables have all that the kernel counted in
/// /proc/softirqs meanwhile, and whether they are told to be partial. Spans that ended were all delivered.
const SCRIPT: &str = r#"
import socket, sys, perf_prof
from perf_prof import Count
EVENTS
ran = []

def runs():
    with open('/proc/softirqs') as file:
        return sum(int(word) for line in file if 'NET_RX' in line for word in line.split()[1:])

def __interval__():
    if ran:
        sys.exit(0)
    before = runs()
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(('127.0.0.1', 0))
    for _ in range(500):
        own.sendto(b'x', own.getsockname())
        own.recv(8)
    ran.append(runs() - before)

def __exit__():
    stats = perf_prof.stats()
    spans = stats['events'].get('softirq', {})
    print(counted[KEY] >= ran[0] >= 500, stats['partial'], spans.get('ended') == spans.get('delivered'))
"#;

#[test]
fn soft_interrupts_that_interrupt_perf_prof_count() {
    needs_bpf();
    // Events that an idle CPU hides are lost events.
    let _awake = Awake::new();
    for (event, handler, key) in [
        ("softirq", "counted = softirq = Count('name')", "'NET_RX'"),
        ("irq:softirq_entry", "counted = irq__softirq_entry = Count('vec')", "3"),
    ] {
        for when in ["always", "never"] {
            let script = SCRIPT.replace("EVENTS", handler).replace("KEY", key);
            let run = || {
                let run = Run::script(&script).event(event).options(["-q", "--in-kernel", when, "-i", "200"]).run();
                assert_eq!(run.status, 0, "{event} {when}: {run:?}");
                run.stdout
            };
            // Others may be at work with BPF meanwhile. Then the tables are partial, and it is told. A span may lack its end.
            let complete = (0..10).map(|_| run()).find(|printed| !printed.contains("True True"));
            assert_eq!(complete.as_deref(), Some("True False True\n"), "{event} {when}");
        }
    }
}

/// Sends packets to itself. The kernel queues a packet while perf-prof sends it, and receives it in a soft interrupt, which runs
/// in the same thread on most turns. Prints the rows of both tables, and how many events are not perf-prof's own according to
/// ftrace: those of other tasks, and those with a letter for an interrupt in the third column of the flags.
const PACKETS: &str = r#"
import os, re, socket, sys, perf_prof
from perf_prof import Count
received = net__netif_receive_skb = Count()
queued = net__netif_rx = Count()
INSTANCE = f'/sys/kernel/tracing/instances/packets_{os.getpid()}'
LINE = re.compile(r'-(\d+) +\[\d+\] ..(.)\S* +[\d.]+: (netif_receive_skb|netif_rx): ')
truth = {}

def write(name, text):
    with open(f'{INSTANCE}/{name}', 'w') as file:
        file.write(text)

def send():
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(('127.0.0.1', 0))
    for _ in range(500):
        own.sendto(b'x' * 1234, own.getsockname())
        own.recv(2000)

def __interval__():
    if truth:
        sys.exit(0)
    os.mkdir(INSTANCE)
    try:
        for name in 'netif_receive_skb', 'netif_rx':
            write(f'events/net/{name}/filter', 'len == 1262')
            write(f'events/net/{name}/enable', '1')
        send()
        write('tracing_on', '0')
        with open(f'{INSTANCE}/trace') as file:
            events = [(tid in os.listdir('/proc/self/task'), flag, name) for tid, flag, name in LINE.findall(file.read())]
    finally:
        os.rmdir(INSTANCE)
    for name in 'netif_receive_skb', 'netif_rx':
        truth[name] = sum(of == name and (not is_own or flag in 'hsHzZ') for is_own, flag, of in events)
    truth['interrupts'] = sum(is_own and flag in 'hsHzZ' for is_own, flag, _ in events)
    truth['all'] = len(events)

def __exit__():
    told = received.total, queued.total
    expected = truth['netif_receive_skb'], truth['netif_rx']
    print(told, expected, truth, perf_prof.stats())
    print(told == expected, truth['interrupts'] >= 250, truth['all'] == 1000, perf_prof.stats()['partial'])
"#;

#[test]
fn what_happens_in_an_interrupt_of_perf_prof_counts_and_what_it_does_itself_does_not() {
    needs_bpf();
    let events = "net:netif_receive_skb/len == 1262/,net:netif_rx/len == 1262/";
    for when in ["always", "never"] {
        let run = || {
            let run = Run::script(PACKETS).event(events).options(["-q", "--in-kernel", when, "-i", "200"]).run();
            assert_eq!(run.status, 0, "{run:?}");
            run.stdout
        };
        // Others may be at work with BPF meanwhile. Then the tables are partial, and it is told.
        let is_whole = |printed: &String| !printed.ends_with("True\n");
        let printed = (0..10).map(|_| run()).find(is_whole).unwrap_or_default();
        assert!(printed.ends_with("\nTrue True True False\n"), "{when}: {printed}");
    }
}

/// How often the workload's timer expires.
const EXPIRATIONS: u64 = 1000;

/// Waits for a timer, again and again.
pub fn expirations() {
    // SAFETY: the values that the calls read and write live across them.
    unsafe {
        let timer = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let once = libc::itimerspec { it_interval: zero, it_value: libc::timespec { tv_nsec: 200_000, ..zero } };
        for _ in 0..EXPIRATIONS {
            assert_eq!(libc::timerfd_settime(timer, 0, &raw const once, std::ptr::null_mut()), 0);
            let mut expired = 0u64;
            assert_eq!(libc::read(timer, (&raw mut expired).cast(), 8), 8);
        }
    }
}

/// Returns how many timers of descriptors were added up, and whether some events are told as missing.
fn timers(when: &str) -> (u64, bool) {
    let object = json(when, &["top", "hrtimer", "-a", "--by", "function"], &words("expirations"));
    let rows = object["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["function"] == "timerfd_tmrproc").unwrap_or(&Json::Null);
    (row["count"].as_u64().unwrap_or(0), object["partial"] == true)
}

/// Others may have timers of this kind, and may be at work with BPF when one expires. A kernel may hide what interrupts
/// some tasks.
#[test]
fn timers_are_counted_under_the_name_that_perf_prof_gives_them() {
    needs_bpf();
    let mut seen = Vec::new();
    let complete = (0..20).any(|_| {
        let (count, is_partial) = timers("always");
        seen.push((count, is_partial));
        count >= EXPIRATIONS
    });
    assert!(complete, "{seen:?}");
    let told = |&(count, is_partial): &(u64, bool)| is_partial || count >= EXPIRATIONS * 9 / 10;
    assert!(seen.iter().all(told), "{seen:?}");
}

/// How often the timer of `alarms` expires. The kernel handles this in an interrupt.
const ALARMS: u64 = 400;

/// Waits for the signals of a timer, on the first CPU.
pub fn alarms() {
    pin(allowed_cpus()[0]);
    let every = libc::timeval { tv_sec: 0, tv_usec: 2000 };
    // SAFETY: the values that the calls read and write live across them.
    unsafe {
        let mut alarm = std::mem::zeroed();
        libc::sigemptyset(&raw mut alarm);
        libc::sigaddset(&raw mut alarm, libc::SIGALRM);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const alarm, std::ptr::null_mut());
        let timer = libc::itimerval { it_interval: every, it_value: every };
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()), 0);
        let mut signal = 0;
        (0..ALARMS).for_each(|_| assert_eq!(libc::sigwait(&raw const alarm, &raw mut signal), 0));
    }
}

/// A thread reads a BPF map on the CPU of the timer, so the program misses most expiries. perf-prof reads its table at the same
/// time, again and again. A kernel may hide what interrupts some tasks.
#[test]
fn events_that_are_missed_while_a_table_is_read_are_told_as_lost() {
    needs_bpf();
    let ends = AtomicBool::new(false);
    let output = thread::scope(|scope| {
        scope.spawn(|| read_on(allowed_cpus()[0], &ends));
        let _end = EndsThreads(&ends);
        run("always", &["top", "timer:itimer_expire", "-a", "-i", "20", "--json"], &words("alarms"))
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let object = objects(&stdout(&output)).pop().unwrap();
    let [counted, lost] = ["events", "lost"].map(|name| object[name].as_u64().unwrap_or(0));
    assert!(lost > 0 && counted + lost >= ALARMS * 9 / 10, "{object} {said}");
    assert!(said.contains(&format!("lost up to {lost} of ")), "{object} {said}");
}

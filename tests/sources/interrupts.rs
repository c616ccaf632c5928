//! The sources `irq` and `softirq`.

use std::{net::UdpSocket, time::Instant};

use super::{MS, beside_own, numbers};
use crate::harness::{
    awake::Awake,
    machine::{Need, needs, skip},
    script::Run,
    task::named,
};

/// A script that compares the interrupts of devices with the kernel's counts in /proc/interrupts. Each event between
/// the two readings was counted. Each counted interrupt happened between the start of the first and the end of the
/// second reading. Not all of these are delivered, because perf-prof leaves out interrupts of its own threads. Writes
/// around the page cache cause interrupts.
const DEVICES: &str = r#"
import collections, subprocess, sys, time

times = collections.defaultdict(list)  # number -> times
readings = []

def read():
    start = time.monotonic_ns()
    with open('/proc/interrupts') as file:
        cpus = len(file.readline().split())
        rows = [line.split() for line in file]
    counts = {int(row[0][:-1]): sum(map(int, row[1:cpus + 1])) for row in rows if row[0][:-1].isdecimal()}
    return start, counts, time.monotonic_ns()

def irq(e):
    times[e.irq].append(e.begin._time)
    assert e.name == e.begin.name != '' and e.irq == e.begin.irq == e.end.irq and e.begin._cpu == e.end._cpu, e
    assert e.ret in ('handled', 'unhandled') and e.duration == e.end._time - e.begin._time, e

def __interval__():
    if len(readings) < 2:
        readings.append(read())
        write = 'dd if=/dev/zero of=data bs=4k count=20 oflag=direct'
        subprocess.run(write.split(), stderr=subprocess.DEVNULL)
    elif time.monotonic_ns() > readings[1][2] + 500_000_000:
        sys.exit(0)

def __exit__():
    (before, first, began), (ends, last, after) = readings
    total = seen = 0
    for irq, count in last.items():
        counted = count - first.get(irq, 0)
        inside = sum(began < time < ends for time in times[irq])
        around = sum(before < time < after for time in times[irq])
        total += counted
        seen += around
        assert inside <= counted, (irq, inside, counted, around)
    assert 2 * seen >= total, (seen, total)
    print(total > 0)
"#;

#[test]
fn the_interrupts_of_devices_are_those_that_the_kernel_counts() {
    needs([Need::Tracefs]);
    let _awake = Awake::new();
    let outcome = Run::script(DEVICES).event("irq").options(["-q", "--monotonic", "-i", "200"]).run();
    outcome.assert_civil();
    assert_eq!((outcome.status, outcome.complaints().as_str()), (0, ""));
    if outcome.stdout == "False\n" {
        skip(Need::Kernel, "no device of the machine made an interrupt");
    }
    assert_eq!(outcome.stdout, "True\n");
}

const PACKETS: usize = 200;

/// Sends packets to itself. Each packet raises a soft interrupt, which runs before the call returns. Prints how long
/// all took, in ns.
pub fn packets() {
    named(c"packet-truth");
    let start = Instant::now();
    let own = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = own.local_addr().unwrap();
    for _ in 0..PACKETS {
        own.send_to(b"x", address).unwrap();
        own.recv(&mut [0; 8]).unwrap();
    }
    println!("\nown {}", start.elapsed().as_nanos());
}

#[test]
fn a_packet_to_oneself_is_a_soft_interrupt_that_was_raised_before() {
    let (lines, own) = beside_own(
        "
import collections, perf_prof
NAMES = ('HI', 'TIMER', 'NET_TX', 'NET_RX', 'BLOCK', 'IRQ_POLL', 'TASKLET', 'SCHED', 'HRTIMER', 'RCU')
ns = runs = 0

def softirq(e):
    global ns, runs
    assert e.name == NAMES[e.vec] and e.vec == e.begin.vec == e.end.vec and e.begin._cpu == e.end._cpu == e._cpu, e
    assert e.duration == e.end._time - e.begin._time, e
    assert e.waited == (e.begin._time - e.between[0]._time if e.between else None), e
    assert all(raised.vec == e.vec and raised._cpu == e._cpu for raised in e.between), e
    if e.name == 'NET_RX' and e.between and e.comm == 'packet-truth':
        runs += 1
        ns += e.duration

def __exit__():
    counts = perf_prof.stats()['events']['softirq']
    assert counts['opened'] == counts['ended'] + counts['open'] + counts['dropped'], counts
    assert counts['delivered'] == counts['ended'], counts
    print(runs, ns)
",
        "softirq",
        "packets",
    );
    let [runs, ns] = numbers(&lines[0])[..] else { panic!("{lines:?}") };
    // On a busy machine, a kernel thread may handle some packets. The task itself handles the remaining packets, one
    // after the other.
    assert!((PACKETS / 10..=2 * PACKETS).contains(&(runs as usize)), "{lines:?}");
    assert!(ns <= numbers(&own[0])[0] + MS, "{ns} of {own:?}");
}

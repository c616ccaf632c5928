//! Every event is delivered or counted as lost. Also tests order, memory bounds and flushes.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    os::fd::AsRawFd,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use perf_prof_capture::{Callchain, Capture, EventRequest, Frames, Options, RecordOrder, Target};
use perf_prof_format::{
    abi::{PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER},
    record::{Record, Source, Wait},
};
use perf_prof_system::{budget::Budget, eventfd::EventFd};

use crate::harness::{
    capture::{CHILD, Seen, Worker, collect, event, getppid_of, in_child, options, stop},
    machine::{Need, needs},
    task::{getppid, gettid, pin},
};

#[test]
fn every_event_is_delivered() {
    needs([Need::Tracefs]);
    let target = Target::SystemWide { cpus: None };
    for order in [None, Some(RecordOrder::default())] {
        let options = Options { order, ..options() };
        let mut capture = Capture::open(&target, &[getppid_of(gettid())], &options).unwrap();
        capture.enable().unwrap();
        getppid(100_000);
        let mut seen = Seen::default();
        stop(&mut capture, &mut seen);
        assert_eq!(seen.total() + capture.losses().unwrap().per_event[0], 100_000, "{order:?}");
        assert_eq!(capture.late(), 0);
    }
}

#[test]
fn a_flush_delivers_all_earlier_events() {
    needs([Need::Tracefs]);
    let target = Target::SystemWide { cpus: None };
    for order in [None, Some(RecordOrder::default())] {
        let options = Options { order, ..options() };
        let mut capture = Capture::open(&target, &[getppid_of(gettid())], &options).unwrap();
        capture.enable().unwrap();
        for round in 1..20 {
            getppid(10);
            capture.flush();
            let mut seen = Seen::default();
            collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Flushed));
            assert_eq!(seen.total(), 10, "round {round}, {order:?}");
        }
    }
}

/// Captures this many calls. Each event has to be delivered or counted as lost, both by the kernel's counters and by
/// the records in the ring.
fn burst(options: &Options, times: usize, pause: Option<Duration>) -> (Capture, Seen) {
    let target = Target::SystemWide { cpus: None };
    let mut capture = Capture::open(&target, &[getppid_of(gettid())], options).unwrap();
    capture.enable().unwrap();
    getppid(times);
    if let Some(pause) = pause {
        std::thread::sleep(pause);
        // After the overrun, one more event makes the kernel report the loss in the ring.
        getppid(1);
    }
    let mut seen = Seen::default();
    stop(&mut capture, &mut seen);
    (capture, seen)
}

/// Records of comms go into all rings. So a test that overruns the rings with comms disturbs the exact counts of
/// another test.
static OVERRUN: Mutex<()> = Mutex::new(());

#[test]
fn losses_are_exact_with_a_tiny_ring() {
    needs([Need::Tracefs]);
    let _alone = OVERRUN.lock().unwrap_or_else(PoisonError::into_inner);
    for order in [None, Some(RecordOrder::default())] {
        let options = Options { ring_bytes: 4096, order, ..options() };
        pin(0);
        let (mut capture, seen) = burst(&options, 200_000, Some(Duration::from_millis(300)));
        let losses = capture.losses().unwrap();
        assert!(losses.per_event[0] > 0, "a ring of one page lost none of 200,000 events");
        assert_eq!(seen.total() + losses.per_event[0], 200_001);
        // Side-band records may be lost too, and the ring's count includes them.
        assert_eq!(losses.per_ring[0], seen.lost[&0], "{order:?}");
    }
}

/// The record of a comm is no event that the user selected, but it takes room in the ring and may be lost.
#[test]
fn lost_side_band_records_are_no_lost_events() {
    needs([Need::Tracefs]);
    const TIMES: u64 = 50_000;
    let _alone = OVERRUN.lock().unwrap_or_else(PoisonError::into_inner);
    pin(0);
    let options = Options { ring_bytes: 4096, ..options() };
    let mut capture = Capture::open(&Target::SystemWide { cpus: None }, &[getppid_of(gettid())], &options).unwrap();
    capture.enable().unwrap();
    for _ in 0..TIMES {
        getppid(1);
        // SAFETY: the name ends with a NUL.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"renamed".as_ptr()) };
    }
    let mut seen = Seen::default();
    stop(&mut capture, &mut seen);
    let losses = capture.losses().unwrap();
    assert!(losses.per_event[0] > 0, "a ring of one page lost none of 50,000 events");
    assert_eq!(seen.total() + losses.per_event[0], TIMES);
    assert_eq!(losses.samples_per_ring[0], losses.per_event[0]);
    assert!(losses.per_ring[0] > losses.samples_per_ring[0], "a ring of one page lost none of 50,000 names");
    assert_eq!(capture.lost_side_band().unwrap()[0], losses.per_ring[0] - losses.samples_per_ring[0]);
}

#[test]
fn a_slow_consumer_is_bounded_and_losses_are_exact() {
    needs([Need::Tracefs]);
    for order in [None, Some(RecordOrder::default())] {
        let options = Options { ring_bytes: 64 << 10, buffer: Budget::new(1 << 20), order, ..options() };
        let target = Target::SystemWide { cpus: None };
        let mut capture = Capture::open(&target, &[getppid_of(gettid())], &options).unwrap();
        capture.enable().unwrap();
        // Nothing is taken from the capture before the flush.
        getppid(200_000);
        let bound = (1 << 20).max(2 * capture.ring_count() * (256 << 10));
        assert!(capture.backlog() <= bound, "{} bytes wait", capture.backlog());
        let mut seen = Seen::default();
        capture.flush();
        collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Flushed));
        let losses = capture.losses().unwrap();
        assert!(losses.per_event[0] > 0, "a buffer of 1 MiB lost none of 200,000 events");
        assert_eq!(seen.total() + losses.per_event[0], 200_000, "{order:?}");
        stop(&mut capture, &mut seen);
        assert_eq!(seen.total() + losses.per_event[0], 200_000, "{order:?}");
        assert_eq!(capture.backlog(), 0);
    }
}

/// A value from the status file of this process, in bytes.
fn of_status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// The index of the sorter counts towards `--buffer`: 16 bytes per record, and twice as much while records are ready.
#[test]
fn the_index_of_the_order_is_within_the_buffer() {
    needs([Need::Tracefs]);
    const NAME: &str = "capture::delivery::the_index_of_the_order_is_within_the_buffer";
    if std::env::var_os(CHILD).is_none() {
        in_child(NAME);
        return;
    }
    const BUFFER: usize = 64 << 20;
    /// The memory that does not count: rings, thread stacks, and free memory of the allocator.
    const BESIDE: usize = 4 << 20;
    // The margin is so long that the sorter keeps all records until memory is needed.
    let order = Some(RecordOrder::Time { margin: Duration::from_secs(1000) });
    let options = Options { buffer: Budget::new(BUFFER), order, ..options() };
    let mut capture = Capture::open(&Target::SystemWide { cpus: None }, &[getppid_of(gettid())], &options).unwrap();
    capture.enable().unwrap();
    let before = of_status("VmRSS:");
    // Nothing is taken from the capture before it loses events.
    while capture.losses().unwrap().per_event[0] == 0 {
        getppid(10_000);
    }
    capture.stop();
    let mut seen = 0;
    loop {
        match capture.wait(None) {
            Wait::Batch(batch) => {
                let _ = batch.for_each(|_, _| {
                    seen += 1;
                    ControlFlow::<()>::Continue(())
                });
            }
            Wait::Ended(_) => break,
            _ => {}
        }
    }
    let grown = of_status("VmHWM:") - before;
    assert!(grown <= BUFFER + BESIDE, "{grown} bytes for {seen} records");
    println!("{grown} bytes for {seen} records");
}

#[test]
fn the_order_has_no_inversion() {
    needs([Need::Tracefs]);
    let options = Options { order: Some(RecordOrder::default()), ..options() };
    let target = Target::SystemWide { cpus: None };
    // The threads start before the events are opened, because the filter names each thread. Thread ids wrap around, so
    // a range of ids is not enough.
    let workers: Vec<_> = (0..3)
        .map(|_| {
            Worker::new(|| {
                for _ in 0..50 {
                    getppid(2_000);
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
        })
        .collect();
    let theirs: Vec<_> = workers.iter().map(|worker| format!("common_pid == {}", worker.tid)).collect();
    let filter = Some(theirs.join(" || "));
    let events = [event("syscalls", "sys_enter_getppid", filter), event("sched", "sched_switch", None)];
    let mut capture = Capture::open(&target, &events, &options).unwrap();
    capture.enable().unwrap();
    let mut seen = Seen::default();
    workers.iter().for_each(|worker| worker.go.send(()).unwrap());
    while !workers.iter().all(|worker| worker.thread.is_finished()) {
        capture.flush();
        collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Flushed));
    }
    workers.into_iter().for_each(|worker| worker.thread.join().unwrap());
    stop(&mut capture, &mut seen);
    assert_eq!(capture.late(), 0);
    let lost = capture.losses().unwrap().per_event[0];
    assert_eq!(seen.samples[&0] + lost, 300_000);
    assert!(seen.times.is_sorted_by_key(|&(_, time)| time));
    let rings: std::collections::HashSet<u32> = seen.times.iter().map(|&(ring, _)| ring).collect();
    assert_eq!(rings.len(), capture.ring_count(), "not every CPU took part");
}

#[test]
fn a_sampling_limit_holds() {
    needs([Need::Tracefs]);
    let options = Options { sampling_limit: Some(10), ..options() };
    let (mut capture, seen) = burst(&options, 1000, None);
    let lost = capture.losses().unwrap().per_event[0];
    assert_eq!(seen.total() + capture.dropped_by_limit() + lost, 1000);
    let mut windows: HashMap<u32, Vec<u64>> = HashMap::new();
    seen.times.iter().for_each(|&(ring, time)| windows.entry(ring).or_default().push(time));
    for times in windows.values() {
        // Each ring has at most ten events per second.
        assert!(times.windows(11).all(|eleven| eleven[10] - eleven[0] >= 1_000_000_000));
    }
}

fn is_readable(fd: &EventFd) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, which lives across the call.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

#[test]
fn a_signal_goes_before_the_backlog() {
    needs([Need::Tracefs]);
    let wake = EventFd::new().unwrap();
    let options = Options { wake: Some(wake.as_raw_fd()), ..options() };
    let target = Target::SystemWide { cpus: None };
    let mut capture = Capture::open(&target, &[getppid_of(gettid())], &options).unwrap();
    capture.enable().unwrap();
    for _ in 0..10 {
        getppid(20_000);
    }
    wake.signal();
    while is_readable(&wake) {
        std::thread::yield_now();
    }
    capture.flush();
    let mut seen = Seen::default();
    collect(&mut capture, &mut seen, |wait| {
        assert!(!matches!(wait, Wait::Flushed), "woken after the backlog");
        matches!(wait, Wait::Woken)
    });
    collect(&mut capture, &mut seen, |wait| matches!(wait, Wait::Flushed));
    assert_eq!(seen.total() + capture.losses().unwrap().per_event[0], 200_000);
}

#[test]
fn call_chains_are_sampled_where_asked() {
    needs([Need::Tracefs]);
    let chain = |kernel, user| Some(Callchain { kernel, user, max_stack: Some(16) });
    // The tracepoint of a system call has the program's registers, and so no kernel frames (perf_syscall_enter). The
    // tracepoint sched_switch has kernel frames.
    let own = Some(format!("common_pid == {}", gettid()));
    let request = |callchain| EventRequest { callchain, ..event("sched", "sched_switch", own.clone()) };
    let events = [
        request(None),
        request(chain(Frames::Sampled, Frames::Excluded)),
        request(chain(Frames::Excluded, Frames::Sampled)),
    ];
    let mut capture = Capture::open(&Target::SystemWide { cpus: None }, &events, &options()).unwrap();
    capture.enable().unwrap();
    std::thread::sleep(Duration::from_millis(1));
    capture.stop();
    let ids: HashMap<u64, usize> = capture.ids().iter().copied().collect();
    let mut markers = [None; 3];
    while let Wait::Batch(batch) = capture.wait(None) {
        let _ = batch.for_each(|_, bytes| {
            if Record::parse(bytes) == Record::Sample {
                let event = ids[&capture.layout(0).id(bytes).unwrap()];
                let layout = capture.layout(event);
                assert!(layout.raw(bytes).is_some_and(|raw| raw.len() >= 8));
                let chain = layout.callchain(bytes).unwrap_or_default();
                assert!(chain.len() <= 17 * 8);
                markers[event] = Some(chain.first_chunk().map(|first| u64::from_ne_bytes(*first)));
            }
            ControlFlow::<()>::Continue(())
        });
    }
    assert_eq!(markers, [Some(None), Some(Some(PERF_CONTEXT_KERNEL)), Some(Some(PERF_CONTEXT_USER))]);
}

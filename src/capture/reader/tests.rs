//! Tests of the reader: on rings in memory, and on pipes in the place of event descriptors.

use std::io::{PipeWriter, Write, pipe};

use perf_prof_system::eventfd::EventFd;

use super::*;
use crate::{
    Writer,
    mailbox::{Receiver, mailbox},
};

fn memory(limit: usize) -> Arc<Memory> {
    Arc::new(Memory::new(limit, Arc::new(EventFd::new().unwrap())))
}

/// Returns a reader of one ring, and the receiver of its messages.
fn reader(ring: Ring, descriptors: Vec<Descriptor>) -> (Reader, Receiver) {
    let bell = Arc::new(EventFd::new().unwrap());
    let (sender, messages) = mailbox();
    let memory = Arc::new(Memory::new(BLOCK, Arc::clone(&bell)));
    let (watched, control) = (if descriptors.is_empty() { vec![] } else { vec![0] }, Arc::new(Control::new(bell)));
    let reader = Reader {
        rings: vec![ring],
        numbers: vec![0],
        watched,
        rounds: Rounds::Marked(Duration::ZERO),
        room: vec![RingRoom::Left],
        ..Reader::without_rings(Arc::new(descriptors), memory, control, Outlet::Consumer(sender)).unwrap()
    };
    (reader, messages)
}

/// Writes records into the reader's ring. A block of memory holds four of them.
fn write_large_records(reader: &mut Reader, count: usize) {
    const SIZE: usize = 65_528;
    let mut record = vec![0; SIZE];
    record[6..8].copy_from_slice(&(SIZE as u16).to_ne_bytes());
    (0..count).for_each(|_| assert!(reader.rings[0].write(&record)));
}

/// Only the first of several rounds without memory may send a request for release. Otherwise a slow consumer would get a
/// hundred requests per second, in an unbounded queue.
#[test]
fn a_round_without_memory_asks_for_release_once() {
    let ring = Ring::fake(4096, 0).unwrap();
    assert!(ring.write(&[0, 0, 0, 0, 0, 0, 8, 0]));
    let (mut reader, messages) = reader(ring, vec![]);
    let memory = Arc::clone(&reader.memory);
    for _ in 0..2 {
        let all = memory.buffer(BLOCK);
        for _ in 0..3 {
            assert!(matches!(reader.round(Instant::now()), Round::Starved { .. }));
        }
        assert!(matches!(messages.take_all()[..], [Message::ReleaseHeld]));
        perf_prof_format::record::Recycle::recycle(&*memory, all);
        assert!(!matches!(reader.round(Instant::now()), Round::Starved { .. }));
        assert!(messages.take_all().iter().all(|message| !matches!(message, Message::ReleaseHeld)));
        assert!(reader.rings[0].write(&[0, 0, 0, 0, 0, 0, 8, 0]));
    }
}

/// Each wake-up of the consumer costs as much as many events. So the consumer gets the records of several readings of a
/// ring at once, but not later than at the next round.
#[test]
fn a_consumer_is_woken_by_rounds_and_by_many_records() {
    let (reader, messages) = reader(Ring::fake(1 << 20, 0).unwrap(), vec![]);
    let mut reader = Reader { rounds: Rounds::Unmarked, memory: memory(1 << 30), ..reader };
    let ready = [Ready { token: 0, hung_up: false }];
    // Each turn finds half a megabyte of records in the ring.
    let turn = |reader: &mut Reader, is_round: bool| {
        write_large_records(reader, 8);
        let now = Instant::now();
        if is_round {
            reader.round(now);
        } else {
            reader.pace.records(now + Duration::from_secs(60));
            reader.running(&ready, true);
        }
        reader.hand_over_batch();
    };
    let until_it_waits = || {
        while !messages.is_waiting() {
            std::thread::yield_now()
        }
    };
    std::thread::scope(|threads| {
        let take = || threads.spawn(|| messages.take(Some(Instant::now() + Duration::from_secs(60))).is_ok());
        let consumer = take();
        until_it_waits();
        turn(&mut reader, false);
        assert!(messages.is_waiting(), "half a megabyte is no reason");
        turn(&mut reader, true);
        assert!(consumer.join().unwrap(), "a round is");
        messages.take_all();
        let consumer = take();
        until_it_waits();
        let turns = (1..).find(|_| {
            turn(&mut reader, false);
            !messages.is_waiting()
        });
        assert!(consumer.join().unwrap());
        assert_eq!(turns, Some(BATCH * 2 / (1 << 20)));
    });
}

/// A round over the rings of many CPUs copies for a long time. The consumer must not sleep meanwhile, and the records of
/// the round must not take all memory before the first of them is consumed.
#[test]
fn a_consumer_is_woken_by_many_records_before_the_round_has_ended() {
    let (reader, messages) = reader(Ring::fake(2 * BATCH, 0).unwrap(), vec![]);
    let mut reader = Reader { rounds: Rounds::Unmarked, memory: memory(1 << 30), ..reader };
    std::thread::scope(|threads| {
        let consumer = threads.spawn(|| messages.take(None).is_ok());
        while !messages.is_waiting() {
            std::thread::yield_now()
        }
        let mut still_waits = |blocks: usize| {
            write_large_records(&mut reader, 4 * blocks);
            reader.unmarked_round();
            messages.is_waiting()
        };
        let waits = [still_waits(BATCH / BLOCK - 1), still_waits(1)];
        drop(reader);
        assert_eq!((waits, consumer.join().unwrap()), ([true, false], true));
    });
}

/// The ring of a CPU must not depend on the event of the first task alone. Pipes stand for the event descriptors:
/// the kernel hangs up an event when its task exits, and a pipe when its other end is closed.
#[test]
fn a_ring_still_wakes_when_the_first_of_its_tasks_has_exited() {
    let (mut tasks, mut descriptors): (Vec<PipeWriter>, _) = (vec![], vec![]);
    // The descriptors of each of three tasks: its dummy event, then its event.
    for event in [None, Some(0)].repeat(3) {
        let (fd, task) = pipe().unwrap();
        descriptors.push(Descriptor { fd: fd.into(), event, ring: 0, writer: Writer::Kernel });
        tasks.push(task);
    }
    let (mut reader, _messages) = reader(Ring::fake(4096, 0).unwrap(), descriptors);
    reader.watch().unwrap();
    let mut ready = Vec::new();
    let mut wait = |reader: &mut Reader| {
        reader.epoll.wait(Some(Duration::from_secs(60)), &mut ready).unwrap();
        assert_eq!(ready.len(), 1);
        reader.handle_ready(ready[0]) && !ready[0].hung_up
    };
    // The first two tasks exit, so the dummy event of the third task is watched.
    tasks.drain(..4);
    assert!(!wait(&mut reader) && !wait(&mut reader));
    assert_eq!(reader.watched, [4]);
    tasks[0].write_all(b"x").unwrap();
    assert!(wait(&mut reader));
    // When the last task has exited, no descriptor is left to wait for.
    drop(tasks);
    assert!(!wait(&mut reader));
    reader.epoll.wait(Some(Duration::ZERO), &mut ready).unwrap();
    assert_eq!(ready, []);
}

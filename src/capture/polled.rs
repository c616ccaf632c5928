//! The events and rings of perf's Python module. The caller chooses the attrs, and reads the rings one record after the
//! other. There is no reader thread. The code here assumes nothing about the attrs.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::Arc,
    time::Duration,
};

use perf_prof_format::abi::{
    PERF_FORMAT_GROUP, PERF_FORMAT_ID, PERF_FORMAT_LOST, PERF_FORMAT_TOTAL_TIME_ENABLED,
    PERF_FORMAT_TOTAL_TIME_RUNNING, perf_event_attr,
};
use perf_prof_system::{
    CallError,
    perf::{self, Attach},
    readable,
    ring::Ring,
};

use super::{EventRequest, attr};

/// An event that is open on some CPUs and threads.
pub struct PolledEvent {
    descriptors: Vec<Descriptor>,
    read_format: u64,
}

struct Descriptor {
    fd: OwnedFd,
    place: Place,
    id: u64,
}

/// What a descriptor of an event is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The CPU; `None` for any CPU.
    pub cpu: Option<u32>,
    /// The thread; `None` for any thread.
    pub thread: Option<u32>,
}

/// The values of an event. Values that `read_format` does not request are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// The count.
    pub value: u64,
    /// How long the event was enabled, in nanoseconds.
    pub enabled: u64,
    /// How long the event had a counter, in nanoseconds. At most `enabled`.
    pub running: u64,
    /// The id of the event.
    pub id: u64,
    /// The number of samples that the kernel dropped.
    pub lost: u64,
}

impl PolledEvent {
    /// Returns an attr that identifies the event. It also contains the period or the frequency if the request has one.
    /// All other settings are left at 0.
    pub fn plain_attr(event: &EventRequest) -> perf_event_attr {
        attr::plain(event)
    }

    /// Opens an event on each of the places. Each place must name a CPU or a thread.
    pub fn open(attr: &perf_event_attr, filter: Option<&std::ffi::CStr>, places: &[Place]) -> Result<Self, CallError> {
        let mut descriptors = Vec::with_capacity(places.len());
        for &place in places {
            let attach = match place {
                Place { cpu, thread: Some(thread) } => Attach::Thread(thread, cpu),
                Place { cpu, thread: None } => Attach::Cpu(cpu.unwrap_or_default()),
            };
            let fd = perf::open(attr, attach)?;
            if let Some(filter) = filter {
                perf::set_filter(fd.as_fd(), filter)?;
            }
            let id = perf::id(fd.as_fd())?;
            descriptors.push(Descriptor { fd, place, id });
        }
        Ok(PolledEvent { descriptors, read_format: attr.read_format })
    }

    /// Returns the ids that the records of the event contain.
    pub fn ids(&self) -> Vec<u64> {
        self.descriptors.iter().map(|descriptor| descriptor.id).collect()
    }

    /// Starts counting and sampling.
    pub fn enable(&self) -> Result<(), CallError> {
        self.descriptors.iter().try_for_each(|descriptor| perf::enable(descriptor.fd.as_fd()))
    }

    /// Stops counting and sampling.
    pub fn disable(&self) -> Result<(), CallError> {
        self.descriptors.iter().try_for_each(|descriptor| perf::disable(descriptor.fd.as_fd()))
    }

    /// Reads the values of the event at a place. Returns `None` if the event is not open there.
    pub fn read(&self, place: Place) -> Result<Option<Values>, CallError> {
        let Some(descriptor) = self.descriptors.iter().find(|descriptor| descriptor.place == place) else {
            return Ok(None);
        };
        // A group needs three words for each of its events. The kernel limits the number of events to the number of
        // counters.
        let mut words = [0; 512];
        let count = perf::read(descriptor.fd.as_fd(), &mut words)?;
        Ok(Some(Values::parse(self.read_format, &words[..count])))
    }
}

impl Values {
    /// Parses the words that the kernel returns for an event. For a group, returns the values of the leader.
    fn parse(read_format: u64, words: &[u64]) -> Values {
        let mut words = words.iter().copied();
        let mut next = |format: u64| if read_format & format == format { words.next().unwrap_or(0) } else { 0 };
        // For a group, the number of its events comes first, and the values come after the times.
        let first = next(0);
        let enabled = next(PERF_FORMAT_TOTAL_TIME_ENABLED);
        let running = next(PERF_FORMAT_TOTAL_TIME_RUNNING);
        let value = if read_format & PERF_FORMAT_GROUP == 0 { first } else { next(0) };
        Values { value, enabled, running, id: next(PERF_FORMAT_ID), lost: next(PERF_FORMAT_LOST) }
    }
}

/// The rings of events: one for each CPU, or one for each thread if the events are on any CPU.
pub struct PolledRings {
    rings: Vec<PolledRing>,
    owners: Owners,
}

/// The descriptors that own rings. They stay open as long as this value exists.
#[derive(Clone)]
pub struct Owners {
    events: Vec<Arc<PolledEvent>>,
    /// For each ring, the index of the event in `events`, and the index of the event's descriptor.
    of_rings: Vec<(usize, usize)>,
}

struct PolledRing {
    place: Place,
    ring: Ring,
    /// The head of the ring when it was last loaded.
    head: u64,
}

impl PolledRings {
    /// Maps the rings of the events, each with `bytes` of data. The number of pages must be a power of two.
    pub fn map(events: Vec<Arc<PolledEvent>>, bytes: usize) -> Result<PolledRings, CallError> {
        let mut rings: Vec<PolledRing> = Vec::new();
        let mut owners = Owners { events, of_rings: Vec::new() };
        for (event, opened) in owners.events.iter().enumerate() {
            for (at, Descriptor { fd, place, .. }) in opened.descriptors.iter().enumerate() {
                let is_same = |ring: &PolledRing| match place.cpu {
                    Some(_) => ring.place.cpu == place.cpu,
                    None => ring.place == *place,
                };
                match rings.iter().position(is_same) {
                    Some(ring) => perf::set_output(fd.as_fd(), owner(&owners.events, owners.of_rings[ring]))?,
                    None => {
                        let ring = Ring::map(fd.as_fd(), bytes)?;
                        let head = ring.tail();
                        rings.push(PolledRing { place: *place, ring, head });
                        owners.of_rings.push((event, at));
                    }
                }
            }
        }
        Ok(PolledRings { rings, owners })
    }

    /// Returns the descriptors of the rings.
    pub fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Returns whether there is a ring of this CPU. `None` asks for a ring of any CPU.
    pub fn has(&self, cpu: Option<u32>) -> bool {
        self.rings.iter().any(|ring| ring.place.cpu == cpu)
    }

    /// Moves the next record of a CPU into `record`. Returns false if there is none.
    pub fn next(&mut self, cpu: Option<u32>, record: &mut Vec<u8>) -> bool {
        record.clear();
        let of_cpu = self.rings.iter_mut().filter(|ring| ring.place.cpu == cpu);
        of_cpu.into_iter().any(|ring| ring.next(record))
    }
}

impl PolledRing {
    fn next(&mut self, record: &mut Vec<u8>) -> bool {
        const HEADER: usize = 8;
        let tail = self.ring.tail();
        if self.head == tail {
            self.head = self.ring.head();
        }
        let available = self.head.wrapping_sub(tail);
        if available < HEADER as u64 {
            return false;
        }
        self.ring.copy_to(tail, HEADER, record);
        let size = usize::from(u16::from_ne_bytes([record[6], record[7]]));
        if size < HEADER || size as u64 > available {
            // The kernel writes only whole records, so these bytes are no record. Everything up to the head is skipped.
            record.clear();
            self.ring.commit(self.head);
            return false;
        }
        self.ring.copy_to(tail + HEADER as u64, size - HEADER, record);
        self.ring.commit(tail + size as u64);
        true
    }
}

fn owner(events: &[Arc<PolledEvent>], (event, at): (usize, usize)) -> BorrowedFd<'_> {
    events[event].descriptors[at].fd.as_fd()
}

impl Owners {
    /// Returns the descriptors as numbers. A descriptor is readable when its ring contains records.
    pub fn numbers(&self) -> Vec<RawFd> {
        self.of_rings.iter().map(|&of| owner(&self.events, of).as_raw_fd()).collect()
    }

    /// Waits until one of the rings contains records, at most for `timeout`. Returns how many rings contain records.
    /// Fails with EINTR if a signal arrives.
    pub fn poll(&self, timeout: Option<Duration>) -> Result<usize, CallError> {
        let descriptors: Vec<_> = self.of_rings.iter().map(|&of| owner(&self.events, of)).collect();
        readable::poll_all(&descriptors, timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_that_the_format_requests() {
        let times = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
        let parse = |format, words: &[u64]| {
            let Values { value, enabled, running, id, lost } = Values::parse(format, words);
            [value, enabled, running, id, lost]
        };
        assert_eq!(parse(0, &[5]), [5, 0, 0, 0, 0]);
        assert_eq!(parse(times, &[5, 7, 6]), [5, 7, 6, 0, 0]);
        assert_eq!(parse(times | PERF_FORMAT_ID | PERF_FORMAT_LOST, &[5, 7, 6, 9, 1]), [5, 7, 6, 9, 1]);
        assert_eq!(parse(PERF_FORMAT_ID, &[5, 9]), [5, 0, 0, 9, 0]);
        let group = PERF_FORMAT_GROUP | times | PERF_FORMAT_ID;
        assert_eq!(parse(group, &[2, 7, 6, 5, 9, 50, 90]), [5, 7, 6, 9, 0]);
        assert_eq!(parse(times, &[]), [0; 5]);
    }

    #[test]
    fn records_are_taken_one_after_the_other() {
        let place = Place { cpu: Some(3), thread: None };
        let ring = Ring::fake(4096, 4090).unwrap();
        let record = |size: u8, fill: u8| {
            let mut bytes = vec![fill; size.into()];
            bytes[6..8].copy_from_slice(&[size, 0]);
            bytes
        };
        let records = [record(16, 1), record(8, 2), record(40, 3)];
        assert!(records.iter().all(|record| ring.write(record)));
        let head = ring.tail();
        let mut rings = PolledRings {
            rings: vec![PolledRing { place, ring, head }],
            owners: Owners { events: Vec::new(), of_rings: Vec::new() },
        };
        assert!(rings.has(Some(3)) && !rings.has(Some(0)) && !rings.has(None));
        let mut taken = Vec::new();
        for record in &records {
            assert!(!rings.next(Some(0), &mut taken) && rings.next(Some(3), &mut taken));
            assert_eq!(&taken, record);
        }
        assert!(!rings.next(Some(3), &mut taken));
        assert!(rings.rings[0].ring.write(&records[1]) && rings.next(Some(3), &mut taken));
        // No record can be shorter than its header.
        assert!(rings.rings[0].ring.write(&[0; 8]) && !rings.next(Some(3), &mut taken) && taken.is_empty());
        assert!(rings.rings[0].ring.write(&records[2]) && rings.next(Some(3), &mut taken));
    }
}

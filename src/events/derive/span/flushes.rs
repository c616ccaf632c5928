//! The flushes of block devices: finds out which flush an end belongs to, even if some ends are not delivered.
//!
//! The events of a flush contain only the number of its device. Each hardware queue of a device has at most one flush at a
//! time (block/blk-flush.c). So if a queue gets a second flush, the first flush is over, even if its end was not delivered.
//! If flushes of several queues may be running, no event says which flush ends.
//!
//! Tasks wait for these flushes. The kernel first prepares a flush, and issues it to the device later. The flush ends all
//! waits that began before it was prepared, the oldest wait first. Only the issue has an event. So a flush does not end the
//! waits that began after its issue, and may not end those that began shortly before its issue.

use rustc_hash::FxHashMap;

use super::{key::Key, scheduler::At};

/// The key of the waits for flushes of a device: the device's number, and a sector at which no request begins.
pub const WAIT: &str = "dev+18446744073709551615";

/// The maximum number of devices, and of running flushes per device. A damaged recording may contain any number.
const MOST: usize = 1 << 12;

/// Returns the key of the flushes of a device. The table of open spans contains an entry for each flush that may be running.
pub(super) fn flush_key(dev: u64) -> Key {
    Key::One(dev)
}

/// Returns the key that [`WAIT`] stands for.
pub(super) fn wait_key(dev: u64) -> Key {
    Key::Two([dev as u32, (dev >> 32) as u32, u32::MAX, u32::MAX])
}

/// What an event reports about the flushes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushChange {
    /// The kernel issues a flush to the device.
    Issued,
    /// The device was busy. The kernel will issue the flush again.
    Requeued,
    /// A flush ends.
    Ended,
    /// The wait of a task ends.
    WaitEnded,
}

/// What is known about the flushes of all devices.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    devices: FxHashMap<u64, Device>,
    /// Whether events were lost.
    has_losses: bool,
}

#[derive(Debug)]
struct Device {
    has_one_queue: bool,
    /// The queues whose flush may be running.
    running: Vec<u32>,
    /// The number of flushes in `running` that have ended. If several flushes may be running, nobody knows which of them
    /// have ended.
    ended: usize,
    /// When the last two flushes were issued, the latest first.
    issues: [u64; 2],
    /// When the flush that ended last was issued. All waits that this flush ends began before its issue.
    ended_issue: u64,
    /// Whether waits may be open whose begins were not delivered.
    has_unknown_waits: bool,
}

/// What the issue of a flush shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Issue {
    /// Whether an earlier flush is over although its end was not delivered.
    pub is_end_missing: bool,
    /// What happens to the open waits.
    pub waits: Waits,
    /// The waits that began before this time are over.
    pub over_before: u64,
}

/// What happens to the open waits for the flushes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    GoOn,
    /// Some waits have ended, but nobody knows which.
    Ambiguous,
    /// The waits are dropped: their ends could be mistaken for ends of waits that began before the run or before a loss.
    LeftOut,
}

/// Which open flush or wait an end belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The one that began first.
    First,
    /// One of several, but nobody knows which.
    Unclear,
    /// One of several, and all of them are over now.
    LastUnclear,
    /// None: its begin was not delivered.
    Unknown,
}

impl Flushes {
    /// Follows the issue of a flush. `has_one_queue` returns whether the device has only one hardware queue. Otherwise the
    /// CPU stands for the queue, because all flushes of a CPU are in the same queue.
    pub fn issued(&mut self, dev: u64, at: At, has_one_queue: impl FnOnce() -> bool) -> Issue {
        if self.devices.len() >= MOST && !self.devices.contains_key(&dev) {
            return Issue { is_end_missing: false, waits: Waits::LeftOut, over_before: 0 };
        }
        let has_unknown_waits = self.has_losses;
        let device = self.devices.entry(dev).or_insert_with(|| Device {
            has_one_queue: has_one_queue(),
            running: Vec::new(),
            ended: 0,
            issues: [0; 2],
            ended_issue: 0,
            has_unknown_waits,
        });
        device.issued(at)
    }

    /// Follows a flush that the device refused because it was busy, and returns which flush this was. The event may come
    /// from another CPU than the issue.
    pub fn requeued(&mut self, dev: u64) -> End {
        self.devices.get_mut(&dev).map_or(End::Unknown, Device::requeued)
    }

    /// Follows the end of a flush, and returns which flush this was.
    pub fn ended(&mut self, dev: u64) -> End {
        self.devices.get_mut(&dev).map_or(End::Unknown, Device::ended)
    }

    /// Returns which wait has ended. `first` is when the oldest open wait began.
    pub fn wait_ended(&self, dev: u64, first: u64) -> End {
        let Some(device) = self.devices.get(&dev) else { return End::Unknown };
        match device.running.len() {
            0 | 1 if first < device.ended_issue => End::First,
            0 | 1 => End::Unknown,
            _ if first < device.issues[0] => End::Unclear,
            _ => End::Unknown,
        }
    }

    /// Forgets all flushes, because events were lost.
    pub fn lost(&mut self) {
        self.has_losses = true;
        for device in self.devices.values_mut() {
            device.running.clear();
            (device.ended, device.ended_issue, device.has_unknown_waits) = (0, 0, true);
        }
    }
}

impl Device {
    fn issued(&mut self, at: At) -> Issue {
        let is_over = self.take_queue(at.cpu);
        let is_end_missing = is_over && self.ended == 0;
        if is_over {
            // The end of this flush may be among the ends that were counted.
            self.ended = self.ended.saturating_sub(1);
        }
        // If no other queue has a flush, a flush has ended between the last two issues. It ended the waits from before both
        // issues.
        let over_before = if self.running.is_empty() { self.issues[1] } else { 0 };
        if self.running.len() == MOST {
            self.running.remove(0);
        }
        self.running.push(self.queue(at.cpu));
        self.issues = [at.time, self.issues[0]];
        let left_out = std::mem::take(&mut self.has_unknown_waits);
        let waits = match () {
            () if is_end_missing => Waits::Ambiguous,
            () if left_out => Waits::LeftOut,
            () => Waits::GoOn,
        };
        Issue { is_end_missing, waits, over_before }
    }

    fn ended(&mut self) -> End {
        match self.running.len() {
            0 => {
                (self.ended_issue, self.has_unknown_waits) = (0, true);
                End::Unknown
            }
            1 => {
                self.running.clear();
                self.ended_issue = self.issues[0];
                End::First
            }
            _ => self.one_ended(),
        }
    }

    fn requeued(&mut self) -> End {
        match self.running.len() {
            0 => End::Unknown,
            1 => {
                self.running.clear();
                End::First
            }
            _ => self.one_ended(),
        }
    }

    /// Counts that one of several flushes has ended.
    fn one_ended(&mut self) -> End {
        self.ended += 1;
        if self.forget_ended() { End::LastUnclear } else { End::Unclear }
    }

    /// If all running flushes have ended, forgets them and returns true.
    fn forget_ended(&mut self) -> bool {
        let all_ended = self.ended != 0 && self.ended >= self.running.len();
        if all_ended {
            self.running.clear();
            (self.ended, self.ended_issue) = (0, self.issues[0]);
        }
        all_ended
    }

    /// Removes the flush in the queue of this CPU. Returns whether there was one.
    fn take_queue(&mut self, cpu: u32) -> bool {
        let queue = self.queue(cpu);
        let at = self.running.iter().position(|&other| other == queue);
        at.map(|at| self.running.swap_remove(at)).is_some()
    }

    fn queue(&self, cpu: u32) -> u32 {
        if self.has_one_queue { 0 } else { cpu }
    }
}

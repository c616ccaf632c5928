//! The flushes of block devices: to which flush an end belongs, also if the kernel does not deliver all ends.
//!
//! The events of a flush have only the number of its device. Each hardware queue of a device has at most one flush at a time
//! (block/blk-flush.c). So a second flush of the same queue shows that the first one is over, although its end was not
//! delivered. If flushes of several queues may be running, no event says which of them ended.
//!
//! Tasks wait for these flushes. The kernel first prepares a flush, and issues it to the device later. The flush ends all waits that
//! began before it was prepared, the oldest one first. Only the issue is an event: a wait that began after it goes on, and one that
//! began shortly before it may go on.

use rustc_hash::FxHashMap;

use super::{key::Key, scheduler::At};

/// The key of the waits of tasks for the flushes of a device. No request begins at this sector.
pub const WAIT: &str = "dev+18446744073709551615";

/// The maximum number of devices that are followed, and of their queues. A damaged recording may have any numbers.
const MOST: usize = 1 << 12;

/// Returns the key of the flushes of a device, of which there is a table entry for each that may be running.
pub(super) fn flush_key(dev: u64) -> Key {
    Key::One(dev)
}

/// Returns the key in [`WAIT`].
pub(super) fn wait_key(dev: u64) -> Key {
    Key::Two([dev as u32, (dev >> 32) as u32, u32::MAX, u32::MAX])
}

/// What an event says about the flushes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushChange {
    /// A flush is issued to the device.
    Issued,
    /// The device was too busy for the flush. It is issued again later.
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
    /// The queues with a flush that may be running.
    running: Vec<u32>,
    /// The number of these flushes that have ended. Which ones is not known, because several may be running.
    ended: usize,
    /// The times of the last two issues, the last one first.
    issues: [u64; 2],
    /// When the flush that ended last was issued. The waits that end with it began before.
    ended_issue: u64,
    /// Whether tasks may be waiting whose begins were not delivered.
    has_unknown_waits: bool,
}

/// What an issue shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Issue {
    /// Whether an earlier flush is over although its end was not delivered.
    pub is_end_missing: bool,
    /// What becomes of the waits that are open.
    pub waits: Waits,
    /// The waits that began before this time are over.
    pub over_before: u64,
}

/// What becomes of the open waits for the flushes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    GoOn,
    /// Some of them have ended, but nobody knows which.
    Ambiguous,
    /// Their ends could be mistaken for those of waits that began before the run or before a loss.
    LeftOut,
}

/// Which flush or wait an end belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// To the one that began first.
    First,
    /// To one of several.
    Unclear,
    /// To one of several, all of which are over now.
    LastUnclear,
    /// To one whose begin was not delivered.
    Unknown,
}

impl Flushes {
    /// Follows an issue. `has_one_queue` returns whether the device is known to have only one hardware queue. Otherwise, a
    /// queue is known by the CPU, because the flushes of a CPU are all in the same queue.
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

    /// Follows a flush that the device was too busy for, and returns which one it was. The event may come from another CPU
    /// than the issue.
    pub fn requeued(&mut self, dev: u64) -> End {
        self.devices.get_mut(&dev).map_or(End::Unknown, Device::requeued)
    }

    /// Follows the end of a flush.
    pub fn ended(&mut self, dev: u64) -> End {
        self.devices.get_mut(&dev).map_or(End::Unknown, Device::ended)
    }

    /// Returns whose end the end of a wait is. `first` is the time at which the first of the open waits began.
    pub fn wait_ended(&self, dev: u64, first: u64) -> End {
        let Some(device) = self.devices.get(&dev) else { return End::Unknown };
        match device.running.len() {
            0 | 1 if first < device.ended_issue => End::First,
            0 | 1 => End::Unknown,
            _ if first < device.issues[0] => End::Unclear,
            _ => End::Unknown,
        }
    }

    /// Forgets what is running, because events were lost.
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
            // The end of the one that is over may be among the ends that came.
            self.ended = self.ended.saturating_sub(1);
        }
        // If no other queue has a flush, the waits from before the last two issues ended with a flush in between.
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

    /// Counts one of several flushes as over.
    fn one_ended(&mut self) -> End {
        self.ended += 1;
        if self.forget_ended() { End::LastUnclear } else { End::Unclear }
    }

    /// Forgets the flushes that were running if all of them have ended. Returns whether they have.
    fn forget_ended(&mut self) -> bool {
        let all_ended = self.ended != 0 && self.ended >= self.running.len();
        if all_ended {
            self.running.clear();
            (self.ended, self.ended_issue) = (0, self.issues[0]);
        }
        all_ended
    }

    /// Takes out the flush in the queue of this CPU. Returns whether there was one.
    fn take_queue(&mut self, cpu: u32) -> bool {
        let queue = self.queue(cpu);
        let at = self.running.iter().position(|&other| other == queue);
        at.map(|at| self.running.swap_remove(at)).is_some()
    }

    fn queue(&self, cpu: u32) -> u32 {
        if self.has_one_queue { 0 } else { cpu }
    }
}

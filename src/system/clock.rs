//! The clocks for the timestamps of records, and the offset of these clocks from the time of day.

use std::os::fd::{AsFd, OwnedFd};

use perf_prof_format::{
    abi::{PERF_COUNT_SW_DUMMY, PERF_RECORD_COMM, PERF_SAMPLE_TIME, PERF_TYPE_SOFTWARE, perf_event_attr},
    record::{Records, TrailerLayout, record_type},
};
use rustix::time::{ClockId, clock_gettime};

use super::{
    call::{CallError, check},
    mmap::page_size,
    perf::{self, Attach},
    ring::Ring,
};

/// The clock for the timestamps of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// perf's own clock. No system call returns its time.
    #[default]
    Perf,
    /// CLOCK_MONOTONIC.
    Monotonic,
}

/// Measures the offset of a clock from the time of day. The two clocks drift apart, so a long run has to repeat the
/// measurement from time to time.
#[derive(Debug)]
pub struct Calibration {
    /// Only for perf's clock: an event of this thread, and the event's ring. When the thread sets its name, the kernel
    /// writes a comm record with a timestamp into the ring.
    stamp: Option<(OwnedFd, Ring)>,
}

/// The number of measurements. The result of the shortest measurement is used, because it is the most exact one.
const TRIES: usize = 5;

impl Calibration {
    /// Prepares to measure `clock`.
    pub fn new(clock: Clock) -> Result<Self, CallError> {
        if clock == Clock::Monotonic {
            return Ok(Self { stamp: None });
        }
        let mut attr = perf_event_attr {
            type_: PERF_TYPE_SOFTWARE,
            config: PERF_COUNT_SW_DUMMY.into(),
            sample_type: PERF_SAMPLE_TIME,
            ..Default::default()
        };
        attr.set_comm(1);
        attr.set_sample_id_all(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        let fd = perf::open(&attr, Attach::Thread(0, None))?;
        let ring = Ring::map(fd.as_fd(), page_size())?;
        Ok(Self { stamp: Some((fd, ring)) })
    }

    /// Returns the offset to add to a record's time to get nanoseconds since the Unix epoch. Must be called in the
    /// thread that created this value.
    pub fn realtime_offset(&mut self) -> Result<i64, CallError> {
        self.offset_of(ClockId::Realtime)
    }

    /// Returns by how many nanoseconds the clock `other` is ahead of this clock.
    fn offset_of(&mut self, other: ClockId) -> Result<i64, CallError> {
        let mut best = None;
        for _ in 0..TRIES {
            let before = now(other);
            let time = self.stamp()?;
            let after = now(other);
            let (took, offset) = (after - before, before + (after - before) / 2 - time);
            if took >= 0 && best.is_none_or(|(least, _)| took < least) {
                best = Some((took, offset));
            }
        }
        best.map(|(_, offset)| offset)
            .ok_or_else(|| CallError::new("clock_gettime", std::io::Error::other("the realtime clock was set back")))
    }

    /// Returns the clock's current time in nanoseconds. Must be called in the thread that created this value.
    pub fn stamp(&mut self) -> Result<i64, CallError> {
        let Some((_, ring)) = &mut self.stamp else { return Ok(now(ClockId::Monotonic)) };
        rename_to_same()?;
        let head = ring.head();
        let mut bytes = Vec::new();
        ring.copy_to(ring.tail(), (head - ring.tail()) as usize, &mut bytes);
        ring.commit(head);
        let trailer = TrailerLayout::new(PERF_SAMPLE_TIME);
        let comm = Records::new(&bytes).filter(|record| record_type(record) == PERF_RECORD_COMM).last();
        comm.and_then(|record| trailer.time(record)).map(|time| time as i64).ok_or_else(|| {
            CallError::new(
                "perf_event_open",
                std::io::Error::other("the kernel wrote no record when this thread was renamed"),
            )
        })
    }
}

/// Returns the offset to add to a record's time to get nanoseconds since the Unix epoch.
pub fn realtime_offset(clock: Clock) -> Result<i64, CallError> {
    Calibration::new(clock)?.realtime_offset()
}

/// The offset from CLOCK_MONOTONIC, which BPF programs read, to the clock of records at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonotonicOffset {
    /// The moment: a time of CLOCK_MONOTONIC, in nanoseconds.
    pub at: i64,
    /// What has to be added to a time of CLOCK_MONOTONIC to get a time of the clock of records, in nanoseconds.
    pub offset: i64,
}

/// Measures the offset from CLOCK_MONOTONIC to the clock of records.
pub fn monotonic_offset(clock: Clock) -> Result<MonotonicOffset, CallError> {
    let offset = match clock {
        Clock::Monotonic => 0,
        Clock::Perf => -Calibration::new(clock)?.offset_of(ClockId::Monotonic)?,
    };
    Ok(MonotonicOffset { at: now(ClockId::Monotonic), offset })
}

/// Returns the time of day in nanoseconds since the Unix epoch.
pub fn realtime() -> i64 {
    now(ClockId::Realtime)
}

/// When the machine was started, and for how long it was suspended.
#[derive(Clone, Copy, Debug)]
pub struct Boot {
    /// The time of day at which the machine was started, in nanoseconds since the Unix epoch.
    pub began: i64,
    /// How long the machine was suspended since then, in nanoseconds.
    pub suspended: i64,
}

/// Computes [`Boot`] from the differences between the kernel's clocks.
pub fn boot() -> Boot {
    let running = now(ClockId::Boottime);
    Boot { began: realtime() - running, suspended: running - now(ClockId::Monotonic) }
}

fn now(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Sets the calling thread's name to its current name, so that the kernel writes a comm record.
fn rename_to_same() -> Result<(), CallError> {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes at most 16 bytes, which `name` has; PR_SET_NAME reads them up to the NUL.
    unsafe {
        check("prctl PR_GET_NAME", libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()))?;
        check("prctl PR_SET_NAME", libc::prctl(libc::PR_SET_NAME, name.as_ptr()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_leads_to_the_time_of_day() {
        let monotonic = realtime_offset(Clock::Monotonic).unwrap();
        assert!((realtime() - monotonic - now(ClockId::Monotonic)).abs() < 1_000_000_000);
    }
}

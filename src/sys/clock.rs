//! The clock that stamps records, and how it relates to the time of day.

use std::os::fd::{AsFd, OwnedFd};

use super::{
    call::{CallError, check},
    mmap::page_size,
    perf::{self, Attach},
    ring::Ring,
};
use crate::{
    abi::{PERF_COUNT_SW_DUMMY, PERF_RECORD_COMM, PERF_SAMPLE_TIME, PERF_TYPE_SOFTWARE, perf_event_attr},
    record::{Records, TrailerLayout, record_type},
};

/// Which clock stamps the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// perf's own. No system call reads it.
    #[default]
    Perf,
    /// CLOCK_MONOTONIC.
    Monotonic,
}

/// Measures how far a clock is from the time of day. Neither follows the other: for a long run, measure again from time
/// to time.
#[derive(Debug)]
pub struct Calibration {
    /// For perf's clock, an event of this thread that stamps a record when the thread is named.
    stamp: Option<(OwnedFd, Ring)>,
}

/// Measurements of which the closest counts.
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
        let ring = Ring::of(fd.as_fd(), page_size())?;
        Ok(Self { stamp: Some((fd, ring)) })
    }

    /// What to add to a record's time to get nanoseconds since the Unix epoch. To be called in the thread that made
    /// this.
    pub fn realtime_offset(&mut self) -> Result<i64, CallError> {
        let mut best = None;
        for _ in 0..TRIES {
            let before = now(libc::CLOCK_REALTIME);
            let time = self.stamp()?;
            let after = now(libc::CLOCK_REALTIME);
            let (took, offset) = (after - before, before + (after - before) / 2 - time);
            if took >= 0 && best.is_none_or(|(least, _)| took < least) {
                best = Some((took, offset));
            }
        }
        best.map(|(_, offset)| offset)
            .ok_or_else(|| CallError::new("clock_gettime", std::io::Error::other("the time of day jumps back")))
    }

    /// The clock's time, now.
    fn stamp(&mut self) -> Result<i64, CallError> {
        let Some((_, ring)) = &mut self.stamp else { return Ok(now(libc::CLOCK_MONOTONIC)) };
        rename_to_same()?;
        let head = ring.head();
        let mut bytes = Vec::new();
        ring.copy_to(ring.tail(), (head - ring.tail()) as usize, &mut bytes);
        ring.commit(head);
        let trailer = TrailerLayout::new(PERF_SAMPLE_TIME);
        let comm = Records::new(&bytes).filter(|record| record_type(record) == PERF_RECORD_COMM).last();
        comm.and_then(|record| trailer.time(record)).map(|time| time as i64).ok_or_else(|| {
            CallError::new("perf_event_open", std::io::Error::other("naming this thread made no record"))
        })
    }
}

/// What to add to a record's time to get nanoseconds since the Unix epoch.
pub fn realtime_offset(clock: Clock) -> Result<i64, CallError> {
    Calibration::new(clock)?.realtime_offset()
}

/// The time of day in nanoseconds since the Unix epoch.
pub fn realtime() -> i64 {
    now(libc::CLOCK_REALTIME)
}

/// `clock`'s time now, for a clock that is `offset` from the time of day.
pub fn clock_now(offset: i64) -> u64 {
    (realtime() - offset).max(0) as u64
}

fn now(clock: i32) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` lives across the call, and the clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Gives the calling thread the name that it has.
fn rename_to_same() -> Result<(), CallError> {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes up to 16 bytes, PR_SET_NAME reads up to a NUL in them.
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
    fn both_clocks_lead_to_the_time_of_day() {
        let monotonic = realtime_offset(Clock::Monotonic).unwrap();
        assert!((clock_now(monotonic) as i64 - now(libc::CLOCK_MONOTONIC)).abs() < 1_000_000_000);

        let mut calibration = match Calibration::new(Clock::Perf) {
            Ok(calibration) => calibration,
            Err(error) => return println!("skipped: {error}"),
        };
        let before = realtime();
        let offset = calibration.realtime_offset().unwrap();
        let time = calibration.stamp().unwrap() + offset;
        let after = realtime();
        // Two measurements a moment apart; a stopped machine may lie between them, but not a wrong clock.
        assert!(before - 1_000_000 <= time && time <= after + 1_000_000, "{before} <= {time} <= {after}");
    }
}

//! The sizes of the rings. A ring should hold the events of the time before a trigger, at the measured rate.

use std::{path, time::Duration};

use perf_prof_capture::{Capture, ResizeError};
use perf_prof_system::{mmap::page_size, output};

use super::{folder::DumpFolder, measurement::Round};
use crate::recorder;

/// The size of a ring during the measurement, in bytes.
pub const AT_FIRST: usize = 1 << 20;

/// The maximum size of a ring for side-band records, in bytes.
const SIDE_BAND: usize = 512 << 10;

/// The maximum memory of all rings for side-band records, in bytes, unless they have the smallest size.
const ALL_SIDE_BAND: usize = 64 << 20;

/// The default memory for all rings and copies together, in bytes. It is smaller on machines with little memory.
pub const DEFAULT_MEMORY: usize = 1 << 30;

/// The maximum time from a trigger to the moment at which perf-prof notices it, if perf-prof gets a CPU.
const NOTICED: Duration = Duration::from_millis(500);

/// Rings that keep this part of the wanted time keep their size.
const TOLERATED: f64 = 0.8;

/// The ring is larger than the measured rate requires by this factor, because the rate may grow.
const HEADROOM: f64 = 1.5;

/// Returns the size of each ring in bytes. All rings get the same size, because a busy task may move to another CPU.
/// `rates` are the measured bytes per second of each ring. `present` is the current size of the rings. `memory` is the
/// maximum for all rings and their copies together.
fn size(rates: &[f64], before: Duration, present: usize, memory: usize) -> usize {
    let highest = rates.iter().copied().fold(0.0, f64::max);
    let wanted = (highest * (before + NOTICED).as_secs_f64() * HEADROOM).min((1u64 << 40) as f64) as usize;
    wanted.next_power_of_two().max(present).min(largest(rates.len(), memory))
}

/// Returns the maximum size of each of `rings` rings. A dump copies all of them, so the rings get half of the memory.
pub fn largest(rings: usize, memory: usize) -> usize {
    let share = (memory / 2 / rings.max(1)).max(page_size());
    1 << share.ilog2()
}

/// Returns the size of each of `rings` rings for side-band records. If there are many rings, each is small: then each ring
/// belongs to a thread, and a thread writes few of these records.
pub fn of_side_band(rings: usize) -> usize {
    let share = (ALL_SIDE_BAND / rings.max(1)).clamp(4 * page_size(), SIDE_BAND);
    1 << share.ilog2()
}

/// Returns how many bytes of copies may wait to be written. This is the memory that the rings leave, but always enough
/// for one copy of all rings, even if the user has made them larger.
pub fn room_for_copies(sizes: &[usize], memory: usize) -> usize {
    let rings = sizes.iter().sum();
    memory.saturating_sub(rings).max(rings)
}

/// Returns how long the rings keep their samples at these rates; `None` if nothing is written into any ring.
fn kept(rates: &[f64], sizes: &[usize]) -> Option<Duration> {
    let of_ring = |(&rate, &size): (&f64, &usize)| (rate > 0.0).then(|| size as f64 / rate);
    let shortest = rates.iter().zip(sizes).filter_map(of_ring).min_by(f64::total_cmp)?;
    Some(Duration::from_secs_f64(shortest.min(1e9)))
}

/// What to do with the rings at measured rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// The rings keep the wanted time.
    Enough,
    /// Larger rings would keep more of the wanted time.
    Small,
    /// The rings keep less than the wanted time, and the memory allows no larger rings.
    Largest,
}

/// Returns whether rings of these sizes keep the time `before` at these rates.
fn fit(rates: &[f64], sizes: &[usize], before: Duration, memory: usize) -> Fit {
    let present = sizes.iter().copied().max().unwrap_or(0);
    let Some(kept) = kept(rates, sizes).filter(|&kept| kept < before) else { return Fit::Enough };
    match size(rates, before, present, memory) > present {
        // A little less than wanted is no reason to drop what the rings keep.
        true if kept < before.mul_f64(TOLERATED) => Fit::Small,
        true => Fit::Enough,
        false => Fit::Largest,
    }
}

/// The result of [`adapt`].
#[derive(Debug, Default)]
pub struct Adapted {
    /// The number of rings that were replaced by empty rings.
    pub count: usize,
    /// The number of rings that no longer exist, because the kernel refused every size.
    pub gone: u64,
    /// Whether the rings cannot become larger.
    pub are_final: bool,
}

/// Makes the rings larger if these rates require it: after the first measurement in silence, later with a message. Larger
/// rings are empty at first. But the smaller rings kept less than `before`, so little is lost.
pub fn adapt(rates: &[f64], (round, before, memory): (Round, Duration, usize), capture: &mut Capture) -> Adapted {
    match (round, fit(rates, &capture.overwritten_sizes(), before, memory)) {
        // After the first measurement, the rings get the size with `HEADROOM`, even if they are large enough without it.
        (Round::First, _) => {}
        (Round::Later, Fit::Enough) => return Adapted::default(),
        (Round::Later, Fit::Largest) => return Adapted { are_final: true, ..Adapted::default() },
        (Round::Later, Fit::Small) => output::say(format_args!(
            "events come faster than before; the rings become larger, and drop the events that they keep now"
        )),
    }
    let Resized { count, refused, gone } = resize(rates, before, memory, capture);
    let is_largest = fit(rates, &capture.overwritten_sizes(), before, memory) == Fit::Largest;
    Adapted { count, gone, are_final: is_largest || refused + gone != 0 }
}

/// The result of [`resize`].
struct Resized {
    /// The number of rings that were replaced by empty rings.
    count: usize,
    /// The number of rings with another size than wanted, because the kernel refused this size.
    refused: u64,
    /// The number of rings that no longer exist, because the kernel refused every size.
    gone: u64,
}

/// Makes the rings as large as these rates require. Prints a message for each ring that did not get this size.
fn resize(rates: &[f64], before: Duration, memory: usize, capture: &mut Capture) -> Resized {
    let present = capture.overwritten_sizes();
    let size = size(rates, before, present.iter().copied().max().unwrap_or(0), memory);
    let mut resized = Resized { count: 0, refused: 0, gone: 0 };
    for (ring, _) in present.iter().enumerate().filter(|(_, present)| ![0, size].contains(present)) {
        resized.count += 1;
        match capture.resize_overwritten(ring, size) {
            Ok(()) => {}
            Err(ResizeError::Smaller { size, source }) => {
                resized.refused += 1;
                output::say(format_args!(
                    "a ring has only {} KiB, because {source}; raise `ulimit -l` or kernel.perf_event_mlock_kb for more",
                    size >> 10
                ));
            }
            Err(ResizeError::Gone(source)) => {
                resized.gone += 1;
                let cpu = capture.rings().nth(ring).and_then(|(_, cpu)| cpu);
                let place = cpu.map_or("a thread".to_owned(), |cpu| format!("CPU {cpu}"));
                output::say(format_args!(
                    "dumps contain no events of {place} from now on, because the kernel refused a new ring: {source}"
                ));
            }
        }
    }
    resized
}

/// The largest size of a ring that is recommended, in bytes.
const LARGEST_ADVICE: u64 = 1 << 30;

/// Returns the size of a ring, as `-m` takes it, that holds the time `wanted` at a rate at which `bytes` held `kept`. `None`
/// if it would be too large.
pub fn size_that_holds(wanted: Duration, (bytes, kept): (u64, Duration)) -> Option<u64> {
    let times = wanted.as_secs_f64() / kept.as_secs_f64().max(f64::MIN_POSITIVE);
    let needed = (bytes as f64 * times.max(1.0) * HEADROOM) as u64;
    needed.max(1 << 20).checked_next_power_of_two().filter(|size| *size <= LARGEST_ADVICE)
}

/// Prints how many bytes of events the rings keep, and the folder of the dumps, if they have one.
pub fn say_sizes(sizes: &[usize], folder: Option<&DumpFolder>) {
    let (count, total) = (sizes.iter().filter(|size| **size != 0).count(), sizes.iter().sum::<usize>());
    let rings = output::counted(count as u64, "ring keeps", "rings keep");
    let in_all = if count > 1 { " in all" } else { "" };
    let kept = recorder::bytes(total as u64);
    // `-o NAME` without a slash is a file in the working directory if there is no such folder. So the message shows the
    // whole path.
    let absolute = |folder: &DumpFolder| path::absolute(folder.path()).unwrap_or_else(|_| folder.path().to_owned());
    let place = folder.map(|folder| format!("; dumps go into the folder '{}'", absolute(folder).display()));
    output::say(format_args!("{rings} the newest {kept} of events{in_all}{}", place.unwrap_or_default()));
}

/// Prints a message if the rings keep less than the time `before`.
pub fn say_kept(rates: &[f64], sizes: &[usize], before: Duration) {
    if let Some(kept) = kept(rates, sizes)
        && kept < before
    {
        output::say(format_args!(
            "at this rate of events, the rings keep {:.1} s before a trigger instead of {:.1} s; use a larger --buffer, a \
             filter or fewer events",
            kept.as_secs_f64(),
            before.as_secs_f64()
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_advised_size_holds_the_time_that_was_asked() {
        let advised =
            |seconds, bytes, kept| size_that_holds(Duration::from_secs(seconds), (bytes, Duration::from_millis(kept)));
        assert_eq!(advised(2, 64 << 10, 20), Some(16 * MIB as u64));
        assert_eq!(
            (advised(2, 64 << 10, 1990), advised(10, 64 << 20, 1), advised(1, 1, 0)),
            (Some(MIB as u64), None, None)
        );
    }

    #[test]
    fn rings_hold_the_time_before_a_trigger_within_the_memory() {
        let size = |rates: [f64; 2], memory| size(&rates, Duration::from_secs(10), MIB, memory);
        assert_eq!(size([1e6, 1e3], 64 * MIB), 16 * MIB);
        assert_eq!(size([1e9, 1e9], 64 * MIB), 16 * MIB);
        assert_eq!(size([0.0, 0.0], 64 * MIB), MIB);
        assert_eq!(size([0.0, 0.0], MIB), MIB / 4);
        assert_eq!(size([1e9, 0.0], 0), page_size());
    }

    #[test]
    fn rings_and_copies_share_the_memory() {
        for (rings, memory) in [(2, 64 * MIB), (3, 64 * MIB), (64, 512 * MIB)] {
            let sizes = vec![largest(rings, memory); rings];
            let (used, room) = (sizes.iter().sum::<usize>(), room_for_copies(&sizes, memory));
            assert!(used + room <= memory && used <= room, "{used} {room}");
        }
        assert_eq!(room_for_copies(&[8 * MIB, 8 * MIB], MIB), 16 * MIB, "with -m");
    }

    #[test]
    fn rings_grow_when_they_keep_too_little_and_the_memory_allows_it() {
        let fit = |rates: [f64; 2], sizes: [usize; 2]| fit(&rates, &sizes, Duration::from_secs(10), 64 * MIB);
        assert_eq!(fit([1e5, 0.0], [MIB, MIB]), Fit::Enough);
        assert_eq!(fit([1.2e5, 0.0], [MIB, MIB]), Fit::Enough, "the rings keep 8.7 s");
        assert_eq!(fit([2e5, 0.0], [MIB, MIB]), Fit::Small);
        assert_eq!(fit([9e9, 0.0], [16 * MIB, 16 * MIB]), Fit::Largest);
        assert_eq!(fit([0.0, 0.0], [MIB, MIB]), Fit::Enough);
        assert_eq!(fit([2e5, 0.0], [MIB, 0]), Fit::Small, "a ring that no longer exists does not count");
    }

    #[test]
    fn rings_for_side_band_records_share_their_memory() {
        assert_eq!([1, 2, 128, 1000].map(of_side_band), [512 << 10, 512 << 10, 512 << 10, 64 << 10]);
        assert_eq!(of_side_band(1 << 20), 4 * page_size(), "but a ring holds some records");
    }

    #[test]
    fn the_busiest_ring_says_how_long_samples_are_kept() {
        assert_eq!(kept(&[1e6, 2e6, 0.0], &[8_000_000, 8_000_000, MIB]), Some(Duration::from_secs(4)));
        assert_eq!(kept(&[0.0], &[MIB]), None);
    }
}

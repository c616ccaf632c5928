//! Finds out how old the oldest sample in the rings can be, from the numbers of bytes that were written into the rings.

use std::collections::VecDeque;

use perf_prof_capture::Written;

/// The maximum number of times that are remembered.
const REMEMBERED: usize = 1024;

/// For some times: the number of bytes that had been written into each ring by then.
#[derive(Debug, Default)]
pub struct Ages {
    noted: VecDeque<(u64, Vec<Written>)>,
}

impl Ages {
    /// Notes how many bytes had been written into each ring at `time`.
    pub fn note(&mut self, time: u64, written: Vec<Written>) {
        if self.noted.len() == REMEMBERED {
            self.noted.pop_front();
        }
        self.noted.push_back((time, written));
    }

    /// Returns the latest time before which no sample in the rings was taken; `None` if no such time is known. `sizes`
    /// are the sizes of the rings, and `now` is the number of bytes that were written into each ring so far.
    pub fn oldest(&mut self, sizes: &[usize], now: &[Written]) -> Option<u64> {
        let is_gone = |written: &[Written]| {
            let mut rings = written.iter().zip(now).zip(sizes).filter(|(_, size)| **size != 0);
            rings.all(|((then, now), &size)| then.0 + size as u64 <= now.0)
        };
        let gone = self.noted.iter().take_while(|(_, written)| is_gone(written)).count();
        let last = self.noted.drain(..gone).next_back()?;
        Some(last.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_over_when_all_rings_have_been_overwritten_since() {
        let written = |rings: [u64; 3]| rings.map(Written).to_vec();
        let mut ages = Ages::default();
        (1..=3).for_each(|time| ages.note(time, written([time * 100, time * 10, 0])));
        // The last ring has the size 0, so it does not count.
        assert_eq!(ages.oldest(&[100, 10, 0], &written([199, 20, 0])), None);
        assert_eq!(ages.oldest(&[100, 10, 0], &written([300, 30, 0])), Some(2));
        assert_eq!(ages.oldest(&[100, 10, 0], &written([300, 30, 0])), None, "nothing new");
        assert_eq!(ages.oldest(&[100, 10, 0], &written([900, 900, 0])), Some(3));
    }
}

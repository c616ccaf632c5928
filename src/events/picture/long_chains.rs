//! Counts call chains that are so long that their outermost callers may be missing: the kernel cuts chains off.

/// The largest number of frames in a call chain of the kernel by default (`kernel.perf_event_max_stack`).
pub const MAX_FRAMES: usize = 127;

/// The weight of long call chains, and of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongChains {
    long: u64,
    total: u64,
}

impl LongChains {
    /// Adds the weight of a chain with so many frames, without inlined ones.
    pub fn add(&mut self, frames: usize, weight: u64) {
        self.total = self.total.saturating_add(weight);
        if frames >= MAX_FRAMES {
            self.long = self.long.saturating_add(weight);
        }
    }

    /// Says how much of the weight is in long chains. `None` if none is.
    pub fn note(self) -> Option<String> {
        note_of_long_chains(self.long, self.total)
    }
}

/// Says how much of the weight `total` is in long chains, which have the weight `long`. `None` if none is.
pub(super) fn note_of_long_chains(long: u64, total: u64) -> Option<String> {
    let share = 100.0 * long as f64 / total.max(1) as f64;
    let share = if share < 0.05 { "less than 0.1".to_owned() } else { format!("{share:.1}") };
    (long != 0).then(|| format!("{share} % is in stacks of {MAX_FRAMES} frames or more, whose callers may be cut off"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_long_chains_is_said() {
        let mut chains = LongChains::default();
        chains.add(MAX_FRAMES - 1, 30_000);
        assert_eq!(chains.note(), None);
        chains.add(MAX_FRAMES, 10);
        assert!(
            chains.note().is_some_and(|note| note.starts_with("less than 0.1 % is in stacks of 127 frames or more"))
        );
        chains.add(300, 29_990);
        assert!(chains.note().is_some_and(|note| note.starts_with("50.0 % is")));
    }
}

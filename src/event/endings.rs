//! Why stacks that were unwound ended, counted for who wonders what is missing. Knows no stack.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::unwind::Ended;

/// How many stacks ended how.
#[derive(Debug, Default)]
pub struct Endings {
    complete: AtomicU64,
    stack_ends: AtomicU64,
    no_unwind_info: AtomicU64,
    bad_frame: AtomicU64,
}

/// Said where so many ended early, and at least one in so many: some always do, in code that is about to return or made at run time.
const MANY: u64 = 10;

impl Endings {
    /// A stack ended so.
    pub fn add(&self, ended: Ended) {
        let count = match ended {
            Ended::Root | Ended::Limit => &self.complete,
            Ended::StackEnds => &self.stack_ends,
            Ended::NoUnwindInfo { .. } => &self.no_unwind_info,
            Ended::BadFrame { .. } => &self.bad_frame,
            // There was no stack.
            Ended::NoRegisters | Ended::NotSupported => return,
        };
        count.fetch_add(1, Relaxed);
    }

    /// What is to be said at the end, where many ended early.
    pub fn line(&self) -> Option<String> {
        let reasons = [
            (&self.stack_ends, "are larger than their copy (copy more of it with --call-graph dwarf,SIZE)"),
            (&self.no_unwind_info, "lead to code without unwind information"),
            (&self.bad_frame, "lead to what is no frame"),
        ];
        let reasons = reasons.map(|(count, what)| (count.load(Relaxed), what));
        let early: u64 = reasons.iter().map(|(count, _)| count).sum();
        let all = early + self.complete.load(Relaxed);
        if early < MANY || early * MANY < all {
            return None;
        }
        let said = reasons.iter().filter(|(count, _)| *count != 0).map(|(count, what)| format!("{count} {what}"));
        let said: Vec<String> = said.collect();
        Some(format!("{early} of {all} stacks that were unwound end early: {}", said.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_stacks_that_end_early_are_said_with_the_way_out() {
        let endings = Endings::default();
        assert_eq!(endings.line(), None);
        (0..50).for_each(|_| endings.add(Ended::Root));
        (0..3).for_each(|_| endings.add(Ended::StackEnds));
        endings.add(Ended::NoRegisters);
        assert_eq!(endings.line(), None);
        (0..6).for_each(|_| endings.add(Ended::StackEnds));
        endings.add(Ended::BadFrame { address: 1 });
        let said = "10 of 60 stacks that were unwound end early: 9 are larger than their copy (copy more of it with \
                    --call-graph dwarf,SIZE), 1 lead to what is no frame";
        assert_eq!(endings.line().as_deref(), Some(said));
    }
}

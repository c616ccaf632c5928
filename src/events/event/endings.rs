//! Counts why the unwinding of stacks ended, so that users learn why frames are missing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use perf_prof_symbols::{symbol::most_frequent_files, unwind::Ended};
use perf_prof_system::mutex::Mutex;
use rustc_hash::FxHashMap;

/// The number of unwound stacks for each reason to end.
#[derive(Debug, Default)]
pub struct StackEndings {
    complete: AtomicU64,
    stack_ends: AtomicU64,
    no_unwind_info: AtomicU64,
    /// The number of stacks that ended at code in a file that could not be read, by the file's path.
    no_file: Mutex<FxHashMap<String, u64>>,
    bad_frame: AtomicU64,
    bits_32: AtomicU64,
    not_supported: AtomicU64,
}

/// The summary is printed if at least 10 stacks are incomplete, and if they are at least a tenth of all stacks. A few stacks
/// are always incomplete: in code that is about to return, and in generated code. If a file could not be read, the summary
/// is always printed.
const MANY: u64 = 10;

impl StackEndings {
    /// Counts one stack. `ended` is the reason why unwinding ended.
    pub fn add(&self, ended: Ended) {
        let count = match ended {
            Ended::Root | Ended::Limit => &self.complete,
            Ended::StackEnds => &self.stack_ends,
            Ended::NoUnwindInfo { .. } => &self.no_unwind_info,
            Ended::BadFrame { .. } => &self.bad_frame,
            Ended::Bits32 => &self.bits_32,
            Ended::NotSupported => &self.not_supported,
            // The task has no user stack, so nothing was unwound.
            Ended::NoRegisters => return,
        };
        count.fetch_add(1, Relaxed);
    }

    /// Counts one stack that ended at code in a file that could not be read.
    pub fn add_without_file(&self, path: String) {
        *self.no_file.lock().entry(path).or_default() += 1;
    }

    /// Returns the message for the end of the run; `None` if too few stacks are incomplete.
    pub fn summary(&self) -> Option<String> {
        let files = self.no_file.lock();
        let without_file = files.values().sum();
        let count = |of: &AtomicU64| of.load(Relaxed);
        let reasons = [
            (
                count(&self.stack_ends),
                "the stack is larger than its copy, use a larger SIZE in --call-graph dwarf,SIZE".to_owned(),
            ),
            (
                without_file,
                format!("the file with the code is missing or cannot be read: {}", most_frequent_files(&files)),
            ),
            (count(&self.no_unwind_info), "the code has no unwind information".to_owned()),
            (count(&self.bad_frame), "the next frame is not valid".to_owned()),
        ];
        let early: u64 = reasons.iter().map(|(count, _)| count).sum();
        let all = early + count(&self.complete);
        if without_file == 0 && (early < MANY || early * MANY < all) {
            return None;
        }
        let said =
            reasons.iter().filter(|(count, _)| *count != 0).map(|(count, what)| format!("{what} (count: {count})"));
        let said: Vec<String> = said.collect();
        Some(format!("{early} of {all} unwound stacks are incomplete: {}", said.join("; ")))
    }

    /// Returns the messages for the end of the run about stacks that perf-prof cannot unwind at all.
    pub fn impossible(&self) -> Vec<String> {
        let reasons = [(&self.bits_32, "32-bit tasks"), (&self.not_supported, "this architecture")];
        let counted = reasons.iter().map(|(count, what)| (count.load(Relaxed), what)).filter(|(count, _)| *count != 0);
        let line = |(count, what)| {
            format!("user stacks were not unwound (count: {count}): perf-prof cannot unwind the stacks of {what}")
        };
        counted.map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_here_is_named_if_it_ends_few_stacks_too() {
        let endings = StackEndings::default();
        (0..50).for_each(|_| endings.add(Ended::Root));
        (0..2).for_each(|_| endings.add_without_file("/bin/app".to_owned()));
        let said = "2 of 52 unwound stacks are incomplete: the file with the code is missing or cannot be read: /bin/app (count: 2)";
        assert_eq!(endings.summary().as_deref(), Some(said));
    }

    #[test]
    fn many_stacks_that_end_early_cause_a_message_with_advice() {
        let endings = StackEndings::default();
        assert_eq!(endings.summary(), None);
        (0..50).for_each(|_| endings.add(Ended::Root));
        (0..3).for_each(|_| endings.add(Ended::StackEnds));
        endings.add(Ended::NoRegisters);
        assert_eq!(endings.summary(), None);
        (0..6).for_each(|_| endings.add(Ended::StackEnds));
        endings.add(Ended::BadFrame { address: 1 });
        let said = "10 of 60 unwound stacks are incomplete: the stack is larger than its copy, use a larger SIZE in \
                    --call-graph dwarf,SIZE (count: 9); the next frame is not valid (count: 1)";
        assert_eq!(endings.summary().as_deref(), Some(said));
        assert_eq!(endings.impossible(), Vec::<String>::new());
        endings.add(Ended::Bits32);
        endings.add(Ended::Bits32);
        let said = "user stacks were not unwound (count: 2): perf-prof cannot unwind the stacks of 32-bit tasks";
        assert_eq!(endings.impossible(), [said]);
    }
}

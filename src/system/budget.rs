//! The memory budget of a run (`--buffer`). Three consumers share it: events that wait for delivery, open spans, and
//! tables.
//!
//! All spans together get at most a quarter of the budget. All tables together get at most another quarter. So at least
//! half of the budget is left for events.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// The divisor for the share of all spans, and for the share of all tables: each is a quarter of the budget.
const SHARE: usize = 4;
/// A [`Holding`] reports its size to the budget only when the size has changed by this many bytes, because spans open
/// and close often. So the budget does not count a holding that is smaller than `STEP`.
const STEP: usize = 64 << 10;

/// The memory budget of a run. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget(Arc<State>);

#[derive(Debug)]
struct State {
    bytes: usize,
    /// The number of bytes that all holdings have reported.
    held: AtomicUsize,
    /// For each [`HeldFor`], the number of holdings that have reported more than 0 bytes.
    holders: [AtomicUsize; 2],
}

/// What a holding uses its memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldFor {
    /// Spans that are open.
    Spans,
    /// Tables: sums, columns, and other results that are not written yet.
    Tables,
}

/// The part of a budget that one table uses, or that the open spans of one event use.
#[derive(Debug)]
pub struct Holding {
    budget: Budget,
    of: HeldFor,
    bytes: usize,
    /// The number of bytes that this holding has reported to the budget.
    reported: usize,
}

impl Budget {
    /// Creates a budget of this many bytes.
    pub fn new(bytes: usize) -> Budget {
        Budget(Arc::new(State { bytes, held: AtomicUsize::new(0), holders: Default::default() }))
    }

    /// Creates a budget without a limit, for memory that is bounded elsewhere.
    pub fn unlimited() -> Budget {
        Budget::new(usize::MAX)
    }

    /// Returns whether both values are clones of the same budget.
    pub fn is(&self, other: &Budget) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the size of the budget in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Returns the number of bytes that all holdings together have reported. The rest of the budget is for events that
    /// wait for delivery.
    #[inline]
    pub fn held(&self) -> usize {
        self.0.held.load(Relaxed)
    }

    /// Creates a holding of 0 bytes. All holdings with the same [`HeldFor`] share a quarter of the budget.
    pub fn hold(&self, of: HeldFor) -> Holding {
        Holding { budget: self.clone(), of, bytes: 0, reported: 0 }
    }

    /// Returns the maximum number of bytes that all holdings with the same [`HeldFor`] together may use.
    pub fn share(&self) -> usize {
        self.0.bytes / SHARE
    }
}

impl Holding {
    /// Returns the budget that this holding is a part of.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the maximum number of bytes that this holding may use.
    #[inline]
    pub fn limit(&self) -> usize {
        let holders = self.budget.0.holders[self.of as usize].load(Relaxed);
        self.budget.share() / (holders + usize::from(self.reported == 0)).max(1)
    }

    /// Returns the number of bytes that this holding uses.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether this holding may use `more` bytes in addition to its present size.
    #[inline]
    pub fn has_room(&self, more: usize) -> bool {
        self.bytes.saturating_add(more) <= self.limit()
    }

    /// Sets the number of bytes that this holding uses.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        self.bytes = bytes;
        if bytes.abs_diff(self.reported) >= STEP {
            self.report(if bytes < STEP { 0 } else { bytes });
        }
    }

    #[cold]
    fn report(&mut self, bytes: usize) {
        let (held, holders) = (&self.budget.0.held, &self.budget.0.holders[self.of as usize]);
        match (self.reported, bytes) {
            (0, 1..) => _ = holders.fetch_add(1, Relaxed),
            (1.., 0) => _ = holders.fetch_sub(1, Relaxed),
            _ => {}
        }
        if bytes > self.reported {
            held.fetch_add(bytes - self.reported, Relaxed);
        } else {
            held.fetch_sub(self.reported - bytes, Relaxed);
        }
        self.reported = bytes;
    }
}

/// A cloned table takes as much memory as the original. So the clone of its holding counts the same number of bytes
/// again.
impl Clone for Holding {
    fn clone(&self) -> Holding {
        let mut copy = self.budget.hold(self.of);
        copy.set(self.bytes);
        copy
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.report(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn holdings_of_a_kind_share_a_quarter_and_events_have_the_rest() {
        let budget = Budget::new(64 * MIB);
        let mut spans = budget.hold(HeldFor::Spans);
        assert_eq!(spans.limit(), 16 * MIB);
        let mut tables = [budget.hold(HeldFor::Tables), budget.hold(HeldFor::Tables)];
        assert_eq!(tables.each_ref().map(Holding::limit), [16 * MIB; 2]);
        tables[0].set(MIB);
        assert_eq!(tables.each_ref().map(Holding::limit), [16 * MIB, 8 * MIB]);
        tables[1].set(MIB);
        assert_eq!(tables.each_ref().map(Holding::limit), [8 * MIB; 2]);
        drop(tables);
        spans.set(16 * MIB);
        assert!(spans.has_room(0) && !spans.has_room(1));
        assert_eq!(budget.held(), 16 * MIB);
        let copy = spans.clone();
        assert_eq!((budget.held(), copy.limit()), (32 * MIB, 8 * MIB));
        drop(copy);
        spans.set(0);
        assert_eq!((budget.held(), spans.limit()), (0, 16 * MIB));
        assert_eq!(budget.hold(HeldFor::Tables).limit(), 16 * MIB);
    }

    #[test]
    fn what_a_holding_had_is_given_back_when_it_is_dropped() {
        let budget = Budget::new(MIB);
        let mut tables = budget.hold(HeldFor::Tables);
        for bytes in [1, STEP, STEP + 1, 3 * STEP, STEP, 2] {
            tables.set(bytes);
            assert!(budget.held().abs_diff(bytes) < STEP, "{bytes}: {}", budget.held());
        }
        drop(tables);
        assert_eq!(budget.held(), 0);
    }
}

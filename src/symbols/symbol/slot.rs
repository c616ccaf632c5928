//! A slot in a cached and shared value, in which a user of the value stores additional data.

use std::{fmt, sync::OnceLock};

/// A slot that is empty, or contains the first value that was stored in it. When the value that contains the slot is
/// copied or compared, the contents of the slot are ignored: a copied slot is empty, and all slots are equal.
pub struct Slot<T>(OnceLock<T>);

impl<T> Slot<T> {
    /// Returns the value, if there is one.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// Stores a value, if the slot is empty.
    pub fn put(&self, made: T) {
        // If another thread stored a value first, the two values are equal.
        let _ = self.0.set(made);
    }
}

impl<T: Default> Slot<T> {
    /// Returns the value. If there is none, stores the default value first.
    #[inline]
    pub fn get_or_default(&self) -> &T {
        self.0.get_or_init(T::default)
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot(OnceLock::new())
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Slot::default()
    }
}

impl<T> PartialEq for Slot<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Slot<T> {}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "Slot(full)" } else { "Slot(empty)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_keeps_its_first_value() {
        let slot = Slot::default();
        assert_eq!(slot.get(), None);
        slot.put(1);
        slot.put(2);
        assert_eq!((slot.get(), slot.clone().get()), (Some(&1), None));
        assert_eq!(slot, Slot::default());
    }
}

//! A place in something that is kept and shared, for what its user makes of it. Knows nothing of what that is.

use std::{any::Any, fmt, sync::OnceLock};

/// Empty, or what was made first. It is no part of what it is in: copies are empty, and comparisons pass over it.
#[derive(Default)]
pub struct Slot(OnceLock<Box<dyn Any + Send + Sync>>);

impl Slot {
    /// What was put in; `None` where it is empty, or of another type.
    #[inline]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.get()?.downcast_ref()
    }

    /// Puts something in, if it is empty.
    pub fn put<T: Any + Send + Sync>(&self, made: T) {
        // Who comes second made the same.
        let _ = self.0.set(Box::new(made));
    }
}

impl Clone for Slot {
    fn clone(&self) -> Slot {
        Slot::default()
    }
}

impl PartialEq for Slot {
    fn eq(&self, _: &Slot) -> bool {
        true
    }
}

impl Eq for Slot {}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "Slot(full)" } else { "Slot(empty)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_first_stays() {
        let slot = Slot::default();
        assert_eq!(slot.get::<u32>(), None);
        slot.put(1u32);
        slot.put(2u32);
        assert_eq!((slot.get::<u32>(), slot.get::<u64>(), slot.clone().get::<u32>()), (Some(&1), None, None));
        assert_eq!(slot, Slot::default());
    }
}

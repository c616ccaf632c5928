//! The functions of a process that are known, and code objects that could not be read.

use std::sync::Arc;

use perf_prof_format::tracefs::InterpreterFrame;
use rustc_hash::FxHashMap;

use super::{
    Function, Unnamed,
    budget::{Budget, Limit},
};

/// How long a code object that could not be read is not read again, in ns. Another one may be in its place later.
const FAILED_FOR: u64 = 1_000_000_000;

/// How much may be read of a process. A function takes about 7 KiB of it.
const OF_PROCESS: Limit = Limit { at_once: 64 << 20, each_second: 16 << 20 };

/// A code object, as it was when the event happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its address.
    pub code: u64,
    /// The words that identify it.
    pub identity: [u64; 3],
}

impl From<InterpreterFrame> for Key {
    fn from(frame: InterpreterFrame) -> Key {
        // The lowest three bits of the pointer have no meaning.
        Key { code: frame.code & !7, identity: frame.identity }
    }
}

/// What was read for a code object.
enum Found {
    Function(Arc<Function>),
    Failed { reason: Unnamed, until: u64 },
}

/// The functions of a process.
pub struct Functions {
    found: FxHashMap<Key, Found>,
    bytes: usize,
    /// How much may be read of the process.
    pub budget: Budget,
    /// Nothing is read for events before this time, because a read took too long.
    pub slow_until: u64,
    /// The time of the latest event for which nothing was read because of other processes.
    pub busy_at: Option<u64>,
}

impl Functions {
    /// Returns a value without functions.
    pub fn new() -> Functions {
        Functions {
            found: FxHashMap::default(),
            bytes: 0,
            budget: Budget::new(OF_PROCESS),
            slow_until: 0,
            busy_at: None,
        }
    }

    /// Returns what is known of a code object at the time of an event. `None` if it has to be read.
    pub fn get(&self, key: &Key, time: u64) -> Option<Result<Arc<Function>, Unnamed>> {
        match self.found.get(key)? {
            Found::Function(function) => Some(Ok(Arc::clone(function))),
            Found::Failed { reason, until } => (time < *until).then_some(Err(*reason)),
        }
    }

    /// Returns why a code object that is not known could not be read.
    pub fn missing(&self, time: u64) -> Unnamed {
        match () {
            () if time < self.slow_until => Unnamed::Slow,
            () if self.busy_at == Some(time) => Unnamed::Busy,
            () => Unnamed::TooMuch,
        }
    }

    /// Notes what was read.
    pub fn add(&mut self, key: Key, result: &Result<Arc<Function>, Unnamed>, time: u64) {
        let of_function = result.as_ref().map_or(0, |function| bytes_of(function));
        let found = match result {
            Ok(function) => Found::Function(Arc::clone(function)),
            Err(reason) => Found::Failed { reason: *reason, until: time.saturating_add(FAILED_FOR) },
        };
        // What failed before has no bytes of its own, and a function is not read again.
        if self.found.insert(key, found).is_none() {
            self.bytes += size_of::<(Key, Found)>();
        }
        self.bytes += of_function;
    }

    /// Returns how much memory the functions take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets them all.
    pub fn clear(&mut self) {
        self.found = FxHashMap::default();
        self.bytes = 0;
    }
}

/// Returns how much memory a function takes.
fn bytes_of(function: &Function) -> usize {
    size_of::<Function>() + function.name.len() + function.file.len() + function.lines.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_read_again_after_a_while() {
        let mut functions = Functions::new();
        let key = Key { code: 8, identity: [1, 2, 3] };
        assert_eq!(functions.get(&key, 5), None);
        functions.add(key, &Err(Unnamed::Freed), 5);
        assert_eq!(functions.get(&key, 5 + FAILED_FOR - 1), Some(Err(Unnamed::Freed)));
        assert_eq!(functions.get(&key, 5 + FAILED_FOR), None);
        let lines = [0; 1000].into();
        let read = Function { name: "f".into(), file: "a.py".into(), instructions: 8, first_line: 1, lines };
        let (before, read) = (functions.bytes(), Ok(Arc::new(read)));
        functions.add(key, &read, 5 + FAILED_FOR);
        assert_eq!(functions.get(&key, 0), Some(read));
        assert!(before > 0 && functions.bytes() > before + 1000);
        functions.clear();
        assert_eq!((functions.get(&key, 0), functions.bytes()), (None, 0));
    }
}

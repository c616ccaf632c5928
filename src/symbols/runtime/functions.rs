//! The functions of a process that were read, and the code objects that could not be read.

use std::sync::Arc;

use perf_prof_format::tracefs::InterpreterFrame;
use rustc_hash::FxHashMap;

use super::{
    Function, Unnamed,
    budget::{Budget, Limit},
};

/// The time for which a code object that could not be read is not read again, in ns. After this time, another code
/// object may be at the address.
const FAILED_FOR: u64 = 1_000_000_000;

/// The limit on the bytes that are read from one process. Reading a function takes about 7 KiB of it.
const OF_PROCESS: Limit = Limit { at_once: 64 << 20, each_second: 16 << 20 };

/// Identifies a code object: its address, and some of its words at the time of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The address of the code object.
    pub code: u64,
    /// The words that distinguish the code object from others that were at the address.
    pub identity: [u64; 3],
}

impl From<InterpreterFrame> for Key {
    fn from(frame: InterpreterFrame) -> Key {
        // The lowest three bits of the pointer have no meaning.
        Key { code: frame.code & !7, identity: frame.identity }
    }
}

/// The result of reading a code object.
enum Found {
    Function(Arc<Function>),
    Failed { reason: Unnamed, until: u64 },
}

/// The functions of a process.
pub struct Functions {
    found: FxHashMap<Key, Found>,
    bytes: usize,
    /// The number of bytes that may still be read from the process.
    pub budget: Budget,
    /// For events before this time, nothing is read from the process, because an earlier read took too long. In ns.
    pub slow_until: u64,
    /// The time of the latest event for which nothing was read because of other processes, in ns.
    pub busy_at: Option<u64>,
}

impl Functions {
    /// Creates a value without functions.
    pub fn new() -> Functions {
        Functions {
            found: FxHashMap::default(),
            bytes: 0,
            budget: Budget::new(OF_PROCESS),
            slow_until: 0,
            busy_at: None,
        }
    }

    /// Returns the earlier result of reading a code object, for an event that happened at `time`. `None` if the code
    /// object has to be read.
    pub fn get(&self, key: &Key, time: u64) -> Option<Result<Arc<Function>, Unnamed>> {
        match self.found.get(key)? {
            Found::Function(function) => Some(Ok(Arc::clone(function))),
            Found::Failed { reason, until } => (time < *until).then_some(Err(*reason)),
        }
    }

    /// Returns why no attempt was made to read a code object, for an event that happened at `time`.
    pub fn missing(&self, time: u64) -> Unnamed {
        match () {
            () if time < self.slow_until => Unnamed::Slow,
            () if self.busy_at == Some(time) => Unnamed::Busy,
            () => Unnamed::TooMuch,
        }
    }

    /// Notes the result of reading a code object for an event that happened at `time`.
    pub fn add(&mut self, key: Key, result: &Result<Arc<Function>, Unnamed>, time: u64) {
        let of_function = result.as_ref().map_or(0, |function| bytes_of(function));
        let found = match result {
            Ok(function) => Found::Function(Arc::clone(function)),
            Err(reason) => Found::Failed { reason: *reason, until: time.saturating_add(FAILED_FOR) },
        };
        // A new key takes memory, an existing one takes no more. An existing entry is a failure, because a function
        // that was read is not read again, so no memory of a function is freed here.
        if self.found.insert(key, found).is_none() {
            self.bytes += size_of::<(Key, Found)>();
        }
        self.bytes += of_function;
    }

    /// Returns how much memory the functions take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets all functions and failures.
    pub fn clear(&mut self) {
        self.found = FxHashMap::default();
        self.bytes = 0;
    }
}

/// Returns how much memory a function takes, in bytes.
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

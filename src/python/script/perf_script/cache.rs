//! A cache of Python objects for values that fields often repeat: small numbers and comms (names of tasks).

use std::hash::Hasher as _;

use pyo3::{ffi, prelude::*};
use rustc_hash::FxHasher;

use super::super::event;

/// The number of objects in each table: a power of two.
const KEPT: usize = 512;

/// The length in bytes of the longest text that is kept. Names of tasks and devices are shorter.
const LONGEST: usize = 64;

/// Objects for the numbers and texts that were used last.
pub struct Objects {
    numbers: Table<u64>,
    /// The comms. The key is the array of 16 bytes, as two words.
    comms: Table<[u64; 2]>,
    texts: Table<Box<[u8]>>,
}

/// Values and their objects. The index of an entry is the hash of its value.
type Table<T> = Box<[Option<(T, Py<PyAny>)>]>;

impl Default for Objects {
    fn default() -> Objects {
        fn table<T>() -> Table<T> {
            (0..KEPT).map(|_| None).collect()
        }
        Objects { numbers: table(), comms: table(), texts: table() }
    }
}

/// A new reference to an object, or null if an exception is set. It is a plain pointer and not a `PyResult`, because a
/// pointer is returned in a register, and there are many arguments.
pub type NewReference = *mut ffi::PyObject;

/// The methods return new references. The GIL is held (`Python`).
impl Objects {
    /// Returns an int.
    #[inline]
    pub fn unsigned(&mut self, py: Python<'_>, number: u64) -> NewReference {
        // Python itself keeps the object of each number up to 256.
        if number <= 256 {
            return self.rare(py, number);
        }
        if let Some((of, object)) = &self.numbers[spread(number)]
            && *of == number
        {
            return object.clone_ref(py).into_ptr();
        }
        let made = self.rare(py, number);
        self.keep_number(py, number, made);
        made
    }

    #[cold]
    fn keep_number(&mut self, py: Python<'_>, number: u64, made: NewReference) {
        if let Some(made) = kept(py, made) {
            self.numbers[spread(number)] = Some((number, made));
        }
    }

    /// Returns an int. Does not keep the object, because the same number is not expected again.
    #[inline]
    pub fn rare(&self, _: Python<'_>, number: u64) -> NewReference {
        // SAFETY: the GIL is held.
        unsafe { ffi::PyLong_FromUnsignedLongLong(number) }
    }

    /// Returns an int that may be negative.
    #[inline]
    pub fn signed(&mut self, py: Python<'_>, number: i64) -> NewReference {
        match u64::try_from(number) {
            Ok(number) => self.unsigned(py, number),
            // SAFETY: the GIL is held.
            Err(_) => unsafe { ffi::PyLong_FromLongLong(number) },
        }
    }

    /// Returns the text of a comm, which has 16 bytes; see [`Objects::text`].
    #[inline]
    pub fn comm(&mut self, py: Python<'_>, bytes: &[u8; 16]) -> Option<NewReference> {
        let whole = u128::from_ne_bytes(*bytes);
        let words = [whole as u64, (whole >> 64) as u64];
        let place = spread(words[0] ^ words[1].rotate_left(23));
        if let Some((of, object)) = &self.comms[place]
            && *of == words
        {
            return Some(object.clone_ref(py).into_ptr());
        }
        let made = self.text(py, bytes)?;
        if let Some(made) = kept(py, made) {
            self.comms[place] = Some((words, made));
        }
        Some(made)
    }

    /// Returns the text before the first NUL as a str. Returns `None` if perf would pass a bytearray: if the last byte
    /// is not NUL, or if a byte before the first NUL is neither printable nor a space in Latin-1.
    pub fn text(&mut self, py: Python<'_>, bytes: &[u8]) -> Option<NewReference> {
        if bytes.last() != Some(&0) {
            return None;
        }
        let text = &bytes[..bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len())];
        let place = &mut self.texts[spread(hash(text))];
        if let Some((of, object)) = place
            && **of == *text
        {
            return Some(object.clone_ref(py).into_ptr());
        }
        if !text.iter().all(|&byte| matches!(byte, b'\t'..=b'\r' | b' '..=b'~' | 0xa0..)) {
            return None;
        }
        // SAFETY: the GIL is held.
        let made = unsafe { event::string(text) };
        if text.len() <= LONGEST {
            *place = kept(py, made).map(|made| (text.into(), made));
        }
        Some(made)
    }
}

/// Returns a second reference to a new object, for the cache. Returns `None` for null.
pub fn kept(py: Python<'_>, made: NewReference) -> Option<Py<PyAny>> {
    // SAFETY: the GIL is held. `made` is null or a live object.
    unsafe { Bound::from_borrowed_ptr_or_opt(py, made) }.map(Bound::unbind)
}

/// Returns an index in a table of `KEPT` entries, by Fibonacci hashing: the multiplier is 2^64 divided by the golden
/// ratio.
#[inline]
fn spread(number: u64) -> usize {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - KEPT.trailing_zeros())) as usize
}

#[inline]
fn hash(text: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(text);
    hasher.finish()
}

//! Python objects that are used again: fields often have the same small numbers and the same names of tasks as in the
//! events before.

use std::hash::Hasher as _;

use pyo3::{ffi, prelude::*};
use rustc_hash::FxHasher;

use super::super::event;

/// The number of objects of each type that are kept. A power of two.
const KEPT: usize = 512;

/// The length in bytes of the longest text that is kept. Names of tasks and of devices are shorter.
const LONGEST: usize = 64;

/// Numbers and texts that were used lately.
pub struct Objects {
    numbers: Table<u64>,
    /// The names of tasks: arrays of 16 bytes, as two words.
    comms: Table<[u64; 2]>,
    texts: Table<Box<[u8]>>,
}

/// Values with their objects, each at the place that its hash decides.
type Table<T> = Box<[Option<(T, Py<PyAny>)>]>;

impl Default for Objects {
    fn default() -> Objects {
        fn table<T>() -> Table<T> {
            (0..KEPT).map(|_| None).collect()
        }
        Objects { numbers: table(), comms: table(), texts: table() }
    }
}

impl Objects {
    /// Returns an int.
    #[inline]
    pub fn unsigned<'py>(&mut self, py: Python<'py>, number: u64) -> PyResult<Bound<'py, PyAny>> {
        // Python itself keeps one object for each number up to 256.
        if number <= 256 {
            // SAFETY: the GIL is held (`py`).
            return unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromLong(number as _)) };
        }
        let kept = &mut self.numbers[spread(number)];
        if let Some((of, object)) = kept
            && *of == number
        {
            return Ok(object.bind(py).clone());
        }
        // SAFETY: the GIL is held (`py`).
        let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromUnsignedLongLong(number))? };
        *kept = Some((number, made.clone().unbind()));
        Ok(made)
    }

    /// Returns an int that is not expected to occur again.
    #[inline]
    pub fn rare<'py>(&self, py: Python<'py>, number: u64) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the GIL is held (`py`).
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromUnsignedLongLong(number)) }
    }

    /// Returns an int that may be negative.
    #[inline]
    pub fn signed<'py>(&mut self, py: Python<'py>, number: i64) -> PyResult<Bound<'py, PyAny>> {
        match u64::try_from(number) {
            Ok(number) => self.unsigned(py, number),
            // SAFETY: the GIL is held (`py`).
            Err(_) => unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromLongLong(number)) },
        }
    }

    /// Returns the text in an array of 16 bytes; see [`Objects::text`].
    #[inline]
    pub fn comm<'py>(&mut self, py: Python<'py>, bytes: &[u8; 16]) -> Option<PyResult<Bound<'py, PyAny>>> {
        let whole = u128::from_ne_bytes(*bytes);
        let words = [whole as u64, (whole >> 64) as u64];
        let place = spread(words[0] ^ words[1].rotate_left(23));
        if let Some((of, object)) = &self.comms[place]
            && *of == words
        {
            return Some(Ok(object.bind(py).clone()));
        }
        let made = self.text(py, bytes)?;
        if let Ok(made) = &made {
            self.comms[place] = Some((words, made.clone().unbind()));
        }
        Some(made)
    }

    /// Returns the text before the first NUL as a str, or `None` if perf would pass a bytearray: perf passes text only
    /// if the last byte is NUL, and if all bytes before the first NUL are printable or space in Latin-1.
    #[inline]
    pub fn text<'py>(&mut self, py: Python<'py>, bytes: &[u8]) -> Option<PyResult<Bound<'py, PyAny>>> {
        if bytes.last() != Some(&0) {
            return None;
        }
        let text = &bytes[..bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len())];
        let kept = &mut self.texts[spread(hash(text))];
        if let Some((of, object)) = kept
            && **of == *text
        {
            return Some(Ok(object.bind(py).clone()));
        }
        if !text.iter().all(|&byte| matches!(byte, b'\t'..=b'\r' | b' '..=b'~' | 0xa0..)) {
            return None;
        }
        let made = match event::text(py, text) {
            Ok(made) => made,
            Err(error) => return Some(Err(error)),
        };
        if text.len() <= LONGEST {
            *kept = Some((text.into(), made.clone().unbind()));
        }
        Some(Ok(made))
    }
}

/// Returns a place in a table of `KEPT` places. The multiplier is that of Fibonacci hashing, 2^64 / golden ratio.
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

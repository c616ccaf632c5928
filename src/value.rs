//! What any decoded field yields, whatever it was decoded from and whoever asks. Knows nothing of Python.

/// One field's value, borrowed from the record where it can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A C `bool`.
    Bool(bool),
    /// A signed integer of any size.
    Int(i64),
    /// An unsigned integer or a pointer; never negative.
    Uint(u64),
    /// Text up to its first NUL. Any bytes: a task may name itself with bytes that are not UTF-8.
    Str(&'a [u8]),
    /// An array that is not text, in the machine's byte order.
    Bytes(&'a [u8]),
}

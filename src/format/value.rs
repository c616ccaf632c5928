//! The value of a decoded field. The field can belong to any kind of record.

/// The type of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// [`Value::Bool`].
    Bool,
    /// [`Value::Int`] or [`Value::Uint`].
    Int,
    /// [`Value::Str`].
    Str,
    /// [`Value::Bytes`].
    Bytes,
    /// [`Value::Words`].
    Words,
}

/// The value of one field. Text and bytes are borrowed from the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A C `bool`.
    Bool(bool),
    /// A signed integer of any size.
    Int(i64),
    /// An unsigned integer or a pointer; never negative.
    Uint(u64),
    /// Text up to its first NUL. It may contain any other bytes, because a task may choose a name that is not UTF-8.
    Str(&'a [u8]),
    /// An array that is not text. Its elements are in the machine's byte order.
    Bytes(&'a [u8]),
    /// The bytes of unsigned numbers of 64 bits, in the machine's byte order. [`words`] reads them.
    Words(&'a [u8]),
}

/// Returns the numbers of [`Value::Words`].
#[inline]
pub fn words(bytes: &[u8]) -> impl ExactSizeIterator<Item = u64> + '_ {
    bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word))
}

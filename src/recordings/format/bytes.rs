//! Reads numbers and texts from bytes in a given byte order.

/// The byte order of a recording, compared with that of this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByteOrder {
    /// The byte order of this machine.
    #[default]
    Native,
    /// The opposite byte order.
    Foreign,
}

impl ByteOrder {
    /// Converts a number of 2 bytes.
    #[inline]
    pub fn u16(self, bytes: [u8; 2]) -> u16 {
        let number = u16::from_ne_bytes(bytes);
        if self == ByteOrder::Foreign { number.swap_bytes() } else { number }
    }

    /// Converts a number of 4 bytes.
    #[inline]
    pub fn u32(self, bytes: [u8; 4]) -> u32 {
        let number = u32::from_ne_bytes(bytes);
        if self == ByteOrder::Foreign { number.swap_bytes() } else { number }
    }

    /// Converts a number of 8 bytes.
    #[inline]
    pub fn u64(self, bytes: [u8; 8]) -> u64 {
        let number = u64::from_ne_bytes(bytes);
        if self == ByteOrder::Foreign { number.swap_bytes() } else { number }
    }

    /// Returns the byte order of data that was written in big endian (`true`) or in little endian (`false`).
    pub fn from_big_endian_flag(big_endian: bool) -> Self {
        if big_endian == cfg!(target_endian = "big") { ByteOrder::Native } else { ByteOrder::Foreign }
    }
}

/// A reader of bytes from front to back. Each reading method returns `None` if too few bytes are left.
#[derive(Clone, Copy, Debug)]
pub struct ByteReader<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl<'a> ByteReader<'a> {
    /// Creates a reader of `bytes` in this byte order.
    pub fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        Self { rest: bytes, order }
    }

    /// Returns the byte order of the numbers.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// Returns the bytes that were not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads the next `count` bytes unchanged.
    pub fn read_bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// Like [`ByteReader::read_bytes`], but takes a 64-bit count, because files contain such counts.
    pub fn read_bytes_u64(&mut self, count: u64) -> Option<&'a [u8]> {
        self.read_bytes(usize::try_from(count).ok()?)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    /// Reads a number of 1 byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Reads a number of 2 bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(|bytes| self.order.u16(bytes))
    }

    /// Reads a number of 4 bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(|bytes| self.order.u32(bytes))
    }

    /// Reads a number of 8 bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(|bytes| self.order.u64(bytes))
    }

    /// Reads a text up to a NUL, and skips the NUL.
    pub fn text_to_nul(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|&byte| byte == 0)?;
        let text = self.read_bytes(end)?;
        self.read_bytes(1)?;
        Some(text)
    }

    /// Reads a text as perf's headers store it: first a u32 with the size of the padded text in bytes, then the text,
    /// padded with NULs (`do_write_string()` in `tools/perf/util/header.c`).
    pub fn sized_text(&mut self) -> Option<String> {
        let size = self.u32()?;
        let text = self.read_bytes(size as usize)?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Some(String::from_utf8_lossy(&text[..end]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts() {
        let bytes = [1, 2, 3, 4, b'a', 0, 8, 0, 0, 0, b'x', b'y', 0, 0, 0, 0, 0, 0];
        let little = ByteOrder::from_big_endian_flag(false);
        let mut read = ByteReader::new(&bytes, little);
        assert_eq!((read.u16(), read.u16()), (Some(0x0201), Some(0x0403)));
        assert_eq!(read.text_to_nul(), Some(&b"a"[..]));
        assert_eq!(read.sized_text().as_deref(), Some("xy"));
        assert_eq!((read.u8(), read.rest()), (None, &[][..]));
        assert_eq!(ByteReader::new(&bytes, ByteOrder::from_big_endian_flag(true)).u32(), Some(0x0102_0304));
        assert_eq!(ByteReader::new(&[9, 0, 0, 0, 1], little).sized_text(), None);
    }
}

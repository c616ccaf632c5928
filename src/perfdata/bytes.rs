//! Numbers and texts out of bytes, in the byte order of whoever wrote them. Knows nothing of what they mean.

/// The byte order of a recording, as seen from this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByteOrder {
    /// This machine's.
    #[default]
    Native,
    /// The other one.
    Foreign,
}

impl ByteOrder {
    /// A number of 2 bytes.
    #[inline]
    pub fn u16(self, bytes: [u8; 2]) -> u16 {
        let number = u16::from_ne_bytes(bytes);
        if self == ByteOrder::Foreign { number.swap_bytes() } else { number }
    }

    /// A number of 4 bytes.
    #[inline]
    pub fn u32(self, bytes: [u8; 4]) -> u32 {
        let number = u32::from_ne_bytes(bytes);
        if self == ByteOrder::Foreign { number.swap_bytes() } else { number }
    }

    /// A number of 8 bytes.
    #[inline]
    pub fn u64(self, bytes: [u8; 8]) -> u64 {
        let number = u64::from_ne_bytes(bytes);
        if self == ByteOrder::Foreign { number.swap_bytes() } else { number }
    }

    /// The byte order of somebody whose flag for big endian this is.
    pub fn of_big_endian(big_endian: bool) -> Self {
        if big_endian == cfg!(target_endian = "big") { ByteOrder::Native } else { ByteOrder::Foreign }
    }
}

/// Bytes that are read from front to back. Each method gives `None` when there are too few left.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl<'a> Bytes<'a> {
    /// Reads `bytes` in this order.
    pub fn new(bytes: &'a [u8], order: ByteOrder) -> Self {
        Self { rest: bytes, order }
    }

    /// The byte order of its numbers.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next bytes as they are.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// The next bytes, whose number is a 64-bit one of the file.
    pub fn take_u64(&mut self, count: u64) -> Option<&'a [u8]> {
        self.take(usize::try_from(count).ok()?)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    /// A byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// 2 bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(|bytes| self.order.u16(bytes))
    }

    /// 4 bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(|bytes| self.order.u32(bytes))
    }

    /// 8 bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(|bytes| self.order.u64(bytes))
    }

    /// Text up to a NUL, which is consumed too.
    pub fn text_to_nul(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|&byte| byte == 0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(text)
    }

    /// Text as perf's headers hold it: a u32 with the size of what follows, which is filled up with NULs
    /// (`do_write_string()` in `tools/perf/util/header.c`).
    pub fn sized_text(&mut self) -> Option<String> {
        let size = self.u32()?;
        let text = self.take(size as usize)?;
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
        let little = ByteOrder::of_big_endian(false);
        let mut read = Bytes::new(&bytes, little);
        assert_eq!((read.u16(), read.u16()), (Some(0x0201), Some(0x0403)));
        assert_eq!(read.text_to_nul(), Some(&b"a"[..]));
        assert_eq!(read.sized_text().as_deref(), Some("xy"));
        assert_eq!((read.u8(), read.rest()), (None, &[][..]));
        assert_eq!(Bytes::new(&bytes, ByteOrder::of_big_endian(true)).u32(), Some(0x0102_0304));
        assert_eq!(Bytes::new(&[9, 0, 0, 0, 1], little).sized_text(), None);
    }
}

//! `%*pb` and `%*pbl`: bitmaps, which are arrays of `unsigned long`.

use std::io::Write;

/// The notation of a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// Groups of 32 bits in hexadecimal. The highest group comes first.
    Hex,
    /// Ranges: `0-3,7`.
    List,
}

/// Appends the first `count` bits. Returns `None` if `bytes` has fewer.
pub(crate) fn bits(bytes: &[u8], count: usize, style: Style, out: &mut Vec<u8>) -> Option<()> {
    if count.div_ceil(8) > bytes.len() {
        return None;
    }
    let is_set = |bit: usize| {
        let within = bit / 8 % 8;
        let byte = bit / 64 * 8 + if cfg!(target_endian = "big") { 7 - within } else { within };
        bytes.get(byte).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    };
    match style {
        Style::Hex => {
            for (i, group) in (0..count.div_ceil(32)).rev().enumerate() {
                let end = count.min(group * 32 + 32);
                let value = (group * 32..end).fold(0u32, |value, bit| value | u32::from(is_set(bit)) << (bit % 32));
                let comma = if i > 0 { "," } else { "" };
                // Writing to a Vec cannot fail.
                let _ = write!(out, "{comma}{value:0width$x}", width = (end - group * 32).div_ceil(4));
            }
        }
        Style::List => {
            let mut comma = "";
            let mut bit = 0;
            while bit < count {
                if !is_set(bit) {
                    bit += 1;
                    continue;
                }
                let last = (bit..count).take_while(|&next| is_set(next)).last().unwrap_or(bit);
                let _ = write!(out, "{comma}{bit}");
                if last > bit {
                    let _ = write!(out, "-{last}");
                }
                comma = ",";
                bit = last + 1;
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_have_two_styles() {
        let bytes = 0x0000_0081_0000_000f_u64.to_ne_bytes();
        let show = |count, style| {
            let mut out = Vec::new();
            bits(&bytes, count, style, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(show(64, Style::Hex).as_deref(), Some("00000081,0000000f"));
        assert_eq!(show(37, Style::Hex).as_deref(), Some("01,0000000f"));
        assert_eq!(show(64, Style::List).as_deref(), Some("0-3,32,39"));
        assert_eq!(show(0, Style::Hex).as_deref(), Some(""));
        assert_eq!(show(65, Style::Hex), None);
    }
}

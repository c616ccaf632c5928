//! Prints values as `%p` and its extensions do. The rules are those of `pointer` in the kernel's `lib/vsprintf.c`. The
//! caller passes the bytes that the pointer points to; this module does not know where they come from.

use std::io::Write;

use crate::tracefs::Kernel;

/// A `%p` conversion with its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pointer {
    /// The address itself: `%p` and every unknown extension. (The option `nohash-ptr` turns `%p` into `%px`.)
    Address,
    /// `%pS`, `%ps` and `%pB`.
    Symbol(SymbolStyle),
    /// `%pI4` and `%pi4`.
    Ip4(Ip4),
    /// `%pI6`, `%pi6` and `%pI6c`.
    Ip6(Ip6),
    /// `%pIS`, `%pISpc` and similar.
    Socket(Socket),
    /// `%pM`, `%pm`, `%pMF` and `%pMR`.
    Mac(Mac),
    /// `%pUb`, `%pUB`, `%pUl` and `%pUL`.
    Uuid(Uuid),
    /// `%*ph`, `%*phC`, `%*phD` and `%*phN`; the width is the number of bytes.
    Hex(Separator),
    /// `%*pb`; the width is the number of bits.
    Bitmap,
    /// `%*pbl`; the width is the number of bits.
    BitmapList,
}

impl Pointer {
    /// Returns the extension for the letters after `%p`.
    pub fn named(letters: &[u8]) -> Pointer {
        match letters {
            [b'S' | b'F', ..] => Pointer::Symbol(SymbolStyle::Offset),
            [b's' | b'f', ..] => Pointer::Symbol(SymbolStyle::Name),
            [b'B', ..] => Pointer::Symbol(SymbolStyle::Backtrace),
            [case @ (b'I' | b'i'), b'4', rest @ ..] => Pointer::Ip4(Ip4::named(*case == b'i', rest)),
            [case @ (b'I' | b'i'), b'6', rest @ ..] => Pointer::Ip6(Ip6::named(*case == b'i', rest)),
            [case @ (b'I' | b'i'), b'S', rest @ ..] => Pointer::Socket(Socket::named(*case == b'i', rest)),
            [case @ (b'M' | b'm'), rest @ ..] => Pointer::Mac(Mac::named(*case == b'm', rest)),
            [b'U', rest @ ..] => Pointer::Uuid(Uuid::named(rest)),
            [b'h', rest @ ..] => Pointer::Hex(Separator::named(rest)),
            [b'b', b'l', ..] => Pointer::BitmapList,
            [b'b', ..] => Pointer::Bitmap,
            _ => Pointer::Address,
        }
    }

    /// Returns true if the conversion shows the memory at the address, and false if it shows the address.
    pub fn dereferences(self) -> bool {
        !matches!(self, Pointer::Address | Pointer::Symbol(_))
    }

    /// Appends the text for `bytes`. `width` is the conversion's width, which some extensions use as a number of bytes
    /// or bits. Returns `None` if there are too few bytes.
    pub fn show(self, bytes: &[u8], width: Option<i32>, out: &mut Vec<u8>) -> Option<()> {
        match self {
            Pointer::Ip4(ip4) => ip4.show(bytes, out),
            Pointer::Ip6(ip6) => ip6.show(bytes, out),
            Pointer::Socket(socket) => socket.show(bytes, out),
            Pointer::Mac(mac) => mac.show(bytes, out),
            Pointer::Uuid(uuid) => uuid.show(bytes, out),
            Pointer::Hex(separator) => {
                let count = width.map_or(1, |width| width.clamp(0, 64)) as usize;
                hex(bytes.get(..count)?, separator, out);
                Some(())
            }
            Pointer::Bitmap => bits(bytes, width.unwrap_or(0).max(0) as usize, BitmapStyle::Hex, out),
            Pointer::BitmapList => bits(bytes, width.unwrap_or(0).max(0) as usize, BitmapStyle::List, out),
            Pointer::Address | Pointer::Symbol(_) => None,
        }
    }
}

// `%pS`, `%ps` and `%pB`: the symbol of an address.

/// The parts of the symbol that are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolStyle {
    /// `name+0xoffset/0xsize [module]`
    Offset,
    /// `name [module]`
    Name,
    /// Like `Offset`, but for a return address. Shows the symbol that contains the address minus one, because the byte
    /// before a return address belongs to the call instruction.
    Backtrace,
}

/// Returns the symbol of an address, as `%ps` shows it. If there is no symbol, returns the address.
pub fn symbol_name(addr: u64, kernel: &dyn Kernel) -> Vec<u8> {
    let mut out = Vec::new();
    symbol(addr, SymbolStyle::Name, kernel, &mut out);
    out
}

/// Appends the symbol of `addr` in the notation of `__sprint_symbol` in the kernel's `kernel/kallsyms.c`.
pub(crate) fn symbol(addr: u64, style: SymbolStyle, kernel: &dyn Kernel, out: &mut Vec<u8>) {
    let back = u64::from(style == SymbolStyle::Backtrace);
    // Writing to a Vec cannot fail.
    let _ = match kernel.symbol(addr.wrapping_sub(back)) {
        None => write!(out, "0x{addr:x}"),
        Some(symbol) => {
            let name = write!(out, "{}", symbol.name);
            if style != SymbolStyle::Name {
                let _ = write!(out, "+{:#x}/{:#x}", symbol.offset.wrapping_add(back), symbol.size);
            }
            if let Some(module) = symbol.module {
                let _ = write!(out, " [{module}]");
            }
            name
        }
    };
}

// `%pI4`, `%pI6`, `%pI6c`, `%pISpc` and similar: Internet addresses.

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// The byte order in which an IPv4 address is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ByteOrder {
    Network,
    Little,
}

/// `%pI4` and `%pi4`, each with an optional `h`, `n`, `b` or `l`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip4 {
    zeros: bool,
    order: ByteOrder,
}

impl Ip4 {
    pub fn named(zeros: bool, rest: &[u8]) -> Self {
        let host_is_little = cfg!(target_endian = "little");
        let little = matches!(rest.first(), Some(b'l')) || host_is_little && matches!(rest.first(), Some(b'h'));
        Self { zeros, order: if little { ByteOrder::Little } else { ByteOrder::Network } }
    }

    pub fn show(self, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut parts: [u8; 4] = *bytes.first_chunk()?;
        if self.order == ByteOrder::Little {
            parts.reverse();
        }
        for (i, part) in parts.into_iter().enumerate() {
            let dot = if i == 0 { "" } else { "." };
            // Writing to a Vec cannot fail.
            let _ = if self.zeros { write!(out, "{dot}{part:03}") } else { write!(out, "{dot}{part}") };
        }
        Some(())
    }
}

/// `%pI6`, `%pi6` and `%pI6c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ip6 {
    /// All digits, without colons.
    Bare,
    /// All digits, with colons.
    Full,
    /// The short form of RFC 5952.
    Compressed,
}

impl Ip6 {
    pub fn named(bare: bool, rest: &[u8]) -> Self {
        match rest.first() {
            _ if bare => Ip6::Bare,
            Some(b'c') => Ip6::Compressed,
            _ => Ip6::Full,
        }
    }

    pub fn show(self, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let bytes: &[u8; 16] = bytes.first_chunk()?;
        let words: [u16; 8] = std::array::from_fn(|i| u16::from_be_bytes([bytes[2 * i], bytes[2 * i + 1]]));
        if self == Ip6::Compressed {
            compressed(&words, bytes, out);
            return Some(());
        }
        for (i, word) in words.iter().enumerate() {
            let colon = if i == 0 || self == Ip6::Bare { "" } else { ":" };
            let _ = write!(out, "{colon}{word:04x}");
        }
        Some(())
    }
}

/// Appends an address by the rules of `ip6_compressed_string`. The longest run of zero words becomes `::`. If several
/// runs are the longest, the first of them becomes `::`. If the address contains an IPv4 address (mapped or ISATAP),
/// the text ends with the IPv4 address in dotted notation.
fn compressed(words: &[u16; 8], bytes: &[u8; 16], out: &mut Vec<u8>) {
    let mapped = words[..5] == [0; 5] && words[5] == 0xffff;
    let isatap = words[4] | 0x0200 == 0x0200 && words[5] == 0x5efe;
    let range = if mapped || isatap { 6 } else { 8 };
    let run = |from: usize| words[from..range].iter().take_while(|&&word| word == 0).count();
    let longest = (0..range).map(run).max().unwrap_or(0);
    let gap = (0..range).find(|&at| longest > 1 && run(at) == longest);

    let mut colon = false;
    let mut at = 0;
    while at < range {
        if Some(at) == gap {
            out.extend(if colon || at == 0 { b"::".as_slice() } else { b":" });
            colon = false;
            at += longest;
            continue;
        }
        let _ = write!(out, "{}{:x}", if colon { ":" } else { "" }, words[at]);
        colon = true;
        at += 1;
    }
    if range == 6 {
        out.extend(if colon { b":".as_slice() } else { b"" });
        let _ = Ip4::named(false, b"").show(&bytes[12..], out);
    }
}

/// `%pIS`, with the options `p` (port), `f` (flow), `s` (scope), `c` (compressed) and the byte orders of `%pI4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    ip4: Ip4,
    ip6: Ip6,
    port: bool,
    flow: bool,
    scope: bool,
}

impl Socket {
    pub fn named(bare: bool, rest: &[u8]) -> Self {
        let has = |letter| rest.contains(&letter);
        let order = rest.iter().copied().rfind(|b| b"hlnb".contains(b));
        Self {
            ip4: Ip4::named(bare, order.as_slice()),
            ip6: Ip6::named(bare, if has(b'c') { b"c" } else { b"" }),
            port: has(b'p'),
            flow: has(b'f'),
            scope: has(b's'),
        }
    }

    pub fn show(self, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let family = u16::from_ne_bytes(*bytes.first_chunk()?);
        let port = bytes.get(2..4).map(|b| u16::from_be_bytes([b[0], b[1]]));
        match family {
            AF_INET => {
                self.ip4.show(bytes.get(4..)?, out)?;
                if self.port {
                    let _ = write!(out, ":{}", port?);
                }
            }
            AF_INET6 => {
                let bracketed = self.port || self.flow || self.scope;
                out.extend(if bracketed { b"[".as_slice() } else { b"" });
                self.ip6.show(bytes.get(8..)?, out)?;
                out.extend(if bracketed { b"]".as_slice() } else { b"" });
                if self.port {
                    let _ = write!(out, ":{}", port?);
                }
                if self.flow {
                    let flow = u32::from_be_bytes(*bytes.get(4..)?.first_chunk()?) & 0x0fff_ffff;
                    let _ = write!(out, "/{flow}");
                }
                if self.scope {
                    let _ = write!(out, "%{}", u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?));
                }
            }
            _ => out.extend(b"(einval)"),
        }
        Some(())
    }
}

// `%pM`, `%pm`, `%pMF` and `%pMR`: MAC addresses.

/// The notation of the six bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mac {
    separator: Separator,
    reversed: bool,
}

impl Mac {
    pub fn named(bare: bool, rest: &[u8]) -> Self {
        let separator = match rest.first() {
            _ if bare => Separator::None,
            Some(b'F') => Separator::Dash,
            _ => Separator::Colon,
        };
        Self { separator, reversed: rest.first() == Some(&b'R') }
    }

    pub fn show(self, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut address: [u8; 6] = *bytes.first_chunk()?;
        if self.reversed {
            address.reverse();
        }
        hex(&address, self.separator, out);
        Some(())
    }
}

// `%pUb`, `%pUB`, `%pUl` and `%pUL`: UUIDs (big-endian, the default) and GUIDs (little-endian).

/// The notation of the sixteen bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uuid {
    little: bool,
    upper: bool,
}

impl Uuid {
    pub fn named(rest: &[u8]) -> Self {
        Self { little: matches!(rest.first(), Some(b'l' | b'L')), upper: matches!(rest.first(), Some(b'L' | b'B')) }
    }

    pub fn show(self, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let mut uuid: [u8; 16] = *bytes.first_chunk()?;
        if self.little {
            uuid[..4].reverse();
            uuid[4..6].reverse();
            uuid[6..8].reverse();
        }
        for (i, byte) in uuid.into_iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            // Writing to a Vec cannot fail.
            let _ = if self.upper { write!(out, "{dash}{byte:02X}") } else { write!(out, "{dash}{byte:02x}") };
        }
        Some(())
    }
}

// `%*ph`: bytes in hexadecimal.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The character between two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    Space,
    Colon,
    Dash,
    None,
}

impl Separator {
    pub fn named(rest: &[u8]) -> Self {
        match rest.first() {
            Some(b'C') => Separator::Colon,
            Some(b'D') => Separator::Dash,
            Some(b'N') => Separator::None,
            _ => Separator::Space,
        }
    }

    fn bytes(self) -> &'static [u8] {
        match self {
            Separator::Space => b" ",
            Separator::Colon => b":",
            Separator::Dash => b"-",
            Separator::None => b"",
        }
    }
}

/// Appends `bytes` with `separator` between them.
pub(crate) fn hex(bytes: &[u8], separator: Separator, out: &mut Vec<u8>) {
    for (i, byte) in bytes.iter().enumerate() {
        if i > 0 {
            out.extend(separator.bytes());
        }
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

// `%*pb` and `%*pbl`: bitmaps, which are arrays of `unsigned long`.

/// The notation of a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitmapStyle {
    /// Groups of 32 bits in hexadecimal. The highest group comes first.
    Hex,
    /// Ranges: `0-3,7`.
    List,
}

/// Appends the first `count` bits. Returns `None` if `bytes` has fewer bits.
pub(crate) fn bits(bytes: &[u8], count: usize, style: BitmapStyle, out: &mut Vec<u8>) -> Option<()> {
    if count.div_ceil(8) > bytes.len() {
        return None;
    }
    let is_set = |bit: usize| {
        let within = bit / 8 % 8;
        let byte = bit / 64 * 8 + if cfg!(target_endian = "big") { 7 - within } else { within };
        bytes.get(byte).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    };
    match style {
        BitmapStyle::Hex => {
            for (i, group) in (0..count.div_ceil(32)).rev().enumerate() {
                let end = count.min(group * 32 + 32);
                let value = (group * 32..end).fold(0u32, |value, bit| value | u32::from(is_set(bit)) << (bit % 32));
                let comma = if i > 0 { "," } else { "" };
                // Writing to a Vec cannot fail.
                let _ = write!(out, "{comma}{value:0width$x}", width = (end - group * 32).div_ceil(4));
            }
        }
        BitmapStyle::List => {
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

    fn ip6(text: &str) -> String {
        let bytes = text.parse::<std::net::Ipv6Addr>().unwrap().octets();
        let mut out = Vec::new();
        Ip6::Compressed.show(&bytes, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn addresses_compress_as_rfc_5952_says() {
        for text in
            ["::", "::1", "1::", "fe80::1:2:3:4", "2001:db8::1:0:0:1", "1:0:2:3:4:5:6:7", "::ffff:10.0.0.1", "0:1::"]
        {
            assert_eq!(ip6(text), text);
        }
        assert_eq!(ip6("fe80::5efe:0a00:1"), "fe80::5efe:10.0.0.1");
    }

    #[test]
    fn sockets_show_what_was_asked_for() {
        let mut v6 = [0; 28];
        v6[..4].copy_from_slice(&[10, 0, 0x1f, 0x90]);
        v6[23] = 1;
        let show = |letters: &[u8], bytes: &[u8]| {
            let mut out = Vec::new();
            Socket::named(false, letters).show(bytes, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(show(b"pc", &v6).as_deref(), Some("[::1]:8080"));
        assert_eq!(show(b"c", &v6).as_deref(), Some("::1"));
        assert_eq!(show(b"pc", &[2, 0, 0, 80, 127, 0, 0, 1]).as_deref(), Some("127.0.0.1:80"));
        assert_eq!(show(b"pc", &[0; 28]).as_deref(), Some("(einval)"));
        assert_eq!(show(b"pc", &[2, 0, 0]), None);
    }

    #[test]
    fn bitmaps_have_two_styles() {
        let bytes = 0x0000_0081_0000_000f_u64.to_ne_bytes();
        let show = |count, style| {
            let mut out = Vec::new();
            bits(&bytes, count, style, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        assert_eq!(show(64, BitmapStyle::Hex).as_deref(), Some("00000081,0000000f"));
        assert_eq!(show(37, BitmapStyle::Hex).as_deref(), Some("01,0000000f"));
        assert_eq!(show(64, BitmapStyle::List).as_deref(), Some("0-3,32,39"));
        assert_eq!(show(0, BitmapStyle::Hex).as_deref(), Some(""));
        assert_eq!(show(65, BitmapStyle::Hex), None);
    }
}

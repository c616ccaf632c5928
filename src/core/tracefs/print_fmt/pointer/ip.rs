//! `%pI4`, `%pI6`, `%pI6c`, `%pISpc` and similar: Internet addresses.

use std::io::Write;

/// `AF_INET` of the kernel.
const AF_INET: u16 = 2;
/// `AF_INET6` of the kernel.
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
/// runs have this length, the first of them becomes `::`. If the address contains an IPv4 address (mapped or ISATAP),
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
}

//! Prints values as `%p` and its extensions do. The rules are those of `pointer` in the kernel's `lib/vsprintf.c`. There
//! is one file for each family of extensions. The caller passes the bytes that the pointer points to; this module does
//! not know where they come from.

mod bitmap;
mod hex;
mod ip;
mod mac;
mod symbol;
mod uuid;

pub(super) use bitmap::{Style as BitmapStyle, bits};
pub(super) use hex::{Separator, hex};
pub(super) use symbol::symbol;

/// A `%p` conversion with its extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pointer {
    /// The address itself: `%p` and every unknown extension. (The option `nohash-ptr` turns `%p` into `%px`.)
    Address,
    /// `%pS`, `%ps` and `%pB`.
    Symbol(symbol::Style),
    /// `%pI4` and `%pi4`.
    Ip4(ip::Ip4),
    /// `%pI6`, `%pi6` and `%pI6c`.
    Ip6(ip::Ip6),
    /// `%pIS`, `%pISpc` and similar.
    Socket(ip::Socket),
    /// `%pM`, `%pm`, `%pMF` and `%pMR`.
    Mac(mac::Mac),
    /// `%pUb`, `%pUB`, `%pUl` and `%pUL`.
    Uuid(uuid::Uuid),
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
            [b'S' | b'F', ..] => Pointer::Symbol(symbol::Style::Offset),
            [b's' | b'f', ..] => Pointer::Symbol(symbol::Style::Name),
            [b'B', ..] => Pointer::Symbol(symbol::Style::Backtrace),
            [case @ (b'I' | b'i'), b'4', rest @ ..] => Pointer::Ip4(ip::Ip4::named(*case == b'i', rest)),
            [case @ (b'I' | b'i'), b'6', rest @ ..] => Pointer::Ip6(ip::Ip6::named(*case == b'i', rest)),
            [case @ (b'I' | b'i'), b'S', rest @ ..] => Pointer::Socket(ip::Socket::named(*case == b'i', rest)),
            [case @ (b'M' | b'm'), rest @ ..] => Pointer::Mac(mac::Mac::named(*case == b'm', rest)),
            [b'U', rest @ ..] => Pointer::Uuid(uuid::Uuid::named(rest)),
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

    /// Appends the text for `bytes`. `width` is the conversion's width. Some extensions use it as a number of bytes or
    /// bits. Returns `None` if there are too few bytes.
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

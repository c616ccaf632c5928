//! `%p` and its extensions, by the rules of `pointer` in the kernel's `lib/vsprintf.c`; one file per family. Knows
//! nothing of where the bytes come from.

mod bitmap;
mod hex;
mod ip;
mod mac;
mod symbol;
mod uuid;

pub(super) use bitmap::{Style as BitmapStyle, bits};
pub(super) use hex::{Separator, hex};
pub(super) use symbol::symbol;

/// What `%p...` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pointer {
    /// The address itself: `%p`, which option `nohash-ptr` makes `%px`, and every extension that is none.
    Address,
    /// `%pS %ps %pB`.
    Symbol(symbol::Style),
    /// `%pI4 %pi4`.
    Ip4(ip::Ip4),
    /// `%pI6 %pi6 %pI6c`.
    Ip6(ip::Ip6),
    /// `%pIS %pISpc` and so on.
    Socket(ip::Socket),
    /// `%pM %pm %pMF %pMR`.
    Mac(mac::Mac),
    /// `%pUb %pUB %pUl %pUL`.
    Uuid(uuid::Uuid),
    /// `%*ph %*phC %*phD %*phN`; the width is the number of bytes.
    Hex(Separator),
    /// `%*pb`; the width is the number of bits.
    Bitmap,
    /// `%*pbl`.
    BitmapList,
}

impl Pointer {
    /// The extension that the letters behind `%p` name.
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

    /// Whether it shows what the pointer points to rather than the address.
    pub fn dereferences(self) -> bool {
        !matches!(self, Pointer::Address | Pointer::Symbol(_))
    }

    /// Appends what is shown of `bytes`; `width` is the conversion's, for those that read it as a count. `None` when
    /// there are too few bytes.
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

//! `%pM`, `%pm`, `%pMF` and `%pMR`: MAC addresses.

use super::hex::{Separator, hex};

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

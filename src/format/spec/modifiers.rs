//! The modifiers of an event: the letters after its name and a colon (`cycles:u`, `cycles:pp`). They select where the
//! event is counted, and how precise the address in a sample is.

use std::fmt;

/// The modifiers of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modifiers {
    /// `u`: count in user space.
    pub user: bool,
    /// `k`: count in the kernel.
    pub kernel: bool,
    /// `h`: count in the hypervisor.
    pub hv: bool,
    /// `G`: count in guests.
    pub guest: bool,
    /// `H`: count outside guests, in the host.
    pub host: bool,
    /// `I`: do not count when idle.
    pub not_idle: bool,
    /// `p`, `pp`, `ppp` or `P`: how precise the sampled address is.
    pub precise: Precise,
}

/// The allowed distance between a sample's address and the instruction that was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precise {
    /// Any distance.
    #[default]
    Any,
    /// The number of letters `p`, 1 to 3.
    Level(u8),
    /// `P`: the smallest distance that the machine supports.
    Most,
}

impl Modifiers {
    /// Parses modifier letters. Returns `None` if there are no letters, if a letter is unknown, or if there are too
    /// many `p` or `P`.
    pub fn parse(text: &str) -> Option<Modifiers> {
        let mut modifiers = Modifiers::default();
        for letter in text.chars() {
            match letter {
                'u' => modifiers.user = true,
                'k' => modifiers.kernel = true,
                'h' => modifiers.hv = true,
                'G' => modifiers.guest = true,
                'H' => modifiers.host = true,
                'I' => modifiers.not_idle = true,
                'P' if modifiers.precise == Precise::Any => modifiers.precise = Precise::Most,
                'p' => {
                    modifiers.precise = match modifiers.precise {
                        Precise::Any => Precise::Level(1),
                        Precise::Level(level @ 1..3) => Precise::Level(level + 1),
                        Precise::Level(_) | Precise::Most => return None,
                    }
                }
                _ => return None,
            }
        }
        (!text.is_empty()).then_some(modifiers)
    }

    /// Returns whether there are no modifiers.
    pub fn is_empty(&self) -> bool {
        *self == Modifiers::default()
    }
}

impl fmt::Display for Modifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Modifiers { user, kernel, hv, guest, host, not_idle, precise } = *self;
        let letters = [(user, "u"), (kernel, "k"), (hv, "h"), (guest, "G"), (host, "H"), (not_idle, "I")];
        letters.into_iter().filter(|&(on, _)| on).try_for_each(|(_, letter)| f.write_str(letter))?;
        match precise {
            Precise::Any => Ok(()),
            Precise::Level(level) => f.write_str(&"p".repeat(level.into())),
            Precise::Most => f.write_str("P"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters() {
        for text in ["u", "k", "ukh", "GH", "upp", "P", "I", "kppp"] {
            assert_eq!(Modifiers::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "x", "pppp", "pP", "PP", "u k"] {
            assert_eq!(Modifiers::parse(text), None, "{text}");
        }
    }
}

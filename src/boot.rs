//! The name of one life of a process: 8 random bytes. Handles that clients keep say by it where the live state is that they
//! mean (`docs/cluster.md`).

use std::fmt;

use crate::hex;

/// Names one life of a process. Two processes, or two runs of one, never have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Boot(pub(crate) [u8; Self::LENGTH]);

impl Boot {
    /// The length in bytes.
    pub(crate) const LENGTH: usize = 8;
    /// The length as text.
    pub(crate) const DIGITS: usize = 2 * Self::LENGTH;

    /// Draws one.
    pub(crate) fn fresh() -> Self {
        let mut bytes = [0; Self::LENGTH];
        // Without randomness there is no key, and so no handle that says which run made it.
        let _ = getrandom::fill(&mut bytes);
        Self(bytes)
    }

    /// Reads what [`Display`](fmt::Display) writes; `None` if it is anything else.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::LENGTH];
        hex::decode(text, &mut bytes)?;
        // It has one spelling: in lower case.
        (!text.iter().any(u8::is_ascii_uppercase)).then_some(Self(bytes))
    }

    /// Takes one off the front of a text that has exactly `rest` bytes behind it.
    pub(crate) fn before(text: &[u8], rest: usize) -> Option<(Self, &[u8])> {
        let (boot, after) = text.split_at_checked(Self::DIGITS).filter(|(_, after)| after.len() == rest)?;
        Some((Self::parse(boot)?, after))
    }
}

impl fmt::Display for Boot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_is_read_as_it_is_written_and_in_no_other_way() {
        let boot = Boot([0, 1, 2, 3, 0xab, 5, 6, 0xff]);
        assert_eq!(boot.to_string(), "00010203ab0506ff");
        assert_eq!(Boot::parse(b"00010203ab0506ff"), Some(boot));
        for wrong in ["", "00010203AB0506FF", "00010203ab0506f", "00010203ab0506ff0", "x0010203ab0506ff"] {
            assert_eq!(Boot::parse(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(Boot::before(b"00010203ab0506ffxyz", 3), Some((boot, &b"xyz"[..])));
        assert_eq!((Boot::before(b"00010203ab0506ffxyz", 2), Boot::before(b"0001", 3)), (None, None));
        assert_ne!(Boot::fresh(), Boot::fresh());
    }
}

//! The protocol revisions, and the two eras they belong to.

use std::fmt;

/// A revision of the protocol.
///
/// ```
/// use mcp_host::protocol::ProtocolVersion;
///
/// assert_eq!(ProtocolVersion::parse("2025-11-25"), Some(ProtocolVersion::LATEST_HANDSHAKE));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProtocolVersion {
    /// 2024-11-05
    V2024_11_05,
    /// 2025-03-26
    V2025_03_26,
    /// 2025-06-18
    V2025_06_18,
    /// 2025-11-25
    V2025_11_25,
    /// 2026-07-28
    V2026_07_28,
}

/// How two peers learn each other's revision and capabilities; the names are those of the specification.
///
/// ```
/// use mcp_host::protocol::{Era, ProtocolVersion};
///
/// assert_eq!(ProtocolVersion::LATEST_MODERN.era(), Era::Modern);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// By `initialize`, once per session: up to 2025-11-25.
    Legacy,
    /// The metadata of each request names the revision and the client: since 2026-07-28.
    Modern,
}

impl ProtocolVersion {
    /// The newest revision with a handshake: the one we offer in `initialize`, and our answer to an unknown version.
    pub const LATEST_HANDSHAKE: Self = Self::V2025_11_25;
    /// The newest revision without a handshake.
    pub const LATEST_MODERN: Self = Self::V2026_07_28;
    /// The revisions that begin with `initialize`, oldest first.
    pub(crate) const HANDSHAKE: [Self; 4] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25];
    /// The revisions without a handshake.
    pub const MODERN: [Self; 1] = [Self::V2026_07_28];
    /// All revisions, oldest first.
    pub const ALL: [Self; 5] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];

    /// Returns the revision as it is written on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Reads a revision from the wire.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// Reads a revision that `initialize` can agree on.
    #[must_use]
    pub fn parse_handshake(text: &str) -> Option<Self> {
        Self::parse(text).filter(|version| version.era() == Era::Legacy)
    }

    /// Returns the era of the revision.
    #[must_use]
    pub fn era(self) -> Era {
        if self >= Self::V2026_07_28 { Era::Modern } else { Era::Legacy }
    }

    /// Whether the revision has no handshake.
    #[must_use]
    pub fn is_modern(self) -> bool {
        self.era() == Era::Modern
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

//! The names of this user's daemons: the port that a daemon serves or, without a port, a digest of its config's paths.

use std::fmt;
use std::path::Path;

use crate::hex;

/// The name of a daemon.
///
/// ```
/// assert_eq!(mcp_host::admin::At::Port(8808).word(), "8808");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum At {
    /// The daemon that serves this port.
    Port(u16),
    /// A daemon without a port; the name is derived from the paths of its config files.
    Config(String),
}

/// The prefix of the name of a daemon without a port.
const HEAD: &str = "config-";
/// The number of hex digits after the prefix.
const DIGITS: usize = 16;

impl At {
    /// Parses the name of a daemon without a port; `None` if the text is no such name.
    #[must_use]
    pub fn config(name: &str) -> Option<Self> {
        let digits = name.strip_prefix(HEAD)?;
        let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        (digits.len() == DIGITS && digits.chars().all(is_hex)).then(|| Self::Config(name.to_owned()))
    }

    /// Names the daemon without a port that serves the config with this digest.
    #[cfg_attr(not(unix), expect(dead_code, reason = "this system has no local sockets"))]
    pub(super) fn of_digest(digest: &[u8]) -> Self {
        Self::Config(format!("{HEAD}{}", &hex::encode(digest)[..DIGITS]))
    }

    /// Names the daemon behind the socket with this path; `None` if no daemon names a socket so.
    #[cfg_attr(not(unix), expect(dead_code, reason = "this system has no local sockets"))]
    pub(super) fn of_socket(path: &Path) -> Option<Self> {
        path.extension().filter(|extension| *extension == "sock")?;
        let name = path.file_stem()?.to_str()?;
        name.parse().ok().map(Self::Port).or_else(|| Self::config(name))
    }

    /// Returns the name as written on a command line.
    #[must_use]
    pub fn word(&self) -> String {
        match self {
            Self::Port(port) => port.to_string(),
            Self::Config(name) => name.clone(),
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(port) => write!(f, "the mcp-host on port {port}"),
            Self::Config(_) => f.write_str("the mcp-host of this config"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_named_by_port_or_config() {
        let of = |path: &str| At::of_socket(Path::new(path));
        assert_eq!(of("/run/mcp-host/8808.sock"), Some(At::Port(8808)));
        let config = At::of_digest(&[0xab; 32]);
        assert_eq!(of("/x/config-abababababababab.sock"), Some(config.clone()));
        assert_eq!(At::config(&config.word()), Some(config));
        for path in
            ["/x/8808.lock", "/x/99999.sock", "/x/config-ab.sock", "/x/config-ABABABABABABABAB.sock", "/x/a.sock"]
        {
            assert_eq!(of(path), None, "{path}");
        }
    }
}

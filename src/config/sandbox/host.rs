//! A host that a confined server may reach: a name with the ports 80 and 443 or with one port, or all names below a
//! domain.
//!
//! Names are compared in the form that URLs have: lower case, ASCII, one spelling for each address. So `0x7f.1` is
//! `127.0.0.1`, as in a URL. Pure.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::Host;

/// The ports of a host that is listed without a port.
const WEB: [u16; 2] = [80, 443];
/// The longest name of a host.
const LONGEST: usize = 253;

/// A host that a confined server may reach.
///
/// ```
/// use mcp_host::config::SandboxHost;
///
/// let host: SandboxHost = "*.example.org:5432".parse()?;
/// assert!(host.admits("db.example.org", 5432) && !host.admits("example.org", 5432));
/// # Ok::<(), mcp_host::config::NotAHost>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxHost {
    /// The name or address as in a URL; for a domain, without `*.`.
    host: Host<String>,
    /// Whether it stands for the names below it, and not for the name itself.
    is_domain: bool,
    /// The port; `None` means 80 and 443.
    port: Option<u16>,
    /// Whether its name may resolve to addresses of the network around this machine.
    is_near: bool,
}

/// Why a text is not a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAHost {
    /// It has a scheme or a path, like a URL.
    #[error("is a URL and not a host")]
    Url,
    /// It is not a valid host name.
    #[error("is no name of a host")]
    Name,
    /// The port is not a number from 1 to 65535.
    #[error("has no port from 1 to 65535 behind its colon")]
    Port,
    /// A star may only replace the first part of a name that has at least two more parts.
    #[error("has a star where none can be")]
    Star,
}

impl FromStr for SandboxHost {
    type Err = NotAHost;

    fn from_str(text: &str) -> Result<Self, NotAHost> {
        if text.contains('/') {
            return Err(NotAHost::Url);
        }
        let (name, port) = match text.rsplit_once(':') {
            // A colon before the closing bracket of an address does not start a port.
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            _ => (text, None),
        };
        let port = match port.map(str::parse) {
            Some(Ok(port @ 1..)) => Some(port),
            Some(_) => return Err(NotAHost::Port),
            None => None,
        };
        let (name, is_domain) = name.strip_prefix("*.").map_or((name, false), |rest| (rest, true));
        if name.contains('*') {
            return Err(NotAHost::Star);
        }
        let host = parse(name).ok_or(NotAHost::Name)?;
        let has_two = matches!(&host, Host::Domain(name) if name.contains('.'));
        if is_domain && !has_two { Err(NotAHost::Star) } else { Ok(Self { host, is_domain, port, is_near: false }) }
    }
}

impl SandboxHost {
    /// Reports whether the entry includes this name or address with this port.
    #[must_use]
    pub fn admits(&self, name: &str, port: u16) -> bool {
        parse(name).is_some_and(|host| self.admits_host(&host, port))
    }

    /// Reports whether the entry includes this host and port.
    pub(crate) fn admits_host(&self, host: &Host<String>, port: u16) -> bool {
        let is_port = self.port.map_or_else(|| WEB.contains(&port), |own| own == port);
        let is_host = match (&self.host, host) {
            (Host::Domain(own), Host::Domain(name)) if self.is_domain => {
                name.strip_suffix(own.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (own, host) => !self.is_domain && own == host,
        };
        is_port && is_host
    }

    /// Reports whether the entry is this address itself, not a name that resolves to it.
    #[cfg_attr(
        not(all(feature = "sandbox", target_os = "linux", target_pointer_width = "64")),
        allow(dead_code, reason = "elsewhere there is no proxy")
    )]
    pub(crate) fn is_address(&self, address: IpAddr, port: u16) -> bool {
        let host = match address {
            IpAddr::V4(address) => Host::Ipv4(address),
            IpAddr::V6(address) => Host::Ipv6(address),
        };
        self.admits_host(&host, port)
    }

    /// Also lets the name resolve to the network around this machine. No config can set this.
    #[cfg_attr(
        not(all(feature = "sandbox", target_os = "linux", target_pointer_width = "64")),
        allow(dead_code, reason = "elsewhere there is no proxy")
    )]
    pub(crate) fn near(self) -> Self {
        Self { is_near: true, ..self }
    }

    /// Reports whether its name may resolve to addresses of the network around this machine.
    #[cfg_attr(
        not(all(feature = "sandbox", target_os = "linux", target_pointer_width = "64")),
        allow(dead_code, reason = "elsewhere there is no proxy")
    )]
    pub(crate) fn is_near(&self) -> bool {
        self.is_near
    }

    /// Reports whether the entry is this machine itself.
    #[cfg_attr(
        not(all(feature = "sandbox", target_os = "linux", target_pointer_width = "64")),
        allow(dead_code, reason = "elsewhere there is no proxy")
    )]
    pub(crate) fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Domain(name) => crate::loopback::names_loopback(name),
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        }
    }
}

/// Parses the name of a host as a URL parser would.
pub(crate) fn parse(name: &str) -> Option<Host<String>> {
    let name = name.strip_suffix('.').unwrap_or(name);
    // A URL parser reads `%61` as `a`, but no one writes a host that way.
    if name.is_empty() || name.len() > LONGEST || name.contains('%') || name.ends_with('.') {
        return None;
    }
    Host::parse(name).ok()
}

impl fmt::Display for SandboxHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_domain { "*." } else { "" };
        write!(f, "{star}{}", self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(text: &str) -> SandboxHost {
        text.parse().unwrap_or_else(|error| panic!("{text} {error}"))
    }

    #[test]
    fn h108_a_listed_host_is_met_by_its_name_and_port_alone() {
        for (listed, name, port, expected) in [
            ("api.example.com", "api.example.com", 443, true),
            ("api.example.com", "API.Example.com.", 80, true),
            ("api.example.com", "api.example.com", 22, false),
            ("api.example.com", "evil-api.example.com", 443, false),
            ("api.example.com", "api.example.com.evil.org", 443, false),
            ("api.example.com:22", "api.example.com", 22, true),
            ("api.example.com:22", "api.example.com", 443, false),
            ("*.example.com", "a.example.com", 443, true),
            ("*.example.com", "a.b.example.com", 443, true),
            ("*.example.com", "example.com", 443, false),
            ("*.example.com", ".example.com", 443, false),
            ("*.example.com", "evilexample.com", 443, false),
            ("*.example.com", "example.com.evil.org", 443, false),
            ("127.0.0.1:9", "0x7f.1", 9, true),
            ("127.0.0.1:9", "localhost", 9, false),
            ("[::1]:9", "[0:0:0:0:0:0:0:1]", 9, true),
            ("bücher.example", "xn--bcher-kva.example", 443, true),
            ("a.example", "a.example:443", 443, false),
            ("a.example", "%61.example", 443, false),
            ("a.example", "a.example/", 443, false),
        ] {
            assert_eq!(host(listed).admits(name, port), expected, "{listed}: {name}:{port}");
        }
    }

    #[test]
    fn what_names_no_host_says_why() {
        for (text, expected) in [
            ("https://a.example", NotAHost::Url),
            ("a.example/x", NotAHost::Url),
            ("", NotAHost::Name),
            ("a b", NotAHost::Name),
            ("a.example:", NotAHost::Port),
            ("a.example:0", NotAHost::Port),
            ("a.example:65536", NotAHost::Port),
            ("*", NotAHost::Star),
            ("*.com", NotAHost::Star),
            ("a.*.example", NotAHost::Star),
            ("*.127.0.0.1", NotAHost::Star),
        ] {
            assert_eq!(text.parse::<SandboxHost>(), Err(expected), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_a_host_that_reads_the_same_again_or_none(text in "[a-z0-9.*:%\\[\\]/é-]{0,24}") {
            if let Ok(host) = text.parse::<SandboxHost>() {
                prop_assert_eq!(host.to_string().parse(), Ok(host));
            }
        }

        #[test]
        fn no_name_outside_a_domain_is_admitted(name in "[a-z0-9.-]{1,24}") {
            let listed = host("*.example.com");
            if listed.admits(&name, 443) {
                prop_assert!(name.trim_end_matches('.').ends_with(".example.com"));
            }
        }
    }
}

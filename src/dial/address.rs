//! Which addresses a foreign URL, one that a server named, may lead to (`docs/hazards.md` H28, H68). No I/O.
//!
//! The network around this machine trusts it: it has services that need no password from neighbors, and a cloud's
//! metadata. So a URL that a server names must lead to the public internet. The one exception: if the configured server
//! itself is on an internal host, URLs to that same host are allowed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use crate::loopback::{is_loopback, names_loopback};
use crate::protocol::Theirs;

/// Why a URL is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// The URL is not https, and not http from one loopback address to another.
    #[error("{} is not an https URL", Theirs(.0))]
    Scheme(String),
    /// The URL carries a user or a password.
    #[error("the URL carries a user or a password")]
    Credentials,
    /// The URL leads to a private network or to this machine.
    #[error("{} is an address of this machine or of a private network", Theirs(.0))]
    Internal(String),
}

/// The host of the configured server: the only one that may be internal.
#[derive(Clone, Debug)]
pub(super) struct Home {
    host: Option<String>,
    loopback: bool,
}

impl Home {
    /// Returns the home of the server at this URL.
    pub(super) fn of(configured: &Url) -> Self {
        Self { host: configured.host_str().map(str::to_ascii_lowercase), loopback: is_loopback(configured) }
    }

    /// Reports whether a host name or address is the home itself. All loopback names of this machine count as one.
    pub(super) fn is(&self, host: &str) -> bool {
        let same = self.host.as_deref().is_some_and(|home| home.eq_ignore_ascii_case(host));
        same || self.loopback && names_loopback(host)
    }

    /// Checks a URL as far as possible without resolving its name.
    pub(super) fn judge(&self, url: &Url) -> Result<(), Refused> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refused::Credentials);
        }
        let host = url.host_str().unwrap_or_default();
        match url.scheme() {
            "https" => {}
            "http" if self.loopback && is_loopback(url) => {}
            _ => return Err(Refused::Scheme(url.origin().ascii_serialization())),
        }
        if self.is(host) {
            return Ok(());
        }
        let internal = match url.host() {
            Some(Host::Ipv4(address)) => !is_public(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => !is_public(IpAddr::V6(address)),
            // A name is checked when it is resolved.
            Some(Host::Domain(_)) => false,
            None => true,
        };
        if internal { Err(Refused::Internal(host.to_owned())) } else { Ok(()) }
    }
}

/// Reports whether an address belongs to the public internet. An address that is not known to be public does not.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    /// Prefixes and their lengths, from the registry of special-purpose addresses (RFC 6890 and its updates).
    const SPECIAL: [([u8; 4], u32); 16] = [
        ([0, 0, 0, 0], 8),
        ([10, 0, 0, 0], 8),
        ([100, 64, 0, 0], 10),
        ([127, 0, 0, 0], 8),
        ([169, 254, 0, 0], 16),
        ([172, 16, 0, 0], 12),
        ([192, 0, 0, 0], 24),
        ([192, 0, 2, 0], 24),
        ([192, 31, 196, 0], 24),
        ([192, 88, 99, 0], 24),
        ([192, 168, 0, 0], 16),
        ([198, 18, 0, 0], 15),
        ([198, 51, 100, 0], 24),
        ([203, 0, 113, 0], 24),
        ([224, 0, 0, 0], 4),
        ([240, 0, 0, 0], 4),
    ];
    let bits = u32::from(address);
    SPECIAL.iter().all(|(prefix, length)| (bits ^ u32::from_be_bytes(*prefix)) >> (32 - length) != 0)
}

/// In IPv6, only 2000::/3 is public, and of that not the addresses that embed an IPv4 address or are reserved. So
/// mapped, compatible, translated (64:ff9b::/96), unique local, link-local and site-local addresses need no entry.
fn is_public_v6(address: Ipv6Addr) -> bool {
    const SPECIAL: [([u16; 2], u32); 5] = [
        // Teredo, benchmarks, ORCHID, and the other protocol assignments.
        ([0x2001, 0x0000], 23),
        // Documentation, twice.
        ([0x2001, 0x0db8], 32),
        ([0x3fff, 0x0000], 20),
        // 6to4.
        ([0x2002, 0x0000], 16),
        // The old 6bone.
        ([0x3ffe, 0x0000], 16),
    ];
    let [a, b, ..] = address.segments();
    let bits = u32::from(a) << 16 | u32::from(b);
    let special = SPECIAL
        .iter()
        .any(|([high, low], length)| (bits ^ (u32::from(*high) << 16 | u32::from(*low))) >> (32 - length) == 0);
    a >> 13 == 0b001 && !special
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    /// Spellings of the address where clouds hand out credentials.
    const METADATA: [&str; 19] = [
        "https://169.254.169.254/",
        "https://169.254.169.254./",
        "https://2852039166/",
        "https://0xa9fea9fe/",
        "https://0xA9.0xFE.0xA9.0xFE/",
        "https://0251.0376.0251.0376/",
        "https://025177524776/",
        "https://169.254.43518/",
        "https://169.16689662/",
        "https://0251.254.169.254/",
        "https://[::ffff:169.254.169.254]/",
        "https://[::ffff:a9fe:a9fe]/",
        "https://[0:0:0:0:0:ffff:a9fe:a9fe]/",
        "https://[::169.254.169.254]/",
        "https://[64:ff9b::169.254.169.254]/",
        "https://[64:ff9b:1::a9fe:a9fe]/",
        "https://[2002:a9fe:a9fe::]/",
        "https://%31%36%39.254.169.254/",
        "https://１６９。２５４。１６９。２５４/",
    ];

    #[test]
    fn h68_nineteen_spellings_of_one_internal_address() {
        let home = Home::of(&url("https://mcp.example.com/mcp"));
        for text in METADATA {
            assert!(matches!(home.judge(&url(text)), Err(Refused::Internal(_))), "{text}");
        }
    }

    #[test]
    fn h68_what_is_public_and_what_is_not() {
        for text in ["1.1.1.1", "8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.255.255", "192.0.1.1", "223.255.255.255"]
        {
            assert!(is_public(text.parse().expect("an address")), "{text}");
        }
        for text in ["2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "2003::1"] {
            assert!(is_public(text.parse().expect("an address")), "{text}");
        }
        let internal = [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "::ffff:8.8.8.8",
            "3fff::1",
        ];
        for text in internal {
            assert!(!is_public(text.parse().expect("an address")), "{text}");
        }
    }

    #[test]
    fn h68_only_https_and_no_credentials() {
        let home = Home::of(&url("https://mcp.example.com/mcp"));
        assert_eq!(home.judge(&url("https://auth.example.com/x?y")), Ok(()));
        for text in
            ["http://auth.example.com/", "file:///etc/passwd", "ftp://a.example/", "http://localhost/", "data:,x"]
        {
            assert!(matches!(home.judge(&url(text)), Err(Refused::Scheme(_))), "{text}");
        }
        for text in ["https://user@auth.example.com/", "https://:pass@auth.example.com/"] {
            assert_eq!(home.judge(&url(text)), Err(Refused::Credentials), "{text}");
        }
    }

    #[test]
    fn h68_the_host_of_the_config_alone_may_be_internal() {
        let home = Home::of(&url("http://127.0.0.1:3000/mcp"));
        for text in ["http://127.0.0.1:4000/", "http://localhost:4000/", "http://[::1]:1/", "https://localhost/"] {
            assert_eq!(home.judge(&url(text)), Ok(()), "{text}");
        }
        assert!(home.judge(&url("https://169.254.169.254/")).is_err());
        assert!(home.judge(&url("http://10.0.0.1/")).is_err());
        let home = Home::of(&url("https://10.0.0.7/mcp"));
        assert_eq!(home.judge(&url("https://10.0.0.7:8443/token")), Ok(()));
        assert!(home.judge(&url("https://10.0.0.8/")).is_err());
        assert!(home.judge(&url("http://10.0.0.7/")).is_err(), "no plain http, not even there");
        assert!(home.judge(&url("https://127.0.0.1/")).is_err());
    }
}

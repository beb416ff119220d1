//! Parses what a client requests of the proxy: a tunnel (CONNECT, SOCKS5), or one plain HTTP request. Pure.
//!
//! The head of a plain request is rewritten: with its path alone and the host that was judged, and without a second
//! request on the same connection, because that might be for another host.

use url::{Host, Url};

use crate::config::parse_host;

/// A request to the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) host: Host<String>,
    pub(super) port: u16,
    /// The head of a plain HTTP request, as the host receives it; `None` requests a tunnel.
    pub(super) head: Option<Vec<u8>>,
    /// The credentials of the client: the value of `Proxy-Authorization`.
    pub(super) proof: Option<String>,
}

/// Why a request cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Misread {
    #[error("not a request to a proxy")]
    Form,
    #[error("not the name of a host and a port")]
    Host,
    #[error("plain HTTP and tunnels only")]
    Scheme,
}

/// Headers that are meant for the proxy, or that are rewritten.
const DROPPED: [&str; 7] =
    ["connection", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "upgrade"];

/// Reads the head of an HTTP request, with the empty line at its end.
pub(super) fn http(head: &[u8]) -> Result<Asked, Misread> {
    let text = std::str::from_utf8(head).map_err(|_| Misread::Form)?;
    let mut lines = text.strip_suffix("\r\n\r\n").ok_or(Misread::Form)?.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Misread::Form);
    };
    if !version.starts_with("HTTP/1.") || method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return Err(Misread::Form);
    }
    if method == "CONNECT" {
        let (host, port) = target.rsplit_once(':').ok_or(Misread::Host)?;
        let asked = tunnel(host, port.parse().map_err(|_| Misread::Host)?)?;
        return Ok(Asked { proof: lines.find_map(proof), ..asked });
    }
    let url = Url::parse(target).map_err(|_| Misread::Host)?;
    if url.scheme() != "http" {
        return Err(Misread::Scheme);
    }
    let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else { return Err(Misread::Host) };
    let host = parse_host(&host.to_string()).ok_or(Misread::Host)?;
    let authority = url.port().map_or_else(|| host.to_string(), |port| format!("{host}:{port}"));
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut out = format!("{method} {}{query} HTTP/1.1\r\nHost: {authority}\r\n", url.path());
    let mut shown = None;
    for line in lines {
        shown = shown.or_else(|| proof(line));
        let (name, _) = line.split_once(':').ok_or(Misread::Form)?;
        // Servers disagree on a name with a blank, and on a line that continues the previous one.
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_name || line.contains(['\r', '\n', '\0']) {
            return Err(Misread::Form);
        }
        if !DROPPED.contains(&name.to_ascii_lowercase().as_str()) {
            out.push_str(line);
            out.push_str("\r\n");
        }
    }
    out.push_str("Connection: close\r\n\r\n");
    Ok(Asked { host, port, head: Some(out.into_bytes()), proof: shown })
}

fn proof(line: &str) -> Option<String> {
    let (name, value) = line.split_once(':')?;
    name.eq_ignore_ascii_case("proxy-authorization").then(|| value.trim().to_owned())
}

/// Parses the address of a SOCKS5 request, from the address type (RFC 1928, 4) on.
pub(super) fn socks(kind: u8, address: &[u8], port: [u8; 2]) -> Result<Asked, Misread> {
    let port = u16::from_be_bytes(port);
    let host = match kind {
        1 => Host::Ipv4(<[u8; 4]>::try_from(address).map_err(|_| Misread::Host)?.into()),
        4 => Host::Ipv6(<[u8; 16]>::try_from(address).map_err(|_| Misread::Host)?.into()),
        3 => return tunnel(std::str::from_utf8(address).map_err(|_| Misread::Host)?, port),
        _ => return Err(Misread::Host),
    };
    if port == 0 { Err(Misread::Host) } else { Ok(Asked { host, port, head: None, proof: None }) }
}

fn tunnel(host: &str, port: u16) -> Result<Asked, Misread> {
    let host = parse_host(host).filter(|_| port != 0).ok_or(Misread::Host)?;
    Ok(Asked { host, port, head: None, proof: None })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(head: &str) -> Result<(String, u16, Option<String>), Misread> {
        let asked = http(head.as_bytes())?;
        Ok((asked.host.to_string(), asked.port, asked.head.map(|head| String::from_utf8(head).expect("UTF-8"))))
    }

    #[test]
    fn h108_a_request_to_the_proxy_names_one_host() {
        for (head, expected) in [
            ("CONNECT a.example:443 HTTP/1.1\r\nHost: b.example\r\n\r\n", Ok(("a.example", 443, None))),
            ("CONNECT [::1]:9 HTTP/1.1\r\n\r\n", Ok(("[::1]", 9, None))),
            ("CONNECT 0x7f.1:9 HTTP/1.1\r\n\r\n", Ok(("127.0.0.1", 9, None))),
            (
                "GET http://A.example/x?y HTTP/1.1\r\nHost: b.example\r\nProxy-Authorization: x\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n",
                Ok((
                    "a.example",
                    80,
                    Some("GET /x?y HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nConnection: close\r\n\r\n"),
                )),
            ),
            (
                "POST http://u:p@a.example:81 HTTP/1.0\r\nContent-Length: 1\r\n\r\n",
                Ok((
                    "a.example",
                    81,
                    Some("POST / HTTP/1.1\r\nHost: a.example:81\r\nContent-Length: 1\r\nConnection: close\r\n\r\n"),
                )),
            ),
            ("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", Err(Misread::Host)),
            ("GET https://a.example/ HTTP/1.1\r\n\r\n", Err(Misread::Scheme)),
            ("GET file:///etc/passwd HTTP/1.1\r\n\r\n", Err(Misread::Scheme)),
            ("CONNECT a.example HTTP/1.1\r\n\r\n", Err(Misread::Host)),
            ("CONNECT a.example:0 HTTP/1.1\r\n\r\n", Err(Misread::Host)),
            ("CONNECT a.example@b.example:443 HTTP/1.1\r\n\r\n", Err(Misread::Host)),
            ("GET http://a.example/ HTTP/1.1\r\nA: b\r\n c: d\r\n\r\n", Err(Misread::Form)),
            ("GET http://a.example/ HTTP/1.1\r\nA : b\r\n\r\n", Err(Misread::Form)),
            ("GET http://a.example/ HTTP/1.1\r\nA: b\nHost: c\r\n\r\n", Err(Misread::Form)),
            ("GET http://a.example/ HTTP/2\r\n\r\n", Err(Misread::Form)),
            ("GET  http://a.example/ HTTP/1.1\r\n\r\n", Err(Misread::Form)),
            ("\r\n\r\n", Err(Misread::Form)),
        ] {
            let expected = expected.map(|(host, port, head)| (host.to_owned(), port, head.map(str::to_owned)));
            assert_eq!(read(head), expected, "{head}");
        }
    }

    #[test]
    fn h108_socks_names_a_host_or_an_address() {
        let read =
            |kind, address: &[u8]| socks(kind, address, [1, 187]).map(|asked| (asked.host.to_string(), asked.port));
        assert_eq!(read(3, b"A.example"), Ok(("a.example".to_owned(), 443)));
        assert_eq!(read(3, b"127.1"), Ok(("127.0.0.1".to_owned(), 443)));
        assert_eq!(read(1, &[127, 0, 0, 1]), Ok(("127.0.0.1".to_owned(), 443)));
        assert_eq!(read(4, &[0; 16]), Ok(("[::]".to_owned(), 443)));
        for (kind, address) in [(1, &[1, 2, 3][..]), (3, b""), (3, b"\xff"), (2, b"a")] {
            assert_eq!(read(kind, address), Err(Misread::Host), "{kind} {address:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn h108_a_head_that_is_passed_on_is_one_head_with_one_host(
            lines in prop::collection::vec("[ -~\r\n\t]{0,20}", 0..4), host in "[a-z]{1,9}\\.example",
        ) {
            let head = format!("GET http://{host}/ HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n"));
            if let Ok((named, 80, Some(head))) = read(&head) {
                prop_assert_eq!(named, host);
                prop_assert_eq!(head.matches("\r\n\r\n").count(), 1);
                let hosts = head.split("\r\n").filter(|line| line.to_ascii_lowercase().starts_with("host"));
                prop_assert_eq!(hosts.filter(|line| line.split(':').next().is_some_and(|name| name.eq_ignore_ascii_case("host"))).count(), 1);
                prop_assert_eq!(head.replace("\r\n", "").matches(['\r', '\n']).count(), 0);
            }
        }

        #[test]
        fn h108_no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), kind in any::<u8>()) {
            let _ = http(&bytes);
            let _ = http(&[&bytes[..], b"\r\n\r\n"].concat());
            let _ = socks(kind, &bytes, [0, 1]);
        }
    }
}

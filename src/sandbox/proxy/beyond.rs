//! The proxy by which this machine reaches other networks, such as that of a company: `HTTPS_PROXY` and the like name it.
//!
//! In: what a confined server asked for, once it was judged. Out: a connection to that host through this proxy. `NO_PROXY`
//! names the hosts that are reached directly, as for the host program itself; this machine always is. A tunnel goes by
//! CONNECT or SOCKS5, a plain request as one to a proxy. **Invariant:** where there is such a proxy, nothing goes past it
//! because it fails.

use std::io;

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::asked::Asked;
use super::{HEAD, SOCKS};
use crate::loopback::names_loopback;

/// The proxies of this machine's environment, and the hosts that are reached without them.
pub(in crate::sandbox) struct Beyond(Matcher);

impl Beyond {
    /// Returns the proxies that the environment of this process names.
    pub(in crate::sandbox) fn of_environment() -> Self {
        Self(Matcher::from_env())
    }

    /// Returns none.
    pub(super) fn nothing() -> Self {
        Self(Matcher::builder().build())
    }

    /// Returns one proxy, and the hosts that are reached without it.
    #[cfg(test)]
    pub(super) fn by(proxy: &str, without: &str) -> Self {
        Self(Matcher::builder().all(proxy).no(without).build())
    }

    /// Returns the proxy by which a host is reached; `None` if it is reached directly.
    pub(super) fn to(&self, asked: &Asked) -> Option<Via> {
        let name = asked.host.to_string();
        if names_loopback(&name) {
            return None;
        }
        // Nobody knows what goes through a tunnel, and nearly all of it is TLS.
        let scheme = if asked.head.is_some() { "http" } else { "https" };
        let uri: Uri = format!("{scheme}://{name}:{}/", asked.port).parse().ok()?;
        self.0.intercept(&uri).map(Via)
    }
}

/// A proxy by which a host is reached.
pub(super) struct Via(Intercept);

/// A connection to a host through a proxy.
pub(super) struct Reached {
    pub(super) stream: TcpStream,
    /// What the host said before it was asked.
    pub(super) said: Vec<u8>,
    /// The head of a plain request, as this connection takes it.
    pub(super) head: Option<Vec<u8>>,
}

impl Via {
    /// Returns the name and the port of the proxy.
    fn at(&self) -> (String, u16) {
        let uri = self.0.uri();
        let host = uri.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let usual = match uri.scheme_str() {
            Some("http") => 80,
            Some("https") => 443,
            _ => 1080,
        };
        (host.to_owned(), uri.port_u16().unwrap_or(usual))
    }

    fn speaks_socks(&self) -> bool {
        self.0.uri().scheme_str().is_some_and(|scheme| scheme.starts_with("socks5"))
    }

    /// Connects to what was asked for.
    ///
    /// # Errors
    /// Says which proxy failed, and how; a password is never in it.
    pub(super) async fn connect(&self, asked: &Asked) -> io::Result<Reached> {
        let (host, port) = self.at();
        let wrong = |why: String| io::Error::other(format!("the proxy of this machine, {host}:{port}, {why}"));
        let scheme = self.0.uri().scheme_str().unwrap_or_default();
        if scheme != "http" && !self.speaks_socks() {
            let why = format!("is one of {scheme}://, which a sandbox cannot use: name one of http:// or socks5://");
            return Err(wrong(why));
        }
        let ended = |error: io::Error| wrong(format!("does not serve: {error}"));
        let mut stream = TcpStream::connect((host.as_str(), port)).await.map_err(ended)?;
        stream.set_nodelay(true)?;
        if self.speaks_socks() {
            let told = self.0.raw_auth();
            socks(&mut stream, asked, told).await.map_err(ended)?.map_err(wrong)?;
            return Ok(Reached { stream, said: Vec::new(), head: asked.head.clone() });
        }
        if let Some(head) = &asked.head {
            return Ok(Reached { stream, said: Vec::new(), head: Some(self.whole(head, asked)) });
        }
        let to = format!("{}:{}", asked.host, asked.port);
        let head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n");
        stream.write_all(&[head.as_bytes(), &self.proof(), b"\r\n"].concat()).await.map_err(ended)?;
        let (status, said) = answer(&mut stream).await.map_err(ended)?;
        let is_open = status.split(' ').nth(1).is_some_and(|code| code.len() == 3 && code.starts_with('2'));
        if !is_open {
            return Err(wrong(format!("answered {status}")));
        }
        Ok(Reached { stream, said, head: None })
    }

    /// Returns the head of a plain request as a proxy takes it: with the whole URL, and with its password.
    fn whole(&self, head: &[u8], asked: &Asked) -> Vec<u8> {
        let at = head.iter().position(|byte| *byte == b' ').map_or(0, |at| at + 1);
        let line = head.windows(2).position(|bytes| bytes == b"\r\n").map_or(head.len(), |at| at + 2);
        let to = format!("http://{}:{}", asked.host, asked.port);
        [&head[..at], to.as_bytes(), &head[at..line], &self.proof(), &head[line..]].concat()
    }

    /// Returns the header that shows the proxy who we are; nothing if its URL names nobody.
    fn proof(&self) -> Vec<u8> {
        let value = self.0.basic_auth().map(http::HeaderValue::as_bytes);
        value.map(|value| [b"Proxy-Authorization: ", value, b"\r\n"].concat()).unwrap_or_default()
    }
}

/// Reads the answer to CONNECT: its first line, and what came behind its head.
async fn answer(stream: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut head = Vec::new();
    let end = loop {
        if let Some(at) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        if head.len() > HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let said = head.split_off(end);
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    Ok((line.chars().filter(|letter| !letter.is_control()).take(LINE).collect(), said))
}

/// The longest part of a proxy's first line that is told.
const LINE: usize = 120;

/// Asks a SOCKS5 proxy for a connection (RFC 1928), with a name and a password if there are some (RFC 1929). Returns why there
/// is none, if the proxy says so.
async fn socks(stream: &mut TcpStream, asked: &Asked, told: Option<(&str, &str)>) -> io::Result<Result<(), String>> {
    const PLAIN: u8 = 0;
    const BY_PASSWORD: u8 = 2;
    let way = if told.is_some() { BY_PASSWORD } else { PLAIN };
    stream.write_all(&[SOCKS, 1, way]).await?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await?;
    if chosen != [SOCKS, way] {
        return Ok(Err("does not let us in: it wants another way to sign in".to_owned()));
    }
    if let Some((user, password)) = told {
        let (Ok(user_length), Ok(length)) = (u8::try_from(user.len()), u8::try_from(password.len())) else {
            return Ok(Err("cannot be told a name or a password of more than 255 bytes".to_owned()));
        };
        let words = [&[1, user_length], user.as_bytes(), &[length], password.as_bytes()].concat();
        stream.write_all(&words).await?;
        stream.read_exact(&mut chosen).await?;
        if chosen[1] != 0 {
            return Ok(Err("does not know our name and password".to_owned()));
        }
    }
    let address = match &asked.host {
        url::Host::Ipv4(address) => [&[1], &address.octets()[..]].concat(),
        url::Host::Ipv6(address) => [&[4], &address.octets()[..]].concat(),
        // A name of a host has 253 bytes at most.
        url::Host::Domain(name) => [&[3, u8::try_from(name.len()).unwrap_or(u8::MAX)], name.as_bytes()].concat(),
    };
    stream.write_all(&[&[SOCKS, 1, 0], &address[..], &asked.port.to_be_bytes()].concat()).await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let length = match head[3] {
        1 => 4,
        4 => 16,
        _ => stream.read_u8().await?.into(),
    };
    let mut bound = vec![0; length + 2];
    stream.read_exact(&mut bound).await?;
    Ok(if head[1] == 0 { Ok(()) } else { Err(format!("refused it (SOCKS code {})", head[1])) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::proxy::asked;

    #[test]
    fn h108_which_hosts_go_by_the_proxy_of_this_machine() {
        let beyond = Beyond(
            Matcher::builder()
                .https("http://ada:pass%20word@proxy.example:3128")
                .http("plain.example")
                .no("inner.example,10.0.0.0/8")
                .build(),
        );
        let by = |head: &str| {
            let asked = asked::http(head.as_bytes()).expect("a request");
            beyond.to(&asked).map(|via| (via.at(), String::from_utf8(via.proof()).expect("ASCII")))
        };
        let tunnel = |host: &str| by(&format!("CONNECT {host} HTTP/1.1\r\n\r\n"));
        let proof = "Proxy-Authorization: Basic YWRhOnBhc3Mgd29yZA==\r\n".to_owned();
        assert_eq!(tunnel("api.example.com:443"), Some((("proxy.example".to_owned(), 3128), proof)));
        for direct in
            ["inner.example:443", "a.inner.example:443", "10.1.2.3:5432", "localhost:9", "127.0.0.1:9", "[::1]:9"]
        {
            assert_eq!(tunnel(direct), None, "{direct}");
        }
        let plain = by("GET http://api.example.com/ HTTP/1.1\r\n\r\n");
        assert_eq!(plain, Some((("plain.example".to_owned(), 80), String::new())));
    }

    #[test]
    fn h108_a_plain_request_to_a_proxy_has_the_whole_url() {
        let beyond = Beyond::by("http://u:p@proxy.example", "");
        let asked = asked::http(b"GET http://a.example:81/x?y HTTP/1.1\r\nAccept: */*\r\n\r\n").expect("a request");
        let via = beyond.to(&asked).expect("a proxy");
        let whole = via.whole(asked.head.as_deref().expect("a head"), &asked);
        let expected = "GET http://a.example:81/x?y HTTP/1.1\r\nProxy-Authorization: Basic dTpw\r\nHost: a.example:81\r\nAccept: */*\r\n\
                        Connection: close\r\n\r\n";
        assert_eq!(String::from_utf8(whole).expect("ASCII"), expected);
    }
}

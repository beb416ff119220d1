//! Decides from a request's target and headers whether it may reach us at all: the defense against DNS rebinding and
//! requests from web pages (`docs/hazards.md` H79). It does no I/O, and runs for every request before routing.

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, Version};

/// Our listening port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) port: u16,
    /// The port that a `Host` without a port means.
    pub(super) default_port: u16,
}

/// The host names and origins by which our port may be reached.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    listen: Own,
    /// Our loopback names with our port, for a comparison without parsing.
    own: [String; 3],
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denied {
    pub(super) status: StatusCode,
    pub(super) reason: &'static str,
    /// A response header that tells the client what to do.
    pub(super) more: Option<(HeaderName, HeaderValue)>,
}

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl Guard {
    /// Creates the guard of a listener. `hosts` (`name` or `name:port`) and `origins` from the config are allowed in
    /// addition to loopback.
    pub(super) fn new(listen: Own, hosts: &[String], origins: &[String]) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect();
        let own = LOOPBACK.map(|name| format!("{name}:{}", listen.port));
        Self { listen, own, hosts: lower(hosts), origins: lower(origins) }
    }

    /// Admits a request, or says why not.
    pub(super) fn check(&self, version: Version, uri: &Uri, headers: &HeaderMap) -> Result<(), Denied> {
        let host = single(headers, &HOST, "more than one `Host`")?;
        // A request in the form for proxies names the host in its target, too, and that name overrides the header (RFC
        // 9112, 3.2.2). In HTTP/2 the target's host is `:authority`, and the header is optional.
        let target = uri.authority().map(Authority::as_str);
        if let Some(host) = host {
            self.check_host(host)?;
        }
        if let Some(target) = target {
            self.check_host(target)?;
        }
        let is_h2 = version >= Version::HTTP_2;
        match (host, target) {
            (None, Some(_)) if is_h2 => {}
            (None, _) => return Err(bad("`Host` is missing")),
            (Some(host), Some(target)) if is_h2 && !host.eq_ignore_ascii_case(target) => {
                return Err(bad("`Host` and `:authority` differ"));
            }
            (Some(_), _) => {}
        }
        if let Some(origin) = single(headers, &ORIGIN, "more than one `Origin`")?
            && !self.knows_origin(origin)
        {
            return Err(forbidden("this `Origin` is not allowed (host.allowedOrigins)"));
        }
        if headers.get_all(FETCH_SITE).iter().any(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site")) {
            return Err(forbidden("requests from other web sites are not allowed"));
        }
        Ok(())
    }

    fn check_host(&self, host: &str) -> Result<(), Denied> {
        if self.own.iter().any(|own| own == host) {
            return Ok(());
        }
        let host = authority(host).ok_or_else(|| bad("`Host` is malformed"))?;
        if self.knows_host(&host, self.listen.default_port) {
            Ok(())
        } else {
            Err(forbidden("this `Host` is not allowed (host.allowedHosts)"))
        }
    }

    fn knows_host(&self, host: &Authority, default_port: u16) -> bool {
        let name = host.host();
        let port = host.port_u16().unwrap_or(default_port);
        if port == self.listen.port && LOOPBACK.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return true;
        }
        self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host.as_str()) || known.eq_ignore_ascii_case(name))
    }

    fn knows_origin(&self, origin: &str) -> bool {
        if self.origins.iter().any(|known| known.eq_ignore_ascii_case(origin)) {
            return true;
        }
        let (default_port, rest) = match origin.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (80, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (443, rest),
            _ => return false,
        };
        let Some(host) = authority(rest) else { return false };
        // An allowed host without a port matches any port in `Host`; an origin must still be on our port.
        host.port_u16().unwrap_or(default_port) == self.listen.port && self.knows_host(&host, default_port)
    }
}

/// Returns the value of a header that may occur only once; `None` if it is absent.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName, twice: &'static str) -> Result<Option<&'a str>, Denied> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(bad(twice));
    }
    first.to_str().map(Some).map_err(|_| bad("`Host` or `Origin` is malformed"))
}

/// Parses a host with an optional port; `None` if the text is anything else.
fn authority(text: &str) -> Option<Authority> {
    let authority: Authority = text.parse().ok()?;
    // `user@host`, `[::1]host:1`, `host:` and `host:99999` parse as an authority, but are not a host with a port.
    let rest = text.strip_prefix(authority.host()).filter(|_| !authority.host().is_empty())?;
    let port = authority.port_u16().map(|port| format!(":{port}"));
    (rest.is_empty() || port.is_some_and(|port| port == rest)).then_some(authority)
}

fn bad(reason: &'static str) -> Denied {
    Denied { status: StatusCode::BAD_REQUEST, reason, more: None }
}

fn forbidden(reason: &'static str) -> Denied {
    Denied { status: StatusCode::FORBIDDEN, reason, more: None }
}

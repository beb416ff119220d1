//! Recognizes the names and addresses of this machine.

use std::net::IpAddr;

use url::Url;

/// Reports whether a URL's host is this machine: `localhost` or a loopback address.
pub(crate) fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(names_loopback)
}

/// Reports whether a host name or address means this machine. IPv6 addresses may have brackets, as in a URL, or none.
pub(crate) fn names_loopback(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let literal = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&host);
    host == "localhost"
        || host.ends_with(".localhost")
        || literal.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_several_names_and_no_other_host_has_one() {
        let is_this = |url: &str| is_loopback(&Url::parse(url).unwrap());
        for url in
            ["http://localhost:1/", "http://LOCALHOST./", "http://a.localhost/", "http://127.9.9.9/", "http://[::1]/"]
        {
            assert!(is_this(url), "{url}");
        }
        for url in
            ["http://localhost.example/", "http://127.0.0.1.example/", "http://10.0.0.1/", "http://[::2]/", "data:x"]
        {
            assert!(!is_this(url), "{url}");
        }
    }
}

//! The guard as a table.

use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version};

use crate::downstream::guard::{Guard, Own};

fn check(uri: &str, headers: &[(&'static str, &'static str)]) -> u16 {
    let listen = Own { port: 8808, default_port: 80 };
    let guard = Guard::new(listen, &["mcp.example".into(), "box.example:9000".into()], &["https://app.example".into()]);
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    guard
        .check(Version::HTTP_11, &uri.parse::<Uri>().unwrap(), &map)
        .err()
        .map_or(200, |refused| refused.status.as_u16())
}

#[test]
fn h79_hosts() {
    let cases = [
        ("localhost:8808", 200),
        ("LocalHost:8808", 200),
        ("127.0.0.1:8808", 200),
        ("[::1]:8808", 200),
        ("mcp.example", 200),
        ("MCP.example:8808", 200),
        ("box.example:9000", 200),
        ("box.example:8808", 403),
        ("localhost", 403),
        ("localhost:80", 403),
        ("localhost:8809", 403),
        ("localhost.:8808", 403),
        ("127.0.0.1.evil.example:8808", 403),
        ("127.0.0.2:8808", 403),
        ("0.0.0.0:8808", 403),
        ("evil.example:8808", 403),
        ("localhost:8808@evil.example", 400),
        ("user@localhost:8808", 400),
        ("[::1]evil.example:8808", 400),
        ("localhost:", 400),
        ("localhost:99999", 400),
        ("[::1:8808", 400),
        ("localhost:8808/x", 400),
        ("local host:8808", 400),
        ("", 400),
    ];
    for (host, status) in cases {
        assert_eq!(check("/mcp", &[("host", host)]), status, "{host}");
    }
    assert_eq!(check("/mcp", &[]), 400, "absent");
    assert_eq!(check("/mcp", &[("host", "localhost:8808"), ("host", "localhost:8808")]), 400, "twice");
    assert_eq!(check("http://evil.example/mcp", &[("host", "localhost:8808")]), 403, "the target names another");
    assert_eq!(check("http://localhost:8808/mcp", &[("host", "localhost:8808")]), 200);
}

#[test]
fn h79_origins() {
    let cases = [
        ("http://localhost:8808", 200),
        ("https://127.0.0.1:8808", 200),
        ("HTTP://[::1]:8808", 200),
        ("https://app.example", 200),
        ("http://mcp.example:8808", 200),
        ("http://mcp.example", 403),
        ("http://app.example", 403),
        ("https://app.example.evil.example", 403),
        ("http://localhost", 403),
        ("http://localhost:3000", 403),
        ("http://evil.example:8808", 403),
        ("http://localhost:8808@evil.example", 403),
        ("http://localhost:8808/", 403),
        ("file://localhost:8808", 403),
        ("localhost:8808", 403),
        ("null", 403),
        ("", 403),
    ];
    for (origin, status) in cases {
        assert_eq!(check("/mcp", &[("host", "localhost:8808"), ("origin", origin)]), status, "{origin}");
    }
    let host = ("host", "localhost:8808");
    let origin = ("origin", "http://localhost:8808");
    assert_eq!(check("/mcp", &[host, origin, origin]), 400, "twice");
}

#[test]
fn h79_fetch_site() {
    for (site, status) in [("cross-site", 403), ("Cross-Site", 403), ("same-origin", 200), ("none", 200)] {
        assert_eq!(check("/mcp", &[("host", "localhost:8808"), ("sec-fetch-site", site)]), status, "{site}");
    }
}

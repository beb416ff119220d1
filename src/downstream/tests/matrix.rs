//! Every route with every method, over HTTP/1.1 and HTTP/2: what is refused before anything else, and which paths do
//! not exist.

use http::{HeaderMap, Request, Version};

use super::support::*;
use super::two::Two;

/// Paths that exist, and some that do not.
const PATHS: [&str; 11] = [
    "/mcp",
    "/sse",
    "/messages",
    "/healthz",
    "/readyz",
    "/",
    "/console/feed",
    "/console/call",
    "/metrics",
    "/mcp/",
    "/nowhere",
];
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "DELETE", "PUT", "OPTIONS"];

type Headers = &'static [(&'static str, &'static str)];

/// Bad requests: name, the target before its path, headers, and status. `PORT` is ours.
const BAD: [(&str, &str, Headers, u16); 16] = [
    ("foreign host", "", &[("host", "evil.example:PORT")], 403),
    ("foreign port", "", &[("host", "127.0.0.1:1")], 403),
    ("no port", "", &[("host", "localhost")], 403),
    ("rebound name", "", &[("host", "127.0.0.1.evil.example:PORT")], 403),
    ("no host", "", &[], 400),
    ("two hosts", "", &[("host", "localhost:PORT"), ("host", "localhost:PORT")], 400),
    ("malformed host", "", &[("host", "localhost:PORT@evil.example")], 400),
    ("a user in the host", "", &[("host", "me@localhost:PORT")], 400),
    ("foreign origin", "", &[("host", "localhost:PORT"), ("origin", "http://evil.example:PORT")], 403),
    ("origin of another port", "", &[("host", "localhost:PORT"), ("origin", "http://localhost:3000")], 403),
    ("null", "", &[("host", "localhost:PORT"), ("origin", "null")], 403),
    (
        "two origins",
        "",
        &[("host", "localhost:PORT"), ("origin", "http://localhost:PORT"), ("origin", "http://localhost:PORT")],
        400,
    ),
    ("a web page", "", &[("host", "localhost:PORT"), ("sec-fetch-site", "cross-site")], 403),
    ("foreign target", "http://evil.example:PORT", &[], 403),
    ("foreign target, own host", "http://evil.example:PORT", &[("host", "localhost:PORT")], 403),
    ("own target, foreign host", "http://localhost:PORT", &[("host", "evil.example:PORT")], 403),
];

/// Good requests.
const GOOD: [(&str, &str, Headers); 4] = [
    ("own host", "", &[("host", "[::1]:PORT")]),
    ("own origin", "", &[("host", "localhost:PORT"), ("origin", "http://127.0.0.1:PORT")]),
    ("own page", "", &[("host", "localhost:PORT"), ("sec-fetch-site", "same-origin")]),
    ("own target", "http://localhost:PORT", &[("host", "localhost:PORT")]),
];

/// Sends the same request over each protocol.
struct Both<'a> {
    house: &'a House,
    one: Peer,
    two: Two,
}

impl Both<'_> {
    async fn one(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap) {
        let fields: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!("{method} {target} HTTP/1.1\r\n{fields}\r\n");
        let head = self.one.send(&request).await;
        let body = if method == "HEAD" { String::new() } else { self.one.body(&head).await };
        assert!(!head.headers.contains_key("transfer-encoding"), "{method} {target} {body}");
        let fields = head.headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        if head.headers.get("connection").is_some_and(|value| value == "close") {
            self.one = self.house.connect().await;
        }
        (head.status, fields.collect())
    }

    async fn two(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap) {
        // A target without a host is sent without `:authority`.
        let version = if target.starts_with('/') { Version::HTTP_11 } else { Version::HTTP_2 };
        let mut request = Request::builder().version(version).method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = self.two.ask(request.body(()).unwrap(), "").await;
        (answer.status, answer.headers)
    }
}

#[tokio::test]
async fn h79_every_route_is_guarded_before_anything_else() {
    let house = house_of(bearer(stage().await)).await;
    let mut both = Both { house: &house, one: house.connect().await, two: Two::connect(&house).await };
    let port = house.port.to_string();
    let mut refused = 0;
    for (what, base, headers, status) in BAD {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.replace("PORT", &port))).collect();
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for path in PATHS {
            for method in METHODS {
                let target = format!("{}{path}", base.replace("PORT", &port));
                let mut answers = vec![both.one(method, &target, &headers).await];
                if base.is_empty() {
                    answers.push(both.two(method, &target, &headers).await);
                    // The same with the host as `:authority`, if there is exactly one that fits.
                    if let [("host", host), rest @ ..] = &headers[..]
                        && !rest.iter().any(|(name, _)| *name == "host")
                        && !host.contains('@')
                    {
                        answers.push(both.two(method, &format!("http://{host}{path}"), rest).await);
                    }
                } else {
                    answers.push(both.two(method, &target, &headers).await);
                }
                for (index, (got, fields)) in answers.iter().enumerate() {
                    // HTTP/1.1 requires `Host` whatever the target says.
                    let wanted = if what == "foreign target" { [403, 403][index] } else { status };
                    assert_eq!(*got, wanted, "{what}: {method} {target} ({index})");
                    let tells = ["www-authenticate", "allow", "mcp-session-id", "etag"];
                    assert!(
                        tells.iter().all(|name| !fields.contains_key(*name)),
                        "{what}: {method} {target} {fields:?}"
                    );
                    no_cors(fields);
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 2000, "{refused} cases");
}

#[tokio::test]
async fn h79_what_is_our_own_passes_the_guard() {
    let house = house_of(bearer(stage().await)).await;
    let mut both = Both { house: &house, one: house.connect().await, two: Two::connect(&house).await };
    let port = house.port.to_string();
    let token = format!("Bearer {ANN}");
    for (what, base, headers) in GOOD {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.replace("PORT", &port))).collect();
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for path in PATHS {
            for method in METHODS {
                let target = format!("{}{path}", base.replace("PORT", &port));
                // The files of the page hold no data.
                let open = path.ends_with('z') || path == "/";
                let wanted = match (method, path) {
                    ("GET" | "HEAD", _) if open => 200,
                    ("GET", "/console/feed") => 401,
                    // None of these has the page's own origin: that of the host that it names.
                    ("POST", "/console/call") => 403,
                    _ if open || path.starts_with("/console/") => 405,
                    _ => 401,
                };
                let answers = [both.one(method, &target, &headers).await, both.two(method, &target, &headers).await];
                for (status, fields) in &answers {
                    assert_eq!(*status, wanted, "{what}: {method} {target}");
                    no_cors(fields);
                }
            }
            // Even with a token, OPTIONS is not supported.
            let headers: Vec<_> = headers.iter().copied().chain([("authorization", token.as_str())]).collect();
            let target = format!("{}{path}", base.replace("PORT", &port));
            let wanted = if matches!(path, "/mcp/" | "/nowhere") { 404 } else { 405 };
            let answers = [both.one("OPTIONS", &target, &headers).await, both.two("OPTIONS", &target, &headers).await];
            for (status, fields) in &answers {
                assert_eq!(*status, wanted, "{what}: OPTIONS {target}");
                no_cors(fields);
            }
        }
    }
}

#[tokio::test]
async fn h79_authority_and_host_say_the_same() {
    let house = house().await;
    let mut both = Both { house: &house, one: house.connect().await, two: Two::connect(&house).await };
    let (target, other) = (format!("http://localhost:{}/healthz", house.port), format!("127.0.0.1:{}", house.port));
    assert_eq!(both.two("GET", &target, &[("host", &other)]).await.0, 400, "both are ours, but they differ");
    assert_eq!(both.two("GET", &target, &[("host", &format!("LocalHost:{}", house.port))]).await.0, 200);
    assert_eq!(both.two("GET", &target, &[]).await.0, 200);
    // Over HTTP/1.1 the target wins (RFC 9112, 3.2.2).
    assert_eq!(both.one("GET", &target, &[("host", &other)]).await.0, 200);
    assert_eq!(both.one("GET", &target, &[]).await.0, 400, "a host has to stand there all the same");
    let user = format!("http://me@localhost:{}/healthz", house.port);
    assert_eq!(both.one("GET", &user, &[("host", &other)]).await.0, 400);
}

/// Checks that paths do not exist for any method, even with a token.
async fn absent(paths: &[&str]) {
    let house = house_of(bearer(stage().await)).await;
    let mut both = Both { house: &house, one: house.connect().await, two: Two::connect(&house).await };
    let (host, token) = (format!("localhost:{}", house.port), format!("Bearer {ANN}"));
    let headers = [("host", host.as_str()), ("authorization", token.as_str()), ("content-type", "application/json")];
    for path in paths {
        for method in METHODS {
            assert_eq!(both.one(method, path, &headers).await.0, 404, "{method} {path}");
            assert_eq!(both.two(method, path, &headers).await.0, 404, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn h83_nothing_that_changes_the_host_is_at_the_endpoint() {
    absent(&[
        "/admin",
        "/status",
        "/reload",
        "/approve",
        "/logout",
        "/login",
        "/shutdown",
        "/restart",
        "/servers",
        "/config",
        "/tools",
        "/api",
        "/debug/pprof/",
        "/mcp/admin",
        "/mcp/..",
        "/MCP",
        "//mcp",
        "/%6dcp",
        "/mcp%2f",
        "/token",
    ])
    .await;
}

#[tokio::test]
async fn h84_we_are_no_authorization_server() {
    absent(&[
        "/authorize",
        "/oauth/authorize",
        "/oauth2/authorize",
        "/oauth/token",
        "/token",
        "/register",
        "/oauth/register",
        "/callback",
        "/oauth/callback",
        "/consent",
        "/introspect",
        "/revoke",
        "/jwks.json",
        "/.well-known/jwks.json",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
    ])
    .await;
}

fn no_cors(fields: &HeaderMap) {
    assert!(!fields.keys().any(|name| name.as_str().starts_with("access-control")), "{fields:?}");
}

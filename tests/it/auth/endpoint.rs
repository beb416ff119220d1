//! Our own endpoint behind an authorization server: how it answers clients without a token for it, and a host that
//! signs in there like at any other server.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mcp_host::config::{Config, HostAuth, HostOAuth, HostSettings, Remote, Server, Syntax, Transport, Vars, parse_str};
use mcp_host::{Host, StateName};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::site::{Asked, Site, Told};
use super::world::User;

/// The signing key of an issuer.
struct Key(EcdsaKeyPair);

impl Key {
    fn new() -> Self {
        let (way, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let bytes = EcdsaKeyPair::generate_pkcs8(way, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(way, bytes.as_ref(), &random).unwrap())
    }

    fn jwk(&self) -> Value {
        let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
        let [x, y] = [x, y].map(|part| URL_SAFE_NO_PAD.encode(part));
        json!({ "kty": "EC", "crv": "P-256", "kid": "one", "alg": "ES256", "x": x, "y": y })
    }

    fn token(&self, issuer: &str, audience: &str, scope: &str) -> String {
        self.token_with(issuer, audience, &json!({ "sub": "ada", "scope": scope }))
    }

    /// Returns a token with more claims.
    fn token_with(&self, issuer: &str, audience: &str, more: &Value) -> String {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let header = json!({ "alg": "ES256", "typ": "at+jwt", "kid": "one" });
        let mut claims = json!({ "iss": issuer, "aud": audience, "client_id": "host", "exp": now + 60 });
        claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let text = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let signature = self.0.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// An authorization server that grants every request.
async fn issuer(key: &Arc<Key>) -> Site {
    let key = key.clone();
    Site::start(|url| {
        move |asked: &Asked| match asked.line().as_str() {
            "GET /.well-known/oauth-authorization-server" => Told::json(
                200,
                &json!({
                    "issuer": url,
                    "jwks_uri": format!("{url}/keys"),
                    "authorization_endpoint": format!("{url}/authorize"),
                    "token_endpoint": format!("{url}/token"),
                    "registration_endpoint": format!("{url}/register"),
                    "code_challenge_methods_supported": ["S256"],
                }),
            ),
            "GET /keys" => Told::json(200, &json!({ "keys": [key.jwk()] })),
            "POST /register" => Told::json(201, &json!({ "client_id": "host" })),
            "POST /token" => {
                let token = key.token(&url, &asked.field("resource").unwrap_or_default(), "mcp");
                Told::json(200, &json!({ "access_token": token, "token_type": "Bearer", "expires_in": 60 }))
            }
            _ => Told::json(404, &json!({})),
        }
    })
    .await
}

/// An endpoint that requires tokens of this issuer, and its address.
async fn endpoint(issuer: &str) -> (Host, String) {
    endpoint_of(HostSettings::default(), issuer).await
}

async fn endpoint_of(settings: HostSettings, issuer: &str) -> (Host, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://127.0.0.1:{}/mcp", listener.local_addr().unwrap().port());
    let mut oauth = HostOAuth::new(issuer, &url).unwrap();
    oauth.scopes = vec!["mcp".to_owned()];
    let settings = settings.auth(HostAuth::OAuth(Box::new(oauth)));
    let host = Host::builder().config(Config { host: settings, ..Config::default() }).start().await.unwrap();
    let serving = host.open_http(listener).unwrap();
    tokio::spawn(serving.serve());
    (host, url)
}

/// Returns the response to a request: its head and its body.
async fn ask(method: &str, url: &str, token: Option<&str>) -> (String, String) {
    let (authority, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(authority).await.unwrap();
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!("{method} /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn challenge(head: &str) -> &str {
    head.lines().find_map(|line| line.strip_prefix("www-authenticate: ")).unwrap_or_default()
}

#[tokio::test]
async fn who_has_no_token_for_us_is_told_where_they_come_from() {
    let key = Arc::new(Key::new());
    let issuer = issuer(&key).await;
    let (host, url) = endpoint(&issuer.url).await;
    let place = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp");
    let at = format!("Bearer resource_metadata=\"{place}\", scope=\"mcp\"");
    let (head, _) = ask("POST", &url, None).await;
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    assert_eq!(challenge(&head), at);
    let (_, document) = ask("GET", &place, None).await;
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!((&document["resource"], &document["authorization_servers"]), (&json!(url), &json!([issuer.url])));
    let token = |issuer: &str, audience: &str, scope: &str| key.token(issuer, audience, scope);
    let cases = [
        (token(&issuer.url, "https://other.example/mcp", "mcp"), "401", "invalid_token"),
        (token("https://other.example", &url, "mcp"), "401", "invalid_token"),
        (Key::new().token(&issuer.url, &url, "mcp"), "401", "invalid_token"),
        (token(&issuer.url, &url, "other"), "403", "insufficient_scope"),
    ];
    for (token, status, error) in cases {
        let (head, body) = ask("POST", &url, Some(&token)).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert_eq!(challenge(&head), format!("{at}, error=\"{error}\""));
        assert!(!body.contains(&token[..20]), "{body}");
    }
    // With a valid token, the error is the missing content type.
    let (head, _) = ask("POST", &url, Some(&token(&issuer.url, &url, "mcp"))).await;
    assert!(head.starts_with("HTTP/1.1 415 "), "{head}");
    assert_eq!(issuer.count("GET /keys"), 1);
    host.shutdown().await;
}

#[tokio::test]
async fn h80_without_the_keys_of_its_issuer_it_lets_nobody_in() {
    let key = Key::new();
    let gone = Site::start(|_| |_: &Asked| Told::Broken).await;
    let (host, url) = endpoint(&gone.url).await;
    let (head, body) = ask("POST", &url, Some(&key.token(&gone.url, &url, "mcp"))).await;
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("retry-after: "), "{head}");
    assert!(body.contains("its issuer gives no keys"), "{body}");
    host.shutdown().await;
}

#[tokio::test]
async fn a_host_signs_in_at_another() {
    let key = Arc::new(Key::new());
    let issuer = issuer(&key).await;
    let (endpoint, url) = endpoint(&issuer.url).await;
    let server = Server::new("a", Transport::Http(Remote::new(url.parse().unwrap()))).unwrap();
    let config = Config { servers: vec![server], ..Config::default() };
    let user = User::default();
    let host = Host::builder().config(config).interaction(user.clone()).start().await.unwrap();
    host.settled().await;
    assert_eq!((host.status()[0].state, user.prompts()), (StateName::Connected, 1), "{:?}", host.status());
    host.shutdown().await;
    endpoint.shutdown().await;
}

/// Lists tools at a path of the endpoint, and returns the status.
async fn list_at(url: &str, token: &str) -> String {
    let (authority, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "c", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {} });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } }).to_string();
    let mut stream = TcpStream::connect(authority).await.unwrap();
    let request = format!(
        "POST /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_view_is_for_those_whose_token_says_so() {
    let key = Arc::new(Key::new());
    let issuer = issuer(&key).await;
    let ada = format!("{}#ada", issuer.url);
    let text = json!({ "mcpServers": {}, "host": { "views": {
        "dev": { "for": ["claim:groups=dev"] }, "ops": { "for": ["scope:ops", "claim:role=ops"] },
        "ada": { "for": [ada] }, "open": {} } } });
    let config = parse_str(&text.to_string(), Syntax::Json, "test.json", &Vars::default()).unwrap();
    let (host, url) = endpoint_of(config.host, &issuer.url).await;
    let views = ["dev", "ops", "ada", "open", "none"];
    for (claims, allowed) in [
        (json!({ "sub": "bob", "scope": "mcp" }), &["open"][..]),
        (json!({ "sub": "bob", "scope": "mcp", "groups": ["x", "dev"] }), &["dev", "open"]),
        (json!({ "sub": "bob", "scope": "mcp", "groups": "dev" }), &["dev", "open"]),
        (json!({ "sub": "bob", "scope": "mcp", "groups": ["developers"] }), &["open"]),
        (json!({ "sub": "bob", "scope": "mcp ops" }), &["ops", "open"]),
        (json!({ "sub": "bob", "scope": "mcp", "role": "ops" }), &["ops", "open"]),
        (json!({ "sub": "ada", "scope": "mcp" }), &["ada", "open"]),
    ] {
        let token = key.token_with(&issuer.url, &url, &claims);
        for view in views {
            let wanted = if allowed.contains(&view) { "200" } else { "404" };
            assert_eq!(list_at(&format!("{url}/{view}"), &token).await, wanted, "{view} {claims}");
        }
        assert_eq!(list_at(&url, &token).await, "200", "{claims}");
    }
    host.shutdown().await;
}

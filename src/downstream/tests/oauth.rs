//! Tokens of an issuer: which are accepted, how others are challenged, and when the issuer's keys are fetched.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::minting::{ISSUER, Key, RESOURCE, claims, in_seconds, sign_by_secret, unsigned};
use super::support::*;
use crate::config::{HostAuth, HostOAuth};
use crate::downstream::authentication::{AuthProgress, Authentication};
use crate::downstream::peer::Peer as End;

/// An issuer, as a source of keys.
#[derive(Clone, Default)]
struct Issuer {
    /// `None`: it does not answer.
    keys: Arc<Mutex<Option<Vec<Value>>>>,
    asked: Arc<AtomicUsize>,
}

impl Issuer {
    fn with(keys: &[&Key]) -> Self {
        let issuer = Self::default();
        issuer.has(keys);
        issuer
    }

    fn has(&self, keys: &[&Key]) {
        *self.keys.lock().unwrap() = Some(keys.iter().map(|key| key.jwk()).collect());
    }

    fn is_away(&self) {
        *self.keys.lock().unwrap() = None;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn authentication(&self, scopes: &[&str]) -> Authentication {
        let mut settings = HostOAuth::new(ISSUER, RESOURCE).unwrap();
        settings.scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
        let issuer = self.clone();
        Authentication::with_keys(
            &settings,
            Box::new(move || {
                let issuer = issuer.clone();
                Box::pin(async move {
                    issuer.asked.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    issuer.keys.lock().unwrap().clone().ok_or_else(|| "away".to_owned())
                })
            }),
        )
    }
}

/// Authenticates with a token: returns the principal, or the status and challenge.
async fn judged(authentication: &Authentication, token: &str) -> Result<String, (u16, String)> {
    let mut headers = http::HeaderMap::new();
    headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
    let asker = match authentication.authenticate(&headers, End::Local) {
        AuthProgress::Done(asker) => asker,
        AuthProgress::Pending(asker) => asker.await,
    };
    asker.map(|proven| proven.principal.as_str().to_owned()).map_err(|refused| {
        let said = refused.more.map_or_else(String::new, |(_, value)| value.to_str().unwrap().to_owned());
        (refused.status.as_u16(), said)
    })
}

const AT: &str =
    "Bearer resource_metadata=\"https://box.example/.well-known/oauth-protected-resource/mcp\", scope=\"mcp\"";
static INVALID: LazyLock<(u16, String)> = LazyLock::new(|| (401, format!("{AT}, error=\"invalid_token\"")));

#[tokio::test(start_paused = true)]
async fn h80_only_tokens_for_us_are_taken() {
    let (key, stranger) = (Key::es256("one"), Key::es256("one"));
    let door = Issuer::with(&[&key]).authentication(&["mcp"]);
    let with = |more: Value| key.sign(&claims(&more));
    let under = |header: Value| key.sign_under(&header, &claims(&json!({})));
    let changed = {
        let (good, other) = (with(json!({})), with(json!({"sub": "eve"})));
        let parts = |token: &str| token.split('.').map(str::to_owned).collect::<Vec<_>>();
        format!("{}.{}.{}", parts(&good)[0], parts(&other)[1], parts(&good)[2])
    };
    let none = |alg: &str| format!("{}.", unsigned(&json!({"alg": alg, "kid": "one"}), &claims(&json!({}))));
    let by_public = |secret: &[u8]| sign_by_secret(&json!({"alg": "HS256", "kid": "one"}), &claims(&json!({})), secret);
    let bad = [
        ("for somebody else", with(json!({"aud": "https://other.example/mcp"}))),
        ("for what only begins like us", with(json!({"aud": "https://box.example/mcp/x"}))),
        ("for several others", with(json!({"aud": ["https://other.example/mcp", "https://box.example"]}))),
        ("for nobody", with(json!({"aud": null}))),
        ("for nobody in a list", with(json!({"aud": []}))),
        ("of another issuer", with(json!({"iss": "https://issuer.example/"}))),
        ("of no issuer", with(json!({"iss": null}))),
        ("expired", with(json!({"exp": in_seconds(-60)}))),
        ("without an end", with(json!({"exp": null}))),
        ("with an end that is none", with(json!({"exp": "never"}))),
        ("not valid yet", with(json!({"nbf": in_seconds(120)}))),
        ("of nobody", with(json!({"sub": null, "client_id": null}))),
        ("of an empty name", with(json!({"sub": ""}))),
        ("of an endless name", with(json!({"sub": "x".repeat(2000)}))),
        ("bound to a key of the sender", with(json!({"cnf": {"jkt": "x"}}))),
        ("signed by somebody else under the name of the key", stranger.sign(&claims(&json!({})))),
        ("changed", changed),
        ("not signed", none("none")),
        ("not signed, in capitals", none("None")),
        ("without a signature", none("ES256")),
        ("signed with the public key as a secret", by_public(&key.public())),
        ("signed with the text of the public key", by_public(key.jwk().to_string().as_bytes())),
        ("under another algorithm", under(json!({"alg": "ES384", "kid": "one"}))),
        ("an identity, not an access token", under(json!({"alg": "ES256", "kid": "one", "typ": "logout+jwt"}))),
        ("a proof of a key", under(json!({"alg": "ES256", "kid": "one", "typ": "dpop+jwt"}))),
        ("with a demand that is not understood", under(json!({"alg": "ES256", "kid": "one", "crit": ["b64"]}))),
        ("with its own key", stranger.sign_under(&json!({"alg": "ES256", "jwk": stranger.jwk()}), &claims(&json!({})))),
        (
            "with a place for its key",
            stranger.sign_under(&json!({"alg": "ES256", "jku": "https://evil.example/"}), &claims(&json!({}))),
        ),
        ("no token", "abc".to_owned()),
        ("three parts of nothing", "..".to_owned()),
        ("too long", format!("{}{}", with(json!({})), "A".repeat(17_000))),
    ];
    for (what, token) in bad {
        assert_eq!(judged(&door, &token).await, Err(INVALID.clone()), "{what}");
    }
    let ann = Ok(format!(r#"oauth:["{ISSUER}","ann","cli"]"#));
    let good = [
        ("plain", with(json!({}))),
        ("for several", with(json!({"aud": ["https://other.example/mcp", RESOURCE]}))),
        ("valid since just now", with(json!({"nbf": in_seconds(5)}))),
        ("expired just now", with(json!({"exp": in_seconds(-5)}))),
        ("with more scopes", with(json!({"scope": "a mcp b"}))),
        ("with scopes in a list", with(json!({"scope": null, "scp": ["a", "mcp"]}))),
        ("of an older issuer", with(json!({"client_id": null, "azp": "cli"}))),
        ("without a kind", under(json!({"alg": "ES256", "kid": "one"}))),
        ("of the old kind", under(json!({"alg": "ES256", "kid": "one", "typ": "JWT"}))),
        ("without the name of its key", under(json!({"alg": "ES256"}))),
    ];
    for (what, token) in good {
        assert_eq!(judged(&door, &token).await, ann, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_algorithm_with_a_public_key_is_known() {
    let keys = [Key::es256("a"), Key::es384("b"), Key::ed25519("c"), Key::rs256("d"), Key::ps512("e")];
    let issuer = Issuer::with(&keys.iter().collect::<Vec<_>>());
    // Keys for other purposes and invalid keys do not affect the others.
    let strange = [
        json!({"kty": "oct", "k": "c2VjcmV0", "kid": "secret", "alg": "HS256"}),
        json!({"kty": "RSA", "kid": "broken"}),
        json!({"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA", "kid": "wide"}),
        json!(7),
    ];
    issuer.keys.lock().unwrap().as_mut().unwrap().extend(strange);
    let door = issuer.authentication(&[]);
    for key in &keys {
        assert!(judged(&door, &key.sign(&claims(&json!({})))).await.is_ok(), "{}", key.id);
    }
    let secret = sign_by_secret(&json!({"alg": "HS256", "kid": "secret"}), &claims(&json!({})), b"secret");
    assert_eq!(judged(&door, &secret).await.unwrap_err().0, 401, "a secret that is published is none");
    // A key for another purpose or another algorithm verifies nothing.
    for (name, value) in [("use", json!("enc")), ("alg", json!("ES384")), ("key_ops", json!(["encrypt"]))] {
        let key = Key::es256("one");
        let issuer = Issuer::with(&[&key]);
        issuer.keys.lock().unwrap().as_mut().unwrap()[0][name] = value;
        let door = issuer.authentication(&[]);
        assert_eq!(judged(&door, &key.sign(&claims(&json!({})))).await.unwrap_err().0, 401, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_lacking_is_said_as_it_is_wanted() {
    let key = Key::es256("one");
    let door = Issuer::with(&[&key]).authentication(&["mcp", "tools"]);
    let at = AT.replace("\"mcp\"", "\"mcp tools\"");
    for more in [json!({"scope": "mcp"}), json!({"scope": null}), json!({"scope": "mcp toolsmith"})] {
        let refused = judged(&door, &key.sign(&claims(&more))).await;
        assert_eq!(refused, Err((403, format!("{at}, error=\"insufficient_scope\""))));
    }
    assert!(judged(&door, &key.sign(&claims(&json!({"scope": "tools mcp"})))).await.is_ok());
    let mut headers = http::HeaderMap::new();
    for (value, status, error) in
        [("", 401, ""), ("Basic YTpi", 401, ""), ("Bearer a", 400, ", error=\"invalid_request\"")]
    {
        if !value.is_empty() {
            headers.append("authorization", value.parse().unwrap());
        }
        let asked = door.authenticate(&headers, End::Local);
        let AuthProgress::Done(Err(refused)) = asked else { panic!("nothing is asked for: {value}") };
        let (_, said) = refused.more.unwrap();
        assert_eq!((refused.status.as_u16(), said.to_str().unwrap()), (status, &*format!("{at}{error}")));
    }
    // Without scopes the challenge does not mention them.
    let door = Issuer::with(&[&key]).authentication(&[]);
    let (_, said) = judged(&door, "x").await.unwrap_err();
    assert_eq!(said, INVALID.1.replace(", scope=\"mcp\"", ""));
}

#[tokio::test(start_paused = true)]
async fn h80_a_rotated_key_is_found_and_a_flood_of_made_up_ones_asks_once() {
    let (old, new) = (Key::es256("old"), Key::es256("new"));
    let issuer = Issuer::with(&[&old]);
    let door = issuer.authentication(&["mcp"]);
    let token = |key: &Key| key.sign(&claims(&json!({})));
    // All of them wait for the one fetch in flight.
    let (old_token, new_token) = (token(&old), token(&new));
    let asking = (0..50).map(|_| judged(&door, &old_token));
    assert!(futures_util::future::join_all(asking).await.iter().all(Result::is_ok));
    assert_eq!(issuer.asked(), 1);
    issuer.has(&[&new, &old]);
    // Shortly after a fetch there is no other.
    assert_eq!(judged(&door, &new_token).await, Err(INVALID.clone()));
    assert_eq!(issuer.asked(), 1);
    tokio::time::sleep(Duration::from_secs(11)).await;
    let asking = (0..50).map(|_| judged(&door, &new_token));
    assert!(futures_util::future::join_all(asking).await.iter().all(Result::is_ok));
    assert_eq!(issuer.asked(), 2);
    // Meanwhile, tokens with a known key do not wait.
    let mut made_up = 0;
    let start = tokio::time::Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        let key = Key::es256("made up");
        assert_eq!(judged(&door, &token(&key)).await, Err(INVALID.clone()));
        assert!(judged(&door, &old_token).await.is_ok());
        made_up += 1;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(made_up > 50 && issuer.asked() <= 2 + 6, "{made_up} {}", issuer.asked());
    // Tokens with a key that the issuer withdrew are rejected after a while.
    issuer.has(&[&new]);
    tokio::time::sleep(Duration::from_secs(11 * 60)).await;
    assert!(judged(&door, &old_token).await.is_ok(), "asked for anew meanwhile, by this");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(judged(&door, &old_token).await, Err(INVALID.clone()));
    assert!(judged(&door, &new_token).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn h80_nobody_is_let_in_while_the_issuer_is_away() {
    let key = Key::es256("one");
    let issuer = Issuer::default();
    let door = issuer.authentication(&["mcp"]);
    let token = key.sign(&claims(&json!({})));
    let away = Err((503, "5".to_owned()));
    assert_eq!(judged(&door, &token).await, away);
    // Tokens that no key could make valid are still rejected, and missing ones still challenged.
    assert_eq!(judged(&door, "abc").await, Err(INVALID.clone()));
    for alg in ["HS256", "HS512"] {
        let by_secret = sign_by_secret(&json!({"alg": alg, "kid": "one"}), &claims(&json!({})), b"secret");
        assert_eq!(judged(&door, &by_secret).await, Err(INVALID.clone()), "{alg}: whichever keys there are");
    }
    issuer.has(&[&key]);
    assert_eq!(judged(&door, &token).await, away, "a moment after");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(judged(&door, &token).await.is_ok());
    // The issuer goes down: its keys are used for an hour, and then no longer.
    issuer.is_away();
    let stranger = Key::es256("two").sign(&claims(&json!({})));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(judged(&door, &stranger).await, away, "it may have a new key");
    tokio::time::sleep(Duration::from_secs(40 * 60)).await;
    assert!(judged(&door, &token).await.is_ok());
    tokio::time::sleep(Duration::from_secs(20 * 60)).await;
    assert_eq!(judged(&door, &token).await, away);
    issuer.has(&[&key]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(judged(&door, &token).await.is_ok());
}

/// An issuer on loopback, which answers every request with all of its documents.
pub(super) async fn site(keys: &[&Key]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let keys: Vec<Value> = keys.iter().map(|key| key.jwk()).collect();
    let body = json!({ "issuer": url, "jwks_uri": format!("{url}/keys"), "keys": keys }).to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    url
}

/// Configures the stage to accept tokens of that issuer.
pub(super) fn behind(stage: Stage, issuer: &str, scopes: &[&str]) -> Stage {
    let mut settings = HostOAuth::new(issuer, RESOURCE).unwrap();
    settings.scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
    stage.router.manager().configure(|host| host.auth = HostAuth::OAuth(Box::new(settings)));
    stage
}

pub(super) fn leaked(token: String) -> &'static str {
    Box::leak(token.into_boxed_str())
}

#[tokio::test]
async fn h60_a_session_is_of_the_subject_and_the_client_that_made_it() {
    let key = Key::es256("one");
    let issuer = site(&[&key]).await;
    let house = house_of(behind(stage().await, &issuer, &["mcp"])).await;
    let token = |mut more: Value| {
        more["iss"] = issuer.clone().into();
        leaked(key.sign(&claims(&more)))
    };
    let ann = house.client_as(Some(token(json!({}))), "2025-06-18").await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let others = [
        ("another user", json!({"sub": "bob"})),
        ("the same user by another program", json!({"client_id": "other"})),
        ("a program for itself", json!({"sub": null})),
        ("a user of the program's name", json!({"sub": "cli", "client_id": "ann"})),
        ("names that run into each other", json!({"sub": "ann\",\"cli", "client_id": null})),
    ];
    for (what, more) in others {
        let mut other = house.again(&ann).await;
        other.token = Some(token(more));
        assert_eq!(other.post(ping).await.status, 404, "{what}: POST");
        for method in ["GET", "DELETE"] {
            let mut other = house.again(&other).await;
            let request = other.request(method, "", "");
            assert_eq!(other.send(&request).await.status, 404, "{what}: {method}");
        }
    }
    // A session is not a proof.
    for (token, status) in [(None, 401), (Some(token(json!({"exp": in_seconds(-60)}))), 401)] {
        let mut other = house.again(&ann).await;
        other.token = token;
        assert_eq!(other.post(ping).await.status, status);
    }
    // A new token of the same principal is as good as the first.
    let mut again = house.again(&ann).await;
    again.token = Some(token(json!({"jti": "2"})));
    assert_eq!(again.ask(ping).await["result"], json!({}));
    // Proofs that a new config no longer accepts end, and known keys are not fetched again.
    let house = House { stage: behind(house.stage, &issuer, &["mcp", "tools"]), ..house };
    assert_eq!(house.again(&ann).await.post(ping).await.status, 403);
    let house = House { stage: behind(house.stage, &issuer, &["mcp"]), ..house };
    assert_eq!(house.again(&ann).await.post(ping).await.status, 404);
    let house = House { stage: behind(house.stage, &site(&[&Key::es256("two")]).await, &["mcp"]), ..house };
    assert_eq!(house.again(&ann).await.post(ping).await.status, 401);
}

#[tokio::test]
async fn metadata_is_told_to_everybody_whom_the_guard_lets_through() {
    let issuer = site(&[&Key::es256("one")]).await;
    let house = house_of(behind(stage().await, &issuer, &["mcp"])).await;
    let at = "/.well-known/oauth-protected-resource";
    let get = async |method: &str, path: &str, host: &str| {
        let mut peer = house.connect().await;
        let head = peer.send(&format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
        let body = if method == "HEAD" { String::new() } else { peer.body(&head).await };
        (head.status, head.kind().to_owned(), body)
    };
    let want = json!({
        "resource": RESOURCE, "authorization_servers": [issuer], "scopes_supported": ["mcp"],
        "bearer_methods_supported": ["header"],
    });
    for path in [at.to_owned(), format!("{at}/mcp")] {
        let (status, kind, body) = get("GET", &path, "HOST").await;
        assert_eq!((status, &*kind), (200, "application/json"));
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), want);
        assert_eq!(get("HEAD", &path, "HOST").await.0, 200);
        assert_eq!(get("POST", &path, "HOST").await.0, 405);
        assert_eq!(get("GET", &path, "evil.example").await.0, 403);
    }
    for path in [format!("{at}/"), format!("{at}/sse"), "/.well-known/oauth-authorization-server".to_owned()] {
        assert_eq!(get("GET", &path, "HOST").await.0, 401, "{path}");
    }
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/mcp", 401), ("/sse", 401), ("/messages", 401)] {
        assert_eq!(get("GET", path, "HOST").await.0, status, "{path}");
    }
    // Without such tokens the path does not exist.
    for (stage, status) in [(stage().await, 404), (bearer(stage().await), 401)] {
        let house = house_of(stage).await;
        let head = house.connect().await.send(&format!("GET {at} HTTP/1.1\r\nHost: HOST\r\n\r\n")).await;
        assert_eq!(head.status, status);
    }
}

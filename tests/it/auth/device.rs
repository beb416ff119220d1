//! Logins by a code that a user enters at a page (RFC 8628), from outside.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mcp_host::auth::Error;
use mcp_host::{ErrorKind, Host, StateName};
use serde_json::{Value, json};

use super::site::{Asked, Site, Told};
use super::world::{Issuing, call, connected, gives_codes, host, issuer, protected, state};

/// An authorization server that issues device codes, a server that requires its tokens, and a host.
async fn world() -> (Arc<Issuing>, Site, Site, Host) {
    let (issuing, issuer, server) = protected().await;
    gives_codes(&issuing, &issuer);
    let host = host(&[&server], |builder| builder).await;
    (issuing, issuer, server, host)
}

/// Sets the answers to a device code before it yields a token.
fn not_yet(issuing: &Issuing, said: &[&'static str]) {
    issuing.not_yet.lock().unwrap().extend(said);
}

fn body(asked: &Asked) -> Value {
    serde_json::from_str(&asked.body).unwrap()
}

#[tokio::test]
async fn a_user_enters_a_code_somewhere_and_calls_go() {
    let (issuing, issuer, server, host) = world().await;
    assert_eq!(state(&host), StateName::Unauthorized);
    let login = host.device_login("a").await.unwrap();
    assert_eq!(login.verification_uri().as_str(), format!("{}/device", issuer.url));
    let complete = login.verification_uri_complete().unwrap().to_string();
    assert_eq!(complete, format!("{}/device?user_code=WDJB-MJHT", issuer.url));
    assert_eq!((login.user_code(), login.issuer()), ("WDJB-MJHT", issuer.url.as_str()));
    // The code is valid for half an hour, a login for ten minutes.
    assert!(login.expires_in() <= Duration::from_secs(600) && login.expires_in() > Duration::from_secs(500));
    assert!(!format!("{login:?}").contains("canary"));
    not_yet(&issuing, &["authorization_pending"]);
    login.finish().await.unwrap();
    connected(&host).await;
    call(&host).await.unwrap();
    // It is renewed like any other.
    issuing.expire();
    call(&host).await.unwrap();
    assert_eq!((issuer.count("POST /token"), issuing.reused.load(Ordering::SeqCst)), (3, 0));

    let asked = issuer.asked();
    let of = |line: &str| asked.iter().filter(|asked| asked.line() == line).collect::<Vec<_>>();
    let registered = body(of("POST /register")[0]);
    let grants = json!(["urn:ietf:params:oauth:grant-type:device_code", "refresh_token"]);
    assert_eq!((&registered["grant_types"], &registered["redirect_uris"]), (&grants, &json!([])));
    assert_eq!(registered["response_types"], json!([]));
    let resource = Some(format!("{}/mcp", server.url));
    for asked in [of("POST /code"), of("POST /token")].concat() {
        assert_eq!(asked.field("resource"), resource, "{}", asked.body);
        assert!(asked.field("client_id").is_some_and(|id| id.starts_with("client-0-of-")), "{}", asked.body);
    }
    // A registration for codes is reused for the next one, but not for a browser.
    host.device_login("a").await.unwrap();
    assert_eq!(issuer.count("POST /register"), 1);
    host.login("a", &"http://127.0.0.1:1/x".parse().unwrap()).await.unwrap();
    assert_eq!(issuer.count("POST /register"), 2);
    host.shutdown().await;
}

#[tokio::test]
async fn who_is_asked_too_often_is_left_alone_for_longer() {
    let (issuing, issuer, _server, host) = world().await;
    let login = host.device_login("a").await.unwrap();
    not_yet(&issuing, &["slow_down"]);
    // A second as before, and five more.
    let waited = tokio::time::timeout(Duration::from_secs(3), login.finish()).await;
    assert!(waited.is_err() && issuer.count("POST /token") == 1, "{waited:?}");
    host.shutdown().await;
}

#[tokio::test]
async fn a_no_and_a_code_that_is_over_end_it() {
    let ends = ["access_denied", "expired_token", "invalid_client", "<b>canary</b>"].map(|said| async move {
        let (issuing, issuer, _server, host) = world().await;
        let login = host.device_login("a").await.unwrap();
        not_yet(&issuing, &[said]);
        let error = login.finish().await.unwrap_err();
        assert_eq!((issuer.count("POST /token"), host.holding("a").await.unwrap()), (1, None));
        host.shutdown().await;
        error
    });
    let refused = |code: &str| Error::Refused { code: code.to_owned() };
    let [denied, over, client, strange] = futures_util::future::join_all(ends).await.try_into().unwrap();
    assert_eq!((denied, client), (refused("access_denied"), refused("invalid_client")));
    assert!(over.to_string().contains("the code has expired: begin again"), "{over}");
    assert_eq!(strange, refused("an unknown error"));
}

#[tokio::test]
async fn h73_a_token_that_is_lost_on_the_way_is_told_and_one_after_trouble_is_taken() {
    let (issuing, _issuer, _server, host) = world().await;
    let (lost, other) = (host.device_login("a").await.unwrap(), host.device_login("a").await.unwrap());
    not_yet(&issuing, &["lost", "invalid_grant"]);
    let error = lost.finish().await.unwrap_err();
    assert!(error.to_string().contains("lost on the way: begin again"), "{error}");
    not_yet(&issuing, &["away"]);
    other.finish().await.unwrap();
    host.shutdown().await;
}

#[tokio::test]
async fn h67_h68_h75_what_is_hostile_is_neither_shown_nor_asked() {
    for answer in [
        json!({ "verification_uri": "javascript:alert(1)" }),
        json!({ "verification_uri": "file:///bin/sh" }),
        json!({ "verification_uri": "http://a.example/device" }),
        json!({ "verification_uri": "https://user@a.example/" }),
        json!({ "verification_uri": "https://a.example/#x" }),
        json!({ "verification_uri": "https://a.example/$(touch marker) x" }),
        json!({ "verification_uri": format!("https://a.example/{}", "x".repeat(8 * 1024)) }),
        json!({ "verification_uri": null }),
        json!({ "verification_uri_complete": "vbscript:x" }),
        json!({ "verification_uri_complete": "https://a.example/\u{1b}[2J" }),
        json!({ "user_code": "X".repeat(65) }),
        json!({ "user_code": "A\u{1b}[2J" }),
        json!({ "user_code": "" }),
        json!({ "device_code": null }),
        json!({ "padding": "x".repeat(64 * 1024) }),
    ] {
        let (issuing, _issuer, _server, host) = world().await;
        *issuing.device.lock().unwrap() = answer.clone();
        let error = host.device_login("a").await.expect_err(&answer.to_string());
        assert_eq!(error.kind(), ErrorKind::Unauthorized);
        assert!(!error.to_string().contains("canary"), "{error}");
        host.shutdown().await;
    }
    for endpoint in ["http://169.254.169.254/code", "http://10.0.0.1/code", "file:///code"] {
        let (issuing, issuer, _server, host) = world().await;
        *issuing.metadata.lock().unwrap() = json!({ "device_authorization_endpoint": endpoint });
        let error = host.device_login("a").await.expect_err(endpoint).to_string();
        assert!(error.contains("is not asked") || error.contains("is not an https URL"), "{error}");
        assert_eq!(issuer.count("POST /code"), 0);
        host.shutdown().await;
    }
}

#[tokio::test]
async fn where_no_codes_are_given_it_is_said_what_to_do() {
    let (_issuing, issuer, server) = protected().await;
    let host = host(&[&server], |builder| builder).await;
    let error = host.device_login("a").await.unwrap_err().to_string();
    assert!(error.contains("`mcp-host login a` without --device") && error.contains(&issuer.url), "{error}");
    assert_eq!(issuer.count("POST /register"), 0);
    host.shutdown().await;
}

#[tokio::test]
async fn a_server_that_takes_proofs_gets_a_token_bound_to_a_key() {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    gives_codes(&issuing, &issuer);
    issuing.metadata.lock().unwrap()["dpop_signing_alg_values_supported"] = json!(["ES256"]);
    let issuer_url = issuer.url.clone();
    let server = Site::start(|url| {
        move |asked: &Asked| match asked.method.as_str() {
            "GET" => Told::json(
                200,
                &json!({ "resource": format!("{url}/mcp"), "authorization_servers": [issuer_url],
                         "dpop_bound_access_tokens_required": true }),
            ),
            _ => Told::Answer(401, vec![("www-authenticate", "DPoP".to_owned())], String::new()),
        }
    })
    .await;
    let host = host(&[&server], |builder| builder).await;
    host.device_login("a").await.unwrap().finish().await.unwrap();
    let bound =
        |line: &str| issuer.asked().iter().any(|asked| asked.line() == line && asked.headers.contains_key("dpop"));
    assert!(bound("POST /token") && !bound("POST /code"));
    host.shutdown().await;
}

#[tokio::test]
async fn a_host_that_shuts_down_ends_it() {
    let (_issuing, issuer, _server, host) = world().await;
    let login = host.device_login("a").await.unwrap();
    let (ended, ()) = futures_util::future::join(login.finish(), host.shutdown()).await;
    assert!(ended.unwrap_err().to_string().contains("shut down"));
    assert_eq!(issuer.count("POST /token"), 0);
}

#[cfg(unix)]
mod program {
    use std::path::Path;

    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;

    use super::super::program::{Said, daemon, mcp_host, once, opener, spawn, started};
    use super::super::world::{PATIENCE, gives_codes, protected};
    use super::not_yet;

    /// Returns what the daemon says about polling a device login once more.
    async fn look(home: &Path, number: u64) -> String {
        let sockets = std::fs::read_dir(home.join("mcp-host")).unwrap();
        let mut paths = sockets.map(|entry| entry.unwrap().path());
        let socket = paths.find(|path| path.extension().is_some_and(|extension| extension == "sock")).unwrap();
        let mut stream = UnixStream::connect(socket).await.unwrap();
        let request = json!({ "look": { "login": number } });
        stream.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn h97_a_login_by_a_code_from_a_shell_says_the_code_and_no_secret() {
        let (issuing, issuer, site) = protected().await;
        let (home, said) = (tempfile::tempdir().unwrap(), Said::default());
        let home = home.path();
        let _daemon = daemon(home, &site, &said).await;
        said.line(|line| line.contains("mcp-host login a")).await;
        let refused = once(home, &["login", "a", "--device"], &said).await;
        assert_eq!(refused.status.code(), Some(3));
        said.line(|line| line.contains("lets nobody sign in by a code") && line.contains("without --device")).await;

        gives_codes(&issuing, &issuer);
        // A user whose browser cannot return to the program is told so.
        let _browser = spawn(mcp_host(home, &["login", "a", "--no-browser"]), &said);
        said.line(|line| line.contains("mcp-host login a --device")).await;
        not_yet(&issuing, &["authorization_pending"]);
        let mut login = spawn(mcp_host(home, &["login", "a", "--device", "--no-browser", "-vvv"]), &said);
        assert!(tokio::time::timeout(PATIENCE, login.wait()).await.unwrap().unwrap().success());
        said.line(|line| line == format!("go to {}/device and enter WDJB-MJHT", issuer.url)).await;
        said.line(|line| line.contains("with a browser on any machine, within 10 min")).await;
        said.line(|line| line.contains("signed in to `a`; the token is kept in memory")).await;
        said.line(|line| line.contains("✓ a")).await;
        assert_eq!((issuer.count("POST /token"), issuer.count("POST /code")), (2, 1));
        let canary: Vec<_> = said.all().into_iter().filter(|line| line.contains("canary")).collect();
        assert_eq!(canary, Vec::<String>::new());
    }

    #[tokio::test]
    async fn h67_the_page_with_the_code_is_opened_and_an_interrupt_ends_the_login() {
        let (issuing, issuer, site) = protected().await;
        gives_codes(&issuing, &issuer);
        let (home, said) = (tempfile::tempdir().unwrap(), Said::default());
        let home = home.path();
        let opened = opener(home);
        let _daemon = daemon(home, &site, &said).await;
        said.line(|line| line.contains("mcp-host login a")).await;
        not_yet(&issuing, &["authorization_pending"; 100]);
        let mut login = spawn(mcp_host(home, &["login", "a", "--device"]), &said);
        assert_eq!(started(&opened).await, format!("1 {}/device?user_code=WDJB-MJHT", issuer.url));
        said.line(|line| line.contains("and enter WDJB-MJHT")).await;
        let id = login.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        let end = tokio::time::timeout(PATIENCE, login.wait()).await.unwrap().unwrap();
        assert_eq!(end.code(), Some(130));
        // The daemon does not know it any more.
        assert!(look(home, 1).await.contains("over already"));
    }
}

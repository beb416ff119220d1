//! Signing in to servers, from outside: who is asked for what, how often, and who gets which token (`docs/hazards.md`
//! H67 to H78).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(unix)]
mod alone;
mod device;
mod endpoint;
#[cfg(unix)]
mod helper;
mod invite;
mod kept;
mod lies;
mod limits;
mod listings;
mod out;
mod program;
mod races;
mod scopes;
pub(crate) mod site;
pub(crate) mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mcp_host::{ErrorKind, StateName};
use serde_json::json;

use site::Site;
use world::{
    Issuing, Judge, PATIENCE, Shared, User, agreed_login, call, connected, guarded, host, issuer, named, of_a_user,
    protected, server, state,
};

#[tokio::test]
async fn a_user_signs_in_once_and_calls_go() {
    let (issuing, issuer, server) = protected().await;
    let (host, user) = of_a_user(&server).await;
    call(&host).await.unwrap();
    call(&host).await.unwrap();
    assert_eq!((state(&host), user.prompts()), (StateName::Connected, 1));
    let held = host.holding("a").await.unwrap().unwrap();
    assert_eq!((held.issuer, held.resource), (issuer.url.clone(), format!("{}/mcp", server.url)));
    // `resource` goes with both, and the verifier only to the token endpoint.
    let page = user.pages.lock().unwrap()[0].clone();
    assert!(page.as_str().contains("resource=http") && !page.as_str().contains("verifier"));
    let asked = issuer.asked();
    let token = asked.iter().find(|asked| asked.line() == "POST /token").unwrap();
    assert_eq!(token.field("resource"), Some(format!("{}/mcp", server.url)));
    assert!(token.field("code_verifier").is_some_and(|verifier| verifier.len() >= 43));
    // Every request from then on carries it, including the last one.
    host.shutdown().await;
    let last = server.asked().pop().unwrap();
    assert!(issuing.takes(last.token()), "{}", last.line());
}

#[tokio::test]
async fn a_server_that_takes_no_proofs_is_sent_none() {
    let (issuing, issuer, server) = protected().await;
    *issuing.metadata.lock().unwrap() = json!({ "dpop_signing_alg_values_supported": ["ES256"] });
    let (host, user) = of_a_user(&server).await;
    assert_eq!((state(&host), user.prompts()), (StateName::Connected, 1));
    let bound = |site: &Site| site.asked().iter().any(|asked| asked.headers.contains_key("dpop"));
    assert!(!bound(&issuer) && !bound(&server));
    host.shutdown().await;
}

#[tokio::test]
async fn h74_a_token_that_never_works_costs_six_requests_and_one_prompt() {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let server = server(named(&issuer), Arc::new(|_| false)).await;
    let (host, user) = of_a_user(&server).await;
    assert_eq!(state(&host), StateName::Unauthorized);
    for _ in 0..10 {
        call(&host).await.unwrap_err();
    }
    let requests = [server.lines(), issuer.lines()].concat();
    assert!(requests.len() <= 6, "{requests:?}");
    assert_eq!(user.prompts(), 1);
    host.shutdown().await;
}

#[tokio::test]
async fn h74_a_server_that_takes_no_token_any_more_costs_six_requests_and_no_prompt() {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let open = Arc::new(AtomicBool::new(true));
    let takes = {
        let (open, issuing) = (open.clone(), issuing.clone());
        move |token: Option<&str>| open.load(Ordering::SeqCst) && issuing.takes(token)
    };
    let server = server(named(&issuer), Arc::new(takes)).await;
    let (host, user) = of_a_user(&server).await;
    call(&host).await.unwrap();
    let before = server.lines().len() + issuer.lines().len();
    open.store(false, Ordering::SeqCst);
    for done in futures_util::future::join_all((0..20).map(|_| call(&host))).await {
        done.unwrap_err();
    }
    for _ in 0..10 {
        assert_eq!(call(&host).await.unwrap_err().kind(), ErrorKind::Unauthorized);
    }
    // Each call in flight got its own refusal, and some a replay; the response to them happened once.
    assert_eq!((issuer.count("POST /token"), user.prompts()), (2, 1));
    let asked = server.lines().len() + issuer.lines().len() - before;
    assert!(asked <= 20 + 20 + 6, "{asked}");
    host.shutdown().await;
}

#[tokio::test]
async fn h74_without_a_user_at_hand_the_server_waits_for_one_and_says_how() {
    let (_issuing, issuer, server) = protected().await;
    let host = host(&[&server], |builder| builder).await;
    let status = host.status();
    assert_eq!(status[0].state, StateName::Unauthorized);
    let cause = status[0].last_error.clone().unwrap_or_default();
    assert!(cause.contains("mcp-host login a"), "{cause}");
    // The login as a value; the server comes back by itself.
    let (login, back) = agreed_login(&host, "http://127.0.0.1:1/x").await;
    assert_eq!(login.issuer(), issuer.url);
    login.finish(&back).await.unwrap();
    connected(&host).await;
    call(&host).await.unwrap();
    // Signing out revokes the token at its issuer, and leaves nothing behind.
    assert!(host.logout("a").await.unwrap());
    assert_eq!((issuer.count("POST /revoke"), host.holding("a").await.unwrap()), (1, None));
    assert!(!host.logout("a").await.unwrap());
    host.shutdown().await;
}

#[tokio::test]
async fn h70_what_does_not_belong_to_the_login_brings_no_token() {
    let (issuing, issuer, server) = protected().await;
    *issuing.metadata.lock().unwrap() = json!({ "authorization_response_iss_parameter_supported": true });
    let host = host(&[&server], |builder| builder).await;
    for (from, to) in [
        ("state=", "state=x"),
        ("http://127.0.0.1:1/", "http://127.0.0.1:2/"),
        // The server promises to identify itself, but does not.
        ("code=code-canary", "code=code-canary"),
        ("code=code-canary", "error=boo-canary&iss=https://evil.example"),
        ("code=code-canary", "code=code-canary&iss=https://evil.example"),
    ] {
        let (login, back) = agreed_login(&host, "http://127.0.0.1:1/x").await;
        let error = login.finish(&back.replace(from, to)).await.unwrap_err();
        assert!(matches!(error, mcp_host::auth::Error::Redirect(_)), "{to}: {error}");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
    assert_eq!(issuer.count("POST /token"), 0);
    host.shutdown().await;
}

#[tokio::test]
async fn h69_metadata_that_lies_leads_to_no_page() {
    for (metadata, resource) in [
        (json!({ "issuer": "https://evil.example" }), None),
        (json!({ "code_challenge_methods_supported": ["plain"] }), None),
        (json!({ "code_challenge_methods_supported": null }), None),
        (json!({ "authorization_endpoint": "javascript:alert(1)" }), None),
        (json!({ "authorization_endpoint": "file:///bin/sh" }), None),
        (json!({ "authorization_endpoint": "https://a.example/$(touch marker) x" }), None),
        (
            json!({ "token_endpoint": "http://169.254.169.254/token", "registration_endpoint": "http://10.0.0.1/x" }),
            None,
        ),
        (json!({}), Some("https://evil.example/mcp")),
    ] {
        let issuing = Arc::new(Issuing::default());
        *issuing.metadata.lock().unwrap() = metadata.clone();
        let issuer = issuer(&issuing).await;
        let server = match resource {
            None => guarded(&issuer, &issuing).await,
            Some(other) => speaks_of(other, &issuer).await,
        };
        let (host, user) = of_a_user(&server).await;
        assert_eq!((state(&host), user.prompts()), (StateName::Unauthorized, 0), "{metadata}");
        assert_eq!(issuer.count("POST /token"), 0);
        host.shutdown().await;
    }
}

/// A server whose metadata is that of another one.
async fn speaks_of(other: &'static str, issuer: &Site) -> Site {
    let issuer = issuer.url.clone();
    Site::start(|_| {
        move |asked: &site::Asked| match asked.method.as_str() {
            "GET" => site::Told::json(200, &json!({ "resource": other, "authorization_servers": [issuer] })),
            _ => site::Told::Answer(401, vec![("www-authenticate", "Bearer".to_owned())], String::new()),
        }
    })
    .await
}

#[tokio::test]
async fn h71_each_server_gets_the_token_that_is_for_it() {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let (one, other) = (guarded(&issuer, &issuing).await, guarded(&issuer, &issuing).await);
    let user = User::default();
    let host = host(&[&one, &other], |builder| builder.interaction(user.clone())).await;
    let of = |site: &Site| {
        let mut tokens: Vec<_> = site.asked().iter().filter_map(|asked| asked.token().map(str::to_owned)).collect();
        tokens.sort();
        tokens.dedup();
        tokens
    };
    let (first, second) = (of(&one), of(&other));
    assert_eq!((first.len(), second.len(), user.prompts()), (1, 1, 2));
    assert_ne!(first, second);
    // As a header, and nowhere else.
    for asked in one.asked().iter().chain(&other.asked()) {
        assert!(!asked.path.contains("canary") && !asked.body.contains("canary"), "{}", asked.path);
    }
    let resources: Vec<_> = issuer.asked().iter().filter_map(|asked| asked.field("resource")).collect();
    assert_eq!(resources.len(), 2);
    assert!(resources.contains(&format!("{}/mcp", one.url)) && resources.contains(&format!("{}/mcp", other.url)));
    host.shutdown().await;
}

#[tokio::test]
async fn h78_another_issuer_is_told_nothing_of_the_first() {
    let (first, second) = (Arc::new(Issuing::default()), Arc::new(Issuing::default()));
    let (one, other) = (issuer(&first).await, issuer(&second).await);
    let moved = Arc::new(AtomicBool::new(false));
    let (urls, at) = ((one.url.clone(), other.url.clone()), moved.clone());
    let named = move || if at.load(Ordering::SeqCst) { urls.1.clone() } else { urls.0.clone() };
    let (good, at) = ((first.clone(), second.clone()), moved.clone());
    let takes: Judge =
        Arc::new(move |token| if at.load(Ordering::SeqCst) { good.1.takes(token) } else { good.0.takes(token) });
    let server = server(Arc::new(named), takes).await;
    let (host, user) = of_a_user(&server).await;
    call(&host).await.unwrap();
    moved.store(true, Ordering::SeqCst);
    first.expire();
    call(&host).await.unwrap();
    assert_eq!((other.count("POST /register"), user.prompts()), (1, 2));
    let port = one.url.rsplit(':').next().unwrap().to_owned();
    for asked in other.asked() {
        assert!(!asked.body.contains(&format!("of-{port}")) && !asked.path.contains(&format!("of-{port}")));
    }
    assert!(!user.pages.lock().unwrap()[1].as_str().contains(&format!("of-{port}")));
    assert_eq!(host.holding("a").await.unwrap().unwrap().issuer, other.url);
    host.shutdown().await;
}

#[tokio::test]
async fn h76_a_refusal_outranks_the_clock_and_the_refresh_token_brings_another() {
    let (issuing, issuer, server) = protected().await;
    let (host, user) = of_a_user(&server).await;
    call(&host).await.unwrap();
    // An hour was promised.
    issuing.expire();
    call(&host).await.unwrap();
    assert_eq!((user.prompts(), issuer.count("POST /token"), issuing.reused.load(Ordering::SeqCst)), (1, 2, 0));
    host.shutdown().await;
}

#[tokio::test]
async fn h72_many_calls_and_two_hosts_renew_a_token_once() {
    let (issuing, issuer, server) = protected().await;
    let user = User::default();
    let (store, state) = (Shared::default(), tempfile::tempdir().unwrap());
    let with = |builder: mcp_host::HostBuilder| {
        builder.interaction(user.clone()).secret_store(store.clone()).state_directory(state.path())
    };
    let one = host(&[&server], with).await;
    let other = host(&[&server], with).await;
    for round in 1..=5 {
        issuing.expire();
        let calls = (0..40).map(|number| if number % 2 == 0 { call(&one) } else { call(&other) });
        for done in futures_util::future::join_all(calls).await {
            done.unwrap();
        }
        assert_eq!(issuer.count("POST /token"), 1 + round);
    }
    assert_eq!((user.prompts(), issuing.reused.load(Ordering::SeqCst)), (1, 0));
    one.shutdown().await;
    other.shutdown().await;
}

#[tokio::test]
async fn h73_a_refresh_whose_answer_is_lost_is_not_sent_again() {
    let (issuing, issuer, server) = protected().await;
    let (host, _user) = of_a_user(&server).await;
    call(&host).await.unwrap();
    issuing.loses_answers.store(true, Ordering::SeqCst);
    issuing.expire();
    call(&host).await.unwrap_err();
    issuing.loses_answers.store(false, Ordering::SeqCst);
    assert_eq!((issuer.count("POST /token"), issuing.reused.load(Ordering::SeqCst)), (2, 0));
    host.shutdown().await;
}

#[tokio::test]
async fn h73_a_refresh_token_that_may_be_spent_is_not_sent_by_whoever_comes_next() {
    let (issuing, issuer, server) = protected().await;
    issuing.life.store(1, Ordering::SeqCst);
    let (host, user) = of_a_user(&server).await;
    issuing.loses_answers.store(true, Ordering::SeqCst);
    // It expires soon, and renewing it fails; the server still accepts the old one.
    let renewed = async {
        while issuer.count("POST /token") < 2 {
            call(&host).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, renewed).await.unwrap();
    issuing.loses_answers.store(false, Ordering::SeqCst);
    issuing.life.store(0, Ordering::SeqCst);
    issuing.expire();
    call(&host).await.unwrap();
    assert_eq!((issuing.reused.load(Ordering::SeqCst), user.prompts()), (0, 2));
    host.shutdown().await;
}

#[tokio::test]
async fn h75_what_is_no_token_is_never_sent() {
    for answer in [
        json!({ "access_token": "a\r\nx-canary: 1", "token_type": "Bearer" }),
        json!({ "access_token": "", "token_type": "Bearer" }),
        json!({ "access_token": "x".repeat(16 * 1024 + 1), "token_type": "Bearer" }),
        json!({ "access_token": "good", "token_type": "mac" }),
        json!({ "access_token": "good" }),
        json!({ "token_type": "Bearer" }),
        json!({ "access_token": ["good"], "token_type": "Bearer" }),
        json!("good"),
        json!({ "access_token": "good", "token_type": "Bearer", "padding": "x".repeat(64 * 1024) }),
    ] {
        let (issuing, _issuer, server) = protected().await;
        *issuing.answer.lock().unwrap() = Some(answer.clone());
        let (host, _user) = of_a_user(&server).await;
        assert_ne!(state(&host), StateName::Connected, "{answer:.80}");
        assert!(server.asked().iter().all(|asked| asked.token().is_none()), "{answer:.80}");
        host.shutdown().await;
    }
}

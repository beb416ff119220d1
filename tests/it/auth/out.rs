//! Logins that end while they are used, and logins and logouts by another program.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join;
use mcp_host::protocol::Raw;
use mcp_host::{ErrorKind, StateName};
use serde_json::json;
use tokio::sync::Notify;

use super::site::{Site, Told};
use super::world::{
    self, Issuing, becomes, call, call_with, connected, issuer, named, protected, serving, sharing, sign_in,
};

/// A server like `guarded`, where calls with these words are answered, or refused, when the gate is opened.
async fn gated(by: &Site, issuing: &Arc<Issuing>, gate: &Arc<Notify>) -> Site {
    let gate = gate.clone();
    serving(named(by), issuing.judge(), move |asked, refusal| {
        let told = if asked.body.contains("refused") { refusal.with(401, "") } else { world::mcp(asked) };
        let waits = ["held", "refused"].iter().any(|word| asked.body.contains(word));
        if waits { Told::Held(gate.clone(), Box::new(told)) } else { told }
    })
    .await
}

#[tokio::test]
async fn who_signs_out_is_unauthorized_at_once_and_stays_that_whatever_comes_of_calls_that_run() {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let gate = Arc::new(Notify::new());
    let server = gated(&issuer, &issuing, &gate).await;
    let host = world::host(&[&server], |builder| builder).await;
    sign_in(&host).await;
    let run = async |text: &str| call_with(&host, Raw::from_value(&json!({ "text": text }))).await;
    let under_way = || server.asked().iter().filter(|asked| asked.body.contains("\"text\"")).count();
    let out = async {
        while under_way() < 2 {
            tokio::task::yield_now().await;
        }
        assert!(host.logout("a").await.unwrap());
        becomes(&host, StateName::Unauthorized).await;
        let why = host.status()[0].last_error.clone().unwrap_or_default();
        assert!(why.contains("signed out") && why.ends_with("sign in with: mcp-host login a"), "{why}");
        assert_eq!(call(&host).await.unwrap_err().kind(), ErrorKind::Unauthorized);
        assert_eq!(server.lines().last().map(String::as_str), Some("POST /mcp"));
        gate.notify_waiters();
    };
    let ((held, refused), ()) = join(join(run("held"), run("refused")), out).await;
    assert_eq!(held.unwrap().text("isError"), None, "it was let in while the login was good");
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unauthorized);
    // It did not renew a login that was signed out of, although its issuer would still have accepted that here.
    assert_eq!((issuer.count("POST /token"), issuer.count("POST /revoke")), (1, 1));
    assert_eq!((host.holding("a").await.unwrap(), host.status()[0].state), (None, StateName::Unauthorized));
    sign_in(&host).await;
    call(&host).await.unwrap();
    host.shutdown().await;
}

#[tokio::test]
async fn h72_hosts_that_share_files_follow_each_other_in_and_out() {
    let (issuing, issuer, server) = protected().await;
    let folder = tempfile::tempdir().unwrap();
    let start = async || {
        let host = sharing(&server, &folder).await;
        becomes(&host, StateName::Unauthorized).await;
        host
    };
    let (first, second) = (start().await, start().await);
    for _ in 0..2 {
        let before = issuer.count("POST /token");
        sign_in(&first).await;
        connected(&second).await;
        call(&second).await.unwrap();
        assert_eq!(issuer.count("POST /token"), before + 1, "by the same token");
        assert!(first.logout("a").await.unwrap());
        // Its token is not accepted any more. It is not renewed: that would revive the login that was signed out of.
        issuing.expire();
        assert_eq!(call(&second).await.unwrap_err().kind(), ErrorKind::Unauthorized);
        becomes(&second, StateName::Unauthorized).await;
        assert_eq!((issuer.count("POST /token"), issuing.reused.load(Ordering::SeqCst)), (before + 1, 0));
        assert_eq!((first.holding("a").await.unwrap(), second.holding("a").await.unwrap()), (None, None));
    }
    first.shutdown().await;
    second.shutdown().await;
}

//! Tokens that are renewed while something else happens to their login.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mcp_host::config::{Grant, Start};
use mcp_host::{ErrorKind, Host, StateName};
use tempfile::TempDir;
use tokio::sync::Notify;

use super::site::Site;
use super::world::{
    self, PATIENCE, Shared, agreed_login, becomes, call, connected, of_a_user, protected, sharing, sharing_with,
    sign_in, without_a_user,
};

/// Waits until the issuer got this many token requests.
async fn asked_for_tokens(issuer: &Site, times: usize) {
    let asked = async {
        while issuer.count("POST /token") < times {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap();
}

fn last_revoked(issuer: &Site) -> Option<String> {
    issuer.asked().iter().rfind(|asked| asked.line() == "POST /revoke").and_then(|asked| asked.field("token"))
}

#[tokio::test]
async fn h72_who_gives_up_a_call_does_not_lose_the_token_that_is_renewed_for_it() {
    let (issuing, issuer, server) = protected().await;
    let (host, user) = of_a_user(&server).await;
    call(&host).await.unwrap();
    let gate = Arc::new(Notify::new());
    *issuing.gate.lock().unwrap() = Some(gate.clone());
    issuing.expire();
    tokio::select! {
        answer = call(&host) => panic!("{answer:?}"),
        () = asked_for_tokens(&issuer, 2) => {}
    }
    *issuing.gate.lock().unwrap() = None;
    gate.notify_one();
    call(&host).await.unwrap();
    assert_eq!((issuing.reused.load(Ordering::SeqCst), issuer.count("POST /token"), user.prompts()), (0, 2, 1));
    host.shutdown().await;
}

#[tokio::test]
async fn h72_a_token_that_is_being_renewed_when_the_host_ends_is_kept_first() {
    let (issuing, issuer, server) = protected().await;
    let folder = TempDir::new().unwrap();
    // No server is connected that might be awaited.
    let first = sharing_with(&server, &folder, |config| config.servers[0].start = Start::Lazy).await;
    issuing.life.store(1, Ordering::SeqCst);
    let (login, back) = agreed_login(&first, "http://127.0.0.1:1/x").await;
    login.finish(&back).await.unwrap();
    issuing.life.store(0, Ordering::SeqCst);
    let gate = Arc::new(Notify::new());
    *issuing.gate.lock().unwrap() = Some(gate.clone());
    let renewed = async {
        loop {
            first.holding("a").await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    // The caller that wanted it is gone.
    tokio::select! {
        () = renewed => unreachable!(),
        () = asked_for_tokens(&issuer, 2) => {}
    }
    let mut ending = std::pin::pin!(first.shutdown());
    let early = tokio::time::timeout(Duration::from_millis(300), &mut ending).await;
    assert!(early.is_err(), "the token has not come yet");
    gate.notify_one();
    ending.await;
    *issuing.gate.lock().unwrap() = None;
    let second = sharing(&server, &folder).await;
    call(&second).await.unwrap();
    assert_eq!((issuing.reused.load(Ordering::SeqCst), issuer.count("POST /token")), (0, 2));
    second.shutdown().await;
}

#[tokio::test]
async fn h72_a_login_that_another_host_renews_does_not_outlive_its_end() {
    let (issuing, issuer, server) = protected().await;
    let folder = TempDir::new().unwrap();
    let (first, second) = (sharing(&server, &folder).await, sharing(&server, &folder).await);
    sign_in(&first).await;
    connected(&second).await;
    let gate = Arc::new(Notify::new());
    *issuing.gate.lock().unwrap() = Some(gate.clone());
    issuing.expire();
    let out = async {
        asked_for_tokens(&issuer, 2).await;
        let (out, ()) = tokio::join!(second.logout("a"), async {
            // It gets what it waits for before this host does.
            while last_revoked(&issuer).is_none() && second.status()[0].state == StateName::Connected {
                tokio::task::yield_now().await;
                gate.notify_one();
            }
        });
        out.unwrap()
    };
    let (called, out) = tokio::join!(call(&first), out);
    assert!(called.is_ok() && out, "{called:?}");
    assert_eq!(last_revoked(&issuer).as_deref(), Some("refresh-canary-1"), "the one that was got last");
    becomes(&second, StateName::Unauthorized).await;
    // Nothing of it is left for any host.
    let third = sharing(&server, &folder).await;
    assert_eq!(third.holding("a").await.unwrap(), None);
    *issuing.gate.lock().unwrap() = None;
    issuing.expire();
    assert_eq!(call(&first).await.unwrap_err().kind(), ErrorKind::Unauthorized);
    assert_eq!((issuing.reused.load(Ordering::SeqCst), issuer.count("POST /token")), (0, 2));
    for host in [first, second, third] {
        host.shutdown().await;
    }
}

#[tokio::test]
async fn who_signs_out_ends_the_login_that_there_is_not_the_one_that_it_remembers() {
    let (issuing, issuer, server) = protected().await;
    let folder = TempDir::new().unwrap();
    let (first, second) = (sharing(&server, &folder).await, sharing(&server, &folder).await);
    sign_in(&first).await;
    connected(&second).await;
    // With another redirect address, thus as another client and under another name.
    let (login, back) = agreed_login(&first, "http://127.0.0.1:2/y").await;
    login.finish(&back).await.unwrap();
    assert_eq!(issuer.count("POST /register"), 2);
    assert!(second.logout("a").await.unwrap());
    assert_eq!(last_revoked(&issuer).as_deref(), Some("refresh-canary-1"));
    let third = sharing(&server, &folder).await;
    assert_eq!(third.holding("a").await.unwrap(), None);
    issuing.expire();
    assert_eq!(call(&first).await.unwrap_err().kind(), ErrorKind::Unauthorized);
    for host in [first, second, third] {
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h73_a_renewal_that_ends_late_leaves_a_login_made_meanwhile_alone() {
    let (issuing, issuer, server) = protected().await;
    let host = world::host(&[&server], |builder| builder).await;
    sign_in(&host).await;
    call(&host).await.unwrap();
    let gate = Arc::new(Notify::new());
    *issuing.gate.lock().unwrap() = Some(gate.clone());
    issuing.loses_answers.store(true, Ordering::SeqCst);
    issuing.expire();
    let (login, back) = agreed_login(&host, "http://127.0.0.1:1/x").await;
    let meanwhile = async {
        asked_for_tokens(&issuer, 2).await;
        let lost = async {
            asked_for_tokens(&issuer, 3).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            gate.notify_one();
        };
        tokio::join!(login.finish(&back), lost).0.unwrap();
    };
    let (_, ()) = tokio::join!(call(&host), meanwhile);
    assert!(host.holding("a").await.unwrap().is_some_and(|held| held.renewable));
    call(&host).await.unwrap();
    host.shutdown().await;
}

#[tokio::test]
async fn h74_somebody_is_asked_again_when_a_login_that_worked_has_ended_by_itself() {
    let (issuing, _issuer, server) = protected().await;
    issuing.life.store(1, Ordering::SeqCst);
    let (host, user) = of_a_user(&server).await;
    call(&host).await.unwrap();
    issuing.life.store(0, Ordering::SeqCst);
    issuing.end_renewals();
    // The server still accepts the token; the failure to renew it is found out before it expires.
    let asked = async {
        while user.prompts() < 2 {
            call(&host).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap();
    call(&host).await.unwrap();
    assert_eq!(user.prompts(), 2);
    host.shutdown().await;
}

#[tokio::test]
async fn who_needs_no_user_gets_another_token_when_the_one_that_was_kept_is_gone() {
    let (issuing, _issuer, server) = protected().await;
    let store = Shared::default();
    let start = async || {
        let config = without_a_user(&server, Grant::ClientCredentials);
        let host = Host::builder().config(config).secret_store(store.clone()).start().await.unwrap();
        host.settled().await;
        host
    };
    let (first, second) = (start().await, start().await);
    call(&first).await.unwrap();
    assert!(second.logout("a").await.unwrap());
    issuing.expire();
    call(&first).await.unwrap();
    assert_eq!(first.status()[0].state, StateName::Connected);
    first.shutdown().await;
    second.shutdown().await;
}

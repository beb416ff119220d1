//! Servers that require more scopes than a login has granted: for some requests, and from users who may decline
//! (`docs/hazards.md` H74).

use std::sync::Arc;

use futures_util::future::BoxFuture;
use mcp_host::auth::Interaction;
use mcp_host::protocol::Raw;
use mcp_host::{ErrorKind, Host, StateName};
use serde_json::json;
use url::Url;

use super::site::{Asked, Site};
use super::world::{
    self, Issuing, User, agreed_login, call, call_with, connected, host, issuer, named, serving, state,
};

/// A server that requires `read` of everyone, and more for some requests.
async fn wanting(issuer: &Site, more: impl Fn(&Asked) -> Option<String> + Send + Sync + 'static) -> Site {
    serving(named(issuer), Arc::new(|_| true), move |asked, refusal| match more(asked) {
        _ if asked.token().is_none() => refusal.with(401, "scope=\"read\", "),
        Some(scope) => refusal.with(403, &format!("error=\"insufficient_scope\", scope=\"{scope}\", ")),
        None => world::mcp(asked),
    })
    .await
}

/// The scope that a call says it needs.
fn said(asked: &Asked) -> Option<String> {
    let message: serde_json::Value = serde_json::from_str(&asked.body).ok()?;
    message["params"]["arguments"]["needs"].as_str().map(str::to_owned)
}

/// Checks that a call that needs this scope is refused, with no other effect.
async fn refused(host: &Host, needs: &str) {
    let error = call_with(host, Raw::from_value(&json!({ "needs": needs }))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    assert!(error.to_string().contains(&format!("{needs:?}")), "{error}");
    assert_eq!(state(host), StateName::Connected);
    call(host).await.unwrap();
}

/// A user who signs in once, and declines more.
#[derive(Clone, Default)]
struct Reluctant(User);

impl Interaction for Reluctant {
    fn redirect_uri(&self) -> Url {
        self.0.redirect_uri()
    }

    fn authorize(&self, server: &str, page: Url) -> BoxFuture<'static, Result<String, String>> {
        let agrees = self.0.authorize(server, page);
        if self.0.prompts() > 1 { Box::pin(async { Err("not now".to_owned()) }) } else { agrees }
    }
}

#[tokio::test]
async fn h74_more_scopes_are_asked_for_once_and_together_with_those_before() {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let user = User::default();
    let pages = user.pages.clone();
    // A token of the second login has the scope; for the text `never` no login is ever enough.
    let server = wanting(&issuer, move |asked| {
        let second = pages.lock().unwrap().len() > 1;
        let refused = asked.body.contains("\"tools/call\"") && !second || asked.body.contains("never");
        refused.then(|| "write".to_owned())
    })
    .await;
    let host = host(&[&server], |builder| builder.interaction(user.clone())).await;
    call(&host).await.unwrap();
    let asked: Vec<_> = user.pages.lock().unwrap().iter().map(|page| page.query().unwrap().to_owned()).collect();
    assert!(
        asked.len() == 2 && asked[0].contains("scope=read&") && asked[1].contains("scope=read+write&"),
        "{asked:?}"
    );
    // What was requested already is not requested again, and the server stays connected.
    for _ in 0..5 {
        let never = Raw::from_value(&json!({ "text": "never" }));
        let refused = call_with(&host, never).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unauthorized, "{refused}");
    }
    assert_eq!((user.prompts(), state(&host)), (2, StateName::Connected));
    host.shutdown().await;
}

#[tokio::test]
async fn h74_who_does_not_want_more_is_asked_three_times_for_the_same_and_twelve_times_in_all() {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let (server, user) = (wanting(&issuer, said).await, Reluctant::default());
    let host = host(&[&server], |builder| builder.interaction(user.clone())).await;
    for _ in 0..5 {
        refused(&host, "write").await;
    }
    assert_eq!(user.0.prompts(), 1 + 3);
    for number in 0..12 {
        refused(&host, &format!("scope-{number}")).await;
    }
    assert_eq!(user.0.prompts(), 1 + 12);
    host.shutdown().await;
}

#[tokio::test]
async fn h74_without_a_user_at_hand_the_next_login_is_for_what_was_lacking() {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let server = wanting(&issuer, said).await;
    let host = host(&[&server], |builder| builder).await;
    world::sign_in(&host).await;
    refused(&host, "write").await;
    let (login, back) = agreed_login(&host, "http://127.0.0.1:1/x").await;
    let page = login.authorize_url().query().unwrap();
    assert!(page.contains("scope=read+write&"), "{page}");
    login.finish(&back).await.unwrap();
    connected(&host).await;
    host.shutdown().await;
}

//! Logins that end while they are used, and logins and their ends by another program.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join;
use mcp_host::config::{SecretKey, StoreKind};
use mcp_host::protocol::Raw;
use mcp_host::{ErrorKind, Host, StateName};
use serde_json::json;
use tokio::sync::Notify;

use super::kept::{becomes, connected};
use super::site::{Asked, Site, Told};
use super::world::{self, Issuing, agreed, issuer};
use super::{call, guarded};

pub(super) async fn sign_in(host: &Host) {
    let login = host.login("a", &"http://127.0.0.1:1/x".parse().unwrap()).await.unwrap();
    let back = agreed(login.authorize_url());
    login.finish(&back).await.unwrap();
    connected(host).await;
}

/// A server like `guarded`, where calls with these words are answered, or refused, when the gate is opened.
async fn gated(by: &Site, issuing: &Arc<Issuing>, gate: &Arc<Notify>) -> Site {
    let (issuer, issuing, gate) = (by.url.clone(), issuing.clone(), gate.clone());
    Site::start(|own| {
        let metadata = format!("{own}/.well-known/oauth-protected-resource/mcp");
        let refused = move || {
            Told::Answer(
                401,
                vec![("www-authenticate", format!("Bearer resource_metadata=\"{metadata}\""))],
                String::new(),
            )
        };
        move |asked: &Asked| match asked.line().as_str() {
            "GET /.well-known/oauth-protected-resource/mcp" => {
                Told::json(200, &json!({ "resource": format!("{own}/mcp"), "authorization_servers": [issuer] }))
            }
            "POST /mcp" if !issuing.takes(asked.token()) => refused(),
            "POST /mcp" if asked.body.contains("held") => Told::Held(gate.clone(), Box::new(world::mcp(asked))),
            "POST /mcp" if asked.body.contains("refused") => Told::Held(gate.clone(), Box::new(refused())),
            "POST /mcp" => world::mcp(asked),
            _ => Told::Answer(405, Vec::new(), String::new()),
        }
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
    let run = async |text: &str| {
        let arguments = Raw::from_value(&json!({ "text": text }));
        host.call_tool("a__t", arguments).timeout(Duration::from_secs(20)).await
    };
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
    // That one did not renew what was signed out of: here its issuer would still have taken it.
    assert_eq!((issuer.count("POST /token"), issuer.count("POST /revoke")), (1, 1));
    assert_eq!((host.holding("a").await.unwrap(), host.status()[0].state), (None, StateName::Unauthorized));
    sign_in(&host).await;
    call(&host).await.unwrap();
    host.shutdown().await;
}

#[tokio::test]
async fn h72_hosts_that_share_files_follow_each_other_in_and_out() {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let server = guarded(&issuer, &issuing).await;
    let folder = tempfile::tempdir().unwrap();
    let start = async || {
        let mut config = world::config(&[&server]);
        let secrets = &mut config.host.secrets;
        (secrets.store, secrets.key) = (StoreKind::File, SecretKey::parse(&"07".repeat(32)));
        let host = Host::builder().config(config).state_directory(folder.path()).start().await.unwrap();
        host.settled().await;
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
        // Its token is not taken any more. It is not renewed: that would bring back what was signed out of.
        issuing.expire();
        assert_eq!(call(&second).await.unwrap_err().kind(), ErrorKind::Unauthorized);
        becomes(&second, StateName::Unauthorized).await;
        assert_eq!((issuer.count("POST /token"), issuing.reused.load(Ordering::SeqCst)), (before + 1, 0));
        assert_eq!((first.holding("a").await.unwrap(), second.holding("a").await.unwrap()), (None, None));
    }
    first.shutdown().await;
    second.shutdown().await;
}

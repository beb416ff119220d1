//! A listing for a login is kept for that login, and gone with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mcp_host::config::{SecretKey, StoreKind};
use mcp_host::{Host, StateName};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::site::{Site, Told};
use super::world::{
    self, Issuing, PATIENCE, agreed_login, becomes, call, issuer, named, protected, serving, sharing, sign_in, state,
};
use crate::reload::until;

fn kept(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder.join("offers")).into_iter().flatten();
    files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "json")).collect()
}

/// Starts a host whose logins are stored in this folder, whatever its server's state.
async fn start(server: &Site, folder: &Path) -> Host {
    let mut config = world::config(&[server]);
    config.host.startup_wait = std::time::Duration::from_millis(300);
    (config.host.secrets.store, config.host.secrets.key) = (StoreKind::File, SecretKey::parse(&"07".repeat(32)));
    Host::builder().config(config).state_directory(folder).start().await.unwrap()
}

async fn tools(host: &Host) -> usize {
    host.catalog_ready().await.tools().len()
}

/// A server that answers nothing while it is silent.
async fn silenced(by: &Site, issuing: &Arc<Issuing>) -> (Site, Arc<AtomicBool>) {
    let silent = Arc::new(AtomicBool::new(false));
    let is_silent = silent.clone();
    let server = serving(named(by), issuing.judge(), move |asked, _| {
        let is_silent = is_silent.load(Ordering::SeqCst) && !asked.body.contains("tools/call");
        if is_silent { Told::Held(Arc::new(Notify::new()), Box::new(Told::Broken)) } else { world::mcp(asked) }
    })
    .await;
    (server, silent)
}

#[tokio::test]
async fn a_listing_is_shown_to_its_login_and_gone_when_that_is_over() {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let (server, silent) = silenced(&issuer, &issuing).await;
    let folder = tempfile::tempdir().unwrap();
    let host = start(&server, folder.path()).await;
    sign_in(&host).await;
    until(&host, |_| (kept(folder.path()).len() == 1).then_some(())).await;
    host.shutdown().await;

    silent.store(true, Ordering::SeqCst);
    let host = start(&server, folder.path()).await;
    assert_eq!(tools(&host).await, 1, "its login is there");
    assert_ne!(state(&host), StateName::Connected);
    assert!(host.logout("a").await.unwrap());
    assert!(kept(folder.path()).is_empty());
    host.kill();
    host.shutdown().await;
    assert!(kept(folder.path()).is_empty());
    let host = start(&server, folder.path()).await;
    assert_eq!(tools(&host).await, 0);
    host.kill();
    host.shutdown().await;
}

#[tokio::test]
async fn another_login_is_shown_nothing_of_the_one_before() {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let (server, silent) = silenced(&issuer, &issuing).await;
    let folder = tempfile::tempdir().unwrap();
    let host = start(&server, folder.path()).await;
    sign_in(&host).await;
    until(&host, |_| kept(folder.path()).pop()).await;
    // From now on it lists nothing, so that its lists for the next login stay unknown.
    silent.store(true, Ordering::SeqCst);
    let (login, back) = agreed_login(&host, "http://127.0.0.1:1/x").await;
    login.finish(&back).await.unwrap();
    host.kill();
    host.shutdown().await;
    let host = start(&server, folder.path()).await;
    assert_eq!(tools(&host).await, 0);
    host.kill();
    host.shutdown().await;
}

/// A connected server may announce changes, and be listed again, at any moment.
#[tokio::test]
async fn nothing_is_kept_again_after_a_login_is_over() {
    let (issuing, _issuer, server) = protected().await;
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (sharing(&server, &folder).await, sharing(&server, &folder).await);
    sign_in(&first).await;
    becomes(&second, StateName::Connected).await;
    until(&first, |_| kept(folder.path()).pop()).await;
    assert!(first.logout("a").await.unwrap());
    assert!(kept(folder.path()).is_empty());
    // The other host notices when the token must be renewed.
    issuing.expire();
    tokio::time::timeout(PATIENCE, call(&second)).await.unwrap().unwrap_err();
    becomes(&second, StateName::Unauthorized).await;
    first.shutdown().await;
    second.shutdown().await;
    assert!(kept(folder.path()).is_empty());
}

/// It stays connected, and no listing for the previous account is shown or kept.
#[tokio::test]
async fn a_connected_server_lists_anew_to_another_login() {
    let issuing = Arc::new(Issuing::default());
    let issuer = issuer(&issuing).await;
    let server = serving(named(&issuer), issuing.judge(), |asked, _| {
        let message: Value = serde_json::from_str(&asked.body).unwrap_or_default();
        if message["method"] != "tools/list" {
            return world::mcp(asked);
        }
        let account = asked.token().unwrap_or_default();
        let result = json!({ "tools": [{ "name": account, "inputSchema": { "type": "object" } }] });
        Told::json(200, &json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let host = start(&server, folder.path()).await;
    sign_in(&host).await;
    let first = until(&host, |_| kept(folder.path()).pop()).await;
    let shown = async || host.catalog_ready().await.tools().iter().map(|tool| tool.name().to_owned()).collect();
    let before: Vec<String> = shown().await;
    assert_eq!(before.len(), 1);
    let (login, back) = agreed_login(&host, "http://127.0.0.1:1/x").await;
    login.finish(&back).await.unwrap();
    let changed = async {
        while shown().await == before {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, changed).await.expect("the lists of the account before are shown");
    assert_eq!(state(&host), StateName::Connected);
    until(&host, |_| (!first.exists() && kept(folder.path()).len() == 1).then_some(())).await;
    host.shutdown().await;
}

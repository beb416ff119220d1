//! Where logins are stored between two runs, and what a locked store means for its servers (`docs/hazards.md` H77).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use mcp_host::StateName;
use mcp_host::auth::{SecretStore, StoreError};
use mcp_host::config::Secret;

use super::world::{Shared, User, agreed, call, connected, host, protected, state};

/// A store that can be locked.
#[derive(Clone, Default)]
struct Lockable(Shared, Arc<AtomicBool>);

impl Lockable {
    fn set_locked(&self, locked: bool) {
        self.1.store(locked, Ordering::SeqCst);
    }

    fn open(&self) -> Result<&Shared, StoreError> {
        if self.1.load(Ordering::SeqCst) { Err(StoreError::Locked) } else { Ok(&self.0) }
    }
}

impl SecretStore for Lockable {
    fn read(&self, key: &str) -> Result<Option<Secret>, StoreError> {
        self.open()?.read(key)
    }

    fn write(&self, key: &str, secret: &Secret) -> Result<(), StoreError> {
        self.open()?.write(key, secret)
    }

    fn remove(&self, key: &str) -> Result<(), StoreError> {
        self.open()?.remove(key)
    }
}

#[tokio::test]
async fn h77_a_server_whose_login_is_locked_away_says_so_and_nobody_is_asked_to_sign_in() {
    let (_issuing, issuer, server) = protected().await;
    let (user, store) = (User::default(), Lockable::default());
    let with = |builder: mcp_host::HostBuilder| builder.interaction(user.clone()).secret_store(store.clone());
    let before = host(&[&server], with).await;
    call(&before).await.unwrap();
    before.shutdown().await;

    store.set_locked(true);
    let after = host(&[&server], with).await;
    assert_eq!((state(&after), user.prompts()), (StateName::Unauthorized, 1));
    let wrong = after.status()[0].last_error.clone().unwrap_or_default();
    assert!(wrong.contains("the keyring is locked"), "{wrong}");
    // A logout reports it too, and removes nothing.
    assert!(after.logout("a").await.unwrap_err().to_string().contains("locked"));
    assert_eq!(after.holding("a").await.unwrap(), None);

    // The next look after unlocking brings the server back.
    store.set_locked(false);
    assert!(after.holding("a").await.unwrap().is_some());
    connected(&after).await;
    call(&after).await.unwrap();
    assert_eq!((user.prompts(), issuer.count("POST /token")), (1, 1));
    after.shutdown().await;
}

#[tokio::test]
async fn h77_a_login_over_a_locked_store_is_used_from_memory_and_replaces_nothing() {
    let (issuing, issuer, server) = protected().await;
    let (user, store) = (User::default(), Lockable::default());
    let with = |builder: mcp_host::HostBuilder| builder.interaction(user.clone()).secret_store(store.clone());
    host(&[&server], with).await.shutdown().await;
    let refreshes = || issuer.count("POST /token");
    assert_eq!(refreshes(), 1);

    store.set_locked(true);
    let locked = host(&[&server], with).await;
    let redirect = "http://127.0.0.1:1/callback".parse().unwrap();
    let login = locked.login("a", &redirect).await.unwrap();
    let back = agreed(login.authorize_url());
    assert_eq!(login.finish(&back).await.unwrap(), mcp_host::auth::Kept::Memory);
    connected(&locked).await;
    // The second renewal uses the token of the first, not the one that is locked away.
    for _ in 0..2 {
        call(&locked).await.unwrap();
        issuing.expire();
    }
    call(&locked).await.unwrap();
    assert_eq!((refreshes(), issuing.reused.load(Ordering::SeqCst)), (4, 0));
    locked.shutdown().await;
}

/// A shared store that once returns the first stored version of a token.
#[derive(Clone, Default)]
struct Late(Shared, Arc<Mutex<(Option<Secret>, bool)>>);

impl SecretStore for Late {
    fn read(&self, key: &str) -> Result<Option<Secret>, StoreError> {
        let mut late = self.1.lock().unwrap();
        if key.starts_with("token-") && std::mem::take(&mut late.1) {
            return Ok(late.0.clone());
        }
        self.0.read(key)
    }

    fn write(&self, key: &str, secret: &Secret) -> Result<(), StoreError> {
        if key.starts_with("token-") {
            self.1.lock().unwrap().0.get_or_insert_with(|| secret.clone());
        }
        self.0.write(key, secret)
    }

    fn remove(&self, key: &str) -> Result<(), StoreError> {
        self.0.remove(key)
    }
}

#[tokio::test]
async fn h72_whose_refresh_token_is_spent_takes_the_one_that_is_kept_and_removes_nothing() {
    let (issuing, _issuer, server) = protected().await;
    let (user, store) = (User::default(), Late::default());
    // Without a directory, no lock coordinates them.
    let with = |builder: mcp_host::HostBuilder| builder.interaction(user.clone()).secret_store(store.clone());
    let (slow, quick) = (host(&[&server], with).await, host(&[&server], with).await);
    issuing.expire();
    call(&quick).await.unwrap();
    store.1.lock().unwrap().1 = true;
    call(&slow).await.unwrap();
    assert_eq!((issuing.reused.load(Ordering::SeqCst), user.prompts()), (1, 1));
    issuing.expire();
    call(&quick).await.unwrap();
    assert_eq!(user.prompts(), 1);
    slow.shutdown().await;
    quick.shutdown().await;
}

#[cfg(unix)]
mod program {
    use std::path::Path;

    use tokio::process::Child;

    use super::super::program::{Said, come_back, daemon_with, mcp_host, once, spawn};
    use super::super::site::Site;
    use super::super::world::protected;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    async fn login(home: &Path, said: &Said) {
        let mut login = spawn(mcp_host(home, &["login", "a", "--no-browser"]), said);
        let page = said.line(|line| line.starts_with("http://") && line.contains("/authorize?")).await;
        come_back(&page).await;
        assert!(login.wait().await.unwrap().success());
    }

    async fn end(mut daemon: Child) {
        let id = daemon.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        daemon.wait().await.unwrap();
    }

    async fn started(home: &Path, site: &Site, vars: &[(&str, &str)]) -> (Child, Said) {
        let said = Said::default();
        (daemon_with(home, site, &said, vars).await, said)
    }

    fn lies_on_disk(folder: &Path, text: &str) -> bool {
        std::fs::read_dir(folder).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() {
                return lies_on_disk(&path, text);
            }
            let bytes = std::fs::read(&path).unwrap_or_default();
            bytes.windows(text.len()).any(|part| part == text.as_bytes())
        })
    }

    #[tokio::test]
    async fn h77_with_a_key_a_login_outlives_the_daemon_and_with_another_key_it_says_so() {
        let (_issuing, issuer, site) = protected().await;
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let key = [("MCP_HOST_SECRET_KEY", KEY)];
        let (daemon, said) = started(home, &site, &key).await;
        said.line(|line| line.contains("mcp-host login a")).await;
        login(home, &said).await;
        said.line(|line| line.contains("the token is kept in an encrypted file")).await;
        end(daemon).await;
        assert!(!lies_on_disk(home, "canary") && !lies_on_disk(home, KEY));

        let (daemon, said) = started(home, &site, &key).await;
        said.line(|line| line.contains("✓ a")).await;
        let auth = once(home, &["auth", "--json"], &said).await;
        let auth: serde_json::Value = serde_json::from_slice(&auth.stdout).unwrap();
        assert_eq!(auth[0]["holding"]["kept"], "file", "{auth}");
        assert_eq!(issuer.count("POST /token"), 1);
        end(daemon).await;

        let other = KEY.replace("AAEC", "BBBB");
        for (vars, told) in
            [(vec![("MCP_HOST_SECRET_KEY", other.as_str())], "another key"), (vec![], "its key is missing")]
        {
            let (daemon, said) = started(home, &site, &vars).await;
            said.line(|line| line.contains(told) && line.contains("mcp-host login a")).await;
            assert!(!said.all().iter().any(|line| line.contains(KEY) || line.contains(&other)));
            end(daemon).await;
        }
        let (daemon, said) = started(home, &site, &key).await;
        said.line(|line| line.contains("✓ a")).await;
        end(daemon).await;
        assert_eq!(issuer.count("POST /token"), 1);
    }

    #[tokio::test]
    async fn h77_without_keyring_and_key_a_warning_comes_once_and_names_what_to_do() {
        let (_issuing, _issuer, site) = protected().await;
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let (daemon, said) = started(home, &site, &[]).await;
        said.line(|line| line.contains("mcp-host login a")).await;
        login(home, &said).await;
        said.line(|line| line.contains("the token is kept in memory, until the daemon ends")).await;
        said.line(|line| line.contains("✓ a")).await;
        // One-shot commands of the same config are the daemon's clients: they use the login in its memory.
        let tools = once(home, &["tools", "--config", "mcp.json"], &said).await;
        assert!(tools.status.success() && String::from_utf8_lossy(&tools.stdout).contains("a__t"), "{tools:?}");
        once(home, &["logout", "a"], &said).await;
        let warnings: Vec<_> = said.all().into_iter().filter(|line| line.contains("in memory only")).collect();
        assert!(warnings.len() == 1 && warnings[0].contains("MCP_HOST_SECRET_KEY"), "{warnings:#?}");
        end(daemon).await;
        assert!(!lies_on_disk(home, "canary"));
        let (daemon, said) = started(home, &site, &[]).await;
        said.line(|line| line.contains("mcp-host login a")).await;
        end(daemon).await;
    }
}

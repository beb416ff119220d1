//! What the logins to all servers share: the secret store, the way to ask the user, and the limits.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use super::ongoing::{LoginNews, Told};
use super::store::{MemoryStore, SecretStore, StoreError, Vault};
use super::token::Entry;
use crate::config::{self, Secret};
use crate::dial::Dialer;
use crate::hex;

/// A way to ask the user to sign in: a browser, and a redirect URI.
///
/// ```
/// use std::future::Future;
/// use std::pin::Pin;
///
/// use mcp_host::auth::Interaction;
/// use url::Url;
///
/// /// Has the user paste the URL that the browser came back to.
/// struct Paste(Url);
///
/// impl Interaction for Paste {
///     fn redirect_uri(&self) -> Url {
///         self.0.clone()
///     }
///
///     fn authorize(
///         &self,
///         server: &str,
///         page: Url,
///     ) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send + 'static>> {
///         println!("sign in to {server} at {page}, then paste the URL of the last page");
///         Box::pin(async {
///             let mut line = String::new();
///             std::io::stdin().read_line(&mut line).map_err(|error| error.to_string())?;
///             Ok(line.trim().to_owned())
///         })
///     }
/// }
/// ```
pub trait Interaction: Send + Sync {
    /// Returns the URI to which the browser is sent back. Called once for each login.
    fn redirect_uri(&self) -> Url;

    /// Shows the page to the user of this server, and returns the whole URL to which the browser was sent back.
    ///
    /// `page` is one clean URL, with https or on this machine. It may belong to anybody, so show its host name to the
    /// user before opening it. The future is dropped if the login takes longer than `host.limits.login`.
    ///
    /// An `Err` holds the text that tells the user why there is no login.
    fn authorize(&self, server: &str, page: Url) -> BoxFuture<'static, Result<String, String>>;
}

/// What the logins to all servers share.
#[derive(Clone)]
pub(crate) struct Keychain {
    pub(super) vault: Vault,
    pub(super) interaction: Option<Arc<dyn Interaction>>,
    /// The directory of the locks between processes.
    pub(super) directory: Option<PathBuf>,
    pub(super) dialer: Arc<Dialer>,
    pub(super) limits: Arc<config::Limits>,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    /// Who is notified of logins that begin and end.
    pub(super) told: Arc<Told>,
}

impl std::fmt::Debug for Keychain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keychain").field("interaction", &self.interaction.is_some()).finish_non_exhaustive()
    }
}

impl Default for Keychain {
    fn default() -> Self {
        Self::new(None, None, None, config::Limits::default())
    }
}

/// How long the shutdown waits for an issuer to answer.
const LAST: Duration = Duration::from_secs(3);
/// The name of the user of the servers. Until users are told apart, this is always the user who runs this program.
const PRINCIPAL: &str = "local";

impl Keychain {
    pub(crate) fn new(
        store: Option<Arc<dyn SecretStore>>,
        interaction: Option<Arc<dyn Interaction>>,
        directory: Option<&Path>,
        limits: config::Limits,
    ) -> Self {
        let vault = Vault::new(store.unwrap_or_else(|| Arc::new(MemoryStore::default())));
        Self {
            vault,
            interaction,
            directory: directory.map(Path::to_owned),
            dialer: Arc::new(Dialer::new(directory)),
            limits: Arc::new(limits),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            told: Arc::default(),
        }
    }

    /// Sets the callback that is notified of logins. Only the first call has an effect.
    pub(crate) fn tell_logins(&self, tell: impl Fn(LoginNews<'_>) + Send + Sync + 'static) {
        self.told.set(tell);
    }

    /// Returns the HTTP clients that all servers share.
    pub(crate) fn dialer(&self) -> Arc<Dialer> {
        self.dialer.clone()
    }

    /// Cancels logins in progress.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Cancels logins in progress. If a token is being renewed, first waits until the issuer has answered and the token
    /// is stored, but not for long.
    pub(crate) async fn shutdown(&self) {
        self.stop();
        self.tasks.close();
        if tokio::time::timeout(LAST, self.tasks.wait()).await.is_err() {
            tracing::warn!("a token was being renewed at shutdown: its login may be lost");
        }
    }

    /// Loads the token that is stored for a server; `slot` is the server's name in the store.
    pub(super) async fn load(&self, slot: &str) -> Result<Option<Entry>, StoreError> {
        let Some(name) = self.vault.read(slot).await? else { return Ok(None) };
        let kept = self.vault.read(name.expose()).await?;
        Ok(kept.and_then(|text| Entry::parse(text.expose())))
    }

    /// Returns a stamp: a number that changes after a login for this server is stored or forgotten, and only after the
    /// token itself is written. Returns `None` if the store has no stamps.
    pub(super) async fn stamp(&self, slot: &str) -> Result<Option<u64>, StoreError> {
        self.vault.stamp(slot).await
    }

    /// Stores a token, and records that it is the token for this server.
    pub(super) async fn save(&self, slot: &str, entry: &Entry) -> Result<(), StoreError> {
        let name = name(entry);
        let token = self.vault.write(&name, Secret::new(entry.to_text())).await;
        // The record is written even if the token was not stored: then both are held in memory.
        token.and(self.vault.write(slot, Secret::new(name)).await)
    }

    /// Removes a token from the store, and the record that it is for this server, unless another token is recorded by
    /// now.
    pub(super) async fn forget(&self, slot: &str, entry: &Entry) -> Result<(), StoreError> {
        let name = name(entry);
        self.vault.remove(&name).await?;
        if self.vault.read(slot).await?.is_none_or(|kept| kept.expose() == name) {
            self.vault.remove(slot).await?;
        }
        Ok(())
    }

    /// Loads the token that is now stored under the same name as this one.
    pub(super) async fn again(&self, entry: &Entry) -> Result<Option<Entry>, StoreError> {
        let kept = self.vault.read(&name(entry)).await?;
        Ok(kept.and_then(|text| Entry::parse(text.expose())))
    }
}

/// Returns the name of a token in the store, a hash of its issuer, resource, client and user (`docs/hazards.md` H71).
pub(super) fn name(entry: &Entry) -> String {
    format!("token-{}", digest(&[&entry.issuer, &entry.resource, &entry.client.id, PRINCIPAL]))
}

/// Returns the name under which the store records which token is for a server. `client` is the client id in the config,
/// if there is one.
pub(super) fn slot(server: &Url, client: Option<&str>) -> String {
    format!("server-{}", digest(&[server.as_str(), client.unwrap_or_default(), PRINCIPAL]))
}

/// Hashes several texts, each with its length, so that different lists of texts have different hashes.
fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hex::encode(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn h72_the_end_waits_for_a_renewal_and_not_for_an_issuer_that_is_silent() {
        for (takes, waits) in [(Duration::from_secs(2), Duration::from_secs(2)), (Duration::from_secs(600), LAST)] {
            let (keys, begun) = (Keychain::default(), tokio::time::Instant::now());
            keys.tasks.spawn(tokio::time::sleep(takes));
            keys.shutdown().await;
            assert_eq!(begun.elapsed(), waits);
        }
    }
}

//! A browser login as a value, for embedding programs that handle the browser themselves; and signing out.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use tokio::time::timeout;
use url::Url;

use super::attempt::Attempt;
use super::authorizer::Authorizer;
use super::desk::Desk;
use super::progress::{Hint, Notice, Progress};
#[cfg(feature = "server")]
use super::registration;
use super::{Error, Keeping, Kept, keychain, lock};
use crate::config::Remote;
use crate::dial;

/// A browser login in progress: show the page to the user, then call [`Self::finish`] with the URL to which the browser
/// was sent back.
///
/// ```no_run
/// # async fn sign_in(host: &mcp_host::Host, redirect: url::Url) -> Result<(), Box<dyn std::error::Error>> {
/// let login = host.login("github", &redirect).await?;
/// println!("open {}, then paste the URL that the browser ends at", login.authorize_url());
/// let mut hit = String::new();
/// std::io::stdin().read_line(&mut hit)?;
/// login.finish(hit.trim()).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Login {
    authorizer: Arc<Authorizer>,
    attempt: Attempt,
}

impl Login {
    /// Returns the page to open: one clean URL of at most 8 KiB, with https or on this machine. Show its host name to
    /// the user first.
    #[must_use]
    pub fn authorize_url(&self) -> &Url {
        &self.attempt.page
    }

    /// Returns the issuer that the user signs in with.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.attempt.issuer.issuer
    }

    /// Reports whether the user could instead sign in by entering a code on a page of the issuer:
    /// [`crate::Host::device_login`].
    #[must_use]
    pub fn could_be_by_code(&self) -> bool {
        self.attempt.issuer.device.is_some()
    }

    /// Takes the whole URL to which the browser was sent back, and exchanges its code for a token. Stores the token,
    /// which is used from then on, and returns where it is stored.
    ///
    /// # Errors
    /// Fails if the URL does not belong to this login, or yields no token. There is no second try.
    pub async fn finish(self, redirect: &str) -> Result<Kept, Error> {
        self.authorizer.finish(self.attempt, redirect).await?;
        Ok(self.authorizer.kept())
    }
}

/// What is known about the login to a server, without its secrets.
///
/// ```
/// # fn show(holding: &mcp_host::auth::Holding) {
/// println!("a token of {} for {} more seconds", holding.issuer, holding.expires_in);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Holding {
    /// The issuer of the token.
    pub issuer: String,
    /// The resource for which the token was issued.
    pub resource: String,
    /// Our client id at the issuer.
    pub client_id: String,
    /// The scopes requested.
    pub scopes: Vec<String>,
    /// The number of seconds until the token expires.
    pub expires_in: u64,
    /// Whether there is a refresh token, which renews the token without a user.
    pub renewable: bool,
    /// Where the token is stored.
    pub kept: Kept,
}

/// A cheap request that makes a server say how to sign in.
const PING: &str = r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#;

impl Authorizer {
    /// Begins a browser login; `redirect` is the URL to which the browser is sent back.
    pub(crate) async fn begin(self: &Arc<Self>, redirect: &Url) -> Result<Login, Error> {
        let hint = self.wanted_of_a_login().await?;
        let attempt = self.prepare(redirect, &hint).await?;
        self.try_anew().await;
        Ok(Login { authorizer: self.clone(), attempt })
    }

    /// Takes all steps of a login that change nothing at the server or its issuer, which is returned: what the server
    /// wants, who issues its tokens, and whether that issuer would know this client.
    #[cfg(feature = "server")]
    pub(crate) async fn rehearse(self: &Arc<Self>) -> Result<String, Error> {
        let hint = self.wanted_of_a_login().await?;
        let (_, issuer) = self.chosen(&hint).await?;
        if issuer.device.is_none() {
            issuer.page()?;
        }
        registration::is_possible(&self.config, &issuer)?;
        Ok(issuer.issuer)
    }

    /// Returns what a login should ask for: what the server says to a request without a token, and the scopes that its
    /// last refusal wanted.
    pub(super) async fn wanted_of_a_login(self: &Arc<Self>) -> Result<Hint, Error> {
        if !self.wants_user() {
            let what = "it gets its tokens without a user, so nobody has to sign in".to_owned();
            return Err(Error::Config { key: "auth.grant", what });
        }
        self.credentials().await;
        let mut hint = self.asked().await?;
        let progress = self.progress.lock().await;
        let more = progress.wanted.iter().flat_map(|wanted| &wanted.scopes);
        hint.scopes = hint.scopes.iter().chain(more.filter(|scope| !hint.scopes.contains(scope))).cloned().collect();
        Ok(hint)
    }

    /// Forgets failed attempts, so that a login that the user starts now is not held back by them.
    pub(super) async fn try_anew(&self) {
        *self.progress.lock().await = Progress::default();
    }

    /// Returns what the server says to a request without a token.
    pub(super) async fn asked(&self) -> Result<Hint, Error> {
        let unreachable = |reason: String| Error::Unreachable { reason, unsent: false };
        let remote = Remote { tls: self.tls.clone(), ..Remote::new(self.url.clone()) };
        let client = self.keys.dialer.client(&remote).map_err(unreachable)?;
        let silent = |why: &str| unreachable(format!("{}: {why}", self.url.origin().ascii_serialization()));
        let request = Request::post(self.url.as_str())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .header(USER_AGENT, dial::USER_AGENT)
            .body(Bytes::from_static(PING.as_bytes()))
            .map_err(|error| silent(&error.to_string()))?;
        let answer = match timeout(self.keys.limits.oauth_request, client.send(request)).await {
            Ok(answer) => answer.map_err(|error| silent(&error.to_string()))?,
            Err(_) => return Err(silent("operation timed out")),
        };
        let cap = self.keys.limits.oauth_challenge;
        Ok(if answer.status() == 401 { Hint::of(answer.headers(), cap) } else { Hint::default() })
    }

    /// Returns where the token of a login would be stored if a user signed in now.
    pub(crate) async fn keeping(&self) -> Result<Keeping, Error> {
        Ok(self.keys.vault.keeping().await?)
    }

    /// Returns what is known about this server's login; `None` if there is no token.
    pub(crate) async fn holding(self: &Arc<Self>) -> Option<Holding> {
        self.credentials().await;
        let held = self.current.load_full()?;
        let entry = &held.entry;
        Some(Holding {
            issuer: entry.issuer.clone(),
            resource: entry.resource.clone(),
            client_id: entry.client.id.clone(),
            scopes: entry.requested.clone(),
            expires_in: entry.left(super::jwt::now()).as_secs(),
            renewable: entry.refresh.is_some(),
            kept: self.kept(),
        })
    }

    /// Returns where the token is stored.
    pub(super) fn kept(&self) -> Kept {
        self.keys.vault.place(&self.slot)
    }

    /// Ends the login: revokes the token at its issuer, and removes it from the store. Returns whether there was a
    /// token. This disconnects the server; but if its tokens need no user, it just gets the next token.
    ///
    /// # Errors
    /// Fails if the token may still be stored. A failed revocation is only logged.
    pub(crate) async fn sign_out(self: &Arc<Self>) -> Result<bool, Error> {
        self.credentials().await;
        let mut progress = self.progress.lock().await;
        let known = self.current.load_full();
        if self.unread().is_none() {
            // Another program may have signed in again: then that login ends.
            self.take_kept(known.as_ref().map(|held| &held.entry)).await;
        }
        let Some(held) = self.current.load_full() else {
            return self.unread().clone().map_or(Ok(false), |error| Err(error.into()));
        };
        // A renewal by another process would bring the login back.
        let _lock = lock::take(self.keys.directory.as_deref(), &keychain::name(&held.entry)).await?;
        let kept = self.keys.again(&held.entry).await.ok().flatten();
        let entry = kept.as_ref().unwrap_or(&held.entry);
        self.current.store(None);
        *progress = Progress::default();
        if self.wants_user() {
            self.tell(Notice::SignedOut);
        }
        if let Some(endpoint) = entry.revocation.as_deref().and_then(|text| Url::parse(text).ok()) {
            let desk = Desk {
                web: self.web()?.clone(),
                endpoint,
                issuer: entry.issuer.clone(),
                client: entry.client.clone(),
                resource: None,
                key: self.signer().await?,
                proof: None,
            };
            let token = match &entry.refresh {
                Some(refresh) => desk.revoke(refresh, "refresh_token").await,
                None => desk.revoke(&entry.access, "access_token").await,
            };
            if let Err(error) = token {
                tracing::warn!(server = &*self.server, "its token was not revoked: {error}");
            }
        }
        self.keys.forget(&self.slot, entry).await?;
        Ok(true)
    }
}

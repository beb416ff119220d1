//! How to get an access token: by renewing the current one, by a grant without a user, or by asking a user to sign in.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use url::Url;

use super::attempt::Attempt;
use super::authorizer::Authorizer;
use super::desk::{Desk, Signer};
use super::discovery::{self, Issuer, Resource};
use super::dpop::Proof;
use super::ongoing::Ongoing;
use super::progress::{Hint, Notice, Progress, Under};
use super::registration::{self, Client, Method, Way};
use super::token::{Entry, Held, Origin, Reply};
use super::{Error, jwt, keychain, lock};
use crate::config::{Enterprise, Grant, SecretSource as Source};
use crate::lock::lock;

/// How long after a failed renewal ahead of expiry the next one may start.
const REST: Duration = Duration::from_secs(10);
/// How many bytes are read at most of a file that holds a secret or a token from the platform.
const FILE_BYTES: u64 = 64 * 1024;

impl Authorizer {
    /// Renews a token that is due for renewal. If another caller is renewing it, returns at once while the token is
    /// still valid, and otherwise waits.
    pub(super) async fn renew_ahead(&self, held: &Arc<Held>) {
        let mut progress = match self.progress.try_lock() {
            Ok(progress) => progress,
            Err(_) if !held.is_over() => return,
            Err(_) => self.progress.lock().await,
        };
        if !self.has(held) || progress.rest.is_some_and(|rest| Instant::now() < rest) {
            return;
        }
        if held.has_worked() {
            // The token has worked. So if it now expires for good, the user may be asked to sign in once more.
            progress.prompted = false;
        }
        let renewed = match self.config.grant {
            _ if held.entry.refresh.is_some() => self.renew(held).await,
            // Without a refresh token, only a user can get a new one; until then the server may still accept this one.
            Grant::Code => return,
            _ => self.granted(&Hint::scopes(&held.entry.requested)).await,
        };
        progress.rest = None;
        if let Err(error) = renewed {
            progress.rest = Some(Instant::now() + REST);
            tracing::warn!(server = &*self.server, "its token was not renewed: {error}");
        }
    }

    /// Reports whether this is the current token.
    fn has(&self, held: &Arc<Held>) -> bool {
        self.current.load().as_ref().is_some_and(|current| Arc::ptr_eq(current, held))
    }

    /// Gets a token to replace `held`, which the server has refused: by its refresh token, by a grant without a user,
    /// or by a login. Returns the login if one is in progress.
    pub(super) async fn obtain_now(
        self: &Arc<Self>,
        held: Option<&Arc<Held>>,
        hint: Hint,
        progress: &mut Progress,
    ) -> Result<Option<Under>, Error> {
        // A renewal does not help if the token never worked, or if the server no longer names its issuer. A token that
        // was taken away is not renewed either: its user has signed out, or its refresh token is used up.
        let renewable = |held: &&Arc<Held>| held.entry.refresh.is_some() && held.has_worked() && self.has(held);
        let worked = held.filter(renewable);
        if let Some(held) = worked
            && self.is_named(&held.entry.issuer, &hint).await
        {
            match self.renew(held).await {
                Ok(()) => return Ok(None),
                Err(error) if error.is_transient() || error == Error::SignedOut => return Err(error),
                Err(error) => tracing::info!(server = &*self.server, "its token cannot be renewed: {error}"),
            }
        }
        if !self.wants_user() {
            return self.granted(&hint).await.map(|()| None);
        }
        // If another program has a token already, nobody is asked to sign in. A locked keyring is not read again for
        // this.
        let can_be_read = self.unread().is_none();
        if can_be_read && self.take_kept(held.map(|held| &held.entry)).await {
            return Ok(None);
        }
        if held.is_some_and(|held| held.has_worked()) {
            progress.prompted = false;
        }
        self.ask(hint, progress).await
    }

    /// Asks the user to sign in, unless that was already tried in vain, and returns the login in progress. If these
    /// tokens need no user, gets a token without a login, and returns `None`.
    pub(super) async fn ask(self: &Arc<Self>, hint: Hint, progress: &mut Progress) -> Result<Option<Under>, Error> {
        if !self.wants_user() {
            return self.granted(&hint).await.map(|()| None);
        }
        if let Some(error) = &*self.unread() {
            return Err(error.clone().into());
        }
        let mut login = lock(&self.login);
        if let Some(under) = login.as_ref().filter(|under| under.0.borrow().is_none() && under.0.has_changed().is_ok())
        {
            return Ok(Some(under.clone()));
        }
        if self.keys.interaction.is_none() {
            progress.wanted = Some(hint);
            return Err(Error::LoginNeeded);
        }
        if std::mem::replace(&mut progress.prompted, true) {
            return Err(Error::LoginNeeded);
        }
        let (done, under) = watch::channel(None);
        let (task, stop) = (self.clone(), self.keys.stop.clone());
        // The login is a task of its own, because the request that waits for it may give up before the user has
        // finished.
        self.keys.tasks.spawn(async move {
            let result = stop.run_until_cancelled(task.sign_in(hint)).await.unwrap_or(Err(Error::LoginNeeded));
            if let Err(error) = &result {
                tracing::warn!(server = &*task.server, "{error}");
            }
            done.send_replace(Some(result));
        });
        let under = Under(under);
        *login = Some(under.clone());
        Ok(Some(under))
    }

    async fn sign_in(self: &Arc<Self>, hint: Hint) -> Result<(), Error> {
        let interaction = self.keys.interaction.clone().ok_or(Error::LoginNeeded)?;
        let attempt = self.prepare(&interaction.redirect_uri(), &hint).await?;
        let asked = interaction.authorize(&self.server, attempt.page.clone());
        let limit = self.keys.limits.login;
        let back = match timeout(limit, asked).await {
            Ok(back) => back.map_err(Error::Declined)?,
            Err(_) => return Err(Error::Declined(format!("nobody finished it within {limit:?} (host.limits.login)"))),
        };
        self.finish(attempt, &back).await
    }

    /// Finds the issuer, gets a client id there, and creates the URL of the page to open.
    pub(super) async fn prepare(&self, redirect: &Url, hint: &Hint) -> Result<Attempt, Error> {
        let (resource, issuer) = self.chosen(hint).await?;
        let client = self.identity(&issuer, Way::Redirect(redirect)).await?;
        let scopes = self.wanted(hint, &resource, &issuer);
        let attempt = Attempt::new(issuer, client, redirect.clone(), resource.id, scopes)?;
        Ok(attempt.tells(Ongoing::begin(&self.keys.told, &self.server)))
    }

    /// Returns the resource and the issuer for a user's login.
    pub(super) async fn chosen(&self, hint: &Hint) -> Result<(Resource, Issuer), Error> {
        let (resource, issuer) = self.discover(hint).await?;
        if let Some(held) = self.current.load_full()
            && self.config.issuer.is_none()
            && self.config.client_id.as_ref() == Some(&held.entry.client.id)
            && held.entry.issuer != issuer.issuer
        {
            let what =
                "is not the issuer that auth.clientId was used with so far: set auth.issuer to the one it is for";
            return Err(Error::Client { issuer: issuer.issuer, what: what.to_owned() });
        }
        // This is checked before we register: a login that cannot happen needs no client at the issuer.
        issuer.checks_codes()?;
        Ok((resource, issuer))
    }

    /// Returns our client at the issuer, for a user who signs in this way.
    pub(super) async fn identity(&self, issuer: &Issuer, way: Way<'_>) -> Result<Client, Error> {
        let before = self.current.load_full();
        let known = before.as_ref().map(|held| (held.entry.issuer.as_str(), &held.entry.client));
        registration::client(self.web()?, &self.config, issuer, way, known).await
    }

    /// Returns the scopes to ask the user for, including offline access if the issuer has a scope for it.
    pub(super) fn wanted(&self, hint: &Hint, resource: &Resource, issuer: &Issuer) -> Vec<String> {
        let mut scopes = self.scopes(hint, resource);
        if issuer.scopes.iter().any(|scope| scope == OFFLINE) && !scopes.iter().any(|scope| scope == OFFLINE) {
            scopes.push(OFFLINE.to_owned());
        }
        scopes
    }

    /// Exchanges the code in the browser's redirect for a token, and stores and uses it.
    pub(super) async fn finish(&self, attempt: Attempt, back: &str) -> Result<(), Error> {
        let done = self.exchange(&attempt, back).await;
        attempt.end(done.is_ok());
        done
    }

    async fn exchange(&self, attempt: &Attempt, back: &str) -> Result<(), Error> {
        let code = attempt.code(back, self.keys.limits.login)?;
        let desk = self.desk(&attempt.issuer, &attempt.client, &attempt.resource, attempt.proof.clone()).await?;
        let reply = desk.code(code, attempt.verifier.clone(), &attempt.redirect).await?;
        let (requested, proof) = (&attempt.scopes[..], attempt.proof.as_deref());
        let (issuer, client, resource) = (&attempt.issuer, &attempt.client, attempt.resource.as_str());
        self.signed_in(&reply, &Origin { issuer, resource, client, requested, proof }).await
    }

    /// Stores and uses the token of a login. First waits for any renewal of the previous token, which would overwrite
    /// the new one.
    pub(super) async fn signed_in(&self, reply: &Reply, origin: &Origin<'_>) -> Result<(), Error> {
        let mut progress = self.progress.lock().await;
        self.got(reply, origin).await?;
        // Failures with the previous token say nothing about this one.
        progress.failed = None;
        Ok(())
    }

    /// Stores a token, and then uses it. A token that cannot be stored is used anyway, and lost when the program ends.
    async fn got(&self, reply: &Reply, origin: &Origin<'_>) -> Result<(), Error> {
        let entry = Entry::new(reply, origin)?;
        // Another process may be renewing the previous token.
        let _lock = match lock::take(self.keys.directory.as_deref(), &keychain::name(&entry)).await {
            Ok(lock) => Some(lock),
            Err(error) => {
                tracing::warn!(server = &*self.server, "{error}; its new token is stored anyway");
                None
            }
        };
        if let Some(old) = self.current.load_full().filter(|old| keychain::name(&old.entry) != keychain::name(&entry)) {
            let _ = self.keys.forget(&self.slot, &old.entry).await;
        }
        self.keep(&entry).await;
        self.take(entry);
        self.tell(Notice::Came);
        Ok(())
    }

    pub(super) async fn keep(&self, entry: &Entry) {
        if let Err(error) = self.keys.save(&self.slot, entry).await {
            tracing::warn!(server = &*self.server, "its token is lost when this program ends: {error}");
        }
    }

    /// Gets a token without a user.
    pub(super) async fn granted(&self, hint: &Hint) -> Result<(), Error> {
        let (resource, issuer) = self.discover(hint).await?;
        let requested = self.scopes(hint, &resource);
        let proof = if issuer.dpop { Some(Arc::new(Proof::generate()?)) } else { None };
        let Some(client) = registration::given(&self.config, &issuer)? else {
            let what = "is missing: without a user, only a registered client gets tokens".to_owned();
            return Err(Error::Config { key: "auth.clientId", what });
        };
        let desk = self.desk(&issuer, &client, &resource.id, proof.clone()).await?;
        let reply = match &self.config.grant {
            Grant::Code => return Err(Error::LoginNeeded),
            Grant::ClientCredentials => desk.credentials(&requested).await?,
            Grant::Workload(source) => desk.assertion(&given(source, "auth.assertionFile").await?, &requested).await?,
            Grant::Enterprise(idp) => {
                let statement = self.exchanged(idp, &issuer, &resource, &requested).await?;
                desk.assertion(&statement, &requested).await?
            }
        };
        let origin = Origin {
            issuer: &issuer,
            resource: &resource.id,
            client: &client,
            requested: &requested,
            proof: proof.as_deref(),
        };
        self.got(&reply, &origin).await
    }

    /// Exchanges the identity provider's ID token for an assertion that the server's issuer accepts.
    async fn exchanged(
        &self,
        idp: &Enterprise,
        issuer: &Issuer,
        resource: &Resource,
        scopes: &[String],
    ) -> Result<String, Error> {
        let secret = idp.client_secret.as_ref().map(|secret| secret.expose().to_owned());
        let method = if secret.is_some() { Method::ClientSecretBasic } else { Method::None };
        let client = Client { id: idp.client_id.clone(), secret, method, redirect: None, by_code: false };
        let (web, endpoint, issued_by) = (self.web()?.clone(), idp.token_endpoint.clone(), String::new());
        let desk = Desk { web, endpoint, issuer: issued_by, client, resource: None, key: None, proof: None };
        desk.exchange(&given(&idp.id_token, "auth.idp.idTokenFile").await?, &issuer.issuer, &resource.id, scopes).await
    }

    /// Reports whether the server's metadata still names this issuer, or no issuer at all. If the metadata cannot be
    /// read, assumes that it does.
    async fn is_named(&self, issuer: &str, hint: &Hint) -> bool {
        let Ok(web) = self.web() else { return true };
        match discovery::resource(web, &self.url, hint.metadata.as_deref()).await {
            Ok(resource) => resource.issuers.is_empty() || resource.issuers.iter().any(|one| one == issuer),
            Err(_) => true,
        }
    }

    /// Finds the issuer: the one in the config, else that of the current token if the server still names it, else the
    /// first that the server names.
    async fn discover(&self, hint: &Hint) -> Result<(Resource, Issuer), Error> {
        let web = self.web()?;
        let resource = discovery::resource(web, &self.url, hint.metadata.as_deref()).await?;
        let held = self.current.load_full();
        let known = held.as_ref().map(|held| held.entry.issuer.as_str());
        let named = |issuer: &&str| resource.issuers.iter().any(|one| one == issuer);
        let issuer = match self.config.issuer.as_deref() {
            Some(pinned) if resource.issuers.is_empty() || named(&pinned) => Some(pinned),
            Some(pinned) => {
                let what = "is not among the authorization servers that the server names (auth.issuer)".to_owned();
                return Err(Error::Client { issuer: pinned.to_owned(), what });
            }
            None => known.filter(named).or_else(|| resource.issuers.first().map(String::as_str)),
        };
        let mut issuer = match issuer {
            Some(issuer) => discovery::issuer(web, issuer).await?,
            None => discovery::itself(web, &self.url).await?,
        };
        // Get a key-bound token only if the server takes proofs; otherwise such a token would be useless.
        let bound = held.as_ref().is_some_and(|held| held.proof.is_some() && held.has_worked());
        issuer.dpop &= resource.dpop || hint.dpop || bound;
        Ok((resource, issuer))
    }

    /// Returns the scopes to request: those in the config and those in the refusal; without any, all that the server
    /// lists.
    fn scopes(&self, hint: &Hint, resource: &Resource) -> Vec<String> {
        let mut scopes = self.config.scopes.clone();
        scopes.extend(hint.scopes.iter().filter(|scope| !self.config.scopes.contains(scope)).cloned());
        if scopes.is_empty() { resource.scopes.clone().unwrap_or_default() } else { scopes }
    }

    /// Returns the issuer's token endpoint together with our client.
    pub(super) async fn desk(
        &self,
        issuer: &Issuer,
        client: &Client,
        resource: &str,
        proof: Option<Arc<Proof>>,
    ) -> Result<Desk, Error> {
        Ok(Desk {
            web: self.web()?.clone(),
            endpoint: issuer.token.clone(),
            issuer: issuer.issuer.clone(),
            client: client.clone(),
            resource: Some(resource.to_owned()),
            key: self.signer().await?,
            proof,
        })
    }

    /// Reads the client's private key, if the config gives one.
    pub(super) async fn signer(&self) -> Result<Option<Signer>, Error> {
        let Some(source) = &self.config.private_key else { return Ok(None) };
        let pem = given(source, "auth.privateKeyFile").await?;
        Ok(Some(Signer { key: jwt::Key::from_pem(&pem)?, id: self.config.key_id.clone() }))
    }
}

const OFFLINE: &str = "offline_access";

/// Reads a secret from the config, or from the file that the config names. The file is read each time, because tokens
/// from a platform are short-lived.
async fn given(source: &Source, key: &'static str) -> Result<String, Error> {
    match source {
        Source::Given(secret) => Ok(secret.expose().to_owned()),
        Source::File(path) => read(path).await.map_err(|what| Error::Config { key, what }),
    }
}

async fn read(path: &Path) -> Result<String, String> {
    use tokio::io::AsyncReadExt as _;
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let mut text = String::new();
    file.take(FILE_BYTES).read_to_string(&mut text).await.map_err(failed)?;
    Ok(text.trim().to_owned())
}

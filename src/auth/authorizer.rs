//! The access tokens for one MCP server: what requests to it carry, and what to do when it refuses them.
//!
//! A request costs one load of a pointer and one look at the clock. For one request, refusals cause at most one new
//! token, one retry with a nonce, and one step-up (a token with more scopes). A failed attempt to get a token is not
//! repeated for a while, and a person is asked only once (`docs/hazards.md` H74).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use oauth2::http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;
use url::Url;

use super::dpop::Nonce;
#[cfg(feature = "server")]
use super::invitation::Invitation;
use super::keychain::{self, Keychain};
use super::progress::{AGAIN, Hint, Notice, Progress, Under};
use super::token::{Entry, Held};
use super::web::Web;
use super::{Error, StoreError};
use crate::config::{self, Grant};

/// How many logins the same set of additional scopes may cause within [`STEPS_FOR`].
const STEPS: usize = 3;
/// How long a login for additional scopes counts toward [`STEPS`] and [`STEPS_IN_ALL`].
const STEPS_FOR: Duration = Duration::from_secs(60 * 60);
/// How many logins all sets of additional scopes together may cause within [`STEPS_FOR`].
const STEPS_IN_ALL: usize = 12;

/// Gets, keeps and renews the access tokens for one MCP server.
#[derive(Debug)]
pub(crate) struct Authorizer {
    /// The server's name in the config.
    pub(super) server: Arc<str>,
    pub(super) url: Url,
    /// How to verify the server's certificate.
    pub(super) tls: config::Tls,
    pub(super) config: config::OAuth,
    pub(super) keys: Keychain,
    /// The name under which the secret store records which token is for this server.
    pub(super) slot: String,
    web: OnceLock<Result<Web, String>>,
    pub(super) current: ArcSwapOption<Held>,
    pub(super) loaded: OnceCell<()>,
    /// Why the stored login cannot be read. Nobody is asked to sign in while a stored login may exist.
    pub(super) unread: Mutex<Option<StoreError>>,
    /// The stamp of the stored login when it was last read.
    pub(super) stamp: Mutex<Option<u64>>,
    /// Whether a task is retrying to read the stored login.
    pub(super) looking: AtomicBool,
    /// Whether the server's last 401 to a request without a token said nothing about where tokens come from.
    is_bare: AtomicBool,
    pub(super) progress: tokio::sync::Mutex<Progress>,
    pub(super) login: Mutex<Option<Under>>,
    /// The latest invitation to sign in, whether it is open or over.
    #[cfg(feature = "server")]
    pub(super) invited: Mutex<Option<Arc<Invitation>>>,
    pub(super) news: watch::Sender<NoticeCounts>,
    /// How many renewals of its token brought a new one, and how many did not.
    pub(super) refreshes: [AtomicU64; 2],
}

/// Which retries one request has already used up: with a new token, with more scopes, and with a nonce.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    replayed: bool,
    stepped: bool,
    nonce: bool,
}

/// How many notices of each kind were sent: new tokens, and sign-outs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NoticeCounts {
    came: u64,
    gone: u64,
}

/// Receives the notices about a server's tokens, for one connection to that server.
#[derive(Debug)]
pub(crate) struct News {
    told: Option<watch::Receiver<NoticeCounts>>,
    heard: NoticeCounts,
}

impl News {
    pub(crate) fn of(tokens: Option<&Arc<Authorizer>>) -> Self {
        let told = tokens.map(|tokens| tokens.news.subscribe());
        let heard = told.as_ref().map(|told| *told.borrow()).unwrap_or_default();
        Self { told, heard }
    }

    /// Waits for the next notice, forever if none can come. If several are pending, a sign-out comes first.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn next(&mut self) -> Notice {
        let Self { told: Some(told), heard } = self else { return std::future::pending().await };
        let Ok(told) = told.wait_for(|told| told.gone > heard.gone || told.came > heard.came).await else {
            return std::future::pending().await;
        };
        if told.gone > heard.gone {
            heard.gone = told.gone;
            return Notice::SignedOut;
        }
        heard.came = told.came;
        Notice::Came
    }

    /// Waits for a new token, and ignores other notices.
    #[cfg(feature = "server")]
    pub(super) async fn came(&mut self) {
        while self.next().await != Notice::Came {}
    }
}

impl Authorizer {
    pub(crate) fn new(server: &str, remote: &config::Remote, config: &config::OAuth, keys: &Keychain) -> Arc<Self> {
        let url = &remote.url;
        Arc::new(Self {
            server: server.into(),
            url: url.clone(),
            tls: remote.tls.clone(),
            config: config.clone(),
            keys: keys.clone(),
            slot: keychain::slot(url, config.client_id.as_deref()),
            web: OnceLock::new(),
            current: ArcSwapOption::empty(),
            loaded: OnceCell::new(),
            unread: Mutex::default(),
            stamp: Mutex::default(),
            looking: AtomicBool::new(false),
            is_bare: AtomicBool::new(false),
            progress: tokio::sync::Mutex::default(),
            login: Mutex::default(),
            #[cfg(feature = "server")]
            invited: Mutex::default(),
            news: watch::Sender::default(),
            refreshes: Default::default(),
        })
    }

    /// Returns how many renewals of its token brought a new one, and how many did not.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the metrics ask"))]
    pub(crate) fn refreshes(&self) -> [u64; 2] {
        self.refreshes.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns when the token expires, in seconds since 1970; `None` if there is none.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the metrics ask"))]
    pub(crate) fn token_expires(&self) -> Option<u64> {
        self.current.load().as_ref().map(|held| held.entry.expires())
    }

    /// Returns the server's name in the config.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Reports whether its tokens come from a user who signs in.
    pub(crate) fn wants_user(&self) -> bool {
        self.config.grant == Grant::Code
    }

    /// Reports whether its last 401 said nothing about where tokens come from.
    pub(crate) fn wants_key(&self) -> bool {
        self.wants_user() && self.is_bare.load(Ordering::Relaxed)
    }

    /// Returns the server's origin: scheme, host and port.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Returns the token for a request, after renewing it if that is due; `None` if there is no token.
    pub(crate) async fn credentials(self: &Arc<Self>) -> Option<Arc<Held>> {
        if !self.loaded.initialized() {
            self.read_kept().await;
        }
        let held = self.current.load_full()?;
        if !held.is_due() {
            return Some(held);
        }
        let task = self.clone();
        self.through(async move { task.renew_ahead(&held).await }).await;
        self.current.load_full()
    }

    /// Returns the headers of a request that carries this token.
    pub(crate) fn headers(held: &Held, method: &str, url: &Url) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(AUTHORIZATION, held.header().clone());
        if let Some(proof) = &held.proof {
            let proof = proof.of_request(method, url, Some(&held.entry.access), Nonce::Server)?;
            headers.insert("dpop", HeaderValue::try_from(proof).map_err(|_| Error::Malformed("with an invalid URL"))?);
        }
        Ok(headers)
    }

    /// Checks the response to a request that was sent with the token `held`. If it is a refusal that another token may
    /// resolve, gets one. Returns whether to retry the request with the current token.
    ///
    /// # Errors
    /// Fails if the response is a refusal that cannot be resolved now.
    pub(crate) async fn judge(
        self: &Arc<Self>,
        status: u16,
        headers: &HeaderMap,
        held: Option<&Arc<Held>>,
        tries: &mut Tries,
    ) -> Result<bool, Error> {
        let proof = held.and_then(|held| held.proof.as_ref());
        let nonce = proof.is_some_and(|proof| proof.learn(headers, Nonce::Server));
        if !matches!(status, 401 | 403) {
            if let Some(held) = held {
                held.note_worked();
            }
            return Ok(false);
        }
        let hint = Hint::of(headers, self.keys.limits.oauth_challenge);
        if status == 401 {
            self.is_bare.store(held.is_none() && hint.is_bare(), Ordering::Relaxed);
        }
        match (status, hint.error.as_deref()) {
            (401, Some("use_dpop_nonce")) if nonce && !tries.nonce => tries.nonce = true,
            (401, _) if tries.replayed => {
                // A new token was refused, so another one would be refused, too.
                let mut progress = self.progress.lock().await;
                progress.failed = Some((Instant::now(), Error::Useless));
                return Err(Error::Useless);
            }
            (401, _) => {
                tries.replayed = true;
                self.obtain(held, hint).await?;
            }
            (403, Some("insufficient_scope")) => {
                let held = held.ok_or(Error::LoginNeeded)?;
                held.note_worked();
                let scope = hint.scopes.join(" ");
                if std::mem::replace(&mut tries.stepped, true) {
                    return Err(Error::Scope { scope });
                }
                // The current token still works for other requests, whether or not another one is obtained.
                self.step_up(held, hint).await.map_err(|error| match error {
                    Error::Unreachable { .. } => error,
                    _ => Error::Scope { scope },
                })?;
            }
            // The response is not about tokens.
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Runs work that may use up a refresh token, and completes it even if the caller goes away: if a new token were
    /// issued but not stored, the login would be lost (`docs/hazards.md` H72).
    async fn through<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        self.keys.tasks.spawn(work).await.ok()
    }

    /// Gets a token to replace `held`, which the server has refused. Of several callers, the first does the work for
    /// all.
    async fn obtain(self: &Arc<Self>, held: Option<&Arc<Held>>, hint: Hint) -> Result<(), Error> {
        let (task, held) = (self.clone(), held.cloned());
        let obtained = self.through(async move { task.obtain_first(held.as_ref(), hint).await }).await;
        match obtained.unwrap_or(Err(Error::LoginNeeded))? {
            Some(under) => under.wait().await,
            None => Ok(()),
        }
    }

    async fn obtain_first(self: &Arc<Self>, held: Option<&Arc<Held>>, hint: Hint) -> Result<Option<Under>, Error> {
        let mut progress = self.progress.lock().await;
        if !self.is_current(held) {
            return Ok(None);
        }
        if let Some((at, error)) = &progress.failed
            && at.elapsed() < AGAIN
        {
            return Err(error.clone());
        }
        let obtained = self.obtain_now(held, hint, &mut progress).await;
        progress.failed = obtained.as_ref().err().map(|error| (Instant::now(), error.clone()));
        obtained
    }

    /// Gets a token with more scopes than `held`: those requested before, and those that the server wants now.
    async fn step_up(self: &Arc<Self>, held: &Arc<Held>, mut hint: Hint) -> Result<(), Error> {
        let under = {
            let mut progress = self.progress.lock().await;
            if !self.is_current(Some(held)) {
                return Ok(());
            }
            let scope = || Error::Scope { scope: hint.scopes.join(" ") };
            if hint.scopes.is_empty() || held.entry.has_asked_for(&hint.scopes) {
                return Err(scope());
            }
            progress.steps.retain(|(_, at)| at.elapsed() < STEPS_FOR);
            let of_these = progress.steps.iter().filter(|(scopes, _)| *scopes == hint.scopes).count();
            if of_these >= STEPS || progress.steps.len() >= STEPS_IN_ALL {
                return Err(scope());
            }
            progress.steps.push((hint.scopes.clone(), Instant::now()));
            // The current token has worked; this asks for another one.
            progress.prompted = false;
            let before = held.entry.requested.iter().filter(|scope| !hint.scopes.contains(scope)).cloned();
            hint.scopes = before.chain(hint.scopes.iter().cloned()).collect();
            self.ask(hint, &mut progress).await?
        };
        match under {
            Some(under) => under.wait().await,
            None => Ok(()),
        }
    }

    fn is_current(&self, held: Option<&Arc<Held>>) -> bool {
        match (&*self.current.load(), held) {
            (Some(current), Some(held)) => Arc::ptr_eq(current, held),
            (None, None) => true,
            // The token was taken away meanwhile, and not replaced.
            (None, Some(_)) => true,
            (Some(_), None) => false,
        }
    }

    /// Sends a notice to all connections to the server.
    pub(super) fn tell(&self, notice: Notice) {
        self.news.send_modify(|told| match notice {
            Notice::Came => told.came += 1,
            Notice::SignedOut => told.gone += 1,
        });
    }

    /// Uses a token from now on.
    pub(super) fn take(&self, entry: Entry) {
        *self.unread() = None;
        match Held::new(entry) {
            Ok(held) => self.current.store(Some(Arc::new(held))),
            Err(error) => tracing::warn!(server = &*self.server, "{error}"),
        }
    }

    /// Returns the HTTP access to authorization servers and metadata.
    pub(super) fn web(&self) -> Result<&Web, Error> {
        let limits = &self.keys.limits;
        let made = self.web.get_or_init(|| {
            let foreign = self.keys.dialer.foreign(&self.url, limits.oauth_request)?;
            Ok(Web::new(foreign, limits.oauth_document, limits.oauth_token))
        });
        made.as_ref().map_err(|reason| Error::Unreachable { reason: reason.clone(), unsent: true })
    }
}

#[cfg(test)]
mod tests {
    use oauth2::http::header::WWW_AUTHENTICATE;

    use super::super::store::MemoryStore;
    use super::super::tests::{entry, server};
    use super::*;

    /// Returns a server whose user has signed in for `read`.
    fn signed_in() -> Arc<Authorizer> {
        let server = server(Arc::new(MemoryStore::default()));
        let mut entry = entry("one");
        entry.requested = vec!["read".to_owned()];
        server.take(entry);
        server
    }

    /// Refuses a request because these scopes are missing. Returns the scopes that the user is then asked for, if any.
    async fn asked(server: &Arc<Authorizer>, scopes: &str) -> Option<String> {
        let held = server.current.load_full();
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scopes}\"");
        let headers = HeaderMap::from_iter([(WWW_AUTHENTICATE, challenge.parse().unwrap())]);
        let refused = server.judge(403, &headers, held.as_ref(), &mut Tries::default()).await;
        assert_eq!(refused, Err(Error::Scope { scope: scopes.to_owned() }), "it is this request that is refused");
        let wanted = server.progress.lock().await.wanted.take();
        wanted.map(|hint| hint.scopes.join(" "))
    }

    #[tokio::test(start_paused = true)]
    async fn h74_more_scopes_are_asked_for_three_times_an_hour_and_together_with_those_before() {
        let server = signed_in();
        for _ in 0..3 {
            assert_eq!(asked(&server, "write").await.as_deref(), Some("read write"));
        }
        assert_eq!(asked(&server, "write").await, None);
        // Other sets have a count of their own; scopes that were already requested are not requested again.
        assert_eq!(asked(&server, "admin read").await.as_deref(), Some("admin read"));
        assert_eq!((asked(&server, "read").await, asked(&server, "").await), (None, None));
        tokio::time::advance(STEPS_FOR - Duration::from_secs(1)).await;
        assert_eq!(asked(&server, "write").await, None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(asked(&server, "write").await.as_deref(), Some("read write"));
    }

    #[tokio::test(start_paused = true)]
    async fn h74_a_server_that_wants_ever_other_scopes_has_twelve_an_hour() {
        let server = signed_in();
        for number in 0..20 {
            assert_eq!(asked(&server, &format!("s{number}")).await.is_some(), number < 12, "{number}");
        }
        tokio::time::advance(STEPS_FOR).await;
        assert!(asked(&server, "s20").await.is_some());
    }
}

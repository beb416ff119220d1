//! Logins over the status socket, for users at a shell. Requests of one line begin, poll, and end them.
//!
//! A login by browser waits here for the URL to which the browser was redirected. A login by device code does not run
//! by itself: the program that shows the code polls. **Invariant:** a login by code progresses only while it is polled,
//! and a login is forgotten when it ends, is abandoned, its connection ends (`admin/held.rs`), or newer logins exceed the
//! limit.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout};

use super::{Host, lock};
use crate::auth;
use crate::downstream::admin::{CodeBegun, LoginBegun, Refused, SignIn, SignInReply};
use crate::error::{Error, ErrorKind};

/// Logins that were begun over the status socket.
#[derive(Default)]
pub(super) struct Logins(Mutex<Begun>);

#[derive(Default)]
struct Begun {
    last: u64,
    by_browser: BTreeMap<u64, auth::Login>,
    by_code: BTreeMap<u64, Waiting>,
}

struct Waiting {
    end: Instant,
    /// The rest of the login; `None` while a poll runs it.
    finish: Option<BoxFuture<'static, Result<auth::Kept, auth::Error>>>,
}

/// How many logins of each kind may be under way; beyond that, the oldest are forgotten.
const UNDER_WAY: usize = 16;
/// How long one poll runs a login by code.
const LOOK: Duration = Duration::from_secs(1);
const OVER: &str = "this login is over already: begin again";
const WAITED_FOR: &str = "another program waits for this login already";

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Unknown | ErrorKind::Config => Self::unknown(error.to_string()),
            _ => Self::because(error.to_string()),
        }
    }
}

impl Host {
    /// Answers a request about logins, as the status socket does.
    ///
    /// # Errors
    /// When there is no such server or login, or the login failed.
    pub async fn sign_in(&self, request: SignIn) -> Result<SignInReply, Refused> {
        match request {
            SignIn::Begin { server, redirect } => self.begin(&server, &redirect).await,
            SignIn::Finish { login, url } => self.finish(login, &url).await,
            SignIn::BeginByCode { server } => self.begin_by_code(&server).await,
            SignIn::Look { login } => self.look(login).await,
            SignIn::Abandon { login } => Ok(self.abandon(login)),
            SignIn::Forget { server } => Ok(SignInReply::signed_out(self.logout(&server).await?)),
            SignIn::Holdings {} => Ok(self.holdings().await),
            SignIn::Rehearse { server } => Ok(SignInReply::rehearsed(self.rehearse_login(&server).await?)),
            SignIn::Keeping { server } => Ok(SignInReply::Keeping(self.keeping(&server).await?)),
        }
    }

    async fn begin(&self, server: &str, redirect: &str) -> Result<SignInReply, Refused> {
        let redirect = url::Url::parse(redirect).map_err(|_| Refused::because("the redirect is no URL"))?;
        let login = self.login(server, &redirect).await?;
        let (page, issuer) = (login.authorize_url().to_string(), login.issuer().to_owned());
        let by_code = login.could_be_by_code();
        let begun = &mut *lock(&self.0.logins.0);
        let number = put(&mut begun.last, &mut begun.by_browser, login);
        Ok(SignInReply::Begun(LoginBegun::new(number, page, issuer, by_code)))
    }

    async fn finish(&self, number: u64, url: &str) -> Result<SignInReply, Refused> {
        let begun = lock(&self.0.logins.0).by_browser.remove(&number);
        let login = begun.ok_or_else(|| Refused::because(OVER))?;
        let done = login.finish(url).await;
        done.map(SignInReply::signed_in).map_err(|error| failed(&error))
    }

    /// Begins a login by code, and returns the page and code to show to the user.
    async fn begin_by_code(&self, server: &str) -> Result<SignInReply, Refused> {
        let login = self.device_login(server).await?;
        let mut shown = CodeBegun {
            login: 0,
            page: login.verification_uri().to_string(),
            complete: login.verification_uri_complete().map(ToString::to_string),
            code: login.user_code().to_owned(),
            issuer: login.issuer().to_owned(),
            expires_in: (login.expires_in() + Duration::from_millis(999)).as_secs(),
        };
        let now = Instant::now();
        let waiting = Waiting { end: now + login.expires_in(), finish: Some(Box::pin(login.finish())) };
        let begun = &mut *lock(&self.0.logins.0);
        begun.by_code.retain(|_, waiting| waiting.end > now);
        shown.login = put(&mut begun.last, &mut begun.by_code, waiting);
        Ok(SignInReply::BegunByCode(shown))
    }

    /// Runs a login by code for up to [`LOOK`], and reports whether it is done.
    async fn look(&self, number: u64) -> Result<SignInReply, Refused> {
        let mut finish = match lock(&self.0.logins.0).by_code.get_mut(&number) {
            Some(waiting) => waiting.finish.take().ok_or_else(|| Refused::because(WAITED_FOR))?,
            None => return Err(Refused::because(OVER)),
        };
        let done = timeout(LOOK, &mut finish).await;
        let mut begun = lock(&self.0.logins.0);
        let Ok(done) = done else {
            // The login may have been abandoned meanwhile.
            if let Some(waiting) = begun.by_code.get_mut(&number) {
                waiting.finish = Some(finish);
            }
            return Ok(SignInReply::pending());
        };
        begun.by_code.remove(&number);
        drop(begun);
        done.map(SignInReply::signed_in).map_err(|error| failed(&error))
    }

    /// Forgets a login, and reports whether it was under way.
    fn abandon(&self, number: u64) -> SignInReply {
        let begun = &mut *lock(&self.0.logins.0);
        let (by_browser, by_code) = (begun.by_browser.remove(&number), begun.by_code.remove(&number));
        SignInReply::abandoned(by_browser.is_some() || by_code.is_some())
    }

    async fn holdings(&self) -> SignInReply {
        let mut all = Vec::new();
        for server in self.0.manager.servers().iter() {
            if let Some(tokens) = server.tokens() {
                all.push((server.config.name.clone(), tokens.holding().await));
            }
        }
        SignInReply::holdings(all)
    }
}

/// Adds a login, and returns its new number.
fn put<T>(last: &mut u64, logins: &mut BTreeMap<u64, T>, login: T) -> u64 {
    *last += 1;
    logins.insert(*last, login);
    while logins.len() > UNDER_WAY {
        logins.pop_first();
    }
    *last
}

/// Turns a failed login into a refusal.
fn failed(error: &auth::Error) -> Refused {
    Refused::because(error.to_string())
}

//! Logins over the status socket, for whoever sits at a shell: begun, looked after and ended by requests of one line.
//!
//! A login by a browser waits here for the URL that it came back with. By a code nobody waits: whoever has shown it asks
//! again and again whether it is done. **Invariant:** a login by a code goes on only while somebody asks for it, and each is
//! forgotten when it is over, abandoned, or one of too many.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{Host, lock};
use crate::auth;
use crate::downstream::admin::SignIn;
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
    /// Not here while somebody looks after it.
    finish: Option<BoxFuture<'static, Result<auth::Kept, auth::Error>>>,
}

/// So many of each kind may be under way; the oldest go first.
const UNDER_WAY: usize = 16;
/// So long goes on what somebody asks for; then they ask again.
const LOOK: Duration = Duration::from_secs(1);
const OVER: &str = "this login is over already: begin again";

/// A no.
#[derive(Serialize)]
struct No {
    error: String,
    /// It was asked for what there is not, by the config.
    usage: bool,
}

impl From<Error> for No {
    fn from(error: Error) -> Self {
        Self { error: error.to_string(), usage: matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Config) }
    }
}

impl From<auth::Error> for No {
    fn from(error: auth::Error) -> Self {
        Self { error: error.to_string(), usage: false }
    }
}

impl From<&str> for No {
    fn from(error: &str) -> Self {
        Self { error: error.to_owned(), usage: false }
    }
}

impl Host {
    /// Answers a request that concerns logins, as the status socket does: in a line of JSON.
    pub async fn sign_in(&self, request: SignIn) -> String {
        let answer = match request {
            SignIn::Begin { server, redirect } => self.begin(&server, &redirect).await,
            SignIn::Finish { login, url } => self.finish(login, &url).await,
            SignIn::BeginByCode { server } => self.begin_by_code(&server).await,
            SignIn::Look { login } => self.look(login).await,
            SignIn::Abandon { login } => Ok(self.abandon(login)),
            SignIn::Forget { server } => self.forget(&server).await,
            SignIn::Holdings {} => Ok(self.holdings().await),
            SignIn::Keeping { server } => self.keeping(&server).await.map(|keeping| json!(keeping)).map_err(No::from),
        };
        answer.unwrap_or_else(|no| json!(no)).to_string()
    }

    async fn begin(&self, server: &str, redirect: &str) -> Result<Value, No> {
        let redirect = url::Url::parse(redirect).map_err(|_| "the redirect is no URL")?;
        let login = self.login(server, &redirect).await?;
        let mut answer = json!({
            "page": login.authorize_url(),
            "issuer": login.issuer(),
            "byCode": login.could_be_by_code(),
        });
        let begun = &mut *lock(&self.0.logins.0);
        answer["login"] = put(&mut begun.last, &mut begun.by_browser, login).into();
        Ok(answer)
    }

    async fn finish(&self, number: u64, url: &str) -> Result<Value, No> {
        let login = lock(&self.0.logins.0).by_browser.remove(&number).ok_or(OVER)?;
        Ok(signed_in(login.finish(url).await?))
    }

    /// Begins a login by a code, and tells what is to be shown.
    async fn begin_by_code(&self, server: &str) -> Result<Value, No> {
        let login = self.device_login(server).await?;
        let mut answer = json!({
            "page": login.verification_uri(),
            "complete": login.verification_uri_complete(),
            "code": login.user_code(),
            "issuer": login.issuer(),
            "expiresIn": (login.expires_in() + Duration::from_millis(999)).as_secs(),
        });
        let now = Instant::now();
        let waiting = Waiting { end: now + login.expires_in(), finish: Some(Box::pin(login.finish())) };
        let begun = &mut *lock(&self.0.logins.0);
        begun.by_code.retain(|_, waiting| waiting.end > now);
        answer["login"] = put(&mut begun.last, &mut begun.by_code, waiting).into();
        Ok(answer)
    }

    /// Lets a login by a code go on for a moment, and tells whether it is done.
    async fn look(&self, number: u64) -> Result<Value, No> {
        let mut finish = match lock(&self.0.logins.0).by_code.get_mut(&number) {
            Some(waiting) => waiting.finish.take().ok_or("another program waits for this login already")?,
            None => return Err(OVER.into()),
        };
        let done = timeout(LOOK, &mut finish).await;
        let mut begun = lock(&self.0.logins.0);
        let Ok(done) = done else {
            // It may have been abandoned meanwhile.
            if let Some(waiting) = begun.by_code.get_mut(&number) {
                waiting.finish = Some(finish);
            }
            return Ok(json!({ "pending": true }));
        };
        begun.by_code.remove(&number);
        Ok(signed_in(done?))
    }

    /// Forgets a login by a code; whether it was under way.
    fn abandon(&self, number: u64) -> Value {
        json!({ "abandoned": lock(&self.0.logins.0).by_code.remove(&number).is_some() })
    }

    async fn forget(&self, server: &str) -> Result<Value, No> {
        Ok(json!({ "forgotten": self.logout(server).await? }))
    }

    async fn holdings(&self) -> Value {
        let mut all = Vec::new();
        for server in self.0.manager.servers().iter() {
            if let Some(tokens) = server.tokens() {
                all.push(json!({ "name": server.config.name, "holding": tokens.holding().await }));
            }
        }
        json!({ "servers": all })
    }
}

/// Puts a login with the others, under a number that none had before.
fn put<T>(last: &mut u64, logins: &mut BTreeMap<u64, T>, login: T) -> u64 {
    *last += 1;
    logins.insert(*last, login);
    while logins.len() > UNDER_WAY {
        logins.pop_first();
    }
    *last
}

fn signed_in(kept: auth::Kept) -> Value {
    json!({ "signedIn": true, "kept": kept })
}

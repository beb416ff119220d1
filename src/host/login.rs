//! Signing in for embedders: the login of a server as a value, and what is held.

#[cfg(feature = "server")]
use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(feature = "server")]
use std::sync::Mutex;

use super::Host;
#[cfg(feature = "server")]
use super::lock;
use crate::auth;
#[cfg(feature = "server")]
use crate::downstream::admin::SignIn;
use crate::error::{Error, ErrorKind};

/// Logins that were begun over the status socket and wait for their browser.
#[cfg(feature = "server")]
#[derive(Debug, Default)]
pub(super) struct Logins(Mutex<Begun>);

#[cfg(feature = "server")]
#[derive(Debug, Default)]
struct Begun {
    next: u64,
    waiting: BTreeMap<u64, auth::Login>,
}

/// So many may wait; the oldest go first.
#[cfg(feature = "server")]
const WAITING: usize = 16;

impl Host {
    /// Begins a login for a server; `redirect` is where the browser is to be sent back to, mostly on this machine. A login
    /// that is finished brings the server back.
    ///
    /// # Errors
    /// When there is no such server, it wants no tokens, or it cannot be found out where they come from.
    pub async fn login(&self, server: &str, redirect: &url::Url) -> Result<auth::Login, Error> {
        self.tokens(server)?.begin(redirect).await.map_err(|error| self.unauthorized(server, &error))
    }

    /// Forgets the token of a server, and tells whoever gave it; whether there was one.
    ///
    /// # Errors
    /// When there is no such server, or the token may still be kept.
    pub async fn logout(&self, server: &str) -> Result<bool, Error> {
        self.tokens(server)?.sign_out().await.map_err(|error| self.unauthorized(server, &error))
    }

    /// What is held of a login with a server, if there is one.
    ///
    /// # Errors
    /// When there is no such server, or it wants no tokens.
    pub async fn holding(&self, server: &str) -> Result<Option<auth::Holding>, Error> {
        Ok(self.tokens(server)?.holding().await)
    }

    pub(super) fn tokens(&self, name: &str) -> Result<Arc<auth::Authorizer>, Error> {
        let servers = self.0.manager.servers();
        let server = servers.iter().find(|server| server.config.name == name || server.config.alias.as_str() == name);
        let server = server.ok_or_else(|| Error::new(ErrorKind::Unknown, format!("no server is called `{name}`")))?;
        server.tokens().cloned().ok_or_else(|| {
            let text = "signs in by what the config says, there is no login for it";
            Error::new(ErrorKind::Config, format!("server `{name}` {text}"))
        })
    }

    pub(super) fn unauthorized(&self, server: &str, error: &auth::Error) -> Error {
        Error::new(ErrorKind::Unauthorized, format!("server `{server}`: {error}"))
    }

    /// Answers a request over the status socket, in a line of JSON.
    #[cfg(feature = "server")]
    pub(super) async fn sign_in(&self, request: SignIn) -> String {
        let answer = match request {
            SignIn::Begin { server, redirect } => self.begin(&server, &redirect).await,
            SignIn::Finish { login, url } => self.finish(login, &url).await,
            SignIn::BeginByCode { server } => self.begin_by_code(&server).await,
            SignIn::Look { login } => self.look(login).await,
            SignIn::Abandon { login } => Ok(self.abandon(login)),
            SignIn::Forget { server } => self
                .logout(&server)
                .await
                .map(|was| serde_json::json!({ "forgotten": was }))
                .map_err(|error| error.to_string()),
            SignIn::Holdings {} => Ok(self.holdings().await),
        };
        answer.unwrap_or_else(|error| serde_json::json!({ "error": error })).to_string()
    }

    #[cfg(feature = "server")]
    async fn begin(&self, server: &str, redirect: &str) -> Result<serde_json::Value, String> {
        let redirect = url::Url::parse(redirect).map_err(|_| "the redirect is no URL".to_owned())?;
        let login = self.login(server, &redirect).await.map_err(|error| error.to_string())?;
        let (page, issuer) = (login.authorize_url().to_string(), login.issuer().to_owned());
        let by_code = login.could_be_by_code();
        let mut begun = lock(&self.0.logins.0);
        begun.next += 1;
        let number = begun.next;
        begun.waiting.insert(number, login);
        while begun.waiting.len() > WAITING {
            begun.waiting.pop_first();
        }
        Ok(serde_json::json!({ "login": number, "page": page, "issuer": issuer, "byCode": by_code }))
    }

    #[cfg(feature = "server")]
    async fn finish(&self, number: u64, url: &str) -> Result<serde_json::Value, String> {
        let login = lock(&self.0.logins.0).waiting.remove(&number);
        let login = login.ok_or_else(|| "this login is over already".to_owned())?;
        let kept = login.finish(url).await.map_err(|error| error.to_string())?;
        Ok(serde_json::json!({ "signedIn": true, "kept": kept }))
    }

    #[cfg(feature = "server")]
    async fn holdings(&self) -> serde_json::Value {
        let mut all = Vec::new();
        for server in self.0.manager.servers().iter() {
            if let Some(tokens) = server.tokens() {
                all.push(serde_json::json!({ "name": server.config.name, "holding": tokens.holding().await }));
            }
        }
        serde_json::json!({ "servers": all })
    }
}

//! Signing in to servers, for embedders: logins by browser or by device code as values, and the access tokens that are
//! kept.

use std::sync::Arc;

use super::Host;
use crate::auth;
use crate::config;
use crate::error::{Error, ErrorKind};

impl Host {
    /// Begins a login to a server; the authorization server redirects the browser to `redirect`, usually on this
    /// machine. A finished login reconnects the server.
    ///
    /// # Errors
    /// When there is no such server, it takes no tokens, or its authorization server cannot be found.
    pub async fn login(&self, server: &str, redirect: &url::Url) -> Result<auth::Login, Error> {
        self.authorizer_of(server)?.begin(redirect).await.map_err(|error| no_token(server, &error))
    }

    /// Begins a login to a server by device code (RFC 8628), for users whose browser cannot be redirected to this
    /// machine. A finished login reconnects the server.
    ///
    /// # Errors
    /// When there is no such server, it takes no tokens, or its authorization server cannot be found or offers no
    /// device codes.
    pub async fn device_login(&self, server: &str) -> Result<auth::DeviceLogin, Error> {
        self.authorizer_of(server)?.begin_by_code().await.map_err(|error| no_token(server, &error))
    }

    /// Takes all steps of a login that change nothing: asks the server who issues its tokens, and checks whether that
    /// authorization server could sign a user in for this client. Returns its issuer.
    ///
    /// # Errors
    /// When there is no such server, it takes no tokens, or a login would fail.
    #[cfg(feature = "server")]
    pub(super) async fn rehearse_login(&self, server: &str) -> Result<String, Error> {
        self.authorizer_of(server)?.rehearse().await.map_err(|error| no_token(server, &error))
    }

    /// Returns where the access token from a new login to a server would be kept.
    ///
    /// # Errors
    /// When there is no such server, it takes no tokens, or the store does not answer.
    pub async fn keeping(&self, server: &str) -> Result<auth::Keeping, Error> {
        self.authorizer_of(server)?.keeping().await.map_err(|error| no_token(server, &error))
    }

    /// Forgets the access token for a server, and revokes it at its issuer. Returns whether there was one.
    ///
    /// # Errors
    /// When there is no such server, or the token may still be kept.
    pub async fn logout(&self, server: &str) -> Result<bool, Error> {
        let tokens = self.authorizer_of(server)?;
        let login = tokens.login_id().await;
        let signed_out = tokens.sign_out().await.map_err(|error| no_token(server, &error));
        if signed_out.is_ok() {
            self.0.manager.remember_login(server, "out");
        }
        // Tool, prompt and resource lists that the server gave to that login are forgotten, even if the token could not
        // be revoked.
        if let Some(login) = login {
            self.0.manager.forget_listings(tokens.server(), &login).await;
        }
        signed_out
    }

    /// Describes the access token that is kept for a server, if there is one.
    ///
    /// # Errors
    /// When there is no such server, or it takes no tokens.
    pub async fn holding(&self, server: &str) -> Result<Option<auth::Holding>, Error> {
        Ok(self.authorizer_of(server)?.holding().await)
    }

    fn authorizer_of(&self, name: &str) -> Result<Arc<auth::Authorizer>, Error> {
        let servers = self.0.manager.servers();
        let server = servers.iter().find(|server| server.config.name == name || server.config.alias.as_str() == name);
        let server = server.ok_or_else(|| Error::new(ErrorKind::Unknown, format!("no server is called `{name}`")))?;
        let no_login = || Error::new(ErrorKind::Config, format!("server `{name}` {}", without_login(&server.config)));
        server.tokens().cloned().ok_or_else(no_login)
    }
}

/// Says why a server has no login.
fn without_login(server: &config::Server) -> String {
    match (&server.disabled, &server.unusable, &server.transport) {
        (Some(reason), ..) => format!("is not started: {reason}"),
        (None, Some(reason), _) => format!("cannot be started: {reason}"),
        (None, None, config::Transport::Stdio(_)) => {
            "is a program of this machine, so there is no login for it: what it needs goes into its `env`".to_owned()
        }
        _ => "signs in by what the config says, so there is no login for it: change it there".to_owned(),
    }
}

fn no_token(server: &str, error: &auth::Error) -> Error {
    let by_config = matches!(error, auth::Error::Config { .. });
    let kind = if by_config { ErrorKind::Config } else { ErrorKind::Unauthorized };
    Error::new(kind, format!("server `{server}`: {error}")).with_source(error.clone())
}

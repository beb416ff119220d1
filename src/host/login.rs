//! Signing in for embedders: the login of a server as a value, by a browser or by a code, and what is held.

use std::sync::Arc;

use super::Host;
use crate::auth;
use crate::config;
use crate::error::{Error, ErrorKind};

impl Host {
    /// Begins a login for a server; `redirect` is where the browser is to be sent back to, mostly on this machine. A login
    /// that is finished brings the server back.
    ///
    /// # Errors
    /// When there is no such server, it wants no tokens, or it cannot be found out where they come from.
    pub async fn login(&self, server: &str, redirect: &url::Url) -> Result<auth::Login, Error> {
        self.tokens(server)?.begin(redirect).await.map_err(|error| no_token(server, &error))
    }

    /// Begins a login for a server by a code (RFC 8628), for users whose browser cannot come back here. A login that is
    /// finished brings the server back.
    ///
    /// # Errors
    /// When there is no such server, it wants no tokens, it cannot be found out where they come from, or they are not given
    /// for a code there.
    pub async fn device_login(&self, server: &str) -> Result<auth::DeviceLogin, Error> {
        self.tokens(server)?.begin_by_code().await.map_err(|error| no_token(server, &error))
    }

    /// Where a login with a server would be kept that is made now.
    ///
    /// # Errors
    /// When there is no such server, it wants no tokens, or the store does not answer.
    pub async fn keeping(&self, server: &str) -> Result<auth::Keeping, Error> {
        self.tokens(server)?.keeping().await.map_err(|error| no_token(server, &error))
    }

    /// Forgets the token of a server, and tells whoever gave it; whether there was one.
    ///
    /// # Errors
    /// When there is no such server, or the token may still be kept.
    pub async fn logout(&self, server: &str) -> Result<bool, Error> {
        let tokens = self.tokens(server)?;
        let login = tokens.login_id().await;
        let signed_out = tokens.sign_out().await.map_err(|error| no_token(server, &error));
        // What was listed to that login is nobody's any more, whether its token could be taken back or not.
        if let Some(login) = login {
            self.0.manager.forget_listings(tokens.server(), &login).await;
        }
        signed_out
    }

    /// What is held of a login with a server, if there is one.
    ///
    /// # Errors
    /// When there is no such server, or it wants no tokens.
    pub async fn holding(&self, server: &str) -> Result<Option<auth::Holding>, Error> {
        Ok(self.tokens(server)?.holding().await)
    }

    fn tokens(&self, name: &str) -> Result<Arc<auth::Authorizer>, Error> {
        let servers = self.0.manager.servers();
        let server = servers.iter().find(|server| server.config.name == name || server.config.alias.as_str() == name);
        let server = server.ok_or_else(|| Error::new(ErrorKind::Unknown, format!("no server is called `{name}`")))?;
        let no_login = || Error::new(ErrorKind::Config, format!("server `{name}` {}", without_login(&server.config)));
        server.tokens().cloned().ok_or_else(no_login)
    }
}

/// Why there is no login for a server.
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

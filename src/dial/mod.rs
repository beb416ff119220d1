//! Makes every HTTP client: TLS, timeouts, no redirects, and rules for URLs that are not in the config.
//!
//! Not here: credentials, and what is sent. A client is made only when the first server needs one, because reading the
//! platform's certificates costs more than starting a small server. Start at [`Dialer`]. `foreign.rs` requests URLs
//! that servers named, `tls.rs` decides which certificates to trust, and `sight.rs` which ones to trust on first use.

mod address;
mod client;
mod foreign;
mod pins;
mod sight;
mod tls;

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

pub use self::pins::{Certificates, Changed};
use self::sight::Judging;
use crate::config::{Remote, Tls};

#[cfg(any(
    all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"),
    all(feature = "sandbox", target_os = "macos")
))]
pub(crate) use self::address::is_public;
pub(crate) use self::client::{Client, Response, SendError};
#[cfg(any(
    all(feature = "sandbox", target_os = "linux", target_pointer_width = "64"),
    all(feature = "sandbox", target_os = "macos")
))]
pub(crate) use self::foreign::Lookup;
pub(crate) use self::foreign::system;
pub(crate) use self::foreign::{Document, Error, Foreign};

/// Makes and keeps the HTTP clients.
#[derive(Debug, Default)]
pub(crate) struct Dialer {
    plain: OnceLock<Client>,
    tls: OnceLock<Result<Client, String>>,
    pins: Certificates,
}

const CONNECT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(90);
/// How the host names itself to servers.
pub(crate) const USER_AGENT: &str = concat!("mcp-host/", env!("CARGO_PKG_VERSION"));

impl Dialer {
    /// Creates a dialer that keeps trusted certificates in a state directory.
    pub(crate) fn new(state: Option<&Path>) -> Self {
        Self { pins: Certificates::new(state), ..Self::default() }
    }

    /// Returns the client for a configured server. A server with its own TLS settings gets its own client, built from
    /// the current content of its files.
    pub(crate) fn client(&self, remote: &Remote) -> Result<Client, String> {
        match remote.url.scheme() {
            "https" if remote.tls == Tls::default() => self.tls.get_or_init(|| made(builder())).clone(),
            "https" => self.recipe(remote).client(),
            _ => Ok(self.plain.get_or_init(Client::plain).clone()),
        }
    }

    /// Returns the certificates that are trusted on first use.
    #[cfg(feature = "server")]
    pub(crate) fn certificates(&self) -> Certificates {
        self.pins.clone()
    }

    /// Returns a recipe for a client to this server that shares no connection with any other client.
    pub(crate) fn recipe(&self, remote: &Remote) -> Recipe {
        Recipe { remote: remote.clone(), pins: self.pins.clone() }
    }

    /// Returns a client for URLs that the server at `configured` named. Each request times out after `patience`.
    pub(crate) fn foreign(&self, configured: &url::Url, patience: Duration) -> Result<Foreign, String> {
        Foreign::new(configured, patience, system())
    }
}

/// Everything needed to make an HTTP client for one server.
#[derive(Debug)]
pub(crate) struct Recipe {
    remote: Remote,
    pins: Certificates,
}

impl Recipe {
    /// Makes a client that shares no connection with any other client.
    pub(crate) fn client(&self) -> Result<Client, String> {
        let Remote { url, tls, .. } = &self.remote;
        if url.scheme() != "https" {
            return Ok(Client::plain());
        }
        if *tls == Tls::default() {
            return made(builder());
        }
        let builder = builder().tls_backend_preconfigured(tls::client_config(tls)?);
        if !tls.trust_on_first_use {
            return made(builder);
        }
        let origin = url.origin().ascii_serialization().into();
        made(builder.connector_layer(Judging { origin, pins: self.pins.clone() }))
    }
}

fn builder() -> reqwest::ClientBuilder {
    // This fails only if the program has already chosen a crypto provider, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .tcp_nodelay(true)
        .user_agent(USER_AGENT)
}

fn made(builder: reqwest::ClientBuilder) -> Result<Client, String> {
    builder.build().map(Client::Tls).map_err(|error| error.to_string())
}

/// Returns the innermost cause of an error, which is the most specific.
pub(crate) fn explain(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(error) = in_tls(error) {
        return tls::explain(error).0;
    }
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let text = cause.to_string();
    // Few people know the error number.
    text.rfind(" (os error ").map_or_else(|| text.clone(), |at| text[..at].to_owned())
}

/// Returns why the two ends do not trust each other, if that caused the error. Such an error lasts until a person fixes
/// it.
fn untrusted(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    in_tls(error).map(tls::explain).filter(|(_, lasting)| *lasting).map(|(reason, _)| reason)
}

/// Finds the TLS error among an error's causes. An I/O error does not return its inner error as its source, and such
/// errors may nest.
fn in_tls<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(found) = error.downcast_ref() {
        return Some(found);
    }
    let within = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    match within {
        Some(inner) => in_tls(inner),
        None => in_tls(error.source()?),
    }
}

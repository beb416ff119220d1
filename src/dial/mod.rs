//! The one HTTP client: TLS, limits of time, no redirects; and which URLs are asked at all that somebody else gave us.
//!
//! Not here: credentials and what is said. A client is made when the first server wants one: reading the certificates of
//! the platform costs more than starting a small server. Start reading at [`Dialer`]; `foreign.rs` is the way to URLs that
//! are not of the config, `tls.rs` says whom to believe, and `sight.rs` whom from first sight on.

mod address;
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

pub(crate) use self::foreign::{Document, Error, Foreign};

/// Makes and keeps the HTTP clients.
#[derive(Debug, Default)]
pub(crate) struct Dialer {
    plain: OnceLock<Result<reqwest::Client, String>>,
    tls: OnceLock<Result<reqwest::Client, String>>,
    pins: Certificates,
}

const CONNECT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(90);

impl Dialer {
    /// One that keeps what it believes in a state directory.
    pub(crate) fn new(state: Option<&Path>) -> Self {
        Self { pins: Certificates::new(state), ..Self::default() }
    }

    /// The client for a server of the config. One with a TLS of its own has a client of its own, made of its files as they
    /// are now.
    pub(crate) fn client(&self, remote: &Remote) -> Result<reqwest::Client, String> {
        match remote.url.scheme() {
            "https" if remote.tls == Tls::default() => self.tls.get_or_init(|| made(builder())).clone(),
            "https" => self.recipe(remote).client(),
            _ => self.plain.get_or_init(|| made(plain())).clone(),
        }
    }

    /// How a client for this server is made that shares no connection with any other.
    pub(crate) fn recipe(&self, remote: &Remote) -> Recipe {
        Recipe { remote: remote.clone(), pins: self.pins.clone() }
    }

    /// A client for URLs that the server at `configured` gave us, each to be answered within `patience`.
    pub(crate) fn foreign(&self, configured: &url::Url, patience: Duration) -> Result<Foreign, String> {
        Foreign::new(configured, patience, foreign::system())
    }
}

/// What a client is made of.
#[derive(Debug)]
pub(crate) struct Recipe {
    remote: Remote,
    pins: Certificates,
}

impl Recipe {
    /// One that shares no connection with any other.
    pub(crate) fn client(&self) -> Result<reqwest::Client, String> {
        let Remote { url, tls, .. } = &self.remote;
        if url.scheme() != "https" {
            return made(plain());
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
    // Fails only if the program has chosen a provider already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .tcp_nodelay(true)
        .user_agent(concat!("mcp-host/", env!("CARGO_PKG_VERSION")))
}

/// Without TLS no certificate is read.
fn plain() -> reqwest::ClientBuilder {
    builder().tls_certs_only([]).no_proxy().http1_only()
}

fn made(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, String> {
    builder.build().map_err(|error| error.to_string())
}

/// What went wrong, in the words of whoever noticed first.
pub(crate) fn explain(error: &reqwest::Error) -> String {
    if let Some(error) = in_tls(error) {
        return tls::explain(error).0;
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let text = cause.to_string();
    // The number says nothing to most people.
    text.rfind(" (os error ").map_or_else(|| text.clone(), |at| text[..at].to_owned())
}

/// Why the two ends do not believe each other, if that is what went wrong: it stays so until somebody does something.
pub(crate) fn untrusted(error: &reqwest::Error) -> Option<String> {
    in_tls(error).map(tls::explain).filter(|(_, lasting)| *lasting).map(|(reason, _)| reason)
}

/// The error of TLS among the causes. An I/O error does not name what is in it as its source, and one may hold another.
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

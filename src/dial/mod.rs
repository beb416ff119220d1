//! The one HTTP client: TLS, limits of time, no redirects; and which URLs are asked at all that somebody else gave us.
//!
//! Not here: credentials and what is said. A client is made when the first server wants one: reading the certificates of
//! the platform costs more than starting a small server. Start reading at [`Dialer`]; `foreign.rs` is the way to URLs that
//! are not of the config.

mod address;
#[allow(dead_code, reason = "authorization, its user, is being built on it")]
mod foreign;

use std::sync::OnceLock;
use std::time::Duration;

#[allow(unused_imports, reason = "authorization, their user, is being built on them")]
pub(crate) use self::address::{Refused, is_loopback};
#[allow(unused_imports, reason = "authorization, their user, is being built on them")]
pub(crate) use self::foreign::{Document, Error, Foreign};

/// Makes and keeps the HTTP clients.
#[derive(Debug, Default)]
pub(crate) struct Dialer {
    plain: OnceLock<Result<reqwest::Client, String>>,
    tls: OnceLock<Result<reqwest::Client, String>>,
}

const CONNECT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(90);

impl Dialer {
    /// The client for this URL of the config.
    pub(crate) fn client(&self, url: &url::Url) -> Result<reqwest::Client, String> {
        let (slot, certificates) = if url.scheme() == "https" { (&self.tls, true) } else { (&self.plain, false) };
        slot.get_or_init(|| build(certificates)).clone()
    }

    /// One that shares no connection with any other.
    pub(crate) fn anew(url: &url::Url) -> Result<reqwest::Client, String> {
        build(url.scheme() == "https")
    }

    /// A client for URLs that the server at `configured` gave us, each to be answered within `patience`.
    #[allow(dead_code, reason = "authorization, its user, is being built on it")]
    pub(crate) fn foreign(&self, configured: &url::Url, patience: Duration) -> Result<Foreign, String> {
        Foreign::new(configured, patience, foreign::system())
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

fn build(certificates: bool) -> Result<reqwest::Client, String> {
    let mut builder = builder();
    if !certificates {
        builder = builder.tls_certs_only([]).no_proxy().http1_only();
    }
    builder.build().map_err(|error| error.to_string())
}

/// What went wrong, in the words of whoever noticed first.
pub(crate) fn explain(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

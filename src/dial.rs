//! The one HTTP client: TLS, limits of time, no redirects.
//!
//! Not here: credentials and what is said. A client is made when the first server wants one: reading the certificates of
//! the platform costs more than starting a small server.

use std::sync::OnceLock;
use std::time::Duration;

/// Makes and keeps the HTTP clients.
#[derive(Debug, Default)]
pub(crate) struct Dialer {
    plain: OnceLock<Result<reqwest::Client, String>>,
    tls: OnceLock<Result<reqwest::Client, String>>,
}

const CONNECT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(90);

impl Dialer {
    /// The client for this URL.
    pub(crate) fn client(&self, url: &url::Url) -> Result<reqwest::Client, String> {
        let (slot, certificates) = if url.scheme() == "https" { (&self.tls, true) } else { (&self.plain, false) };
        slot.get_or_init(|| build(certificates)).clone()
    }
}

fn build(certificates: bool) -> Result<reqwest::Client, String> {
    // Fails only if the program has chosen a provider already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .tcp_nodelay(true)
        .user_agent(concat!("mcp-host/", env!("CARGO_PKG_VERSION")));
    if !certificates {
        builder = builder.tls_certs_only([]).no_proxy().http1_only();
    }
    builder.build().map_err(|error| error.to_string())
}

//! Detects the transport of a URL when the config does not name it: Streamable HTTP if the URL accepts a POST of
//! `initialize`, else HTTP with SSE if a GET returns a stream that names the endpoint to post to (2025-11-25,
//! transports, "Backwards Compatibility").
//!
//! Missing credentials say nothing about the transport, and neither does an unreachable server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::connection::{Connection, Link};
use super::{Target, Upstream, drive, listing};
use crate::dial::Dialer;
use crate::transport::{Error, Sse};

/// The transport detected for a server, shared with its other leases and later connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inferred(Arc<AtomicBool>);

impl Inferred {
    /// Whether the server last spoke HTTP with SSE.
    pub(crate) fn is_sse(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn remember(&self, sse: bool) {
        self.0.store(sse, Ordering::Relaxed);
    }
}

/// Sends `initialize` over the transport that the server turns out to speak. Afterwards the connection knows its peer,
/// that is, the server's description of itself.
///
/// # Errors
/// When neither transport worked; the error names both failures.
pub(super) async fn shake(connection: &Arc<Connection>, upstream: &Upstream, dialer: &Dialer) -> Result<(), Error> {
    let settings = &upstream.settings;
    let hello = || listing::shake(connection, upstream.profile(), &settings.client_info);
    if let Link::Sse(sse) = connection.link() {
        let attached = drive::attach(connection, sse).await;
        if let (Target::Auto(_, inferred), Err(Error::Status { .. } | Error::Malformed(_))) =
            (&settings.target, &attached)
        {
            // The server has changed: the next attempt detects again.
            inferred.remember(false);
        }
        attached?;
        return hello().await;
    }
    let (remote, inferred, refused) = match (&settings.target, hello().await) {
        (Target::Auto(remote, inferred), Err(error)) if speaks_of_transport(&error) => (remote, inferred, error),
        (_, said) => return said,
    };
    let sse = Arc::new(Sse::new(remote, dialer, &settings.limits)?);
    match drive::attach(connection, &sse).await {
        Ok(()) => {}
        Err(error) if error.wants_credentials() => return Err(error),
        Err(error) => {
            let (error, elsewhere) = (error.to_string(), refused.elsewhere());
            // Both errors may end with the same advice, and once is enough.
            let error = error.strip_suffix(&elsewhere).unwrap_or(&error);
            return Err(Error::Malformed(format!(
                "it speaks neither Streamable HTTP ({refused}) nor HTTP with SSE ({error}){elsewhere}"
            )));
        }
    }
    connection.change_link(Link::Sse(sse));
    hello().await?;
    inferred.remember(true);
    Ok(())
}

/// Whether the POST failed as if the URL did not accept POST: 400, 404, 405, or a similar status, without a JSON-RPC
/// error. Errors about credentials, load, or our own body do not count.
fn speaks_of_transport(error: &Error) -> bool {
    match error {
        Error::Status { status, .. } => {
            (400..500).contains(status) && !matches!(status, 401 | 403 | 407 | 408 | 413 | 425 | 429 | 431)
        }
        _ => false,
    }
}

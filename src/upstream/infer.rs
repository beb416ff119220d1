//! Which transport a URL speaks, where the config does not say: Streamable HTTP if it takes a POST of `initialize`, else
//! HTTP with SSE if a GET is answered with a stream that says where to post (2025-11-25, transports, "Backwards
//! Compatibility").
//!
//! A refusal for want of credentials says nothing of transports, and neither does a server that is not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::connection::{Connection, Wire};
use super::{Target, Upstream, drive, listing};
use crate::dial::Dialer;
use crate::transport::{Error, Sse};

/// What was found out about a server, for its other leases and its next connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inferred(Arc<AtomicBool>);

impl Inferred {
    /// Whether it was HTTP with SSE the last time.
    pub(crate) fn is_sse(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn remember(&self, sse: bool) {
        self.0.store(sse, Ordering::Relaxed);
    }
}

/// Says hello by `initialize`, over the transport that the server turns out to speak. The connection knows its peer
/// afterwards.
///
/// # Errors
/// Where neither transport worked, with what came of both.
pub(super) async fn shake(connection: &Arc<Connection>, upstream: &Upstream, dialer: &Dialer) -> Result<(), Error> {
    let settings = &upstream.settings;
    let hello = || listing::shake(connection, upstream.profile(), &settings.client_info);
    if let Wire::Sse(sse) = connection.wire() {
        let attached = drive::attach(connection, sse).await;
        if let (Target::Auto(_, inferred), Err(Error::Status { .. } | Error::Malformed(_))) =
            (&settings.target, &attached)
        {
            // It has changed: the next attempt begins anew.
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
            // Both may say it, and once is enough.
            let error = error.strip_suffix(&elsewhere).unwrap_or(&error);
            return Err(Error::Malformed(format!(
                "it speaks neither Streamable HTTP ({refused}) nor HTTP with SSE ({error}){elsewhere}"
            )));
        }
    }
    connection.change_wire(Wire::Sse(sse));
    hello().await?;
    inferred.remember(true);
    Ok(())
}

/// Whether a POST was refused as by a server that does not know POST at this URL: 400, 404, 405 or a like status, and no
/// answer of JSON-RPC. What concerns credentials, load or our own body is not meant.
fn speaks_of_transport(error: &Error) -> bool {
    match error {
        Error::Status { status, .. } => {
            (400..500).contains(status) && !matches!(status, 401 | 403 | 407 | 408 | 413 | 425 | 429 | 431)
        }
        _ => false,
    }
}

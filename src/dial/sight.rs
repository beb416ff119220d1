//! Trust on first use (`tls.trustOnFirstUse`): judges certificates that no authority vouches for, once per connection.
//!
//! The handshake must not block, but access to the file of certificates can: it waits for a disk, or for another host
//! that holds the file's lock. So the file is read before the handshake, and a certificate that differs from the known
//! one ends the handshake. A new certificate is written after the handshake and before the first request.
//! **Invariant:** a connection is used only after its certificate is judged. Not here: the file (`pins.rs`), and
//! authorities (`tls.rs`).

use std::error::Error as StdError;
use std::pin::Pin as Pinned;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rustls::{CertificateError, OtherError};
use tower_layer::Layer;
use tower_service::Service;

use super::pins::{Certificates, Pin, Verdict};
use crate::config::Fingerprint;
use crate::keep::{self, Error};

tokio::task_local! {
    /// The handshake that this task runs.
    static SIGHT: Arc<Sight>;
}

/// What is known about one handshake.
#[derive(Debug)]
struct Sight {
    /// What was kept of the server before the handshake.
    before: Result<Option<Pin>, Error>,
    shown: OnceLock<Fingerprint>,
}

impl Sight {
    /// Reports whether the handshake continues with that certificate.
    fn admits(&self, shown: Fingerprint) -> bool {
        // One connection has one certificate; a second one comes from another party, such as a proxy.
        *self.shown.get_or_init(|| shown) == shown
            && match &self.before {
                Ok(None) => true,
                Ok(Some(pin)) => pin.known == shown.to_string(),
                Err(_) => false,
            }
    }
}

/// Reports whether the current handshake continues with a certificate that no authority vouches for. It does only if
/// this task judges the connection afterwards.
pub(super) fn admits(shown: Fingerprint) -> bool {
    SIGHT.try_with(|sight| sight.admits(shown)).unwrap_or(false)
}

/// The reason why a certificate is not the trusted one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Changed(String);

/// Returns the error for a server whose certificate has changed.
fn changed(shown: Fingerprint, known: &str) -> rustls::Error {
    another(format!(
        "it shows the certificate {shown}, but it was {known} before; if its owner has changed it, accept it with \
         `mcp-host approve`"
    ))
}

/// Wraps the reason why a certificate is not the trusted one.
pub(super) fn another(text: String) -> rustls::Error {
    CertificateError::Other(OtherError(Arc::new(Changed(text)))).into()
}

/// Judges the connections to one server.
#[derive(Clone, Debug)]
pub(super) struct Judging {
    pub(super) origin: Arc<str>,
    pub(super) pins: Certificates,
}

/// A connector that judges each connection.
#[derive(Clone, Debug)]
pub(super) struct Judged<S> {
    connect: S,
    judging: Judging,
}

impl<S> Layer<S> for Judging {
    type Service = Judged<S>;

    fn layer(&self, connect: S) -> Judged<S> {
        Judged { connect, judging: self.clone() }
    }
}

type Failed = Box<dyn StdError + Send + Sync>;

impl<S, R> Service<R> for Judged<S>
where
    S: Service<R, Error = Failed> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = Failed;
    type Future = Pinned<Box<dyn Future<Output = Result<S::Response, Failed>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        self.connect.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // Only the polled service is ready; its clone must be polled again.
        let next = self.connect.clone();
        let mut connect = std::mem::replace(&mut self.connect, next);
        let judging = self.judging.clone();
        Box::pin(async move {
            let Judging { origin, pins } = judging.clone();
            let before = keep::done(move || pins.look(&origin)).await;
            let sight = Arc::new(Sight { before, shown: OnceLock::new() });
            let connected = SIGHT.scope(sight.clone(), connect.call(request)).await;
            match sight.shown.get() {
                Some(shown) => judging.judge(&sight.before, *shown, connected).await,
                // An authority vouched for the certificate, or there was none.
                None => connected,
            }
        })
    }
}

impl Judging {
    async fn judge<C>(
        self,
        before: &Result<Option<Pin>, Error>,
        shown: Fingerprint,
        connected: Result<C, Failed>,
    ) -> Result<C, Failed> {
        let known = match before {
            Ok(pin) => pin.as_ref(),
            // Without the file, any certificate would look like the first.
            Err(error) => return Err(unkept(error)),
        };
        let is_known = known.is_some_and(|pin| pin.known == shown.to_string());
        if is_known && known.is_some_and(|pin| pin.offered.is_none()) {
            return connected;
        }
        if known.is_none() && connected.is_err() {
            // The handshake did not prove that the server holds the key.
            return connected;
        }
        let Self { origin, pins } = self;
        let place = origin.clone();
        match keep::done(move || pins.judge(&origin, shown)).await {
            Ok(Verdict::Known) => connected,
            Ok(Verdict::First) => {
                tracing::warn!("{place} shows {shown}; trusted on first use (tls.trustOnFirstUse)");
                connected
            }
            Ok(Verdict::Changed { known }) => Err(changed(shown, &known).into()),
            Err(error) if is_known => {
                tracing::warn!(
                    "cannot delete the record of the different certificate that {place} presented earlier: {error}"
                );
                connected
            }
            Err(error) => Err(unkept(&error)),
        }
    }
}

/// Returns an error that a retry may get past: the disk may have room again, and the lock may be free.
fn unkept(error: &Error) -> Failed {
    format!("the trusted certificates cannot be kept: {error}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connector to a server that shows that certificate.
    #[derive(Clone)]
    struct Shows(u8);

    impl Service<()> for Shows {
        type Response = ();
        type Error = Failed;
        type Future = Pinned<Box<dyn Future<Output = Result<(), Failed>> + Send>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            let shown = print(self.0);
            Box::pin(async move { if admits(shown) { Ok(()) } else { Err("refused in the handshake".into()) } })
        }
    }

    fn print(byte: u8) -> Fingerprint {
        Fingerprint::new([byte; 32])
    }

    async fn connect(pins: &Certificates, shown: u8) -> Result<(), String> {
        let judging = Judging { origin: "https://a".into(), pins: pins.clone() };
        judging.layer(Shows(shown)).call(()).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn h33_each_connection_is_judged_by_what_is_known_then() {
        let directory = tempfile::tempdir().unwrap();
        let pins = Certificates::new(Some(directory.path()));
        for _ in 0..2 {
            assert_eq!(connect(&pins, 1).await, Ok(()));
        }
        let refused = connect(&pins, 2).await.unwrap_err();
        assert!(refused.contains("mcp-host approve"), "{refused}");
        assert!(pins.accept("https://a", &print(2).to_string()).await.unwrap());
        assert_eq!(connect(&pins, 2).await, Ok(()));
        assert!(connect(&pins, 1).await.is_err());
        std::fs::write(directory.path().join("certificates.json"), "{").unwrap();
        assert!(connect(&pins, 2).await.is_err(), "nobody can tell");
    }

    #[tokio::test]
    async fn h33_no_handshake_goes_on_that_is_not_judged_afterwards() {
        assert!(!admits(print(1)));
        let sight = Arc::new(Sight { before: Ok(None), shown: OnceLock::new() });
        let both = async { (admits(print(1)), admits(print(1)), admits(print(2))) };
        assert_eq!(SIGHT.scope(sight, both).await, (true, true, false), "one certificate for one connection");
    }

    /// Another host holds the lock. A known certificate needs no lock; a new one waits on a blocking thread.
    #[cfg(unix)]
    #[tokio::test]
    async fn h33_a_lock_that_is_held_keeps_only_new_certificates_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let pins = Certificates::new(Some(directory.path()));
        assert_eq!(connect(&pins, 1).await, Ok(()));
        let path = directory.path().join("certificates.lock");
        let held = keep::done(move || keep::lock(&path, keep::PATIENCE)).await.unwrap();
        assert_eq!(connect(&pins, 1).await, Ok(()));
        let waiting = tokio::spawn({
            let pins = pins.clone();
            async move { connect(&pins, 2).await }
        });
        let lets_go = async {
            // There is one thread, so this runs only if the other task does not block it.
            tokio::task::yield_now().await;
            drop(held);
        };
        let (refused, ()) = tokio::join!(waiting, lets_go);
        assert!(refused.unwrap().is_err(), "it is not the one that it was");
        assert_eq!(pins.changed().unwrap().len(), 1);
    }
}

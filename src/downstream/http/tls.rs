//! TLS for the HTTP door: reads the certificate and its private key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::HostTls;

/// Why TLS cannot be set up. Each message names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("host.tls: {path:?} cannot be read: {reason}")]
    Unreadable { path: PathBuf, reason: String },
    #[error("host.tls.cert: {path:?} holds no certificate; it has to be PEM, the host's own certificate first")]
    NoCertificate { path: PathBuf },
    #[error("host.tls.key: {path:?} holds no private key; it has to be PEM, without a passphrase")]
    NoKey { path: PathBuf },
    #[error(
        "host.tls: the key in {key:?} does not match the certificate in {cert:?} ({reason}); name the files of one pair"
    )]
    Pair { cert: PathBuf, key: PathBuf, reason: String },
}

/// Reads the certificate and key files, and creates the TLS acceptor.
///
/// # Errors
/// When they are not a certificate and its key.
pub(crate) fn acceptor(tls: &HostTls) -> Result<TlsAcceptor, Error> {
    let chain = read(&tls.cert, CertificateDer::pem_file_iter(&tls.cert).and_then(Iterator::collect))?;
    let chain: Vec<CertificateDer<'static>> = chain.unwrap_or_default();
    if chain.is_empty() {
        return Err(Error::NoCertificate { path: tls.cert.clone() });
    }
    let key = read(&tls.key, PrivateKeyDer::from_pem_file(&tls.key))?;
    let key = key.ok_or_else(|| Error::NoKey { path: tls.key.clone() })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|error| Error::Pair {
        cert: tls.cert.clone(),
        key: tls.key.clone(),
        reason: error.to_string(),
    })?;
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The name of HTTP/2 in ALPN (the TLS extension that negotiates the protocol).
pub(super) const HTTP2: &[u8] = b"h2";

/// Returns what was read from a PEM file; `None` if the file is readable but does not contain it.
fn read<T>(path: &Path, read: Result<T, pem::Error>) -> Result<Option<T>, Error> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(pem::Error::Io(error)) => Err(Error::Unreadable { path: path.to_owned(), reason: error.to_string() }),
        Err(_) => Ok(None),
    }
}

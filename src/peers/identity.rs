//! What replicas prove to each other: raw public keys (RFC 7250), one derived from each key of the cluster (Ed25519, by
//! HKDF). There is no certificate and no authority: who has a key of the cluster belongs to it.
//!
//! **Invariant:** both ends prove a key, by TLS 1.3 alone, and no session is resumed: bytes that somebody recorded are worth
//! nothing (`docs/hazards.md` H109).

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use zeroize::Zeroizing;

use crate::config::Cluster;
use crate::seal::shared_key;

/// The protocol of the peer channel, by its number.
pub(crate) const ALPN: &[u8] = b"mcp-host-peer/1";

/// What stands before the 32 bytes of a private key in PKCS #8 (RFC 8410).
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// Both ends of the peer channel.
pub(super) struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Identity {
    /// Derives the keys. The first one is shown, and each of them is accepted.
    ///
    /// # Errors
    /// With one sentence, if TLS refuses them.
    pub(super) fn new(cluster: &Cluster) -> Result<Self, String> {
        let wrong = |error: Error| format!("the peer channel has no TLS: {error}");
        let label = format!("peer {}", cluster.namespace);
        let keys = cluster.keys.iter().map(|key| certified(&shared_key(key.expose(), &label)));
        let keys = keys.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let own = Arc::clone(keys.first().ok_or("the cluster has no key")?);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let pinned = keys.iter().flat_map(|key| &key.cert).map(|key| key.as_ref().to_vec()).collect();
        let pinned = Arc::new(Pinned { keys: pinned, provider: Arc::clone(&provider) });
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(wrong)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&pinned) as Arc<dyn ServerCertVerifier>);
        let mut client =
            client.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&own))));
        client.resumption = Resumption::disabled();
        client.alpn_protocols = vec![ALPN.to_vec()];
        let server = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]).map_err(wrong)?;
        let server = server.with_client_cert_verifier(pinned);
        let mut server = server.with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        server.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    pub(super) fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.client))
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.server))
    }
}

/// Makes a key pair from 32 secret bytes. In place of a certificate it has its public key.
fn certified(secret: &[u8; 32]) -> Result<Arc<CertifiedKey>, Error> {
    let mut pkcs8 = Zeroizing::new(PKCS8.to_vec());
    pkcs8.extend_from_slice(secret);
    let key = any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8.as_slice()))?;
    let public = key.public_key().ok_or_else(|| Error::General("the key has no public half".to_owned()))?;
    let public = CertificateDer::from(public.as_ref().to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![public], key)))
}

/// Accepts these public keys and no others.
#[derive(Debug)]
struct Pinned {
    keys: Vec<Vec<u8>>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn check(&self, key: &CertificateDer<'_>) -> Result<(), Error> {
        // Public keys are no secrets, so the time that this takes tells nothing.
        if self.keys.iter().any(|known| known == key.as_ref()) {
            return Ok(());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn check_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &SubjectPublicKeyInfoDer::from(key.as_ref()), signed, algorithms)
    }
}

fn too_old() -> Error {
    Error::General("the peer channel wants TLS 1.3".to_owned())
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(key).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(key).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, key, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

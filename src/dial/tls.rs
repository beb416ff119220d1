//! TLS to one server: which certificates are trusted, and how failures are explained.
//!
//! Not here: certificates trusted on first use (`sight.rs`). **Invariant:** nothing turns off the certificate check.
//! The config can only name another authority, or the certificate itself.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};
use sha2::{Digest as _, Sha256};

use super::sight;
use crate::config::{Fingerprint, Tls};
use crate::protocol::Theirs;

/// Builds the TLS client config for these settings.
///
/// # Errors
/// Returns one line that names the file if a file cannot be used.
pub(super) fn client_config(tls: &Tls) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = match &tls.ca {
        Some(file) => Some(named(file, provider.clone())?),
        // Without authorities, the certificate itself may still be known.
        None => platform(provider.clone())
            .or_else(|error| if tls.pin.is_some() || tls.trust_on_first_use { Ok(None) } else { Err(error) })?,
    };
    let belief = match tls.pin {
        Some(pin) => Belief::Pinned(pin),
        None if tls.trust_on_first_use => Belief::FirstUse,
        None => Belief::Authorities,
    };
    let verifier = Verifier { provider: provider.clone(), authorities, belief };
    let versions: &[_] = if tls.only_tls13 { &[&rustls::version::TLS13] } else { rustls::ALL_VERSIONS };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match &tls.identity {
        Some((cert, key)) => {
            let (chain, private) = (certificates(cert)?, private_key(key)?);
            builder
                .with_client_auth_cert(chain, private)
                .map_err(|error| format!("{} and {} do not belong together: {error}", cert.display(), key.display()))?
        }
        None => builder.with_no_client_auth(),
    };
    if tls.trust_on_first_use {
        // A resumed TLS session shows no certificate, and even a refused connection leaves a session to resume.
        config.resumption = Resumption::disabled();
    }
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

type Authorities = Arc<dyn ServerCertVerifier>;

/// Trusts only the authorities in a file.
fn named(file: &Path, provider: Arc<CryptoProvider>) -> Result<Authorities, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| format!("{} (tls.ca): {error}", file.display()))?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(verifier.map_err(|error| format!("{} (tls.ca): {error}", file.display()))?)
}

fn platform(provider: Arc<CryptoProvider>) -> Result<Option<Authorities>, String> {
    let verifier = rustls_platform_verifier::Verifier::new(provider);
    let verifier = verifier.map_err(|error| format!("the authorities of this machine cannot be read: {error}"))?;
    Ok(Some(Arc::new(verifier)))
}

/// Reads the certificates in a PEM file.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let unusable = |reason: String| format!("{} cannot be used as a certificate: {reason}", file.display());
    let found = CertificateDer::pem_file_iter(file).map_err(|error| unusable(error.to_string()))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| unusable(error.to_string()))?;
    if found.is_empty() { Err(unusable("no certificate in PEM is in it".to_owned())) } else { Ok(found) }
}

/// Reads the private key in a PEM file.
pub(crate) fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file)
        .map_err(|error| format!("{} cannot be used as a private key: {error}", file.display()))
}

/// Which certificates to trust.
#[derive(Debug)]
enum Belief {
    /// Trusts certificates that an authority vouches for.
    Authorities,
    /// Trusts only the certificate with this fingerprint.
    Pinned(Fingerprint),
    /// Trusts certificates that an authority vouches for; otherwise the first one that the server shows.
    FirstUse,
}

#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    authorities: Option<Authorities>,
    belief: Belief,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = Fingerprint::new(Sha256::digest(end_entity).into());
        if let Belief::Pinned(pin) = self.belief {
            if shown == pin {
                return Ok(ServerCertVerified::assertion());
            }
            return Err(sight::another(format!("it shows the certificate {shown}, but tls.pin names {pin}")));
        }
        let vouched = match &self.authorities {
            Some(authorities) => authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        match (vouched, &self.belief) {
            (Err(error), Belief::FirstUse) if nobody_vouches(&error) => match sight::admits(shown) {
                true => Ok(ServerCertVerified::assertion()),
                false => Err(sight::another(format!("it shows the certificate {shown}, which is not the one it was"))),
            },
            (vouched, _) => vouched,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Reports whether nothing is wrong with a certificate except that no authority vouches for it, or not for this name.
/// Expired, revoked and forged ones are never trusted.
fn nobody_vouches(error: &rustls::Error) -> bool {
    use CertificateError as C;
    let rustls::Error::InvalidCertificate(error) = error else { return false };
    match error {
        C::UnknownIssuer | C::NotValidForName | C::NotValidForNameContext { .. } => true,
        // This is a self-signed certificate that may also sign others.
        C::Other(other) => other.to_string().contains("CaUsedAsEndEntity"),
        _ => false,
    }
}

/// Explains a TLS error. The second value is whether the error lasts, so that retrying is pointless.
pub(crate) fn explain(error: &rustls::Error) -> (String, bool) {
    use CertificateError as C;
    let text = match error {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            C::Expired | C::ExpiredContext { .. } => "its certificate has expired".to_owned(),
            C::NotValidYet | C::NotValidYetContext { .. } => {
                "its certificate is not valid yet; is the clock of this machine right?".to_owned()
            }
            C::Revoked => "its certificate was revoked".to_owned(),
            C::NotValidForName => "its certificate is for another name".to_owned(),
            C::NotValidForNameContext { expected, presented } => {
                // They are formatted as `DnsName("name")`.
                let plain = |name: &String| name.split('"').nth(1).unwrap_or(name).to_owned();
                let presented = presented.iter().take(4).map(plain).collect::<Vec<_>>().join(", ");
                format!("its certificate is for {:?}, not for {:?}", Theirs(&presented), expected.to_str())
            }
            C::UnknownIssuer => "no authority that this machine knows vouches for its certificate; name the authority \
                 as `tls.ca`, or trust the certificate on first use with `tls.trustOnFirstUse`"
                .to_owned(),
            C::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
                "its certificate is self-signed; trust it with `tls.trustOnFirstUse`, or name it as `tls.pin`"
                    .to_owned()
            }
            C::Other(OtherError(other)) => other.to_string(),
            other => format!("its certificate is not good: {other}"),
        },
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired | AlertDescription::BadCertificate) => {
            "it wants a certificate of ours; name one as `tls.cert` and `tls.key`".to_owned()
        }
        rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked,
        ) => "it does not accept our certificate (`tls.cert`)".to_owned(),
        rustls::Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            "it speaks no version of TLS that is new enough (`tls.minVersion`)".to_owned()
        }
        other => return (other.to_string(), false),
    };
    (text, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h105_the_names_of_a_certificate_are_told_in_few_characters() {
        let expected = ServerName::try_from("a.example").unwrap();
        let presented = vec![format!("DnsName(\"{}\")", "x".repeat(1 << 20)); 9];
        let wrong = CertificateError::NotValidForNameContext { expected, presented };
        let (why, lasting) = explain(&wrong.into());
        assert!(lasting && why.len() < 1024, "{} bytes: {why:.300}", why.len());
    }
}

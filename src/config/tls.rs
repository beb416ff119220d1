//! The `tls` key of a server entry: which certificates to accept from the server, and which to present.

use std::path::PathBuf;

use super::fields::{Field, Fields};
use super::report::Report;
use crate::hex;

/// How to verify a server's certificate, and which certificate to present. By default the platform's certificate
/// authorities are trusted, and no certificate is presented.
///
/// ```
/// use mcp_host::config::{Remote, Tls};
///
/// let tls = Tls { ca: Some("/etc/ssl/company.pem".into()), ..Tls::default() };
/// let remote = Remote::new("https://mcp.example.com".parse()?).tls(tls);
/// # Ok::<_, url::ParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// A PEM file with the certificate authorities to trust instead of the platform's.
    pub ca: Option<PathBuf>,
    /// Our certificate and its private key, each in a PEM file.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whether to refuse versions older than TLS 1.3.
    pub only_tls13: bool,
    /// The only certificate to accept, whoever signed it.
    pub pin: Option<Fingerprint>,
    /// Whether to trust a certificate without a known authority when it is first seen, and only this certificate from
    /// then on.
    pub trust_on_first_use: bool,
}

/// The SHA-256 of a certificate in DER form.
///
/// ```
/// use mcp_host::config::Fingerprint;
///
/// assert_eq!(Fingerprint::parse(&"00".repeat(32)), Some(Fingerprint::new([0; 32])));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Wraps the bytes of a hash.
    #[must_use]
    pub fn new(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    /// Parses 64 hexadecimal digits, with or without colons between pairs of digits. They may follow `sha256:`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.get(..7).filter(|head| head.eq_ignore_ascii_case("sha256:")).map_or(text, |_| &text[7..]);
        let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
        let mut hash = [0; 32];
        hex::decode(&digits, &mut hash)?;
        Some(Self(hash))
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sha256:")?;
        f.write_str(&hex::encode(&self.0))
    }
}

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

const KEYS: [&str; 6] = ["ca", "cert", "key", "minVersion", "pin", "trustOnFirstUse"];

/// Reads `tls` of an entry; `path` resolves a path that the config names.
pub(super) fn read(field: &Field<'_>, path: impl Fn(&str) -> PathBuf, report: &mut Report) -> Tls {
    let mut tls = Tls::default();
    let Some(mut fields) = field.fields(report) else { return tls };
    let file = |name: &str, fields: &mut Fields<'_>, report: &mut Report| {
        fields.take(&[name], report).and_then(|field| field.text(report)).map(&path)
    };
    tls.ca = file("ca", &mut fields, report);
    let identity = (file("cert", &mut fields, report), file("key", &mut fields, report));
    tls.identity = match identity {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => {
            report.problem(field.at, &field.path, "`cert` without `key`").help("name the file of its key as `key`");
            None
        }
        (None, Some(_)) => {
            let problem = report.problem(field.at, &field.path, "`key` without `cert`");
            problem.help("name the file of its certificate as `cert`");
            None
        }
    };
    if let Some(version) = fields.take(&["minVersion"], report) {
        tls.only_tls13 = version.choice(&[("1.2", false), ("1.3", true)], report).unwrap_or_default();
    }
    if let Some(pin) = fields.take(&["pin"], report)
        && let Some(text) = pin.text(report)
    {
        tls.pin = Fingerprint::parse(text);
        if tls.pin.is_none() {
            let problem = report.problem(pin.at, &pin.path, format!("{} is not a fingerprint", pin.quote(text)));
            problem.help("write \"sha256:\" and the 64 hexadecimal digits of the certificate's SHA-256");
        }
    }
    if let Some(trust) = fields.take(&["trustOnFirstUse"], report) {
        tls.trust_on_first_use = trust.flag(report).unwrap_or(false);
        if tls.trust_on_first_use && tls.pin.is_some() {
            report
                .problem(trust.at, &trust.path, "`pin` already names the only certificate")
                .help("keep one of the two");
        }
    }
    fields.finish(&KEYS, report);
    tls
}

#[cfg(test)]
mod tests {
    use super::Fingerprint;

    #[test]
    fn fingerprints_as_tools_print_them() {
        let plain = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
        let colons = plain.as_bytes().chunks(2).map(|pair| String::from_utf8_lossy(pair).to_uppercase());
        let colons = colons.collect::<Vec<_>>().join(":");
        let expected = format!("sha256:{plain}");
        for text in [plain, &expected, &format!("SHA256:{colons}"), &colons] {
            assert_eq!(Fingerprint::parse(text).map(|found| found.to_string()).as_deref(), Some(&*expected), "{text}");
        }
        for text in
            ["", "sha256:", "sha256:00", &plain[1..], &format!("+1{}", &plain[2..]), "sha256:é", &format!("{plain}00")]
        {
            assert_eq!(Fingerprint::parse(text), None, "{text}");
        }
    }
}

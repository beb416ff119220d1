//! Certificates trusted on first use, kept for later connections (`tls.trustOnFirstUse`).
//!
//! They are in one file in the state directory, shared by all hosts of a user. A server whose certificate changed is
//! refused until the user accepts the new certificate; so that the user can, it is kept beside the old one. Writing
//! waits for other hosts, so it runs on a thread that may block (`sight.rs`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::config::Fingerprint;
use crate::keep::{self, Error, Keep};
use crate::lock::lock;

/// Server certificates trusted on first use, in one state directory. Cheap to clone.
///
/// ```no_run
/// use mcp_host::Certificates;
///
/// for changed in Certificates::new(Some("/var/lib/my-agent".as_ref())).changed()? {
///     println!("{} shows {}", changed.origin, changed.shown);
/// }
/// # Ok::<_, mcp_host::approvals::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    keep: Option<Keep>,
    /// The certificates if there is no state directory. They last as long as this value and its clones.
    own: Arc<Mutex<Pins>>,
}

/// A server whose certificate has changed.
///
/// ```
/// # fn show(changed: &mcp_host::ChangedCertificate) {
/// println!("{} showed {} and not {}", changed.origin, changed.shown, changed.known);
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// The server's scheme, host and port.
    pub origin: String,
    /// The trusted fingerprint.
    pub known: String,
    /// The fingerprint that the server showed last.
    pub shown: String,
}

/// What is kept of one server's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pin {
    /// The trusted fingerprint.
    pub(super) known: String,
    /// The fingerprint shown last, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) offered: Option<String>,
}

/// The verdict on a certificate that no authority vouches for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The certificate is the trusted one of this server.
    Known,
    /// The certificate is the first one of this server, and trusted from now on.
    First,
    /// A certificate other than the trusted one, whose fingerprint is `known`.
    Changed { known: String },
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Pins {
    certificates: BTreeMap<String, Pin>,
}

const VERSION: u32 = 1;
const FILE: &str = "certificates.json";

impl Certificates {
    /// Opens the certificates in a state directory. Without a directory they last as long as this value and its clones.
    #[must_use]
    pub fn new(directory: Option<&Path>) -> Self {
        Self { keep: directory.map(|directory| Keep::new(directory.join(FILE), VERSION)), own: Arc::default() }
    }

    /// Returns what is kept of a server, if anything. Takes no file lock.
    pub(super) fn look(&self, origin: &str) -> Result<Option<Pin>, Error> {
        self.read(|pins| pins.certificates.get(origin).cloned())
    }

    /// Judges the certificate that a server shows, and trusts it if it is the server's first. Blocks.
    pub(super) fn judge(&self, origin: &str, shown: Fingerprint) -> Result<Verdict, Error> {
        let shown = shown.to_string();
        self.change(|pins| match pins.certificates.get_mut(origin) {
            None => {
                pins.certificates.insert(origin.to_owned(), Pin { known: shown, offered: None });
                (Verdict::First, true)
            }
            Some(pin) if pin.known == shown => (Verdict::Known, pin.offered.take().is_some()),
            Some(pin) => {
                let is_news = pin.offered.as_ref() != Some(&shown);
                pin.offered = Some(shown);
                (Verdict::Changed { known: pin.known.clone() }, is_news)
            }
        })
    }

    /// Returns the servers whose certificate has changed.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has another version.
    pub fn changed(&self) -> Result<Vec<Changed>, Error> {
        self.read(|pins| {
            let changed = pins.certificates.iter().filter_map(|(origin, pin)| {
                let shown = pin.offered.clone()?;
                Some(Changed { origin: origin.clone(), known: pin.known.clone(), shown })
            });
            changed.collect()
        })
    }

    /// Trusts `shown` if it is still what the server showed last. Returns false if it is not; then nothing changes.
    ///
    /// # Errors
    /// Fails if the file cannot be read or written.
    pub async fn accept(&self, origin: &str, shown: &str) -> Result<bool, Error> {
        let (certificates, origin, shown) = (self.clone(), origin.to_owned(), shown.to_owned());
        keep::done(move || certificates.accepted(&origin, shown)).await
    }

    fn accepted(&self, origin: &str, shown: String) -> Result<bool, Error> {
        self.change(|pins| {
            let pin = pins.certificates.get_mut(origin);
            let Some(pin) = pin.filter(|pin| pin.offered.as_ref() == Some(&shown)) else { return (false, false) };
            (pin.known, pin.offered) = (shown, None);
            (true, true)
        })
    }

    fn read<T>(&self, look: impl FnOnce(&Pins) -> T) -> Result<T, Error> {
        match &self.keep {
            Some(keep) => keep.read().map(|pins| look(&pins)),
            None => Ok(look(&lock(&self.own))),
        }
    }

    /// Runs `work` on the kept certificates, and writes them if `work` reports a change.
    fn change<T>(&self, work: impl FnOnce(&mut Pins) -> (T, bool)) -> Result<T, Error> {
        match &self.keep {
            Some(keep) => keep.revise(work),
            None => Ok(work(&mut lock(&self.own)).0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(byte: u8) -> Fingerprint {
        Fingerprint::new([byte; 32])
    }

    #[test]
    fn the_first_is_believed_and_another_only_when_it_was_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let pins = Certificates::new(Some(directory.path()));
        assert_eq!(pins.judge("https://a", print(1)).unwrap(), Verdict::First);
        assert_eq!(pins.judge("https://a", print(1)).unwrap(), Verdict::Known);
        assert_eq!(pins.judge("https://b", print(2)).unwrap(), Verdict::First);
        let pins = Certificates::new(Some(directory.path()));
        assert_eq!(pins.judge("https://a", print(3)).unwrap(), Verdict::Changed { known: print(1).to_string() });
        let changed = pins.changed().unwrap();
        let offered = print(3).to_string();
        let expected = Changed { origin: "https://a".into(), known: print(1).to_string(), shown: offered.clone() };
        assert_eq!(changed, [expected]);
        assert!(!pins.accepted("https://a", print(4).to_string()).unwrap(), "not what was shown");
        assert!(!pins.accepted("https://b", offered.clone()).unwrap());
        assert!(pins.accepted("https://a", offered).unwrap());
        assert_eq!(Certificates::new(Some(directory.path())).judge("https://a", print(3)).unwrap(), Verdict::Known);
        assert_eq!(pins.changed().unwrap(), []);
    }

    #[test]
    fn what_cannot_be_read_is_no_first_time() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), "{").unwrap();
        let pins = Certificates::new(Some(directory.path()));
        assert!(matches!(pins.judge("https://a", print(1)), Err(Error::Strange { .. })));
        assert_eq!(std::fs::read(directory.path().join(FILE)).unwrap(), b"{", "and stays as it is");
    }

    #[test]
    fn without_a_directory_they_last_as_long_as_the_process() {
        let pins = Certificates::new(None);
        assert_eq!(pins.judge("https://a", print(1)).unwrap(), Verdict::First);
        assert!(matches!(pins.judge("https://a", print(2)).unwrap(), Verdict::Changed { .. }));
    }
}

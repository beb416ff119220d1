//! Certificates that were believed at first sight, kept for the next time (`tls.trustOnFirstUse`).
//!
//! One file of the state directory, shared by all hosts of a user; a change is written whole, under a lock. A server whose
//! certificate changed is refused until somebody accepts the new one; what it showed is kept beside, so that there is
//! something to accept.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::config::Fingerprint;

/// Certificates of servers that were believed at first sight, in one state directory.
#[derive(Debug, Default)]
pub struct Certificates {
    path: Option<PathBuf>,
    /// Without a state directory they are known as long as the process lives.
    own: Mutex<BTreeMap<String, Pin>>,
}

/// A server whose certificate is not the one it was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// Where the server is: scheme, host and port.
    pub origin: String,
    /// The fingerprint that is believed.
    pub known: String,
    /// The fingerprint that it showed last.
    pub shown: String,
}

/// One server's certificate.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pin {
    /// What is believed.
    known: String,
    /// What it showed last, if that was another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offered: Option<String>,
}

/// What to do with a certificate that nobody vouches for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Seen before.
    Known,
    /// Never saw one of this server.
    First,
    /// Another one than before.
    Changed { known: String },
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    certificates: BTreeMap<String, Pin>,
}

const VERSION: u32 = 1;
const FILE: &str = "certificates.json";

impl Certificates {
    /// Those of a state directory; without one they last as long as this value.
    #[must_use]
    pub fn new(directory: Option<&Path>) -> Self {
        Self { path: directory.map(|directory| directory.join(FILE)), own: Mutex::default() }
    }

    /// Judges what a server shows, and keeps it if it is the first.
    pub(super) fn judge(&self, origin: &str, shown: Fingerprint) -> Verdict {
        let shown = shown.to_string();
        let judged = self.change(|pins| match pins.get_mut(origin) {
            None => {
                pins.insert(origin.to_owned(), Pin { known: shown.clone(), offered: None });
                (Verdict::First, true)
            }
            Some(pin) if pin.known == shown => (Verdict::Known, pin.offered.take().is_some()),
            Some(pin) => {
                let news = pin.offered.as_deref() != Some(&shown);
                pin.offered = Some(shown.clone());
                (Verdict::Changed { known: pin.known.clone() }, news)
            }
        });
        judged.unwrap_or_else(|error| {
            tracing::error!("the certificates that are believed cannot be read or written: {error}");
            // Whoever cannot tell whether it is the first time must not take it for one.
            Verdict::Changed { known: "not to be read".to_owned() }
        })
    }

    /// The servers whose certificate is not the one it was.
    ///
    /// # Errors
    /// When the file cannot be read, or is of another version.
    pub fn changed(&self) -> io::Result<Vec<Changed>> {
        self.change(|pins| {
            let changed = pins.iter().filter_map(|(origin, pin)| {
                let shown = pin.offered.clone()?;
                Some(Changed { origin: origin.clone(), known: pin.known.clone(), shown })
            });
            (changed.collect(), false)
        })
    }

    /// Believes what a server showed last, if that is still `shown`; whether it is.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn accept(&self, origin: &str, shown: &str) -> io::Result<bool> {
        self.change(|pins| {
            let Some(pin) = pins.get_mut(origin).filter(|pin| pin.offered.as_deref() == Some(shown)) else {
                return (false, false);
            };
            pin.known = shown.to_owned();
            pin.offered = None;
            (true, true)
        })
    }

    /// Works on what is kept, and writes it if it was changed.
    fn change<T>(&self, work: impl FnOnce(&mut BTreeMap<String, Pin>) -> (T, bool)) -> io::Result<T> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(path) = &self.path else { return Ok(work(&mut own).0) };
        let directory = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory)?;
        let _lock = lock(&path.with_extension("lock"))?;
        let mut pins = read(path)?;
        let (result, changed) = work(&mut pins);
        if changed {
            write(path, directory, pins)?;
        }
        Ok(result)
    }
}

/// Nobody else works on the file until this is dropped.
#[cfg(unix)]
fn lock(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Without locks the last one who writes wins.
#[cfg(not(unix))]
fn lock(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path)
}

fn read(path: &Path) -> io::Result<BTreeMap<String, Pin>> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let stored: Stored = serde_json::from_slice(&text)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display())))?;
    if stored.version != VERSION {
        let reason = format!("{} is of version {}, this program knows {VERSION}", path.display(), stored.version);
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(stored.certificates)
}

fn write(path: &Path, directory: &Path, certificates: BTreeMap<String, Pin>) -> io::Result<()> {
    let partial = directory.join(format!(".{FILE}.{}", std::process::id()));
    let mut file = File::create(&partial)?;
    file.write_all(&serde_json::to_vec_pretty(&Stored { version: VERSION, certificates })?)?;
    file.sync_all()?;
    std::fs::rename(partial, path)
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
        assert_eq!(pins.judge("https://a", print(1)), Verdict::First);
        assert_eq!(pins.judge("https://a", print(1)), Verdict::Known);
        assert_eq!(pins.judge("https://b", print(2)), Verdict::First);
        let pins = Certificates::new(Some(directory.path()));
        assert_eq!(pins.judge("https://a", print(3)), Verdict::Changed { known: print(1).to_string() });
        let changed = pins.changed().unwrap();
        let offered = print(3).to_string();
        let expected = Changed { origin: "https://a".into(), known: print(1).to_string(), shown: offered.clone() };
        assert_eq!(changed, [expected]);
        assert!(!pins.accept("https://a", &print(4).to_string()).unwrap(), "not what was shown");
        assert!(!pins.accept("https://b", &offered).unwrap());
        assert!(pins.accept("https://a", &offered).unwrap());
        assert_eq!(Certificates::new(Some(directory.path())).judge("https://a", print(3)), Verdict::Known);
        assert_eq!(pins.changed().unwrap(), []);
    }

    #[test]
    fn what_cannot_be_read_is_no_first_time() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), "{").unwrap();
        let pins = Certificates::new(Some(directory.path()));
        assert!(matches!(pins.judge("https://a", print(1)), Verdict::Changed { .. }));
        assert_eq!(std::fs::read(directory.path().join(FILE)).unwrap(), b"{", "and stays as it is");
    }

    #[test]
    fn without_a_directory_they_last_as_long_as_the_process() {
        let pins = Certificates::new(None);
        assert_eq!(pins.judge("https://a", print(1)), Verdict::First);
        assert!(matches!(pins.judge("https://a", print(2)), Verdict::Changed { .. }));
    }
}

//! Secrets that the user has put into the system keyring for configs, which refer to them as `${keyring:NAME}`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::keyring::{Asking, Ring};
use super::{StoreError, lock};
use crate::config::{Keyring, Secret, Unread};

/// Returns the system keyring, for secrets to which configs refer by name. Each request runs on a thread of its own,
/// which is abandoned if it hangs. A build without the feature `keyring` has no keyring.
///
/// A value that was read once is used again while the keyring is locked, does not answer, or is gone. So reloading a
/// config does not take a secret away from a server that has it.
#[must_use]
pub fn keyring() -> Keyring {
    #[cfg(feature = "keyring")]
    return read_by(Arc::new(super::system::System::OF_CONFIGS));
    #[cfg(not(feature = "keyring"))]
    Keyring::default()
}

/// Puts a secret into the system keyring, where configs find it as `${keyring:NAME}`. Blocks, for as long as the keyring
/// may ask the user to unlock it.
///
/// # Errors
/// Fails if the keyring did not store the secret. The text says why.
pub fn keep_secret(name: &str, secret: &str) -> Result<(), String> {
    #[cfg(feature = "keyring")]
    return write_by(Arc::new(super::system::System::OF_CONFIGS), name, secret);
    #[cfg(not(feature = "keyring"))]
    {
        let _ = (name, secret);
        Err("this build has no keyring".to_owned())
    }
}

/// How long a keyring may take to store a secret: its user may have to unlock it.
const UNLOCKED: std::time::Duration = std::time::Duration::from_secs(60);

#[cfg_attr(not(feature = "keyring"), cfg_attr(not(test), expect(dead_code, reason = "there is no ring to write by")))]
pub(super) fn write_by(ring: Arc<dyn Ring>, name: &str, secret: &str) -> Result<(), String> {
    let (name, secret) = (name.to_owned(), zeroize::Zeroizing::new(secret.to_owned()));
    let kept = Asking::new(ring).ask(UNLOCKED, move |ring| {
        ring.set(&name, &secret)?;
        // This finds a keyring that only claims to store secrets before a config depends on it.
        Ok(ring.get(&name)?.is_some_and(|kept| *kept == *secret))
    });
    match kept {
        Ok(true) => Ok(()),
        Ok(false) => Err("it did not keep what it was given".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg_attr(not(feature = "keyring"), cfg_attr(not(test), expect(dead_code, reason = "there is no ring to read by")))]
pub(super) fn read_by(ring: Arc<dyn Ring>) -> Keyring {
    let (asking, known) = (Asking::new(ring), Mutex::<HashMap<String, Secret>>::default());
    Keyring::new(move |name, limit| {
        let wanted = name.to_owned();
        match asking.ask(limit, move |ring| ring.get(&wanted)) {
            Ok(Some(text)) => {
                // Tools that read the secret from a terminal or a pipe may also store the end of the line.
                let line =
                    text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
                if line.is_empty() {
                    return Err(Unread::This("it is empty".to_owned()));
                }
                let secret = Secret::new(line);
                lock(&known).insert(name.to_owned(), secret.clone());
                Ok(Some(secret))
            }
            Ok(None) => {
                lock(&known).remove(name);
                Ok(None)
            }
            Err(StoreError::Failed(reason)) => Err(Unread::This(reason)),
            Err(error) => match lock(&known).get(name) {
                Some(secret) => {
                    tracing::warn!("{name:?} keeps its last value from the keyring: {error}");
                    Ok(Some(secret.clone()))
                }
                None => Err(Unread::All(error.to_string())),
            },
        }
    })
}

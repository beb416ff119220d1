//! The system keyring: the Secret Service over D-Bus, the Keychain of macOS, the Credential Manager of Windows.
//!
//! Each request opens a new connection to the keyring: a program makes only one or two requests in its life, and a
//! connection that stays open would have to notice when the keyring's service restarts.

use std::sync::Arc;
use std::time::Duration;

use keyring_core::api::CredentialStoreApi;
use keyring_core::{Entry, Error};
use zeroize::Zeroizing;

use super::StoreError;
use super::keyring::Ring;
use crate::config::KEYRING_SERVICE;

/// The part of the system keyring that belongs to one service name.
pub(super) struct System {
    /// The service name of the entries. It also tells a person who looks into the keyring what the secrets are for.
    service: &'static str,
}

impl System {
    /// The part for our own secrets, with the key that encrypts tokens.
    pub(super) const OF_TOKENS: Self = Self { service: "mcp-host" };
    /// The part for secrets that the user has put there for configs.
    pub(super) const OF_CONFIGS: Self = Self { service: KEYRING_SERVICE };

    fn entry(&self, name: &str) -> Result<Entry, StoreError> {
        let store = store().map_err(|error| match told(&error) {
            StoreError::Failed(reason) => StoreError::Absent(reason),
            error => error,
        })?;
        store.build(self.service, name, None).map_err(|error| told(&error))
    }
}

impl Ring for System {
    fn get(&self, name: &str) -> Result<Option<Zeroizing<String>>, StoreError> {
        match self.entry(name)?.get_password() {
            Ok(text) => Ok(Some(Zeroizing::new(text))),
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(told(&error)),
        }
    }

    fn set(&self, name: &str, text: &str) -> Result<(), StoreError> {
        self.entry(name)?.set_password(text).map_err(|error| told(&error))
    }
}

#[cfg(all(unix, not(target_vendor = "apple")))]
fn store() -> keyring_core::Result<Arc<dyn CredentialStoreApi>> {
    Ok(dbus_secret_service_keyring_store::Store::new()?)
}

#[cfg(target_os = "macos")]
fn store() -> keyring_core::Result<Arc<dyn CredentialStoreApi>> {
    Ok(apple_native_keyring_store::keychain::Store::new()?)
}

#[cfg(windows)]
fn store() -> keyring_core::Result<Arc<dyn CredentialStoreApi>> {
    Ok(windows_native_keyring_store::Store::new()?)
}

#[cfg(not(any(unix, windows)))]
compile_error!("the feature `keyring` knows no keyring of this system");

/// Converts an error of a keyring. Some kinds of errors can be told apart only by their text.
fn told(error: &Error) -> StoreError {
    let text = match error {
        Error::NoStorageAccess(inner) | Error::PlatformFailure(inner) => inner.to_string(),
        Error::BadEncoding(_) | Error::BadDataFormat(..) => "it is not valid UTF-8".to_owned(),
        Error::Ambiguous(_) => "several entries have this name; keep one".to_owned(),
        other => other.to_string(),
    };
    by_text(&text, matches!(error, Error::NoStorageAccess(_)))
}

fn by_text(text: &str, denied: bool) -> StoreError {
    let lower = text.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if says(&["no result found"]) {
        // There is a Secret Service, but it has no collection in which to store secrets.
        return StoreError::Absent("it has no default collection".to_owned());
    }
    if says(&[
        "no dbus session",
        "was not provided by any",
        "unable to autolaunch",
        "dbus-daemon autolaunch",
        "failed to connect to socket",
    ]) {
        return StoreError::Absent("no D-Bus session with a Secret Service".to_owned());
    }
    if says(&["did not receive a reply", "noreply", "timed out"]) {
        return StoreError::Slow(Duration::from_secs(2));
    }
    if denied || says(&["locked", "prompt was dismissed"]) {
        return StoreError::Locked;
    }
    // The text comes from the service, and must fit on one line of a log.
    StoreError::Failed(text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h77_what_keyrings_say_is_one_of_four_things() {
        let absent = |reason: &str| StoreError::Absent(reason.to_owned());
        let session = || absent("no D-Bus session with a Secret Service");
        for (text, denied, want) in [
            ("No DBus session or Secret Service provider found", false, session()),
            ("DBus error: The name org.freedesktop.secrets was not provided by any .service files", false, session()),
            ("DBus error: Unable to autolaunch a dbus-daemon without a $DISPLAY for X11", false, session()),
            ("Secret Service: no result found", true, absent("it has no default collection")),
            ("Secret Service: object locked", false, StoreError::Locked),
            ("Secret Service: unlock prompt was dismissed", true, StoreError::Locked),
            ("User interaction is not allowed.", true, StoreError::Locked),
            ("DBus error: Did not receive a reply. Possible", false, StoreError::Slow(Duration::from_secs(2))),
            ("something\nelse", false, StoreError::Failed("something else".to_owned())),
        ] {
            assert_eq!(by_text(text, denied), want, "{text}");
        }
    }
}

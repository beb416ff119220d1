//! The file with the key that seals session ids. The first daemon that needs the key creates it. Anyone who can read
//! the key, and is the same principal, can create and open such ids, so only the user may read the file.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::hex;
use crate::keep::{Error, Keep};
use crate::seal::{MasterKey, fresh_key};

#[derive(Default, Serialize, Deserialize)]
struct Stored {
    /// The key, as hexadecimal digits. It is missing only before the file is first written.
    key: Option<String>,
}

const VERSION: u32 = 1;

/// Reads the key in this state directory, or creates one. Blocks.
///
/// # Errors
/// Fails with a line that names the file and says what to do.
pub(super) fn read_or_make(folder: &Path) -> Result<MasterKey, String> {
    let keep = Keep::new(folder.join("session-key.json"), VERSION);
    let path = keep.path().display().to_string();
    let wrong = |error: Error| match error {
        Error::Strange { .. } => damaged(&error.to_string()),
        Error::Read { .. } => format!("{error}; let this user read it"),
        Error::Write { .. } => format!("{error}; let this user write into its folder"),
    };
    let known = keep.path().exists();
    let stored: Stored = keep.read().map_err(wrong)?;
    if known {
        let key = stored.key.as_deref().and_then(key_of);
        let key = key.ok_or_else(|| damaged(&format!("{path} has no key of 64 hexadecimal digits")))?;
        warn_if_open(keep.path());
        return Ok(key);
    }
    // Another daemon may be creating the key: the first one to hold the lock does.
    let made = keep.revise(|state: &mut Stored| match &state.key {
        Some(key) => (Ok(key_of(key)), false),
        None => match fresh_key() {
            Ok(key) => {
                state.key = Some(hex::encode(key.as_slice()));
                (Ok(Some(key)), true)
            }
            Err(error) => (Err(format!("no key can be made: {error}")), false),
        },
    });
    made.map_err(wrong)??.ok_or_else(|| damaged(&format!("{path} has no key of 64 hexadecimal digits")))
}

fn damaged(what: &str) -> String {
    format!("{what}; move it away, and the next start makes a new key (ids of earlier sessions then open no more)")
}

fn key_of(text: &str) -> Option<MasterKey> {
    let mut key = MasterKey::default();
    hex::decode(text.as_bytes(), key.as_mut_slice()).map(|()| key)
}

/// Warns if other users can read the key. To use the id of a session they still need its client's credential, but on a
/// host without `host.auth` there is none.
#[cfg(unix)]
fn warn_if_open(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;

    if std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0) {
        tracing::warn!("{} can be read by other users: chmod 600 it", path.display());
    }
}

#[cfg(not(unix))]
fn warn_if_open(_: &Path) {}

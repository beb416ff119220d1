//! Creates the file with the user's own key, with which tokens are encrypted, at the user's request.
//!
//! **Invariant:** an existing file stays as it is, whatever it holds. A new file is readable by its user alone; it
//! holds a whole key, or is removed again.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::config::SecretKey;
use crate::keep;

/// Creates a file with a new key: 32 random bytes in base64, readable by its user alone.
///
/// # Errors
/// Fails if the file exists already, or cannot be created.
pub async fn make(path: impl Into<PathBuf>) -> io::Result<()> {
    let path = path.into();
    keep::done(move || made(&path)).await
}

/// Creates the file like [`make`], but blocks the thread.
pub(super) fn made(path: &Path) -> io::Result<()> {
    let mut bytes = Zeroizing::new([0; SecretKey::LENGTH]);
    getrandom::fill(&mut *bytes).map_err(|_| io::Error::other("the system has no random numbers"))?;
    let text = Zeroizing::new(format!("{}\n", STANDARD.encode(*bytes)));
    if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
        keep::make_folder(folder)?;
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| keep::settle(&file));
    if written.is_err() {
        // We have created this file, and it holds at most a part of a key.
        let _ = fs::remove_file(path);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn h77_a_new_key_is_for_its_user_alone_and_takes_the_place_of_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/secret.key");
        make(&path).await.unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(SecretKey::read(&path).unwrap().is_some() && text.len() == 45, "a key in base64");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        }
        assert_eq!(make(&path).await.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let other = folder.path().join("other.key");
        make(&other).await.unwrap();
        assert_ne!(fs::read_to_string(&other).unwrap(), text, "each is another");
    }
}

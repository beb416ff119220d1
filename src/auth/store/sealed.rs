//! A folder of encrypted files, one per secret.
//!
//! A file consists of a head (magic, version, and a mark that identifies the key), a nonce, and the secret, encrypted
//! with XChaCha20-Poly1305. The head and the name of the secret, which is a hash of server, issuer, client and user,
//! are authenticated with the secret: a file that was renamed, or whose head was changed, is refused. Files are
//! readable by their user alone, and replaced as a whole.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use sha2::{Digest as _, Sha256};

use super::StoreError;
use crate::config::{Secret, SecretKey};
use crate::keep;

/// The first bytes of a file, which include the version of its format.
const MAGIC: &[u8] = b"mcp-host secret 1\n";
/// The length in bytes of the mark that identifies the key without revealing it.
const MARK: usize = 8;
const NONCE: usize = 24;
/// The size of the largest file that is read, in bytes.
const LARGEST: u64 = 1024 * 1024;

/// A folder of encrypted files.
#[derive(Debug)]
pub(super) struct Sealed(PathBuf);

/// The content of an encrypted file, read but not decrypted.
#[derive(Debug)]
pub(super) struct Closed(Vec<u8>);

impl Sealed {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }

    /// Reports whether there is a secret with this name.
    pub(super) fn has(&self, name: &str) -> bool {
        is_name(name) && self.0.join(name).exists()
    }

    /// Returns a stamp: a number that identifies the current file with this name, or its absence. A write replaces the
    /// file by a new one with a later time.
    pub(super) fn stamp(&self, name: &str) -> u64 {
        let mut hash = DefaultHasher::new();
        if let Some(file) = Some(self.0.join(name)).filter(|_| is_name(name)).and_then(|path| fs::metadata(path).ok()) {
            (file.len(), file.modified().ok(), inode(&file)).hash(&mut hash);
        }
        hash.finish()
    }

    /// Reads the secret with this name, still encrypted.
    pub(super) fn read(&self, name: &str) -> Result<Option<Closed>, StoreError> {
        if !is_name(name) {
            return Ok(None);
        }
        let path = self.0.join(name);
        let read = fs::File::open(&path).and_then(|file| {
            let mut bytes = Vec::new();
            file.take(LARGEST + 1).read_to_end(&mut bytes).map(|_| bytes)
        });
        match read {
            Ok(bytes) => Ok(Some(Closed(bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, "read", &error)),
        }
    }

    /// Encrypts a secret, and replaces the previous secret with this name.
    pub(super) fn write(&self, name: &str, key: &SecretKey, secret: &Secret) -> Result<(), StoreError> {
        let path = self.0.join(name);
        let sealed = seal(name, key, secret)?;
        let write = || {
            keep::make_folder(&self.0)?;
            let _lock = keep::lock(&self.0.join(".lock"), keep::PATIENCE)?;
            keep::replace(&path, &sealed)
        };
        write().map_err(|error| failed(&path, "written", &error))
    }

    /// Removes the secret with this name, if there is one.
    pub(super) fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.0.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&path, "removed", &error)),
            _ => Ok(()),
        }
    }
}

impl Closed {
    /// Reports whether the file was encrypted with this key, by the mark in its head.
    pub(super) fn is_of(&self, key: &SecretKey) -> bool {
        self.0.get(MAGIC.len()..MAGIC.len() + MARK).is_some_and(|mark| mark == self::mark(key))
    }

    /// Decrypts the secret with this name.
    pub(super) fn open(&self, name: &str, key: &SecretKey) -> Result<Secret, StoreError> {
        let wrong = |what: &str| StoreError::Failed(format!("the file with its encrypted login {what}; sign in again"));
        if !self.0.starts_with(MAGIC) || self.0.len() as u64 > LARGEST {
            return Err(wrong("is of another version, or broken"));
        }
        if !self.is_of(key) {
            return Err(wrong("was written with another key: restore that key"));
        }
        let head = MAGIC.len() + MARK;
        let (Some(nonce), Some(text)) = (self.0.get(head..head + NONCE), self.0.get(head + NONCE..)) else {
            return Err(wrong("is broken"));
        };
        let nonce = XNonce::try_from(nonce).map_err(|_| wrong("is broken"))?;
        let bound = bound(self.0.get(..head).unwrap_or_default(), name);
        let opened = cipher(key).decrypt(&nonce, Payload { msg: text, aad: &bound });
        let text = opened.map_err(|_| wrong("is broken, or belongs to another login"))?;
        String::from_utf8(text).map(Secret::new).map_err(|_| wrong("is broken"))
    }
}

fn seal(name: &str, key: &SecretKey, secret: &Secret) -> Result<Vec<u8>, StoreError> {
    let failed = |what: &str| StoreError::Failed(what.to_owned());
    if !is_name(name) {
        return Err(failed("that is not the name of a secret"));
    }
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).map_err(|_| failed("the system has no random numbers"))?;
    let mut bytes = [MAGIC, &mark(key)].concat();
    let bound = bound(&bytes, name);
    let payload = Payload { msg: secret.expose().as_bytes(), aad: &bound };
    let sealed = cipher(key).encrypt(&XNonce::from(nonce), payload).map_err(|_| failed("the secret is too long"))?;
    bytes.extend(nonce);
    bytes.extend(sealed);
    Ok(bytes)
}

fn cipher(key: &SecretKey) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(key.expose().into())
}

/// Returns the data that is authenticated together with a secret.
fn bound(head: &[u8], name: &str) -> Vec<u8> {
    [head, name.as_bytes()].concat()
}

fn mark(key: &SecretKey) -> [u8; MARK] {
    let hash = Sha256::new().chain_update(b"mcp-host key\n").chain_update(key.expose()).finalize();
    std::array::from_fn(|index| hash[index])
}

/// Reports whether a text has the form of our names, which are a hash with a prefix. Nothing else becomes part of a
/// path.
fn is_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

#[cfg(unix)]
fn inode(file: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(file)
}

#[cfg(not(unix))]
fn inode(_: &fs::Metadata) -> u64 {
    0
}

fn failed(path: &Path, what: &str, error: &io::Error) -> StoreError {
    StoreError::Failed(format!("{} cannot be {what}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(first: u8) -> SecretKey {
        SecretKey::parse(&format!("{first:02x}{}", "07".repeat(31))).unwrap()
    }

    fn sealed() -> (tempfile::TempDir, Sealed) {
        let folder = tempfile::tempdir().unwrap();
        let sealed = Sealed::new(folder.path().join("secrets/file"));
        (folder, sealed)
    }

    fn read(sealed: &Sealed, name: &str, key: &SecretKey) -> Result<String, StoreError> {
        sealed.read(name).unwrap().unwrap().open(name, key).map(|secret| secret.expose().to_owned())
    }

    #[test]
    fn h77_what_is_written_comes_back_and_lies_there_in_no_clear_text() {
        let (_folder, sealed) = sealed();
        assert!(sealed.read("token-1").unwrap().is_none() && !sealed.has("token-1"));
        let long = format!("planted {}", "x".repeat(100_000));
        for text in ["planted", "", long.as_str()] {
            sealed.write("token-1", &key(1), &Secret::new(text)).unwrap();
            assert_eq!(read(&sealed, "token-1", &key(1)).as_deref(), Ok(text));
        }
        let bytes = fs::read(sealed.folder().join("token-1")).unwrap();
        assert!(!bytes.windows(7).any(|part| part == b"planted"));
        // The same secret encrypts differently each time.
        sealed.write("token-1", &key(1), &Secret::new(long)).unwrap();
        assert_ne!(fs::read(sealed.folder().join("token-1")).unwrap(), bytes);
        sealed.remove("token-1").unwrap();
        sealed.remove("token-1").unwrap();
        assert!(sealed.read("token-1").unwrap().is_none());
    }

    #[test]
    fn h77_another_key_another_name_and_any_changed_byte_are_refused() {
        let (_folder, sealed) = sealed();
        sealed.write("token-1", &key(1), &Secret::new("planted")).unwrap();
        let wrong = read(&sealed, "token-1", &key(2)).unwrap_err().to_string();
        assert!(wrong.contains("another key"), "{wrong}");
        let bytes = fs::read(sealed.folder().join("token-1")).unwrap();
        fs::write(sealed.folder().join("token-2"), &bytes).unwrap();
        assert!(read(&sealed, "token-2", &key(1)).is_err());
        for index in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[index] ^= 1;
            assert!(Closed(bytes).open("token-1", &key(1)).is_err(), "byte {index}");
        }
        for end in 0..bytes.len() {
            assert!(Closed(bytes[..end].to_vec()).open("token-1", &key(1)).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let (folder, sealed) = sealed();
        let long = "x".repeat(129);
        for name in ["", "../out", "a/b", ".hidden", "A", "a\0", long.as_str()] {
            assert!(sealed.write(name, &key(1), &Secret::new("x")).is_err(), "{name:?}");
            assert!(matches!(sealed.read(name), Ok(None)) && !sealed.has(name), "{name:?}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn h77_files_are_for_their_user_alone_and_replaced_whole() {
        use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
        let (_folder, sealed) = sealed();
        sealed.write("token-1", &key(1), &Secret::new("one")).unwrap();
        let at = |name: &str| fs::metadata(sealed.folder().join(name)).unwrap();
        let mode = |name: &str| at(name).permissions().mode() & 0o777;
        assert_eq!((mode("token-1"), mode(".")), (0o600, 0o700));
        let before = at("token-1").ino();
        sealed.write("token-1", &key(1), &Secret::new("two")).unwrap();
        // The file was replaced: no reader ever sees half of one.
        assert_ne!(at("token-1").ino(), before);
        let names: Vec<_> = fs::read_dir(sealed.folder()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }
}

//! Decides which store holds a token: by the config, by what the machine has, and by where the token already is.
//!
//! A login in a keyring stays there while the keyring is locked or does not answer: its server stays `unauthorized` and
//! says why. Only if the keyring has gone altogether is the next login stored elsewhere.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::keyring::{Keyring, Patience, Ring};
use super::sealed::Sealed;
use super::{Keeping, Kept, MemoryStore, SecretStore, StoreError};
use crate::config::{Secret, SecretKey, Secrets, StoreKind};

/// Returns the store that the config asks for. Encrypted files are below this directory.
///
/// # Errors
/// Fails if the config asks for a store that needs the directory, and there is none.
pub(crate) fn chosen(secrets: &Secrets, directory: Option<&Path>) -> Result<Arc<dyn SecretStore>, String> {
    let Some(directory) = directory else {
        return match secrets.store {
            StoreKind::Auto | StoreKind::Memory => Ok(Arc::new(MemoryStore::default())),
            StoreKind::Keyring | StoreKind::File => {
                Err("host.secrets: without a state directory tokens can be kept in memory only".to_owned())
            }
        };
    };
    Ok(Arc::new(Chosen::new(secrets, directory, system(), Patience::default())))
}

/// Returns the system keyring; `None` if this build has none.
fn system() -> Option<Arc<dyn Ring>> {
    #[cfg(feature = "keyring")]
    return Some(Arc::new(super::system::System::OF_TOKENS));
    #[cfg(not(feature = "keyring"))]
    None
}

/// All available stores, and which kind the config asks for.
pub(super) struct Chosen {
    kind: StoreKind,
    keyring: Option<Keyring>,
    files: Sealed,
    key: Option<SecretKey>,
    /// The default key file, which is read if no key is given.
    key_file: Option<PathBuf>,
    /// The key from the default key file, once it was read.
    found: OnceLock<SecretKey>,
    memory: MemoryStore,
    warned: AtomicBool,
}

impl Chosen {
    pub(super) fn new(secrets: &Secrets, directory: &Path, ring: Option<Arc<dyn Ring>>, patience: Patience) -> Self {
        let folder = |name: &str| Sealed::new(directory.join("secrets").join(name));
        Self {
            kind: secrets.store,
            keyring: ring.map(|ring| Keyring::new(ring, folder("keyring"), patience)),
            files: folder("file"),
            key: secrets.key.clone(),
            key_file: secrets.key_file.clone(),
            found: OnceLock::new(),
            memory: MemoryStore::default(),
            warned: AtomicBool::new(false),
        }
    }

    /// Returns the keyring, if there is one and the config allows its use.
    fn keyring(&self) -> Option<&Keyring> {
        self.keyring.as_ref().filter(|_| matches!(self.kind, StoreKind::Auto | StoreKind::Keyring))
    }

    /// Reports whether the config allows encrypted files.
    fn wants_file(&self) -> bool {
        matches!(self.kind, StoreKind::Auto | StoreKind::File)
    }

    /// Returns the key with which files are encrypted: the given key, else the key in the default key file, which may
    /// appear while this program runs.
    fn key(&self) -> Option<SecretKey> {
        self.look_for_key().unwrap_or_else(|wrong| {
            tracing::warn!("{wrong}");
            None
        })
    }

    /// Returns the known key, else the key in the default key file. The error says what is wrong with a key file that
    /// cannot be used.
    fn look_for_key(&self) -> Result<Option<SecretKey>, String> {
        if let Some(key) = self.key.as_ref().or_else(|| self.found.get()) {
            return Ok(Some(key.clone()));
        }
        let Some(path) = self.key_file.as_deref() else { return Ok(None) };
        let key = SecretKey::read(path).map_err(|wrong| format!("{} {wrong}; move it away", path.display()))?;
        Ok(key.inspect(|key| drop(self.found.set(key.clone()))))
    }

    fn read_file(&self, name: &str) -> Result<Option<Secret>, StoreError> {
        let Some(closed) = self.files.read(name)? else { return Ok(None) };
        let none = || StoreError::Failed(format!("its login is in an encrypted file, and {KEYLESS}"));
        closed.open(name, &self.key().ok_or_else(none)?).map(Some)
    }

    /// Stores a secret outside of the keyring: in a file, or else in memory. A secret in memory does not replace a
    /// persistent one. `reason` says why the keyring is not used.
    fn write_beside(&self, name: &str, secret: &Secret, reason: &StoreError) -> Result<(), StoreError> {
        if let Some(key) = self.wants_file().then(|| self.key()).flatten() {
            self.files.write(name, &key, secret)?;
            self.only(name, Kept::File);
            return Ok(());
        }
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!("logins are kept in memory only, and are gone when this program ends: {reason}; {INSTEAD}");
        }
        self.memory.write(name, secret)
    }

    /// Removes a secret from all stores but the persistent one in which it was just stored.
    fn only(&self, name: &str, place: Kept) {
        let keyring = self.keyring.as_ref().filter(|_| place != Kept::Keyring).map(|keyring| keyring.remove(name));
        let file = (place != Kept::File).then(|| self.files.remove(name));
        let _ = self.memory.remove(name);
        for error in [keyring, file].into_iter().flatten().filter_map(Result::err) {
            tracing::warn!("a login that was replaced is still stored: {error}");
        }
    }
}

impl SecretStore for Chosen {
    fn read(&self, name: &str) -> Result<Option<Secret>, StoreError> {
        if let Some(secret) = self.memory.read(name)? {
            return Ok(Some(secret));
        }
        match self.place(name) {
            Kept::Keyring => self.keyring().map_or(Ok(None), |keyring| keyring.read(name)),
            Kept::File => self.read_file(name),
            Kept::Memory | Kept::Program => Ok(None),
        }
    }

    fn write(&self, name: &str, secret: &Secret) -> Result<(), StoreError> {
        if self.kind == StoreKind::Memory {
            return self.memory.write(name, secret);
        }
        let reason = match self.keyring() {
            None => StoreError::Absent("this build has none".to_owned()),
            Some(keyring) => match keyring.write(name, secret) {
                Ok(()) => {
                    self.only(name, Kept::Keyring);
                    return Ok(());
                }
                // The login stays in the keyring. The caller holds the new token in memory until the keyring accepts
                // it.
                Err(error) if self.kind == StoreKind::Keyring => return Err(error),
                Err(error) if keyring.has(name) && !matches!(error, StoreError::Absent(_)) => return Err(error),
                Err(error) => error,
            },
        };
        self.write_beside(name, secret, &reason)
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.memory.remove(name)?;
        let keyring = self.keyring.as_ref().map_or(Ok(()), |keyring| keyring.remove(name));
        keyring.and(self.files.remove(name))
    }

    fn keeping(&self) -> Keeping {
        if self.kind == StoreKind::Memory {
            return Keeping { reason: Some(BY_CONFIG.to_owned()), ..Keeping::at(Kept::Memory) };
        }
        let reason = match self.keyring().map(Keyring::probe) {
            Some(Ok(())) => return Keeping::at(Kept::Keyring),
            Some(Err(error)) => error.to_string(),
            None if self.kind == StoreKind::File => "there is no key for the encrypted files".to_owned(),
            None => "this build has no keyring".to_owned(),
        };
        if !self.wants_file() {
            return Keeping { reason: Some(reason), ..Keeping::at(Kept::Memory) };
        }
        match self.look_for_key() {
            Ok(Some(_)) => Keeping::at(Kept::File),
            // The key file may exist and be empty; an existing file is never overwritten.
            Ok(None) => {
                let key_file = self.key_file.clone().filter(|path| !path.exists());
                Keeping { reason: Some(reason), key_file, ..Keeping::at(Kept::Memory) }
            }
            Err(wrong) => Keeping { reason: Some(format!("{reason}; {wrong}")), ..Keeping::at(Kept::Memory) },
        }
    }

    fn stamp(&self, name: &str) -> Option<u64> {
        let keyring = self.keyring().map(|keyring| keyring.stamp(name));
        let file = self.wants_file().then(|| self.files.stamp(name));
        // Secrets in memory have no stamp, because no other program writes them.
        keyring.or(file).map(|_| keyring.unwrap_or_default().rotate_left(1) ^ file.unwrap_or_default())
    }

    fn place(&self, name: &str) -> Kept {
        if matches!(self.memory.read(name), Ok(Some(_))) {
            return Kept::Memory;
        }
        match self.keyring() {
            Some(keyring) if keyring.has(name) => Kept::Keyring,
            _ if self.wants_file() && self.files.has(name) => Kept::File,
            _ => Kept::Memory,
        }
    }
}

const KEYLESS: &str = "its key is missing: set MCP_HOST_SECRET_KEY or host.secrets.keyFile to the same key as before";
const BY_CONFIG: &str = "`host.secrets.store` is \"memory\"";
const INSTEAD: &str = "to keep them in an encrypted file, say yes to what mcp-host login asks, or set MCP_HOST_SECRET_KEY to what `openssl rand -base64 32` prints; \
     to have them in memory and no warning, set host.secrets.store to \"memory\"";

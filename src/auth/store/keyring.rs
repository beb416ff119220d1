//! A key in the system keyring, and encrypted files whose secrets only this key decrypts.
//!
//! The keyring holds only this key, one text of about fifty characters. So its size limits do not matter (Windows takes
//! 2560 bytes), and the user is asked only once to allow access. One thread at a time asks the keyring, and is
//! abandoned if it does not return: D-Bus can hang, and a keyring may wait for somebody to unlock it (`docs/hazards.md`
//! H77).

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use zeroize::Zeroizing;

use super::sealed::{Closed, Sealed};
use super::{StoreError, lock};
use crate::config::{Secret, SecretKey};
use crate::keep;

/// What is needed of a system keyring: it stores short texts by name. Calls may hang.
pub(super) trait Ring: Send + Sync {
    fn get(&self, name: &str) -> Result<Option<Zeroizing<String>>, StoreError>;
    fn set(&self, name: &str, text: &str) -> Result<(), StoreError>;
}

/// The name of the keyring entry that holds the key.
const NAME: &str = "file-key";
/// The version prefix of the stored text.
const VERSION: &str = "1:";

/// How long a keyring may take to answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// The time for a read, for which a server waits before it connects.
    pub(super) read: Duration,
    /// The time for a write, when a new token is stored.
    pub(super) write: Duration,
    /// How long the keyring is not asked again after it has failed.
    pub(super) rest: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { read: Duration::from_secs(2), write: Duration::from_secs(10), rest: Duration::from_secs(30) }
    }
}

/// Encrypted files whose key is in a keyring.
pub(super) struct Keyring {
    asking: Asking,
    files: Sealed,
    patience: Patience,
    known: Mutex<Option<SecretKey>>,
    /// The error of the last request, if it failed, and until when the keyring is not asked again.
    failed: Mutex<Option<(Instant, StoreError)>>,
}

impl Keyring {
    pub(super) fn new(ring: Arc<dyn Ring>, files: Sealed, patience: Patience) -> Self {
        let (known, failed) = (Mutex::default(), Mutex::default());
        Self { asking: Asking::new(ring), files, patience, known, failed }
    }

    /// Reports whether there is a secret with this name, without asking the keyring.
    pub(super) fn has(&self, name: &str) -> bool {
        self.files.has(name)
    }

    /// Returns a stamp: a number that changes after this secret is written or removed.
    pub(super) fn stamp(&self, name: &str) -> u64 {
        self.files.stamp(name)
    }

    /// Checks whether the keyring can be used at all, without writing to it.
    pub(super) fn probe(&self) -> Result<(), StoreError> {
        if lock(&self.known).is_some() {
            return Ok(());
        }
        self.ask(self.patience.write, |ring| ring.get(NAME)).map(drop)
    }

    pub(super) fn read(&self, name: &str) -> Result<Option<Secret>, StoreError> {
        let Some(closed) = self.files.read(name)? else { return Ok(None) };
        self.key_of(&closed).and_then(|key| closed.open(name, &key)).map(Some)
    }

    pub(super) fn write(&self, name: &str, secret: &Secret) -> Result<(), StoreError> {
        let known = lock(&self.known).clone();
        let key = match known {
            Some(key) => key,
            None => self.made()?,
        };
        self.files.write(name, &key, secret)
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.files.remove(name)
    }

    /// Returns the key with which a file was encrypted: the known key if it fits, else the key in the keyring.
    fn key_of(&self, closed: &Closed) -> Result<SecretKey, StoreError> {
        if let Some(key) = lock(&self.known).as_ref().filter(|key| closed.is_of(key)) {
            return Ok(key.clone());
        }
        if let Some((until, error)) = &*lock(&self.failed)
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let found = self.ask(self.patience.read, |ring| ring.get(NAME))?.and_then(|text| parse(&text));
        let gone = "the key of its login is not in the keyring any more; sign in again";
        let key = found.ok_or_else(|| StoreError::Failed(gone.to_owned()))?;
        *lock(&self.known) = Some(key.clone());
        Ok(key)
    }

    /// Returns the key in the keyring. If there is none, creates one, and reads it back before anything relies on it.
    fn made(&self) -> Result<SecretKey, StoreError> {
        if let Some((until, error @ StoreError::Slow(_))) = &*lock(&self.failed)
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let failed = |error: std::io::Error| StoreError::Failed(format!("the key for the keyring: {error}"));
        keep::make_folder(self.files.folder()).map_err(failed)?;
        // If two processes created a key at once, one would encrypt with a key that is stored nowhere.
        let path = self.files.folder().join(".key.lock");
        let _lock = keep::lock(&path, self.patience.write).map_err(failed)?;
        let fresh = fresh()?;
        let key = self.ask(self.patience.write, move |ring| {
            if let Some(text) = ring.get(NAME)? {
                return parse(&text).ok_or_else(|| StoreError::Failed(STRANGE.to_owned()));
            }
            ring.set(NAME, &fresh)?;
            let back = ring.get(NAME)?.filter(|back| **back == *fresh);
            back.and_then(|back| parse(&back)).ok_or_else(|| StoreError::Failed(LIES.to_owned()))
        });
        let key = key?;
        *lock(&self.known) = Some(key.clone());
        Ok(key)
    }

    /// Asks the keyring, and remembers whether that failed.
    fn ask<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&dyn Ring) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let answer = self.asking.ask(limit, work);
        let until = Instant::now() + self.patience.rest;
        *lock(&self.failed) = answer.as_ref().err().map(|error| (until, error.clone()));
        answer
    }
}

/// Asks a keyring, one request at a time.
pub(super) struct Asking {
    ring: Arc<dyn Ring>,
    busy: Arc<Busy>,
}

impl Asking {
    pub(super) fn new(ring: Arc<dyn Ring>) -> Self {
        Self { ring, busy: Arc::default() }
    }

    /// Runs `work` on a thread of its own, which is abandoned after `limit`.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce(&dyn Ring) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let end = Instant::now() + limit;
        let turn = Busy::turn(&self.busy, limit)?;
        let (tell, told) = mpsc::sync_channel(1);
        let ring = self.ring.clone();
        let thread = std::thread::Builder::new().name("keyring".to_owned());
        let started = thread.spawn(move || {
            let _turn = turn;
            // The caller may have given up.
            let _ = tell.send(work(&*ring));
        });
        started.map_err(|error| StoreError::Failed(format!("no thread for the keyring: {error}")))?;
        told.recv_timeout(end.saturating_duration_since(Instant::now())).unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => Err(StoreError::Slow(limit)),
            RecvTimeoutError::Disconnected => Err(StoreError::Failed("the keyring failed".to_owned())),
        })
    }
}

const STRANGE: &str = "the keyring entry under our name is not a key of ours; it is left as is";
const LIES: &str = "the keyring does not return what was stored in it, so it is not used";

/// Returns a new key in its stored form.
fn fresh() -> Result<Zeroizing<String>, StoreError> {
    let mut bytes = Zeroizing::new([0; SecretKey::LENGTH]);
    let none = |_| StoreError::Failed("the system has no random numbers".to_owned());
    getrandom::fill(&mut *bytes).map_err(none)?;
    Ok(Zeroizing::new(format!("{VERSION}{}", STANDARD_NO_PAD.encode(*bytes))))
}

fn parse(text: &str) -> Option<SecretKey> {
    SecretKey::parse(text.strip_prefix(VERSION)?)
}

/// Whether a thread is asking the keyring now.
#[derive(Default)]
struct Busy {
    now: Mutex<bool>,
    free: Condvar,
}

/// The turn of one thread to ask; dropping it lets the next one ask.
struct Turn(Arc<Busy>);

impl Busy {
    fn turn(busy: &Arc<Self>, limit: Duration) -> Result<Turn, StoreError> {
        let waited = busy.free.wait_timeout_while(lock(&busy.now), limit, |now| *now);
        let (mut now, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(StoreError::Slow(limit));
        }
        *now = true;
        Ok(Turn(busy.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *lock(&self.0.now) = false;
        self.0.free.notify_one();
    }
}

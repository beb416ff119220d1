//! What must outlive a process so that ids of sessions do: the key that seals them, and marks of the sessions that ended
//! for good. Both lie in the state directory, and all daemons of the user share them.
//!
//! Nothing is read before the first session, and no thread of the runtime waits for the disk. Without a state directory,
//! or if the key cannot be used, a key of this process seals instead, and ids end with it. Start at [`Kept::load`].
//!
//! **Invariant:** a key file that cannot be understood is never replaced (`docs/hazards.md` H94).

mod ended;
mod key;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tokio::sync::Mutex;

use self::ended::Marks;
pub(crate) use self::ended::Serial;
use crate::keep;
use crate::seal::{MasterKey, Seal, fresh_key};

/// The key, and the marks.
pub(crate) struct Kept {
    folder: Option<PathBuf>,
    opened: OnceLock<Opened>,
    /// Held while the files are read.
    opening: Mutex<()>,
    marks: Arc<Marks>,
    /// The keys that all hosts of a cluster have; none if this host serves alone.
    shared: Vec<MasterKey>,
}

/// The seal for ids of sessions.
#[derive(Debug)]
pub(crate) struct Opened {
    /// `None` if the system has no randomness for a key.
    pub(crate) seal: Option<Seal>,
    /// Why ids end with this process; `None` if they do not.
    pub(crate) why_short: Option<Box<str>>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Kept {
    /// Keeps in this state directory; without one, nothing outlives the process.
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        let marks = Arc::new(Marks::new(folder.as_deref()));
        Self { folder, opened: OnceLock::new(), opening: Mutex::default(), marks, shared: Vec::new() }
    }

    /// Keeps marks in this state directory, and seals with keys that other hosts have, too: the first one seals, and all of
    /// them open. Without keys it seals as one that serves alone.
    #[must_use]
    pub(crate) fn shared(self, keys: Vec<MasterKey>) -> Self {
        Self { shared: keys, ..self }
    }

    /// Returns the seal, if it was loaded.
    pub(crate) fn opened(&self) -> Option<&Opened> {
        self.opened.get()
    }

    /// Returns the seal. Reads the key, or makes one, on the first call. Of marks, those of sessions that began before
    /// `oldest` (in seconds since 1970) need not be kept.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next caller reads again.
    pub(crate) async fn load(&self, oldest: u64) -> &Opened {
        if let Some(opened) = self.opened.get() {
            return opened;
        }
        let _turn = self.opening.lock().await;
        if let Some(opened) = self.opened.get() {
            return opened;
        }
        let opened = match self.folder.clone() {
            None if self.shared.is_empty() => Opened::of_process("there is no state directory".to_owned()),
            None => Opened::of_cluster(&self.shared),
            Some(folder) => {
                let (marks, shared) = (Arc::clone(&self.marks), self.shared.clone());
                keep::done(move || {
                    marks.read(oldest);
                    if shared.is_empty() { Opened::of_folder(&folder) } else { Opened::of_cluster(&shared) }
                })
                .await
            }
        };
        self.opened.get_or_init(|| opened)
    }

    /// Marks a session as ended for good: its id opens no more. `began` is when it began, in seconds since 1970.
    pub(crate) fn end(&self, serial: Serial, began: u64, oldest: u64) {
        Marks::add(&self.marks, serial, began, oldest);
    }

    /// Reports whether a session ended for good.
    pub(crate) fn has_ended(&self, serial: Serial) -> bool {
        self.marks.has(serial)
    }

    /// Waits until all marks are in their file.
    pub(crate) async fn written(&self) {
        self.marks.written().await;
    }
}

impl Opened {
    fn of_folder(folder: &std::path::Path) -> Self {
        match key::read_or_make(folder) {
            Ok(key) => Self { seal: Some(Seal::of([&key])), why_short: None },
            Err(wrong) => {
                tracing::warn!("sessions end with this process: {wrong}");
                Self::of_process(wrong)
            }
        }
    }

    fn of_cluster(keys: &[MasterKey]) -> Self {
        Self { seal: Some(Seal::of(keys)), why_short: None }
    }

    /// Seals with a key of this process.
    fn of_process(why: String) -> Self {
        let key: Result<MasterKey, _> = fresh_key();
        let key = key.inspect_err(|error| tracing::error!("no session can be taken up again: {error}"));
        Self { seal: key.ok().map(|key| Seal::of([&key])), why_short: Some(why.into()) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::seal::Purpose;

    /// Seals with one, and opens with the other.
    async fn passes(from: &Kept, to: &Kept) -> bool {
        let sealed = from.load(0).await.seal.as_ref().unwrap().seal_bytes(Purpose::Session, "ann", b"x").unwrap();
        to.load(0).await.seal.as_ref().unwrap().open_bytes(Purpose::Session, "ann", &sealed).is_ok()
    }

    #[tokio::test]
    async fn h60_daemons_of_one_state_directory_have_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let kept = || Kept::new(Some(folder.path().join("state")));
        // They start at once: each makes a key, and all use the one that was first.
        let all: Vec<Arc<Kept>> = (0..8).map(|_| Arc::new(kept())).collect();
        let loads = all.iter().map(|kept| async { kept.load(0).await.why_short.is_none() });
        assert!(futures_util::future::join_all(loads).await.into_iter().all(|lasts| lasts));
        for other in &all {
            assert!(passes(&all[0], other).await && passes(other, &all[0]).await);
        }
        assert!(passes(&kept(), &all[0]).await, "a later start");
        let elsewhere = Kept::new(Some(folder.path().join("other")));
        assert!(!passes(&kept(), &elsewhere).await, "another state directory");
        assert!(!passes(&Kept::default(), &kept()).await && !passes(&Kept::default(), &Kept::default()).await);
    }

    #[tokio::test]
    async fn hosts_with_one_key_open_what_the_others_sealed_wherever_they_keep() {
        let folder = tempfile::tempdir().unwrap();
        let key = |byte: u8| MasterKey::new([byte; 32]);
        let state = |name: &str| Some(folder.path().join(name));
        let one = Kept::new(state("one")).shared(vec![key(1), key(2)]);
        let other = Kept::new(None).shared(vec![key(2), key(1)]);
        assert!(passes(&one, &other).await && passes(&other, &one).await);
        assert_eq!((one.load(0).await.why_short.as_deref(), other.load(0).await.why_short.as_deref()), (None, None));
        let alone = Kept::new(state("one"));
        assert!(!passes(&one, &alone).await && !passes(&alone, &one).await, "the key of the folder is not used");
        assert!(!passes(&Kept::new(None).shared(vec![key(3)]), &other).await, "another cluster");
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn h94_a_key_is_private_and_a_damaged_one_stays_as_it_is() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let kept = || Kept::new(Some(folder.path().to_owned()));
        assert_eq!(kept().load(0).await.why_short, None);
        let path = folder.path().join("session-key.json");
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let damaged = ["", "{", r#"{"version":1}"#, r#"{"version":1,"key":"12"}"#, &text.replace('1', "2")[1..]];
        for text in damaged.into_iter().chain([&*text.replace(":1,", ":2,")]) {
            fs::write(&path, text).unwrap();
            let kept = kept();
            let why = kept.load(0).await.why_short.as_deref().unwrap();
            assert!(why.contains("session-key.json") && why.contains("move it away"), "{text}: {why}");
            assert!(!why.contains('\n'), "{why}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "it is left as it is");
        }
        fs::write(&path, &text).unwrap();
        assert_eq!(kept().load(0).await.why_short, None);
    }

    #[tokio::test]
    async fn without_a_place_to_write_ids_end_with_the_process() {
        let folder = tempfile::tempdir().unwrap();
        // A file where the folder should be: nobody can write below it, not even root.
        fs::write(folder.path().join("state"), "").unwrap();
        let kept = Kept::new(Some(folder.path().join("state")));
        let why = kept.load(0).await.why_short.as_deref().unwrap();
        assert!(why.contains("session-key.json"), "{why}");
        assert!(passes(&kept, &kept).await, "within the process they last");
    }
}

//! Sealed (encrypted) handles that a client keeps and sends back: ids of sessions, `requestState`, and task ids. Only who
//! has the key can read or make them, and each is valid for one principal and one purpose.
//!
//! A handle is base64url of: the version (1 byte), the id of the key (4), a nonce (24), and the body, encrypted with
//! XChaCha20-Poly1305 under a key derived for its purpose (HKDF-SHA-256). Its nonces are long enough to be drawn by lot,
//! however many processes seal under one key. The first key seals, and every key opens.
//!
//! **Invariant:** a handle from a client is hostile until it opens. A text that was made for another principal, for
//! another purpose, or under another key does not open, and the error does not tell which of these is the reason.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{AeadInOut as _, KeyInit as _};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

/// Makes and opens handles.
pub(crate) struct Seal(Vec<Keys>);

/// The key from which the keys of all purposes are derived.
pub(crate) type MasterKey = Zeroizing<[u8; 32]>;

/// What is derived from one master key.
struct Keys {
    id: [u8; KEY_ID],
    state: XChaCha20Poly1305,
    task: XChaCha20Poly1305,
    #[cfg(feature = "server")]
    session: XChaCha20Poly1305,
}

/// The purpose of a handle. A handle opens for no other purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The `requestState` of an `input_required` result.
    RequestState,
    /// The id of a task.
    Task,
    /// The id of a session.
    #[cfg(feature = "server")]
    Session,
}

/// The text is no handle that was made under one of our keys for this principal and purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// The form of handles. It is the first byte of each, and part of what is authenticated.
const VERSION: u8 = 1;
const KEY_ID: usize = 4;
const NONCE: usize = 24;
/// The longest text that is opened, in bytes: no handle of ours is longer.
const LONGEST: usize = 1 << 20;
/// Stands for our use of the derivation, so that a key that is used elsewhere, too, gives other keys there.
const SALT: &[u8] = b"mcp-host seal 1";
/// The same for the keys of a cluster.
#[cfg(feature = "cluster")]
const SHARED: &[u8] = b"mcp-host cluster 1";

impl Seal {
    /// Creates a seal with a fresh key, which nothing else has.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        Ok(Self::of([&fresh_key()?]))
    }

    /// Creates a seal with these keys: the first one seals, and all of them open.
    pub(crate) fn of<'a>(keys: impl IntoIterator<Item = &'a MasterKey>) -> Self {
        Self(keys.into_iter().map(Keys::derive).collect())
    }

    /// Seals a value. Two handles for the same value always differ.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub(crate) fn seal<T: Serialize + ?Sized>(
        &self,
        purpose: Purpose,
        principal: &str,
        value: &T,
    ) -> Result<String, getrandom::Error> {
        self.seal_bytes(purpose, principal, &serde_json::to_vec(value).unwrap_or_default())
    }

    /// Seals bytes. Two handles for the same bytes always differ.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub(crate) fn seal_bytes(
        &self,
        purpose: Purpose,
        principal: &str,
        bytes: &[u8],
    ) -> Result<String, getrandom::Error> {
        let keys = self.0.first().expect("a seal has a key");
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce)?;
        let mut body = bytes.to_vec();
        let bound = purpose.bound_to(principal);
        keys.of(purpose)
            .encrypt_in_place(&XNonce::from(nonce), &bound, &mut body)
            .expect("a handle is far below what the cipher takes");
        let mut whole = Vec::with_capacity(1 + KEY_ID + NONCE + body.len());
        whole.push(VERSION);
        whole.extend_from_slice(&keys.id);
        whole.extend_from_slice(&nonce);
        whole.append(&mut body);
        Ok(BASE64_URL_SAFE_NO_PAD.encode(whole))
    }

    /// Opens a handle.
    ///
    /// # Errors
    /// If it was not made under one of our keys for this principal and purpose.
    pub(crate) fn open<T: DeserializeOwned>(&self, purpose: Purpose, principal: &str, text: &str) -> Result<T, Broken> {
        serde_json::from_slice(&self.open_bytes(purpose, principal, text)?).map_err(|_| Broken)
    }

    /// Opens a handle of bytes.
    ///
    /// # Errors
    /// If it was not made under one of our keys for this principal and purpose.
    pub(crate) fn open_bytes(&self, purpose: Purpose, principal: &str, text: &str) -> Result<Vec<u8>, Broken> {
        if text.len() > LONGEST {
            return Err(Broken);
        }
        let whole = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| Broken)?;
        let (version, rest) = whole.split_first().ok_or(Broken)?;
        let (id, rest) = rest.split_first_chunk::<KEY_ID>().ok_or(Broken)?;
        let (nonce, body) = rest.split_first_chunk::<NONCE>().ok_or(Broken)?;
        if *version != VERSION {
            return Err(Broken);
        }
        let (nonce, bound) = (XNonce::from(*nonce), purpose.bound_to(principal));
        // Ids of keys are short, so two keys may have the same.
        let open = |keys: &Keys| {
            let mut body = body.to_vec();
            keys.of(purpose).decrypt_in_place(&nonce, &bound, &mut body).ok().map(|()| body)
        };
        self.0.iter().filter(|keys| keys.id == *id).find_map(open).ok_or(Broken)
    }
}

/// Derives the key of this label from a key that several hosts have.
#[cfg(feature = "cluster")]
pub(crate) fn shared_key(key: &[u8; 32], label: &str) -> MasterKey {
    MasterKey::new(expand(&Salt::new(HKDF_SHA256, SHARED).extract(key), label))
}

/// Returns a fresh key.
///
/// # Errors
/// If the system has no randomness.
pub(crate) fn fresh_key() -> Result<MasterKey, getrandom::Error> {
    let mut key = MasterKey::default();
    getrandom::fill(key.as_mut_slice())?;
    Ok(key)
}

impl Keys {
    fn derive(master: &MasterKey) -> Self {
        let from = Salt::new(HKDF_SHA256, SALT).extract(master.as_slice());
        let cipher = |label: &str| {
            let key = Zeroizing::new(expand::<32>(&from, label));
            XChaCha20Poly1305::new((&*key).into())
        };
        Self {
            id: expand(&from, "id"),
            state: cipher("state"),
            task: cipher("task"),
            #[cfg(feature = "server")]
            session: cipher("session"),
        }
    }

    fn of(&self, purpose: Purpose) -> &XChaCha20Poly1305 {
        match purpose {
            Purpose::RequestState => &self.state,
            Purpose::Task => &self.task,
            #[cfg(feature = "server")]
            Purpose::Session => &self.session,
        }
    }
}

/// Derives `N` bytes for this label.
fn expand<const N: usize>(from: &Prk, label: &str) -> [u8; N] {
    struct Bytes(usize);
    impl KeyType for Bytes {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut bytes = [0; N];
    let filled = from.expand(&[label.as_bytes()], Bytes(N)).and_then(|derived| derived.fill(&mut bytes));
    filled.expect("so few bytes can be derived");
    bytes
}

impl Purpose {
    /// Returns the bytes that a handle is bound to in addition to its content.
    fn bound_to(self, principal: &str) -> Vec<u8> {
        let purpose = match self {
            Self::RequestState => 1,
            Self::Task => 2,
            #[cfg(feature = "server")]
            Self::Session => 3,
        };
        let mut bound = vec![VERSION, purpose];
        bound.extend_from_slice(principal.as_bytes());
        bound
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(..)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn h46_h66_a_handle_opens_for_whom_and_what_it_was_made() {
        let (seal, other) = (Seal::new().unwrap(), Seal::new().unwrap());
        let handle = seal.seal(Purpose::Task, "ann", &("state", 7)).unwrap();
        let open = |seal: &Seal, purpose, principal| seal.open::<(String, u32)>(purpose, principal, &handle);
        assert_eq!(open(&seal, Purpose::Task, "ann"), Ok(("state".to_owned(), 7)));
        assert_eq!(open(&seal, Purpose::Task, "bob"), Err(Broken));
        assert_eq!(open(&seal, Purpose::RequestState, "ann"), Err(Broken));
        assert_eq!(open(&other, Purpose::Task, "ann"), Err(Broken), "another process");
        assert_ne!(handle, seal.seal(Purpose::Task, "ann", &("state", 7)).unwrap());
    }

    #[test]
    fn the_first_key_seals_and_every_key_opens() {
        let (old, new) = (fresh_key().unwrap(), fresh_key().unwrap());
        let (before, during, after) = (Seal::of([&old]), Seal::of([&new, &old]), Seal::of([&new]));
        let open = |seal: &Seal, handle: &str| seal.open_bytes(Purpose::Task, "ann", handle);
        let first = before.seal_bytes(Purpose::Task, "ann", b"1").unwrap();
        let second = during.seal_bytes(Purpose::Task, "ann", b"2").unwrap();
        assert_eq!((open(&during, &first), open(&during, &second)), (Ok(b"1".to_vec()), Ok(b"2".to_vec())));
        assert_eq!((open(&after, &first), open(&after, &second)), (Err(Broken), Ok(b"2".to_vec())));
        assert_eq!(open(&before, &second), Err(Broken));
    }

    /// Replicas of two versions must have the same keys, too.
    #[cfg(feature = "cluster")]
    #[test]
    fn a_shared_key_gives_other_keys_for_other_labels() {
        let [one, other] = ["seal a", "seal b"].map(|label| shared_key(&[7; 32], label));
        assert_ne!(one, other);
        assert_eq!(one[..4], [0x90, 0x80, 0x01, 0xf3]);
    }

    /// What was sealed before must open after an update, so what is derived from a key never changes.
    #[test]
    fn the_derivation_and_the_form_stay_as_they_are() {
        let seal = Seal::of([&MasterKey::new([7; 32])]);
        assert_eq!(seal.0[0].id, [0x22, 0xec, 0x25, 0x45]);
        let handle = "ASLsJUUAAQIDBAUGBwgJCgsMDQ4PEBESExQVFhdHR_ey8OVp2-Th1mu9v2OObmcnAQ";
        assert_eq!(seal.open_bytes(Purpose::Task, "ann", handle), Ok(b"kept".to_vec()));
    }

    proptest! {
        #[test]
        fn what_was_altered_does_not_open(at in 0usize..60, with in "[A-Za-z0-9_-]") {
            let seal = Seal::new().unwrap();
            let handle = seal.seal(Purpose::RequestState, "ann", "some text to keep").unwrap();
            let at = at % handle.len();
            let mut altered = handle.clone();
            altered.replace_range(at..=at, &with);
            // The last character holds unused bits; a change in only those does not decode.
            prop_assume!(altered != handle);
            prop_assert_eq!(seal.open::<String>(Purpose::RequestState, "ann", &altered), Err(Broken));
        }

        #[test]
        fn no_text_breaks_it(text in "\\PC{0,80}") {
            prop_assert_eq!(Seal::new().unwrap().open::<String>(Purpose::Task, "", &text), Err(Broken));
        }
    }
}

//! Sealed (encrypted) handles that a client keeps and sends back: `requestState` and task ids. Only this process can
//! read or make them, and each is valid for one principal and one purpose.
//!
//! **Invariant:** a handle from a client is hostile until it opens. A text that was made for another principal, for
//! another purpose, or by another process does not open, and the error does not tell which of these is the reason.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Makes and opens handles with a key that lives as long as this process.
pub(crate) struct Seal(LessSafeKey);

/// The purpose of a handle. A handle opens for no other purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The `requestState` of an `input_required` result.
    RequestState,
    /// The id of a task.
    Task,
}

/// The text is not a handle that this process made for this principal and purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// The longest text that is opened, in bytes: no handle of ours is longer.
const LONGEST: usize = 1 << 20;

impl Seal {
    /// Creates a seal with a fresh key.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut key = [0; 32];
        getrandom::fill(&mut key)?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).expect("the cipher takes keys of 32 bytes");
        Ok(Self(LessSafeKey::new(key)))
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
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce)?;
        let mut body = serde_json::to_vec(value).unwrap_or_default();
        let sealed = self.0.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(purpose.bound_to(principal)),
            &mut body,
        );
        sealed.expect("a handle is far below what the cipher takes");
        let mut whole = nonce.to_vec();
        whole.append(&mut body);
        Ok(BASE64_URL_SAFE_NO_PAD.encode(whole))
    }

    /// Opens a handle.
    ///
    /// # Errors
    /// If this process did not make it for this principal and purpose.
    pub(crate) fn open<T: DeserializeOwned>(&self, purpose: Purpose, principal: &str, text: &str) -> Result<T, Broken> {
        if text.len() > LONGEST {
            return Err(Broken);
        }
        let whole = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| Broken)?;
        let (nonce, body) = whole.split_at_checked(NONCE_LEN).ok_or(Broken)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Broken)?;
        let mut body = body.to_vec();
        let plain = self.0.open_in_place(nonce, Aad::from(purpose.bound_to(principal)), &mut body);
        serde_json::from_slice(plain.map_err(|_| Broken)?).map_err(|_| Broken)
    }
}

impl Purpose {
    /// Returns the bytes that a handle is bound to in addition to its content.
    fn bound_to(self, principal: &str) -> Vec<u8> {
        let mut bound = vec![match self {
            Self::RequestState => 1,
            Self::Task => 2,
        }];
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

//! Pins: the hash of a definition as its server sent it, which is the same however the server spells it.
//!
//! A [`Pin`] covers every member but those that the config tells it to leave out (`pinIgnore`). `canonical.rs` has the
//! form that is hashed.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};

use super::canonical;
use super::tree::{Item, Tree};
use crate::hex;
use crate::protocol::{Pointer, Raw};

const PREFIX: &str = "sha256:";

/// The SHA-256 of a definition in its canonical form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pin([u8; 32]);

impl Pin {
    /// Pins a definition without what `ignore` names.
    pub(crate) fn of(json: &Raw, ignore: &[Pointer]) -> Self {
        Self(Sha256::digest(canonical(json, ignore)).into())
    }

    /// Pins a text, such as the instructions of a server: as the JSON string that it is.
    pub(crate) fn of_text(text: &str) -> Self {
        Self::of(&Raw::from_value(text), &[])
    }
}

/// Returns the canonical form of a definition without what `ignore` names. A text that is not JSON is returned
/// unchanged.
pub(super) fn canonical(json: &Raw, ignore: &[Pointer]) -> Vec<u8> {
    let Some(tree) = Tree::read(json.as_str()) else { return json.as_bytes().to_vec() };
    canonical::of_tree(&tree, &left_out(&tree, ignore))
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", hex::encode(&self.0))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Why a text is no pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `sha256:` and 64 hexadecimal digits")]
pub struct NoPin;

impl FromStr for Pin {
    type Err = NoPin;

    fn from_str(text: &str) -> Result<Self, NoPin> {
        let mut bytes = [0; 32];
        let digits = text.strip_prefix(PREFIX).ok_or(NoPin)?;
        hex::decode(digits.as_bytes(), &mut bytes).ok_or(NoPin)?;
        Ok(Self(bytes))
    }
}

impl Serialize for Pin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Marks the values that pointers name. Where several members have the name, all are marked.
fn left_out(tree: &Tree<'_>, ignore: &[Pointer]) -> Vec<bool> {
    if ignore.is_empty() {
        return Vec::new();
    }
    let mut marks = vec![false; tree.len()];
    for pointer in ignore {
        let mut named = vec![tree.root()];
        for token in pointer.tokens() {
            named = named.into_iter().flat_map(|item| inner(item, token)).collect();
        }
        named.iter().for_each(|item| marks[item.at()] = true);
    }
    marks
}

fn inner<'a>(item: Item<'a>, token: &str) -> Vec<Item<'a>> {
    if item.is_object() {
        return item.children().filter(|child| child.key().is_some_and(|key| key == token)).collect();
    }
    // An index has no sign and no leading zeros.
    let at = token.parse().ok().filter(|at: &usize| at.to_string() == token);
    at.and_then(|at| item.children().nth(at)).into_iter().collect()
}

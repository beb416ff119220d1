//! The roots that a client reported: a key by which leases are shared (`docs/bridging.md` 15.3).

use std::sync::{Arc, OnceLock};

use crate::protocol::Raw;

/// The reported roots, in their order: servers take the first one as their folder.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    uris: Vec<String>,
    /// The client's result of `roots/list`, verbatim.
    result: Raw,
}

impl PartialEq for Told {
    /// Compares URIs only: names are for display.
    fn eq(&self, other: &Self) -> bool {
        self.uris == other.uris
    }
}

impl Eq for Told {}

impl Told {
    /// Returns an empty list of roots, which also stands for a client that gave no answer.
    pub(crate) fn nothing() -> Arc<Self> {
        static NOTHING: OnceLock<Arc<Told>> = OnceLock::new();
        let make = || Arc::new(Self { uris: Vec::new(), result: Raw::from_value(&serde_json::json!({ "roots": [] })) });
        NOTHING.get_or_init(make).clone()
    }

    /// Reads a client's result of `roots/list`; a malformed one counts as no roots.
    pub(crate) fn read(result: &Raw) -> Arc<Self> {
        let roots = result.member("roots").and_then(|roots| roots.read::<Vec<serde_json::Value>>().ok());
        let uris = roots.and_then(|roots| roots.iter().map(|root| Some(root["uri"].as_str()?.to_owned())).collect());
        match uris {
            Some(uris) => Arc::new(Self { uris, result: result.detached() }),
            None => Self::nothing(),
        }
    }

    #[cfg(test)]
    pub(crate) fn of(uris: &[String]) -> Arc<Self> {
        let roots: Vec<_> = uris.iter().map(|uri| serde_json::json!({ "uri": uri })).collect();
        Self::read(&Raw::from_value(&serde_json::json!({ "roots": roots })))
    }

    /// Returns the result of `roots/list`.
    pub(crate) fn result(&self) -> &Raw {
        &self.result
    }

    /// Returns the number of roots.
    pub(crate) fn count(&self) -> usize {
        self.uris.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_one_by_their_uris_in_order() {
        let read = |value: serde_json::Value| Told::read(&Raw::from_value(&value));
        let ab = read(serde_json::json!({ "roots": [{ "uri": "a", "name": "x" }, { "uri": "b" }] }));
        assert_eq!(ab, Told::of(&["a".into(), "b".into()]));
        assert_ne!(ab, Told::of(&["b".into(), "a".into()]));
        assert_eq!(read(serde_json::json!({ "roots": [{ "name": "x" }] })), Told::nothing());
        assert_eq!(read(serde_json::json!([])), Told::nothing());
    }
}

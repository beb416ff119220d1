//! The secrets of every config that this process has read, which it must not show.
//!
//! There is one set for the whole process, because everything that prints uses it, including the log and the panic
//! hook.

use std::borrow::Cow;
use std::sync::{PoisonError, RwLock};

use mcp_host::Config;
use mcp_host::redact::Scrubber;

static KNOWN: RwLock<Option<Scrubber>> = RwLock::new(None);

/// Adds the secrets of a config. Those of earlier configs stay: servers that are being stopped still have them.
pub(crate) fn learn(config: &Config) {
    KNOWN.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().join(&config.scrubber());
}

/// Removes the secrets of all configs, and everything that looks like a credential.
pub(crate) fn all(text: &str) -> Cow<'_, str> {
    match &*KNOWN.read().unwrap_or_else(PoisonError::into_inner) {
        Some(known) => known.scrub(text),
        None => Scrubber::default().scrub(text).into_owned().into(),
    }
}

/// Removes only the secrets of all configs, for data that a machine reads.
pub(crate) fn known(text: &str) -> Cow<'_, str> {
    match &*KNOWN.read().unwrap_or_else(PoisonError::into_inner) {
        Some(known) => known.without_known(text),
        None => Cow::Borrowed(text),
    }
}

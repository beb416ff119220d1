//! Values inside a body, by their ranges. Large values that the scan has noted are not read again.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::value::RawValue;

use super::Raw;
use super::scan::{Scanner, key_of};

/// A value inside a body.
#[derive(Clone, Debug)]
pub(crate) struct Part<'a> {
    body: &'a Raw,
    at: Range<usize>,
}

impl<'a> Part<'a> {
    /// Returns the whole body; `None` if it is not JSON: some messages are read without checking the escapes in their
    /// strings.
    pub(crate) fn whole(body: &'a Raw) -> Option<Self> {
        body.is_sound().then(|| Self { body, at: 0..body.as_bytes().len() })
    }

    fn scanner(&self) -> Scanner<'a> {
        self.body.scanner().from(self.at.start)
    }

    fn text(&self) -> &'a [u8] {
        &self.body.as_bytes()[self.at.clone()]
    }

    fn part(&self, at: Range<usize>) -> Self {
        Self { body: self.body, at }
    }

    /// Returns the members in order; none if it is not an object, or if one has a name that is not text.
    pub(crate) fn members(&self) -> Vec<(Cow<'a, str>, Self)> {
        let mut members = Vec::new();
        let mut scanner = self.scanner();
        let read = scanner.object(|key, at| {
            members.push((key, self.part(at)));
            Ok(())
        });
        if read.is_ok() { members } else { Vec::new() }
    }

    /// Returns the first member with that name.
    pub(crate) fn member(&self, name: &str) -> Option<Self> {
        let mut found = None;
        // A value that is not an object has no members.
        let _ = self.scanner().object(|key, at| {
            if found.is_none() && key == name {
                found = Some(self.part(at));
            }
            Ok(())
        });
        found
    }

    /// Returns the items; `None` if it is not an array.
    pub(crate) fn items(&self) -> Option<Vec<Self>> {
        let items = self.scanner().items().ok()?;
        Some(items.into_iter().map(|at| self.part(at)).collect())
    }

    /// Returns the text of a string; `None` if it is not a string.
    pub(crate) fn string(&self) -> Option<Cow<'a, str>> {
        key_of(self.text()).filter(|_| self.text().starts_with(b"\""))
    }

    /// Reads the value with `serde_json` and returns it.
    pub(crate) fn value(&self) -> Option<&'a RawValue> {
        serde_json::from_slice(self.text()).ok()
    }
}

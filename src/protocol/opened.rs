//! Repeated lookups of members: each object or array is parsed once, however many members are looked up.
//!
//! Not here: a single lookup in one object; `raw.rs` does that without parsing anything else.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use super::scan::Scanner;
use super::value::array;

/// The parsed objects and arrays of one JSON text, by their start address.
#[derive(Debug, Default)]
pub(crate) struct Opened<'a> {
    objects: HashMap<usize, HashMap<Cow<'a, str>, &'a RawValue>>,
    arrays: HashMap<usize, Vec<&'a RawValue>>,
}

impl<'a> Opened<'a> {
    /// Returns the first member with that name.
    pub(crate) fn member(&mut self, object: &'a RawValue, name: &str) -> Option<&'a RawValue> {
        let text = object.get();
        self.objects.entry(text.as_ptr() as usize).or_insert_with(|| members(text)).get(name).copied()
    }

    /// Returns the item at `index`.
    pub(crate) fn item(&mut self, items: &'a RawValue, index: usize) -> Option<&'a RawValue> {
        let at = items.get().as_ptr() as usize;
        self.arrays.entry(at).or_insert_with(|| array(items).unwrap_or_default()).get(index).copied()
    }
}

fn members(text: &str) -> HashMap<Cow<'_, str>, &RawValue> {
    let mut members = HashMap::new();
    // A value that is not an object has no members.
    let _ = Scanner::new(text.as_bytes()).object(|key, range| {
        if let Ok(value) = serde_json::from_str(&text[range]) {
            members.entry(key).or_insert(value);
        }
        Ok(())
    });
    members
}

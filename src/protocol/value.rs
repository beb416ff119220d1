//! Reads JSON values that borrow from their text, one level deep.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::scan::Scanner;

/// Returns the members of an object in order, values unparsed; `None` if it is not an object.
#[must_use]
pub fn object(value: &RawValue) -> Option<Vec<(Cow<'_, str>, &RawValue)>> {
    serde_json::from_str::<Members<'_>>(value.get()).ok().map(|members| members.0)
}

/// Returns the first name that two members share.
pub(crate) fn twice<'a>(members: &'a [(Cow<'_, str>, &RawValue)]) -> Option<&'a str> {
    let mut seen = HashSet::with_capacity(members.len());
    members.iter().map(|(key, _)| &**key).find(|key| !seen.insert(*key))
}

/// Returns the items of an array, unparsed; `None` if it is not an array.
pub(crate) fn array(value: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(value.get()).ok()
}

/// Returns the first member with that name.
pub(crate) fn member<'a>(value: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    let text = value.get();
    find(Scanner::new(text.as_bytes()), name, |range| serde_json::from_str(&text[range]).ok())
}

pub(super) fn find<'a>(
    mut scanner: Scanner<'a>,
    name: &str,
    read: impl Fn(Range<usize>) -> Option<&'a RawValue>,
) -> Option<&'a RawValue> {
    let mut found = None;
    // A value that is not an object has no members.
    let _ = scanner.object(|key, range| {
        if found.is_none() && key == name {
            found = read(range);
        }
        Ok(())
    });
    found
}

/// Returns the text of the member with that name; `None` if it is missing or not a string.
pub(crate) fn text<'a>(value: &'a RawValue, name: &str) -> Option<Cow<'a, str>> {
    string(member(value, name)?)
}

/// Returns the text of a JSON string; `None` if the value is not a string.
pub(crate) fn string(value: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Text<'_>>(value.get()).ok().map(|text| text.0)
}

/// A JSON string.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(Text(key)) = map.next_key()? {
                    members.push((key, map.next_value()?));
                }
                Ok(Members(members))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
                Err(de::Error::custom("an array"))
            }
        }
        deserializer.deserialize_map(Visit)
    }
}

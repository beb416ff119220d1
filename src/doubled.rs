//! Keys that two readers of one JSON object may understand differently (`docs/hazards.md` H37): a duplicate key, and a
//! key that equals a known one except in case; pure.
//!
//! Keys are compared decoded, and with Unicode's simple case folding, like servers in Go compare them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::value::RawValue;

use crate::answered::FieldError;
use crate::protocol::value::{array, object};

/// Finds such keys in a value, at every depth. `known` applies to the outermost object only. Reports at most `most`.
#[cfg_attr(not(any(feature = "validate", test)), allow(dead_code, reason = "only calls are checked"))]
pub(crate) fn find(value: &RawValue, known: &BTreeSet<String>, most: usize, errors: &mut Vec<FieldError>) {
    Search { inside: None, most, errors }.value("", value, Some(known));
}

/// Finds such keys in a member of an object, at every depth. `known` applies at every depth.
pub(crate) fn find_in(
    name: &str,
    value: &RawValue,
    known: &BTreeSet<String>,
    most: usize,
    errors: &mut Vec<FieldError>,
) {
    Search { inside: Some(known), most, errors }.value(&place("", name), value, Some(known));
}

/// Finds such keys among the keys of one object.
pub(crate) fn find_among<'a>(
    keys: impl Iterator<Item = &'a str>,
    known: &BTreeSet<String>,
    most: usize,
    errors: &mut Vec<FieldError>,
) {
    Search { inside: None, most, errors }.keys("", keys, Some(known));
}

struct Search<'a> {
    /// The known keys of objects below the outermost one.
    inside: Option<&'a BTreeSet<String>>,
    most: usize,
    errors: &'a mut Vec<FieldError>,
}

impl Search<'_> {
    fn put(&mut self, field: String, error: String) {
        if self.errors.len() < self.most {
            self.errors.push(FieldError { field, error });
        }
    }

    fn keys<'k>(&mut self, at: &str, keys: impl Iterator<Item = &'k str>, known: Option<&BTreeSet<String>>) {
        let mut seen = BTreeSet::new();
        for key in keys {
            if !seen.insert(key) {
                self.put(place(at, key), "the key occurs twice".to_owned());
            } else if let Some(known) = known.filter(|known| !known.contains(key))
                && let Some(like) = known.iter().find(|name| folded(name).eq(folded(key)))
            {
                self.put(place(at, key), format!("the argument is called {like:?}"));
            }
        }
    }

    fn value(&mut self, at: &str, value: &RawValue, known: Option<&BTreeSet<String>>) {
        let is_open = |value: &RawValue| value.get().starts_with(['{', '[']);
        if value.get().starts_with('{') {
            let members: Vec<(Cow<'_, str>, &RawValue)> = object(value).unwrap_or_default();
            self.keys(at, members.iter().map(|(key, _)| &**key), known);
            for (key, value) in members.into_iter().filter(|(_, value)| is_open(value)) {
                self.value(&place(at, &key), value, self.inside);
            }
        } else if value.get().starts_with('[') {
            for (index, item) in array(value).unwrap_or_default().into_iter().enumerate() {
                if is_open(item) {
                    self.value(&format!("{at}/{index}"), item, self.inside);
                }
            }
        }
    }
}

/// Returns the JSON pointer to a member.
fn place(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Folds case like servers in Go: each character separately, to one character.
pub(crate) fn folded(text: &str) -> impl Iterator<Item = char> {
    fn one(mut letters: impl Iterator<Item = char>) -> Option<char> {
        let first = letters.next();
        first.filter(|_| letters.next().is_none())
    }
    text.chars().map(|letter| {
        let upper = one(letter.to_uppercase()).unwrap_or(letter);
        one(upper.to_lowercase()).unwrap_or(upper)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Raw;

    const KNOWN: [&str; 3] = ["path", "kind", "straße"];

    fn found(search: impl Fn(&RawValue, &BTreeSet<String>, &mut Vec<FieldError>), text: &str) -> Vec<(String, String)> {
        let (names, mut errors) = (KNOWN.map(str::to_owned).into(), Vec::new());
        search(Raw::trusted(text.to_owned().into()).as_value(), &names, &mut errors);
        errors.into_iter().map(|FieldError { field, error }| (field, error)).collect()
    }

    fn whole(text: &str) -> Vec<(String, String)> {
        found(|value, names, errors| find(value, names, 20, errors), text)
    }

    #[test]
    fn h37_keys_that_readers_may_take_differently_are_found_at_every_depth() {
        for fine in ["{}", r#"{"path":1,"other":2}"#, r#"{"path":{"Path":1,"kind":[{"a":1},{"a":2}]}}"#] {
            assert_eq!(whole(fine), [], "{fine}");
        }
        let twice = "the key occurs twice".to_owned();
        for (arguments, field, error) in [
            (r#"{"path":1,"path":1}"#, "/path", twice.clone()),
            (r#"{"path":1,"p\u0061th":2}"#, "/path", twice.clone()),
            (r#"{"x":[0,{"a/b":{"c":1,"c":2}}]}"#, "/x/1/a~1b/c", twice),
            (r#"{"PATH":1}"#, "/PATH", "the argument is called \"path\"".to_owned()),
            ("{\"\u{212a}ind\":1}", "/\u{212a}ind", "the argument is called \"kind\"".to_owned()),
            ("{\"STRA\u{1e9e}E\":1}", "/STRA\u{1e9e}E", "the argument is called \"straße\"".to_owned()),
        ] {
            assert_eq!(whole(arguments), [(field.to_owned(), error)], "{arguments}");
        }
    }

    #[test]
    fn h37_inside_of_a_member_the_same_names_are_known_everywhere() {
        let inside = |text| found(|value, names, errors| find_in("a/b", value, names, 2, errors), text);
        assert_eq!(inside(r#"{"x":[{"y":1,"path":1}]}"#), []);
        let of = |name: &str| format!("the argument is called {name:?}");
        assert_eq!(inside(r#"{"x":[{"Path":1}]}"#), [("/a~1b/x/0/Path".to_owned(), of("path"))]);
        assert_eq!(inside(r#"{"Path":{"KIND":1},"PATH":3}"#).len(), 2, "no more than asked for");
    }
}

//! Finds keys of arguments that two readers may take differently (`docs/hazards.md` H37): a key that occurs twice in one
//! object, and a key that equals a known argument except in case. Whatever reads arguments to decide something refuses
//! these, so that what is decided about is what the server reads. Pure.

use std::collections::BTreeSet;

use crate::answered::FieldError;
use crate::protocol::raw::{array, object};
use crate::registry::Entry;

/// The most mistakes that an answer names.
pub(super) const MOST: usize = 20;

/// Returns the names of the arguments that a tool knows.
pub(super) fn known(entry: &Entry) -> BTreeSet<String> {
    let properties = entry.definition().member("inputSchema").and_then(|schema| schema.member("properties"));
    let names = properties.as_ref().and_then(|properties| object(properties.as_value())).unwrap_or_default();
    names.into_iter().map(|(name, _)| name.into_owned()).collect()
}

/// Finds keys that occur twice in one object, and keys that equal one of `known` except in case.
pub(super) fn doubled(
    place: &str,
    value: &serde_json::value::RawValue,
    known: Option<&BTreeSet<String>>,
    errors: &mut Vec<FieldError>,
) {
    let mut put = |field: String, error: String| {
        if errors.len() < MOST {
            errors.push(FieldError { field, error });
        }
    };
    if value.get().starts_with('{') {
        let members = object(value).unwrap_or_default();
        let mut seen = BTreeSet::new();
        for (key, _) in &members {
            let field = format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"));
            if !seen.insert(&**key) {
                put(field, "the key occurs twice".to_owned());
            } else if let Some(known) = known.filter(|known| !known.contains(&**key))
                && let Some(like) = known.iter().find(|name| folded(name).eq(folded(key)))
            {
                put(field, format!("the argument is called {like:?}"));
            }
        }
        for (key, value) in members {
            if value.get().starts_with(['{', '[']) {
                doubled(&format!("{place}/{}", key.replace('~', "~0").replace('/', "~1")), value, None, errors);
            }
        }
    } else if value.get().starts_with('[') {
        for (index, item) in array(value).unwrap_or_default().into_iter().enumerate() {
            if item.get().starts_with(['{', '[']) {
                doubled(&format!("{place}/{index}"), item, None, errors);
            }
        }
    }
}

/// Folds case as servers in Go do: letter by letter, each to one letter.
pub(super) fn folded(text: &str) -> impl Iterator<Item = char> {
    fn one(mut letters: impl Iterator<Item = char>) -> Option<char> {
        let first = letters.next();
        first.filter(|_| letters.next().is_none())
    }
    text.chars().map(|letter| {
        let upper = one(letter.to_uppercase()).unwrap_or(letter);
        one(upper.to_lowercase()).unwrap_or(upper)
    })
}

/// Says the first mistake in words, and how many more there are.
pub(super) fn said(errors: &[FieldError]) -> String {
    let Some((FieldError { field, error }, more)) = errors.split_first() else { return String::new() };
    let place = if field.is_empty() { String::new() } else { format!("{field}: ") };
    let more = if more.is_empty() { String::new() } else { format!(" (and {} more)", more.len()) };
    format!("{place}{error}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Raw;

    fn found(known: &[&str], arguments: &str) -> Vec<(String, String)> {
        let names = known.iter().map(|name| (*name).to_owned()).collect();
        let mut errors = Vec::new();
        doubled("", Raw::trusted(arguments.to_owned().into()).as_value(), Some(&names), &mut errors);
        errors.into_iter().map(|FieldError { field, error }| (field, error)).collect()
    }

    #[test]
    fn h37_keys_that_readers_may_take_differently_are_found_at_every_depth() {
        let known = ["path", "kind", "straße"];
        for fine in ["{}", r#"{"path":1,"other":2}"#, r#"{"path":{"Path":1,"kind":[{"a":1},{"a":2}]}}"#] {
            assert_eq!(found(&known, fine), [], "{fine}");
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
            assert_eq!(found(&known, arguments), [(field.to_owned(), error)], "{arguments}");
        }
    }
}

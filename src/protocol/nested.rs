//! Objects inside objects, read in one pass: each level of a text that is opened alone is passed over once more.

use std::borrow::Cow;

use super::Raw;
use super::scan::{Scanner, key_of};

/// A value inside a JSON text, not read yet.
#[derive(Debug)]
pub(crate) struct Nested<'s, 'a> {
    bytes: &'a [u8],
    scanner: &'s mut Scanner<'a>,
}

impl<'a> Nested<'_, 'a> {
    /// Reads `raw` from its beginning.
    pub(crate) fn read<T>(raw: &'a Raw, read: impl FnOnce(Nested<'_, 'a>) -> T) -> T {
        read(Nested { bytes: raw.as_bytes(), scanner: &mut raw.scanner() })
    }

    /// Gives away the members in order, each with its name. What `member` does not read is passed over, and so is a member
    /// whose name cannot be decoded. A value that is not an object has no members.
    pub(crate) fn members(self, mut member: impl FnMut(Cow<'a, str>, Nested<'_, 'a>)) {
        let Self { bytes, scanner } = self;
        if scanner.peek() != Some(b'{') {
            return;
        }
        // The text is JSON, so nothing can be wrong with it.
        let _ = scanner.each(|scanner, key| {
            scanner.peek();
            let before = scanner.at();
            if let Some(name) = key_of(&bytes[key]) {
                member(name, Nested { bytes, scanner });
            }
            if scanner.at() == before {
                scanner.value()?;
            }
            Ok(())
        });
    }

    /// Returns the text of a JSON string; `None` if the value is not a string.
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        let range = (self.scanner.peek() == Some(b'"')).then(|| self.scanner.value().ok())??;
        // A string is quoted as a key is.
        key_of(&self.bytes[range])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names of all members at any depth, each with its text, if it has one.
    fn all(value: Nested<'_, '_>, found: &mut Vec<(String, Option<String>)>) {
        value.members(|name, value| {
            // One member is passed over.
            if name == "passed" {
                return;
            }
            if name == "text" {
                found.push((name.into_owned(), value.text().map(Cow::into_owned)));
            } else {
                found.push((name.into_owned(), None));
                all(value, found);
            }
        });
    }

    #[test]
    fn members_are_read_at_any_depth() {
        let text = r#" {"a": {"text":"x\"yé", "passed": {"text": "no"}, "b" :[{"c":1}], "text":7 } , "d\u0061":{}, "text":"z","e":null}"#;
        let raw = Raw::parse(&text.into()).unwrap();
        let mut found = Vec::new();
        Nested::read(&raw, |value| all(value, &mut found));
        let said: Vec<(&str, Option<&str>)> = found.iter().map(|(name, text)| (&**name, text.as_deref())).collect();
        let expected = [
            ("a", None),
            ("text", Some("x\"yé")),
            ("b", None),
            ("text", None),
            ("da", None),
            ("text", Some("z")),
            ("e", None),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_name_that_cannot_be_decoded_hides_no_others() {
        let raw = Raw::trusted(r#"{"\ud800":{"text":"x"},"text":"y"}"#.into());
        let mut found = Vec::new();
        Nested::read(&raw, |value| all(value, &mut found));
        assert_eq!(found, [("text".to_owned(), Some("y".to_owned()))]);
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        for text in ["[1]", "7", "\"text\"", "null"] {
            let raw = Raw::parse(&text.into()).unwrap();
            Nested::read(&raw, |value| value.members(|name, _| panic!("{name}")));
        }
    }
}

//! Reads the items of a JSON array one by one, so that the many items of a long list never exist at the same time.

use serde_json::value::RawValue;

use super::scan::{Fault, Scanner};
use super::{NoJson, Raw};

/// Reads the items of an array one by one.
#[derive(Debug)]
pub(crate) struct Items {
    array: Raw,
    at: usize,
}

impl Items {
    /// Starts at the first item; `None` if it is not an array.
    pub(crate) fn of(array: Raw) -> Option<Self> {
        (array.as_bytes().first() == Some(&b'[')).then_some(Self { array, at: 1 })
    }

    /// Returns the next item; `None` after the last one.
    ///
    /// # Errors
    /// When the item is not JSON: some messages are read without checking the escapes in their strings.
    pub(crate) fn next(&mut self) -> Result<Option<Raw>, NoJson> {
        let fault = |fault: Fault| NoJson(fault.to_string());
        let mut scanner = Scanner::once(&self.array.as_bytes()[self.at..]);
        match scanner.peek() {
            Some(b']') => return Ok(None),
            Some(_) => {}
            None => return Err(NoJson("unterminated array".to_owned())),
        }
        let range = scanner.value().map_err(fault)?;
        let item = Raw::trusted(self.array.bytes().slice(self.at + range.start..self.at + range.end));
        if !scanner.has_plain_strings() {
            item.read::<&RawValue>().map_err(|error| NoJson(error.to_string()))?;
        }
        let comma = match scanner.peek() {
            Some(b',') => 1,
            Some(b']') => 0,
            _ => return Err(NoJson("unterminated array".to_owned())),
        };
        self.at += scanner.at() + comma;
        Ok(Some(item))
    }
}

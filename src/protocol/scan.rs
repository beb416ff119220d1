//! Scans JSON without building anything: finds where a value ends, and whether it is valid.
//!
//! Why not `serde_json` for this: it skips strings byte by byte, and a proxy does little else than skip strings. This
//! scanner skips them at memory speed, and limits the depth. Every value that is opened is still read by `serde_json`.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// Why bytes are not a JSON value, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: usize,
    what: &'static str,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.what, self.at)
    }
}

/// The maximum nesting depth (`docs/hazards.md` H38); one bit per level tells objects from arrays.
pub(crate) const DEPTH: usize = 128;

/// A position in JSON text.
#[derive(Clone, Debug)]
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    strings: Strings,
    most: usize,
}

/// How strings are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strings {
    /// Every escape is checked.
    Checked,
    /// Only the end is found; bad escapes are left to later readers.
    Skipped,
}

impl<'a> Scanner<'a> {
    /// Starts at the beginning of `bytes`, which are known to be JSON.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, strings: Strings::Skipped, most: DEPTH }
    }

    /// Starts at the beginning of untrusted bytes and checks everything.
    pub(super) fn checked(bytes: &'a [u8]) -> Result<Self, Fault> {
        match std::str::from_utf8(bytes) {
            Ok(_) => Ok(Self { strings: Strings::Checked, ..Self::new(bytes) }),
            Err(error) => Err(Fault { at: error.valid_up_to(), what: "invalid UTF-8" }),
        }
    }

    /// Starts at the beginning of bytes that are passed on unopened: only valid UTF-8 and the ends of values are
    /// checked. The escapes in strings are left to the receiver.
    pub(super) fn passing(bytes: &'a [u8]) -> Result<Self, Fault> {
        // Without a branch inside, the loop is vectorized.
        let (low, high) = bytes.iter().fold((u8::MAX, 0), |(low, high), byte| (low.min(*byte), high | *byte));
        if high >= 0x80 {
            Self::checked(bytes)?;
        }
        // Line breaks and tabs between values are control characters, too. If there are any, strings are checked for
        // them.
        let strings = if low < 0x20 { Strings::Checked } else { Strings::Skipped };
        Ok(Self { strings, ..Self::new(bytes) })
    }

    /// Limits the nesting depth further.
    pub(super) fn within(self, most: usize) -> Self {
        Self { most: most.min(DEPTH), ..self }
    }

    /// Skips whitespace and returns the next byte.
    pub(super) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.bytes.get(self.at) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    /// The current position.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Checks that only whitespace follows.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.fault("more than one value")),
        }
    }

    /// Skips an object and calls `member` with each key and the range of its value.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(Cow<'a, str>, Range<usize>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let bytes = self.bytes;
        self.entries(|key, value| {
            let fault = Fault { at: key.start, what: "a bad key" };
            member(key_of(&bytes[key]).ok_or(fault)?, value)
        })
    }

    /// Skips an object and calls `entry` with the ranges of each raw key, in quotes, and its value. A key that cannot
    /// be decoded hides no others.
    pub(super) fn entries(
        &mut self,
        mut entry: impl FnMut(Range<usize>, Range<usize>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.expect(b'{', "expected an object")?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.peek();
            let at = self.at;
            self.string()?;
            let key = at..self.at;
            self.expect(b':', "expected `:`")?;
            entry(key, self.value()?)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.fault("expected `,` or `}`")),
            }
        }
    }

    /// Skips any value and returns its range.
    pub(super) fn value(&mut self) -> Result<Range<usize>, Fault> {
        self.peek();
        let start = self.at;
        // The open objects (1) and arrays (0), the innermost in the lowest bit.
        let (mut open, mut depth) = (0u128, 0);
        loop {
            match self.peek() {
                Some(kind @ (b'{' | b'[')) => {
                    self.at += 1;
                    depth += 1;
                    if depth > self.most {
                        return Err(self.fault("nested too deeply"));
                    }
                    open = open << 1 | u128::from(kind == b'{');
                    match (kind, self.peek()) {
                        (b'{', Some(b'}')) | (b'[', Some(b']')) => {}
                        (b'{', _) => {
                            self.skip_key()?;
                            continue;
                        }
                        _ => continue,
                    }
                }
                _ => self.scalar()?,
            }
            // A value has ended, and the values around it may end, too.
            loop {
                if depth == 0 {
                    return Ok(start..self.at);
                }
                match (self.peek(), open & 1) {
                    (Some(b','), object) => {
                        self.at += 1;
                        if object == 1 {
                            self.skip_key()?;
                        }
                        break;
                    }
                    (Some(b'}'), 1) | (Some(b']'), 0) => {
                        self.at += 1;
                        open >>= 1;
                        depth -= 1;
                    }
                    _ => return Err(self.fault("expected `,` or the end")),
                }
            }
        }
    }

    fn scalar(&mut self) -> Result<(), Fault> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.fault("expected a value")),
            None => Err(self.fault("the text ends early")),
        }
    }

    fn skip_key(&mut self) -> Result<(), Fault> {
        self.peek();
        self.string()?;
        self.expect(b':', "expected `:`")
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Fault> {
        if self.peek() != Some(byte) {
            return Err(self.fault(what));
        }
        self.at += 1;
        Ok(())
    }

    /// Skips a string.
    fn string(&mut self) -> Result<(), Fault> {
        if self.bytes.get(self.at) != Some(&b'"') {
            return Err(self.fault("expected a string"));
        }
        self.at += 1;
        if self.strings == Strings::Skipped { self.skip_string() } else { self.check_string() }
    }

    /// Skips to the end of a string: a quote after an even number of backslashes.
    fn skip_string(&mut self) -> Result<(), Fault> {
        let start = self.at;
        loop {
            let Some(plain) = memchr::memchr(b'"', &self.bytes[self.at..]) else {
                return Err(self.fault("unterminated string"));
            };
            let end = self.at + plain;
            self.at = end + 1;
            let text = &self.bytes[start..end];
            // Nearly always the two bytes before are enough.
            let escaped = match text {
                [.., b'\\', b'\\'] => text.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1,
                [.., b'\\'] => true,
                _ => false,
            };
            if !escaped {
                return Ok(());
            }
        }
    }

    fn check_string(&mut self) -> Result<(), Fault> {
        loop {
            let rest = &self.bytes[self.at..];
            let Some(plain) = memchr::memchr2(b'"', b'\\', rest) else {
                return Err(self.fault("unterminated string"));
            };
            // Without a branch inside, the loop is vectorized.
            if rest[..plain].iter().fold(false, |control, byte| control | (*byte < 0x20)) {
                return Err(self.fault("a control character in a string"));
            }
            self.at += plain + 1;
            if rest[plain] == b'"' {
                return Ok(());
            }
            self.escape()?;
        }
    }

    fn escape(&mut self) -> Result<(), Fault> {
        let rest = &self.bytes[self.at..];
        let length = match rest.first() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 1,
            Some(b'u') if rest.len() > 4 && rest[1..5].iter().all(u8::is_ascii_hexdigit) => 5,
            _ => return Err(self.fault("a bad escape")),
        };
        self.at += length;
        Ok(())
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Fault> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(self.fault("expected a value"));
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), Fault> {
        self.at += usize::from(self.bytes[self.at] == b'-');
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits()?,
            _ => return Err(self.fault("a bad number")),
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let count = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return Err(self.fault("a bad number"));
        }
        self.at += count;
        Ok(())
    }

    fn fault(&self, what: &'static str) -> Fault {
        Fault { at: self.at, what }
    }
}

/// Decodes a quoted key; `None` if it is invalid.
pub(super) fn key_of(text: &[u8]) -> Option<Cow<'_, str>> {
    if text.contains(&b'\\') {
        return serde_json::from_slice::<String>(text).ok().map(Cow::Owned);
    }
    std::str::from_utf8(text.get(1..text.len() - 1)?).ok().map(Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    use super::*;

    fn is_json(text: &str) -> bool {
        let Ok(mut scanner) = Scanner::checked(text.as_bytes()) else { return false };
        scanner.value().is_ok() && scanner.end().is_ok()
    }

    #[test]
    fn h38_nesting_has_an_end() {
        for (depth, fine) in [(127, true), (128, true), (129, false), (100_000, false)] {
            assert_eq!(is_json(&format!("{}{}", "[".repeat(depth), "]".repeat(depth))), fine, "{depth}");
            assert_eq!(is_json(&format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))), fine, "{depth}");
        }
    }

    proptest! {
        /// Values that are passed on end where the oracle says they end.
        #[test]
        fn passing_finds_the_same_members(
            object in prop::collection::btree_map("[a-d\\\\\"é]{1,3}", "[a\\\\\"\n]{0,6}", 0..5),
        ) {
            for text in [serde_json::to_string(&object).unwrap(), serde_json::to_string_pretty(&object).unwrap()] {
                let ranges = |mut scanner: Scanner<'_>| {
                    let mut found = Vec::new();
                    scanner.object(|key, range| {
                        found.push((key.into_owned(), range));
                        Ok(())
                    }).unwrap();
                    scanner.end().unwrap();
                    found
                };
                prop_assert_eq!(ranges(Scanner::passing(text.as_bytes()).unwrap()), ranges(Scanner::new(text.as_bytes())));
            }
        }

        /// `serde_json` is the oracle.
        #[test]
        fn it_takes_what_the_oracle_takes(
            text in "(\\{|\\}|\\[|\\]|,|:|\"a\"|\"\\\\u00e9\"|\"\\\\x\"|\"\u{1}\"|1|-0|01|1e5|1\\.|2\\.50| |true|nul|null|\n|\"|é){0,14}",
        ) {
            prop_assert_eq!(is_json(&text), serde_json::from_str::<IgnoredAny>(&text).is_ok(), "{}", text);
        }

        #[test]
        fn members_stand_where_they_are_said_to(
            object in prop::collection::btree_map("[a-d\\\\\"é]{1,3}", "[a\\\\\"\n]{0,6}", 0..5),
        ) {
            for text in [serde_json::to_string(&object).unwrap(), serde_json::to_string_pretty(&object).unwrap()] {
                let mut found = std::collections::BTreeMap::new();
                Scanner::new(text.as_bytes()).object(|key, range| {
                    found.insert(key.into_owned(), serde_json::from_str::<String>(&text[range]).unwrap());
                    Ok(())
                }).unwrap();
                prop_assert_eq!(&found, &object);
            }
        }
    }
}

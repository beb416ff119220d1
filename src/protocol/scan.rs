//! Scans JSON without building anything: finds where a value ends, and whether it is valid.
//!
//! Why not `serde_json` for this: it skips strings byte by byte, and a proxy does little else than skip strings. This
//! scanner skips them at memory speed (`strings.rs`), and limits the depth. Every value that is opened is still read by
//! `serde_json`.
//!
//! An untrusted text is read once: [`Scanner::once`] finds the parts, and [`Scanner::is_fine`] says at the end whether
//! the text was all that it must be. If it was not, [`Scanner::checked`] or [`Scanner::passing`] reads it again, to say
//! what is wrong and where.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::notes::{Names, Notes, Values};
use super::strings::{self, Seen};

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
    seen: Seen,
    /// The names of all members; only while a text is read for the first time.
    names: Names,
    /// Whether there is whitespace other than spaces.
    spaced: bool,
    /// The large values; only while a text is read for the first time.
    large: Values,
    /// Values that need not be read again, ordered by their beginnings.
    known: &'a [Range<usize>],
}

/// How strings are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strings {
    /// Every escape is checked, and the first fault ends the scan.
    Checked,
    /// Only the end is found; bad escapes are left to later readers.
    Skipped,
    /// Faults are noted, and names, too.
    Noted,
    /// The text is known to be JSON.
    Known,
}

/// What an untrusted text must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Valid in every byte.
    None,
    /// Valid, but for the escapes in strings, which are left to the receiver. If there are tabs or line breaks between
    /// values, escapes are checked as well.
    Escapes,
}

impl<'a> Scanner<'a> {
    fn of(bytes: &'a [u8], strings: Strings) -> Self {
        let (seen, names, large) = (Seen::default(), Names::default(), Values::default());
        Self { bytes, at: 0, strings, most: DEPTH, seen, names, spaced: false, large, known: &[] }
    }

    /// Starts at the beginning of `bytes`, which are known to be JSON.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self::of(bytes, Strings::Known)
    }

    /// Starts at the beginning of a body that was read before.
    pub(super) fn again(bytes: &'a [u8], notes: Option<&'a Notes>) -> Self {
        Self { known: notes.map_or(&[], |notes| &notes.values), ..Self::new(bytes) }
    }

    /// Starts at another position.
    pub(super) fn from(self, at: usize) -> Self {
        let known = &self.known[self.known.partition_point(|value| value.start < at)..];
        Self { at, known, ..self }
    }

    /// Starts at the beginning of untrusted bytes, which are read once. Ask [`Scanner::is_fine`] in the end.
    pub(super) fn once(bytes: &'a [u8]) -> Self {
        Self::of(bytes, Strings::Noted)
    }

    /// Starts at the beginning of untrusted bytes and checks everything, in order to say what is wrong.
    pub(super) fn checked(bytes: &'a [u8]) -> Result<Self, Fault> {
        match std::str::from_utf8(bytes) {
            Ok(_) => Ok(Self::of(bytes, Strings::Checked)),
            Err(error) => Err(Fault { at: error.valid_up_to(), what: "invalid UTF-8" }),
        }
    }

    /// Starts at the beginning of bytes that are passed on unopened, in order to say what is wrong with them: only valid
    /// UTF-8 and the ends of values are checked. The escapes in strings are left to the receiver.
    pub(super) fn passing(bytes: &'a [u8]) -> Result<Self, Fault> {
        let scanner = Self::checked(bytes)?;
        // Line breaks and tabs between values are control characters, too. If there are any, strings are checked for
        // them.
        let has_controls = bytes.iter().any(|byte| *byte < 0x20);
        Ok(Self { strings: if has_controls { Strings::Checked } else { Strings::Skipped }, ..scanner })
    }

    /// Reports whether the text is valid, as `trust` requires. Call this after the scan of [`Scanner::once`] has
    /// reached the end without a fault.
    pub(super) fn is_fine(&self, trust: Trust) -> bool {
        let Seen { beyond_ascii, control, bad_escape, .. } = self.seen;
        let may_have_bad = trust == Trust::Escapes && !self.spaced;
        !control && (!bad_escape || may_have_bad) && (!beyond_ascii || simdutf8::basic::from_utf8(self.bytes).is_ok())
    }

    /// Reports whether the strings read so far have neither bad escapes nor control characters.
    pub(super) fn has_plain_strings(&self) -> bool {
        !self.seen.control && !self.seen.bad_escape
    }

    /// Returns the notes about `body`, which must be all or nearly all of the text. `None` if strings have bad escapes.
    pub(super) fn notes(&self, body: &Range<usize>) -> Option<Notes> {
        let notes = Notes { values: self.large.within(body), breaks: self.spaced };
        (!self.seen.bad_escape).then_some(notes)
    }

    /// Returns the kinds of the names that were read so far.
    pub(super) fn names(&self) -> Names {
        if self.seen.bad_escape { Names::UNKNOWN } else { self.names }
    }

    /// Limits the nesting depth further.
    pub(super) fn within(self, most: usize) -> Self {
        Self { most: most.min(DEPTH), ..self }
    }

    /// Skips whitespace and returns the next byte.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        match self.bytes.get(self.at) {
            Some(byte) if *byte > b' ' => Some(*byte),
            _ => self.peek_behind_space(),
        }
    }

    #[inline(never)]
    fn peek_behind_space(&mut self) -> Option<u8> {
        while let Some(space @ (b' ' | b'\n' | b'\r' | b'\t')) = self.bytes.get(self.at) {
            self.spaced |= *space != b' ';
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
        self.each(|scanner, key| {
            let value = scanner.value()?;
            entry(key, value)
        })
    }

    /// Reads an object and calls `member` with each raw key; `member` must skip the value.
    pub(super) fn each(
        &mut self,
        mut member: impl FnMut(&mut Self, Range<usize>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.expect(b'{', "expected an object")?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.key()?;
            member(self, key)?;
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

    /// Reads an array and returns the ranges of its items.
    pub(super) fn items(&mut self) -> Result<Vec<Range<usize>>, Fault> {
        self.expect(b'[', "expected an array")?;
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(items);
        }
        loop {
            items.push(self.value()?);
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(items);
                }
                _ => return Err(self.fault("expected `,` or `]`")),
            }
        }
    }

    /// Skips any value and returns its range. If it is an object, its large members are noted.
    pub(super) fn body(&mut self) -> Result<Range<usize>, Fault> {
        if self.peek() != Some(b'{') || self.most == 0 {
            return self.value();
        }
        let start = self.at;
        self.most -= 1;
        let read = self.each(|scanner, _| {
            let value = scanner.value()?;
            scanner.large.member(value);
            Ok(())
        });
        self.most += 1;
        read.map(|()| start..self.at)
    }

    /// Returns the end of the value at the current position, if it was read before.
    fn known_end(&mut self) -> Option<usize> {
        while let [next, later @ ..] = self.known {
            if next.start == self.at {
                return Some(next.end);
            }
            if next.start > self.at {
                return None;
            }
            self.known = later;
        }
        None
    }

    /// Skips any value and returns its range.
    pub(super) fn value(&mut self) -> Result<Range<usize>, Fault> {
        self.peek();
        let start = self.at;
        if let Some(end) = self.known_end() {
            self.at = end;
            return Ok(start..end);
        }
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
                            self.key()?;
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
                            self.key()?;
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

    /// Skips the name of a member, and returns its range with the quotes.
    fn key(&mut self) -> Result<Range<usize>, Fault> {
        self.peek();
        let start = self.at;
        if self.strings == Strings::Noted {
            let had_escape = std::mem::take(&mut self.seen.escape);
            self.string()?;
            self.names |=
                if self.seen.escape { Names::ESCAPED } else { Names::of(&self.bytes[start + 1..self.at - 1]) };
            self.seen.escape |= had_escape;
        } else {
            self.string()?;
        }
        let end = self.at;
        self.expect(b':', "expected `:`")?;
        Ok(start..end)
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
        if let Some(end) = self.known_end() {
            self.at = end;
            return Ok(());
        }
        let start = self.at;
        self.at += 1;
        match self.strings {
            Strings::Checked => self.check_string(),
            Strings::Skipped => self.skip_string(),
            Strings::Noted | Strings::Known => {
                let end = strings::end(self.bytes, self.at, &mut self.seen);
                self.at = end.ok_or_else(|| self.fault("unterminated string"))?;
                if self.strings == Strings::Noted {
                    self.large.string(start..self.at);
                }
                Ok(())
            }
        }
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

    /// Says what is wrong at the current position.
    pub(super) fn fault(&self, what: &'static str) -> Fault {
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

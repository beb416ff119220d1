//! Walks over JSON without building anything: where a value ends, and whether it is one.
//!
//! Why not `serde_json` for this: it skips strings byte by byte, and a proxy does little else than skip strings; this takes
//! them at the speed of memory, and stops at a depth. Everything that is opened is still read by `serde_json`.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// Why bytes are no JSON value, and where.
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

/// Values may nest that deep (`hazards.md` H38); one bit each tells objects from arrays.
const DEPTH: u32 = 128;

/// A place in JSON text.
#[derive(Clone, Debug)]
pub(super) struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// At the start of `bytes`. Strings are checked to be UTF-8; elsewhere there is only ASCII in JSON.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next byte that is no blank.
    pub(super) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.bytes.get(self.at) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    /// Nothing but blanks may follow.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.fault("more than one value")),
        }
    }

    /// Steps over an object, and shows each member: its key, and where its value stands.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(Cow<'a, str>, Range<usize>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.expect(b'{', "no object")?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let key = self.key()?;
            member(key, self.value()?)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.fault("no `,` or `}`")),
            }
        }
    }

    /// Steps over any value; tells where it stands.
    pub(super) fn value(&mut self) -> Result<Range<usize>, Fault> {
        self.peek();
        let start = self.at;
        // The open objects (1) and arrays (0), the innermost in the lowest bit.
        let (mut open, mut depth) = (0u128, 0u32);
        loop {
            match self.peek() {
                Some(kind @ (b'{' | b'[')) => {
                    self.at += 1;
                    depth += 1;
                    if depth > DEPTH {
                        return Err(self.fault("nested too deep"));
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
            // A value is over: so may be those that hold it.
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
                    _ => return Err(self.fault("no `,` or end")),
                }
            }
        }
    }

    fn scalar(&mut self) -> Result<(), Fault> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b't') => self.literal(b"true"),
            Some(b'f') => self.literal(b"false"),
            Some(b'n') => self.literal(b"null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.fault("no value")),
            None => Err(self.fault("the text ends early")),
        }
    }

    fn key(&mut self) -> Result<Cow<'a, str>, Fault> {
        self.peek();
        let at = self.at;
        let escaped = self.string()?;
        let text = &self.bytes[at..self.at];
        self.expect(b':', "no `:`")?;
        if escaped {
            let key = serde_json::from_slice::<String>(text).map_err(|_| Fault { at, what: "a bad key" })?;
            return Ok(Cow::Owned(key));
        }
        let key = std::str::from_utf8(&text[1..text.len() - 1]).map_err(|_| Fault { at, what: "a bad key" })?;
        Ok(Cow::Borrowed(key))
    }

    fn skip_key(&mut self) -> Result<(), Fault> {
        self.peek();
        self.string()?;
        self.expect(b':', "no `:`")
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Fault> {
        if self.peek() != Some(byte) {
            return Err(self.fault(what));
        }
        self.at += 1;
        Ok(())
    }

    /// Steps over a string; tells whether there are escapes in it.
    fn string(&mut self) -> Result<bool, Fault> {
        if self.bytes.get(self.at) != Some(&b'"') {
            return Err(self.fault("no string"));
        }
        self.at += 1;
        let (mut escaped, start) = (false, self.at);
        let mut ascii = true;
        loop {
            let (plain, only_ascii) = plain(&self.bytes[self.at..]);
            self.at += plain;
            ascii &= only_ascii;
            match self.bytes.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    self.at += 1;
                    self.escape()?;
                }
                Some(_) => return Err(self.fault("a control character in a string")),
                None => return Err(self.fault("a string without end")),
            }
        }
        if !ascii && let Err(error) = std::str::from_utf8(&self.bytes[start..self.at]) {
            return Err(Fault { at: start + error.valid_up_to(), what: "no UTF-8" });
        }
        self.at += 1;
        Ok(escaped)
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
            return Err(self.fault("no value"));
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

/// How many bytes there are before a quote, a backslash or a control character, and whether all of them are ASCII. Blocks
/// without a branch inside: the compiler takes many bytes at a time.
fn plain(bytes: &[u8]) -> (usize, bool) {
    const BLOCK: usize = 64;
    let special = |byte: u8| byte == b'"' || byte == b'\\' || byte < 0x20;
    let mut ascii = true;
    let mut at = 0;
    for block in bytes.chunks_exact(BLOCK) {
        let (stop, high) = block.iter().fold((false, 0), |(stop, high), byte| (stop | special(*byte), high | byte));
        if stop {
            break;
        }
        ascii &= high < 0x80;
        at += BLOCK;
    }
    let rest = &bytes[at..];
    let more = rest.iter().position(|byte| special(*byte)).unwrap_or(rest.len());
    (at + more, ascii && rest[..more].is_ascii())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    use super::*;

    fn is_json(text: &str) -> bool {
        let mut scanner = Scanner::new(text.as_bytes());
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

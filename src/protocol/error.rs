//! JSON-RPC error objects and the codes that this program knows.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Raw;

/// The error codes of JSON-RPC and MCP that have a meaning here.
pub mod code {
    /// The body is not JSON.
    pub const PARSE: i64 = -32700;
    /// The JSON is not a single JSON-RPC message.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The method is unknown or not offered.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The params are wrong: an unknown tool, a bad cursor, a missing member.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The receiver failed.
    pub const INTERNAL: i64 = -32603;
    /// The resource does not exist (up to 2025-11-25; later revisions use `INVALID_PARAMS`).
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// URLs must be visited first (2025-11-25 only).
    pub const URL_ELICITATION_REQUIRED: i64 = -32042;
    /// HTTP headers contradict the body (2026-07-28).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The request did not declare a client capability that it needs (2026-07-28).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The revision is not supported (2026-07-28).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// Formats another program's text inside a message of ours: escaped and truncated (`docs/hazards.md` H105). `{:?}` adds
/// quotes.
#[derive(Clone, Copy)]
pub(crate) struct Theirs<'a>(pub(crate) &'a str);

/// Formats a URL that a person should open inside a message of ours. A URL is useful only as a whole, so the limit is
/// as high as for a URL that a browser is sent to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address<'a>(pub(crate) &'a str);

/// The maximum length of another program's text, in characters.
const TOLD: usize = 256;
/// The maximum length of a URL, in characters.
const ADDRESS: usize = 8 * 1024;

impl fmt::Display for Theirs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        tell(f, self.0, TOLD)
    }
}

impl fmt::Debug for Theirs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.char_indices().nth(TOLD).map(|(end, _)| end);
        write!(f, "{:?}", &self.0[..end.unwrap_or(self.0.len())])?;
        if end.is_some() { f.write_str("…") } else { Ok(()) }
    }
}

impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        tell(f, self.0, ADDRESS)
    }
}

fn tell(f: &mut fmt::Formatter<'_>, text: &str, limit: usize) -> fmt::Result {
    let mut chars = text.chars();
    chars.by_ref().take(limit).try_for_each(|c| escape(f, c))?;
    if chars.next().is_some() { f.write_str("…") } else { Ok(()) }
}

/// Writes one character of another program's text. Control characters, and those without width or that reverse the text
/// direction, are escaped: they could turn our sentence into another.
pub(crate) fn escape(out: &mut impl fmt::Write, c: char) -> fmt::Result {
    match c {
        c if c.is_control() => write!(out, "{}", c.escape_default()),
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
            write!(out, "{}", c.escape_unicode())
        }
        c => out.write_char(c),
    }
}

/// Escapes another program's text as in a message of ours, and truncates it after `most` characters. Also returns how
/// many characters are left out.
pub(crate) fn escaped(text: &str, most: usize) -> (String, usize) {
    let (mut out, mut chars) = (String::new(), text.chars());
    // Writing to a string never fails.
    let _ = chars.by_ref().take(most).try_for_each(|c| escape(&mut out, c));
    (out, chars.count())
}

/// The `error` member of a JSON-RPC response.
///
/// ```
/// use mcp_host::ErrorObject;
///
/// let error = ErrorObject::invalid_params("`path` is missing");
/// assert_eq!((error.code, error.data), (-32602, None));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// The kind of error, by number.
    pub code: i64,
    /// What went wrong, in one sentence.
    pub message: String,
    /// Further details from the sender, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Raw>,
}

impl ErrorObject {
    /// Creates an error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Creates a `-32602` error with a sentence.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// Creates a `-32601` error that names the method.
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        Self::new(code::METHOD_NOT_FOUND, format!("method not found: {}", Theirs(method)))
    }

    /// Creates a `-32603` error with a sentence.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(code::INTERNAL, message)
    }

    /// Adds `data`.
    #[must_use]
    pub fn with_data(mut self, data: Raw) -> Self {
        self.data = Some(data);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h105_a_text_of_others_is_cut_and_escaped() {
        let long = format!("a\n\u{202e}\u{200b}\u{1b}[2J{}", "ü".repeat(1 << 20));
        let told = Theirs(&long).to_string();
        assert!(told.starts_with("a\\n\\u{202e}\\u{200b}\\u{1b}[2Jü") && told.ends_with("ü…"), "{told}");
        assert_eq!(told.matches('ü').count(), TOLD - 8);
        let quoted = format!("{:?}", Theirs(&long));
        assert!(quoted.starts_with(r#""a\n\u{202e}\u{200b}\u{1b}[2Jü"#) && quoted.ends_with("ü\"…"), "{quoted}");
        assert_eq!(quoted.matches('ü').count(), TOLD - 8);
        assert_eq!((Theirs("x y").to_string(), format!("{:?}", Theirs("x \"y"))), ("x y".into(), r#""x \"y""#.into()));
        let address = Address(&long).to_string();
        assert_eq!((address.matches('ü').count(), address.contains('\n')), (ADDRESS - 8, false));
    }
}
